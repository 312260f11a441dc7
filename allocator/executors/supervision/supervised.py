"""What executors share whose jobs run under a supervisor, on this machine or on another one.

The state is a folder (ledger.py, supervisor.py) that every machine of a job can see.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from allocator.errors import UsageError
from allocator.executors import report
from allocator.executors.disk import try_lock, write_json
from allocator.executors.ledger import (
    ORDER,
    Ledger,
    OpenAllocation,
    file_name,
    select_settings,
    summarise_ending,
)
from allocator.executors.supervision import supervisor
from allocator.io.tables.limited_reader import read_json
from allocator.io.tables.private_folders import refuse_foreign
from allocator.loop.executor import Identity, Observation, Order, Phase

GRACE_S = 60.0
KEPT_LOGS = 2000  # most files that are kept under logs/


class SupervisedExecutor:
    """The state folder of an executor, and how allocations begin and end in it.

    `grace_s` is the seconds between SIGTERM and SIGKILL.
    """

    name: str

    def __init__(self, folder: Path, grace_s: float = GRACE_S) -> None:
        self.grace_s = grace_s
        if os.path.lexists(folder):
            # commands of orders in it are run, so a folder that another user made
            # must not be used
            refuse_foreign(Path(os.path.realpath(folder)))
        self.ledger = Ledger(Path(folder), self.name)
        (self.ledger.folder / "logs").mkdir(mode=0o700, exist_ok=True)

    def identity(self) -> Identity:
        """Return the identity of the folder. Raises WrongState."""
        return self.ledger.identity()

    def claim(self, queue: str) -> None:
        """Make the folder belong to this queue. Raises WrongState."""
        self.ledger.claim(queue)

    def stop(self, job_id: str, generation: int, token: int) -> None:
        """Write stop.json, which the supervisor obeys. Raises StaleOrder.

        An allocation that nothing has begun ends now.
        """
        with self.ledger.hold_lock():
            self.ledger.fence.admit(token)
            self.ledger.stop(job_id, generation, {supervisor.EXIT: build_unstarted_ending()})
            place = self.ledger.place(job_id, generation)
            if place.is_dir() and not self._may_have_begun(place):
                self._end_unsupervised(place)

    def write_settings(
        self, job_id: str, generation: int, settings: Mapping[str, str], token: int
    ) -> None:
        """Replace settings.json of the allocation. Raises StaleOrder."""
        with self.ledger.hold_lock():
            self.ledger.fence.admit(token)
            self.ledger.write_settings(job_id, generation, settings)

    def _may_have_begun(self, place: Path) -> bool:
        """Return whether something may run for the allocation before its supervisor does."""
        return False

    def acknowledge(self, job_id: str, generation: int) -> None:
        """Forget the allocation; its output stays under logs/.

        Raises UsageError if it has not ended.
        """
        with self.ledger.hold_lock():
            place = self.ledger.place(job_id, generation)
            end = supervisor.read_ending(place)
            if end is None and place.is_dir():
                raise UsageError(f'job "{job_id}": allocation {generation} has not ended')
            before = self.ledger.acknowledged(job_id)
            order = read_json(place / ORDER)
            kept = _read_safe_work(before)
            if end is not None and order is not None:
                kept = _compute_safe_work(before, order, end) | summarise_ending(
                    order, ending_observation(job_id, generation, end)
                )
            self._keep_logs(place, job_id, generation)
            self.ledger.forget(job_id, generation, **kept)

    def _create_supervised(self, order: Order, **more: Any) -> Path:
        """Make the folder of a new allocation whose supervisor has not started."""
        last = _find_safe_work(self.ledger.acknowledged(order.job_id), order.first_generation)
        base = (
            last
            if last is not None
            else 0.0
            if order.generation <= order.first_generation
            else None
        )
        self.ledger.job_folder(order.job_id).mkdir(mode=0o700, exist_ok=True)
        return self.ledger.create(
            order,
            {report.SETTINGS_FILE: select_settings(order)},
            grace_s=self.grace_s,
            base=base,
            marker=secrets.token_hex(16),
            **more,
        )

    def _end_unsupervised(self, place: Path) -> None:
        """Record the end of an allocation that was stopped before its supervisor started."""
        lock = try_lock(place / supervisor.LOCK)
        if lock is not None:
            try:
                if (
                    not (place / supervisor.SUPERVISOR).exists()
                    and not (place / supervisor.EXIT).exists()
                ):
                    write_json(place / supervisor.EXIT, build_unstarted_ending())
            finally:
                os.close(lock)

    def _running_observation(self, one: OpenAllocation, detail: str) -> Observation:
        return Observation(
            one.job_id,
            one.generation,
            time.time(),
            Phase.RUNNING,
            supervisor.read_safe_work(one.folder, dict(one.order)),
            detail,
            report.read_reported(one.folder / supervisor.PROGRESS),
        )

    def _describe_progress(self, one: OpenAllocation) -> str:
        seen = report.read(one.folder / supervisor.PROGRESS)
        return "" if seen is None else f"{seen[0]:g} done, {seen[1]:g} of it safe"

    def _keep_logs(self, place: Path, job_id: str, generation: int) -> None:
        logs = self.ledger.folder / "logs"
        for name in (supervisor.OUT, supervisor.ERR):
            with suppress(FileNotFoundError):
                os.replace(place / name, logs / f"{file_name(job_id)}.{generation}.{name}")
        files = list(os.scandir(logs))
        if len(files) > KEPT_LOGS:
            for entry in sorted(files, key=lambda e: e.stat().st_mtime)[
                : len(files) - KEPT_LOGS * 9 // 10
            ]:
                os.unlink(entry)


def _read_safe_work(before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the safe work in acknowledged.json, and the allocation after which it was known."""
    if before.get("safe") is None:
        return {}
    return {
        "safe": float(before["safe"]),
        "safe_since": int(before.get("safe_since", before.get("generation", 0))),
    }


def _find_safe_work(before: Mapping[str, Any], first: int) -> float | None:
    """Return the safe work of the job whose first allocation is `first`, or None if it is unknown.

    acknowledged.json may be about a forgotten job of the same name.
    """
    found = _read_safe_work(before)
    return found["safe"] if found and found["safe_since"] >= first else None


def _compute_safe_work(
    before: Mapping[str, Any], order: Mapping[str, Any], end: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what to keep of safe work when an allocation has ended.

    `before` is the content of acknowledged.json so far.
    """
    generation = int(order["generation"])
    first = int(order["first_generation"])
    if int(order["gpus"]) < 1 and generation > first:
        return _read_safe_work(before)  # it was stopped before it was ordered
    known = (_find_safe_work(before, first), end.get("safe"), 0.0 if generation <= first else None)
    safe = [s for s in known if s is not None]  # 0 for a new job, which begins without work
    return {"safe": max(safe), "safe_since": generation} if safe else {}


def ending_observation(job_id: str, generation: int, end: Mapping[str, Any]) -> Observation:
    """Return the observation in exit.json."""
    return Observation(
        job_id, generation, end["at_s"], Phase(end["phase"]), end["work_done"], end["detail"]
    )


def build_ending_without_work(phase: str, detail: str) -> dict[str, Any]:
    """Return exit.json of an allocation that did nothing."""
    return {"phase": phase, "detail": detail, "at_s": time.time(), "work_done": 0.0, "safe": None}


def build_unstarted_ending() -> dict[str, Any]:
    """Return exit.json of an allocation that was stopped before it was started."""
    return build_ending_without_work("stopped", "was told to stop before it was started")
