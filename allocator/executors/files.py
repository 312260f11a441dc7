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
from collections.abc import Mapping
from dataclasses import replace

from allocator.clusters.adapter import Capabilities
from allocator.executors.allocation import STOP, OpenAllocation
from allocator.executors.ledger_executor import SettingsExecutor, observe_ending
from allocator.executors.report import SETTINGS_FILE, parse_reported
from allocator.io.tables.limited_reader import as_storable_text, read_json
from allocator.loop.executor import (
    ENDED,
    REPORTED,
    ColocatedAllocation,
    Observation,
    Order,
    Phase,
    find_shared,
)
from allocator.objects import Json

OBSERVATION = "observation.json"
CAPACITY = "capacity.json"
MOST_BYTES = 1 << 20  # size limit of a file that an actor writes


class FilesExecutor(SettingsExecutor):
    """An executor that writes files; an actor outside of this program starts and stops the jobs."""

    name = "files"
    # order.json tells the actor the nodes, and the allocations with which this one shares GPUs
    capabilities = Capabilities(pins_nodes=True, shares_with_several=True)
    ending = OBSERVATION

    def capacity(self) -> Mapping[str, int]:
        """Return what the actor wrote to capacity.json, {pool: GPUs}.

        Without that file, pools have as many GPUs as the queue says.
        """
        capacity = read_json(self.ledger.folder / CAPACITY, MOST_BYTES) or {}
        return {
            pool: n
            for pool, n in capacity.items()
            if isinstance(n, int) and not isinstance(n, bool) and n >= 0
        }

    def _create(self, order: Order) -> None:
        order = replace(order, beside=find_shared(order, self._is_alive))
        self.ledger.create(order, {SETTINGS_FILE: order.settings})

    def _is_alive(self, other: ColocatedAllocation) -> bool:
        allocation = self.ledger.read(other.job_id, other.generation)
        return allocation is not None and self._read_ending(allocation) is None

    def _read_ending(self, allocation: OpenAllocation) -> Json | None:
        observation = _read_observation(allocation)
        return None if observation is None or observation["phase"] not in ENDED else observation

    def _observe_allocation(self, allocation: OpenAllocation) -> Observation | None:
        observation = _read_observation(allocation)
        if observation is None:
            return None
        seen = observe_ending(allocation, observation)
        return replace(
            seen, work_done=min(seen.work_done, float(allocation.order["remaining_work"]))
        )


def _read_observation(allocation: OpenAllocation) -> Json | None:
    """Return what the actor wrote of an allocation, or None if that is not valid."""
    value = read_json(allocation.folder / OBSERVATION, MOST_BYTES)
    try:
        assert value is not None
        phase = Phase(value["phase"])
        work = float(value.get("work_done", 0.0))
        at_s = float(value["at_s"]) if "at_s" in value else time.time()
    except (AssertionError, KeyError, TypeError, ValueError, OverflowError):
        return None
    if not (math.isfinite(at_s) and work >= 0):
        return None
    detail = as_storable_text(value.get("detail", ""), 1000)
    if phase is Phase.STOPPED and not allocation.has(STOP):
        phase = Phase.LOST
        detail = f"the actor stopped it, and nobody had asked for that: {detail}"
    reported = parse_reported(f"{name}={value.get(name)}" for name in REPORTED)
    return {"phase": phase, "work_done": work, "at_s": at_s, "detail": detail, "reported": reported}
