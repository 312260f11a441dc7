"""Check that a queue and the durable state of an executor belong together.

Each remembers the other by a random name:

    queue    its own name, and kind and name of the state, in the table meta
    state    its own name, and the name of the queue (executors/ledger.py)

The first controller that acts writes the side of the queue and then the side of the state. If it is
killed in between, the next controller finds that the state has no queue, and writes it. Every other
mismatch is refused before anything is ordered: another state, a state of another queue, and a state
that has seen a later token than the queue ever gave out, because the queue was set back.
"""

from __future__ import annotations

import socket
from pathlib import Path

from sqlalchemy import Connection

from allocator.loop.executor import Durable, Executor, Identity, WrongState
from allocator.queue import lease
from allocator.queue.database import identity
from allocator.queue.database.connection import QueueDatabase
from allocator.queue.database.identity import State


def check(connection: Connection, name: str, executor: Executor) -> None:
    """Raise WrongState if the state of the executor is not this queue's.

    `name` is the name of the queue, for messages.
    """
    if isinstance(executor, Durable):
        _refuse_foreign_state(connection, name, executor.identity(), _read_token(connection))


def check_new_state(connection: Connection, name: str, kind: str, folder: Path) -> None:
    """Raise WrongState if a state that is still to be made in the folder cannot be this queue's.

    So a refusal leaves no folder behind.
    """
    state = Identity(kind, "", "", -1, str(folder.absolute()))
    _refuse_foreign_state(connection, name, state, _read_token(connection))


def _read_token(connection: Connection) -> int:
    current = lease.read_current(connection)
    return 0 if current is None else current.token


def link_state(store: QueueDatabase, executor: Executor, token: int) -> str:
    """Link the queue and the state of the executor, once; called after the lease was taken.

    Parameters
    ----------
    store : QueueDatabase
        The queue.
    executor : Executor
        An executor without durable state belongs to every queue.
    token : int
        Token of the lease that was taken. The token before it was the highest that the queue ever
        gave out.

    Returns
    -------
    str
        What was recorded, in words; "" if the two were linked already.

    Raises
    ------
    WrongState
        If they do not belong together, or the queue was set back.
    LeaseLost
        If another controller leads.
    """
    if not isinstance(executor, Durable):
        return ""
    state = executor.identity()
    here = build_state(state)
    with store.write() as connection:
        lease.check(connection, token)
        _refuse_foreign_state(connection, store.name, state, token - 1)
        before = identity.state(connection)
        if before != here:
            identity.remember_state(connection, here)
        queue = identity.queue_id(connection)
    executor.claim(queue)
    if before is not None and state.queue:
        return ""
    return f'the queue is run by executor "{state.kind}" with its state in {here.place} from now on'


def build_state(state: Identity) -> State:
    """Return how a queue remembers a state on this machine."""
    return State(state.kind, state.state, f"{socket.gethostname()}:{state.place}")


def adopt_command(name: str, state: Identity) -> str:
    """Return the command with which a user makes the queue adopt the state."""
    return f'allocator queue adopt "{name}" --executor {state.kind} --state "{state.place}"'


def _refuse_foreign_state(connection: Connection, name: str, state: Identity, token: int) -> None:
    """Raise WrongState unless the state may be this queue's; token: the highest it gave out."""
    queue = identity.queue_id(connection)
    known = identity.state(connection)
    adopt = adopt_command(name, state)
    if state.is_adopting:
        raise WrongState(
            f'the adoption of the state in "{state.place}" was cut short; give it again: {adopt}'
        )
    if state.queue and state.queue != queue:
        raise WrongState(
            f'the state in "{state.place}" belongs to another queue than "{name}": what runs there'
            " is not "
            "this queue's. Name another folder with --state; if this queue takes its place:"
            f" {adopt}"
        )
    if known is not None and (known.kind, known.state) != (state.kind, state.state):
        raise WrongState(
            f'the jobs of queue "{name}" are run by executor "{known.kind}" with its state in'
            f' {known.place}; executor "{state.kind}" with the state in "{state.place}" knows'
            " nothing of them and would start them a second time. Go on with the former, or, once"
            f" nothing runs there any more: {adopt}"
        )
    if (known is None and state.queue) or state.token > token:
        raise WrongState(
            _describe_behind(
                name, state, f"the state has seen token {state.token}, the queue gave out {token}"
            )
        )
    if known is None and state.token < 0 and token > 0 and identity.has_run(connection):
        raise WrongState(
            f'queue "{name}" has jobs that a controller saw running, and the state in'
            f' "{state.place}" is new and knows nothing of them: they would be started a second'
            " time. Name the folder of the controller before with --state; if nothing of them runs"
            f" any more: {adopt}"
        )


def describe_set_back(name: str, executor: Executor, why: str) -> str:
    """Return the message that the queue knows less than the state of its executor."""
    if isinstance(executor, Durable):
        return _describe_behind(name, executor.identity(), why)
    return f'queue "{name}" knows less than its executor ({why})'


def _describe_behind(name: str, state: Identity, why: str) -> str:
    return (
        f'queue "{name}" knows less than the state of its executor in "{state.place}" ({why}): it'
        " was restored from a backup, or is another queue. Nothing was started or stopped. Show"
        f" the queue what runs and what has ended: {adopt_command(name, state)}"
    )
