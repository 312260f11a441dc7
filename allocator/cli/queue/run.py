"""`allocator run`: the controller of a queue."""

import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from allocator import UsageError
from allocator.cli.output import Answer, note, text, text_of, warn
from allocator.cli.parsing import take
from allocator.cli.queue.commands import DRY_RUN
from allocator.cli.queue.serve import parse_address, served
from allocator.cli.termination import is_termination_requested
from allocator.controller.clock import WallClock
from allocator.controller.options import ControllerOptions, Stability
from allocator.executors import registry as executors
from allocator.loop.executor import Executor
from allocator.queue import cluster_tables, lease
from allocator.queue.database.connection import QueueDatabase, open_queue

ACTING = ("state", "devices", "metrics", "port", "log", "serve")
"""Options that only a controller has that carries out its decisions."""
# seconds after the grace period within which a killed process is seen to be dead
KILLED_S = 5.0


def run(args: Namespace) -> Answer:
    options = take(
        ControllerOptions,
        args,
        warm=not args.cold,
        learn=not args.no_learning,
        settle_s=args.grace + KILLED_S,
        stability=take(Stability, args),
    )
    is_dry = args.executor == DRY_RUN
    if not is_dry:
        executors.REGISTRY.get(args.executor)
    for name in ACTING:
        if is_dry and getattr(args, name) is not None:
            raise UsageError(
                f"--{name} needs an executor that acts, such as --executor local; "
                "without one this is a dry run, which changes nothing"
            )
    with ExitStack() as stack:
        store = open_queue(args.queue, reads_only=is_dry)
        stack.callback(store.close)
        return _preview(store, options) if is_dry else _serve(args, store, options, stack)


def _preview(store: QueueDatabase, options: ControllerOptions) -> Answer:
    """Return the decision of one round without carrying it out."""
    from allocator.controller.reporting.preview import preview

    clock = WallClock()
    dry_run = preview(store, clock, options)
    with store.read() as connection:
        current = lease.read_current(connection)
    warn(dry_run.result.warnings)
    if dry_run.is_periodic_due:
        note("periodic jobs are due: a controller submits them first, this round is without them")
    if current is not None and current.is_held(clock.now()):
        note(f'"{current.holder}" leads this queue and goes on')
    jobs = len(dry_run.result.jobs["job_id"])
    document = {
        "steps": list(dry_run.steps),
        "jobs": jobs,
        "is_periodic_due": dry_run.is_periodic_due,
        "plan": dry_run.result.to_dict(),
    }
    did = (
        f"dry run: {len(dry_run.steps) or 'no'} steps for {jobs} jobs; "
        "nothing was written (--executor NAME acts)"
    )
    return Answer(document, text_of(map(text, dry_run.steps)), notes=[did])


def _serve(
    args: Namespace, store: QueueDatabase, options: ControllerOptions, stack: ExitStack
) -> Answer:
    from allocator.controller import belonging
    from allocator.controller.controller import Controller
    from allocator.controller.reporting.telemetry import Telemetry, open_log, serve

    # [ADDRESS:]PORT
    port = args.port
    if port is not None:
        port = parse_address(port if ":" in port else f"127.0.0.1:{port}", "--port")
    clock = WallClock()
    folder = choose_state_folder(args.executor, store, args.state)
    if args.executor in executors.EXECUTORS and not folder.exists():
        with store.read() as connection:
            belonging.check_new_state(connection, store.name, args.executor, folder)
    executor = make_executor(args.executor, store, args.state, args.grace, args.devices)
    log = sys.stderr if args.log is None else stack.enter_context(open_log(Path(args.log)))
    telemetry = Telemetry(clock.now, log, Path(args.metrics) if args.metrics else None)
    controller = Controller(store, executor, clock, options, telemetry=telemetry)
    if port is not None:
        server = serve(telemetry.metrics, *port)
        stack.callback(server.shutdown)
        telemetry.event("metrics_port", port=server.server_address[1])
    if args.serve is not None:
        stack.enter_context(served(args.queue, args.serve))
    telemetry.event(
        "started",
        queue=store.name,
        executor=executor.name,
        policy=options.policy,
        every_s=controller.cluster.interval_s,
        holder=controller.cluster.lease_holder.holder,
    )
    with stop_on_signals(controller, clock.wake):
        controller.run(once=args.once)
    return Answer(
        {"queue": store.name, "has_plan": controller.has_plan},
        exit_code=1 if args.once and not controller.has_plan else 0,
    )


def make_executor(
    name: str, store: QueueDatabase, state: str | None, grace_s: float, devices: str | None = None
) -> Executor:
    """Return the executor of the name, with its state in the folder. Raises UsageError.

    `state` None means a folder next to an SQLite queue. `devices` is as --devices.
    """
    folder = choose_state_folder(name, store, state)
    with store.read() as connection:
        gpus = cluster_tables.gpus(connection)
        nodes = cluster_tables.read_node_sizes(connection)
    site = executors.ExecutorSite(folder, gpus, grace_s, devices, nodes)
    return executors.make_executor(name, site)


def choose_state_folder(name: str, store: QueueDatabase, state: str | None) -> Path:
    """Return the folder for the state of an executor; nothing is written. Raises UsageError.

    `state` is as for `make_executor`.
    """
    path = store.engine.url.database if store.engine.url.get_backend_name() == "sqlite" else None
    if state is None and path is None:
        raise UsageError(
            "a queue on a database server needs --state DIR for what the executor remembers"
        )
    folder = Path(state if state is not None else f"{path}.{name}")
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            f'the executor keeps its state in a folder, and "{folder}" is none; name another with'
            " --state"
        )
    return folder


class Stoppable(Protocol):
    """What ends after its current step, and may be cut off while it decides."""

    stopping: bool
    deciding: bool


@contextmanager
def stop_on_signals(controller: Stoppable, wake: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM and SIGINT end the controller after its current step.

    A decision is cut off. A second signal ends every step at once.
    """

    from allocator.controller.guarded_decision import Stopped

    def stop(number: int, _frame: Any) -> None:
        if controller.stopping:
            raise KeyboardInterrupt
        controller.stopping = True
        wake()
        if controller.deciding:
            raise Stopped

    controller.stopping = is_termination_requested()
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
