"""Nothing is started: says what would be, and believes that all of it works. For looking before leaping.

Allocations count as running, without progress, until they are told to stop. With a file the belief survives the
process, so that a dry run can be gone on with (`allocator run --once` from cron).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from allocator.control.executor import Observation, Order, Phase, StaleOrder
from allocator.errors import UsageError
from allocator.executors.disk import locked, write_json
from allocator.executors.errors import shares
from allocator.files.limited import read_json

_EMPTY: dict[str, Any] = {"token": -1, "newest": {}, "open": {}}


class DryRunExecutor:
    """say: gets one line per new order; path: where to remember; None: in memory. now: unix seconds."""

    name = "dry-run"

    def __init__(self, path: Path | None = None, say: Callable[[str], None] | None = None,
                 now: Callable[[], float] = time.time) -> None:
        self._path, self._say, self._now = path, say or (lambda line: None), now
        self._memory = dict(_EMPTY, newest={}, open={})
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def start(self, order: Order) -> None:
        """Say it and note it, once. Raises StaleOrder, NotNow."""
        with self._locked():
            state = self._state(order.token)
            if _fresh(state, order.job_id, order.generation):
                on = _gpus(state, order)
                command = f": {' '.join(order.command)}" if order.command else ""
                self._say(f'would start job "{order.job_id}" (allocation {order.generation}) on {on}{command}')
                _note(state, order.job_id, order.generation, "running", self._now())
            self._keep(state)

    def stop(self, job_id: str, generation: int, token: int) -> None:
        """Say it and note it, once. Raises StaleOrder."""
        with self._locked():
            state = self._state(token)
            fresh = _fresh(state, job_id, generation)
            found = state["open"].get(job_id)
            if fresh or (found is not None and found["phase"] == "running"):
                self._say(f'would stop job "{job_id}" (allocation {generation})')
                _note(state, job_id, generation, "stopped", self._now())
            self._keep(state)

    def observe(self) -> Sequence[Observation]:
        """What would be if all went well."""
        state, now = self._state(), self._now()
        return [Observation(job, known["generation"], known["at_s"] if known["phase"] == "stopped" else now,
                            Phase(known["phase"]), 0.0, "dry run") for job, known in state["open"].items()]

    def acknowledge(self, job_id: str, generation: int) -> None:
        """Forget it. Raises UsageError if it runs."""
        with self._locked():
            state = self._state()
            found = state["open"].get(job_id)
            if found is not None and found["generation"] == generation:
                if found["phase"] == "running":
                    raise UsageError(f'job "{job_id}": allocation {generation} has not ended')
                del state["open"][job_id]
            state["newest"][job_id] = max(state["newest"].get(job_id, -1), generation)
            self._keep(state)

    def capacity(self) -> Mapping[str, int]:
        """As the queue says."""
        return {}

    def _locked(self) -> AbstractContextManager[None]:
        return nullcontext() if self._path is None else locked(self._path.with_name(self._path.name + ".lock"))

    def _state(self, token: int | None = None) -> dict[str, Any]:
        """What is remembered; with the token of an order, unless it is StaleOrder."""
        state = self._memory
        if self._path is not None:
            state = read_json(self._path) or dict(_EMPTY, newest={}, open={})
        if token is not None:
            if token < state["token"]:
                raise StaleOrder(f"an order with token {token} came after one with {state['token']}")
            state["token"] = token
        return state

    def _keep(self, state: dict[str, Any]) -> None:
        if self._path is not None:
            write_json(self._path, state)


def _gpus(state: dict[str, Any], order: Order) -> str:
    """The GPUs of an order in words. Raises NotNow."""
    beside, words = order.beside, f'{order.gpus} GPUs of pool "{order.pool}"'
    if beside is None:
        return words
    found = state["open"].get(beside.job_id)
    alive = found is not None and found["generation"] == beside.generation and found["phase"] == "running"
    return f'the {words} that job "{beside.job_id}" runs on' if shares(order, alive) else words


def _fresh(state: dict[str, Any], job_id: str, generation: int) -> bool:
    newest = state["newest"].get(job_id, -1)
    if generation < newest:
        raise StaleOrder(f'job "{job_id}": allocation {generation} was ordered after {newest}')
    return bool(generation > newest)


def _note(state: dict[str, Any], job_id: str, generation: int, phase: str, at_s: float) -> None:
    state["newest"][job_id] = generation
    state["open"][job_id] = {"generation": generation, "phase": phase, "at_s": at_s}
