"""Write orders as files for an actor of your own (a script, an operator) and read its observations.

    open/<job>.<generation>/   one folder for every allocation whose end was not acknowledged
        order.json             the order to start; it appears whole and never changes
        settings.json          how the job shall run now; it is replaced when that changes
        stop.json              it appears when the job shall stop
        observation.json       written by the actor: {"phase", "work_done", "at_s", "detail"} and
                               fields of REPORTED; replace it in one step (rename)

An actor reconciles: every job in open/ without a stop.json shall run, and no other job. See
docs/local.md and ledger.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from allocator.clusters.adapter import Capabilities
from allocator.errors import UsageError
from allocator.executors.errors import find_shared
from allocator.executors.ledger import (
    ORDER,
    STOP,
    Ledger,
    OpenAllocation,
    select_settings,
    summarise_ending,
)
from allocator.executors.report import SETTINGS_FILE, parse_reported
from allocator.io.tables.limited_reader import as_storable_text, read_json
from allocator.loop.executor import (
    ENDED,
    REPORTED,
    ColocatedAllocation,
    Identity,
    Observation,
    Order,
    Phase,
)

OBSERVATION = "observation.json"
CAPACITY = "capacity.json"
MOST_BYTES = 1 << 20  # size limit of a file that an actor writes


class FilesExecutor:
    """An executor that writes files; an actor outside of this program starts and stops the jobs."""

    name = "files"
    # order.json tells the actor the nodes, and the allocations with which this one shares GPUs
    capabilities = Capabilities(pins_nodes=True, shares_with_several=True)

    def __init__(self, folder: Path) -> None:
        self.ledger = Ledger(Path(folder), self.name)

    def identity(self) -> Identity:
        """Return the identity of the folder. Raises WrongState."""
        return self.ledger.identity()

    def claim(self, queue: str) -> None:
        """Make the folder belong to this queue. Raises WrongState."""
        self.ledger.claim(queue)

    def start(self, order: Order) -> None:
        """Write order.json.

        Raises StaleOrder. Raises NotNow while the order needs the GPUs of a job that has not been
        ordered or has ended.
        """
        with self.ledger.hold_lock():
            self.ledger.fence.admit(order.token)
            if self.ledger.is_new_generation(order.job_id, order.generation):
                order = replace(order, beside=find_shared(order, self._is_alive))
                self.ledger.create(order, {SETTINGS_FILE: select_settings(order)})

    def stop(self, job_id: str, generation: int, token: int) -> None:
        """Write stop.json. Raises StaleOrder.

        An allocation that was never ordered is observed as stopped.
        """
        with self.ledger.hold_lock():
            self.ledger.fence.admit(token)
            self.ledger.stop(
                job_id,
                generation,
                {
                    OBSERVATION: {
                        "phase": "stopped",
                        "work_done": 0.0,
                        "at_s": time.time(),
                        "detail": "was told to stop before it was started",
                    }
                },
            )

    def write_settings(
        self, job_id: str, generation: int, settings: Mapping[str, str], token: int
    ) -> None:
        """Replace settings.json of the allocation. Raises StaleOrder."""
        with self.ledger.hold_lock():
            self.ledger.fence.admit(token)
            self.ledger.write_settings(job_id, generation, settings)

    def observe(self) -> Sequence[Observation]:
        """Return what the actor wrote; an invalid observation is ignored."""
        seen = (self._observe_allocation(one) for one in self.ledger.known())
        return [one for one in seen if one is not None]

    def acknowledge(self, job_id: str, generation: int) -> None:
        """Remove the folder of the allocation. Raises UsageError if it has not ended."""
        with self.ledger.hold_lock():
            if self._is_alive(ColocatedAllocation(job_id, generation)):
                raise UsageError(f'job "{job_id}": allocation {generation} has not ended')
            place = self.ledger.place(job_id, generation)
            order = read_json(place / ORDER)
            observation = (
                None if order is None else self._observe_allocation(OpenAllocation(place, order))
            )
            self.ledger.forget(
                job_id,
                generation,
                **(
                    {}
                    if observation is None or order is None
                    else summarise_ending(order, observation)
                ),
            )

    def capacity(self) -> Mapping[str, int]:
        """Return what the actor wrote to capacity.json, {pool: GPUs}.

        Without that file, pools have as many GPUs as the queue says.
        """
        found = read_json(self.ledger.folder / CAPACITY, MOST_BYTES) or {}
        return {
            pool: n
            for pool, n in found.items()
            if isinstance(n, int) and not isinstance(n, bool) and n >= 0
        }

    def _is_alive(self, other: ColocatedAllocation) -> bool:
        place = self.ledger.place(other.job_id, other.generation)
        observation = _parse_observation(read_json(place / OBSERVATION, MOST_BYTES), math.inf)
        return place.is_dir() and (observation is None or observation[0] not in ENDED)

    def _observe_allocation(self, one: OpenAllocation) -> Observation | None:
        observation = _parse_observation(
            read_json(one.folder / OBSERVATION, MOST_BYTES), float(one.order["remaining_work"])
        )
        if observation is None:
            return None
        phase, work, at_s, detail, reported = observation
        if phase is Phase.STOPPED and not (one.folder / STOP).exists():
            phase = Phase.LOST
            detail = f"the actor stopped it, and nobody had asked for that: {detail}"
        return Observation(one.job_id, one.generation, at_s, phase, work, detail, reported)


def _parse_observation(
    value: dict[str, Any] | None, most: float
) -> tuple[Phase, float, float, str, dict[str, float]] | None:
    """Return (phase, work, time, detail, reported) of an observation, or None if it is invalid.

    `most` is the remaining work at the start.
    """
    try:
        assert value is not None
        phase = Phase(value["phase"])
        work = float(value.get("work_done", 0.0))
        at_s = float(value["at_s"]) if "at_s" in value else time.time()
    except (AssertionError, KeyError, TypeError, ValueError, OverflowError):
        return None
    if not (math.isfinite(at_s) and work >= 0):
        return None
    reported = parse_reported(f"{name}={value.get(name)}" for name in REPORTED)
    detail = as_storable_text(value.get("detail", ""), 1000)
    return phase, min(work, most), at_s, detail, reported
