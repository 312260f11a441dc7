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
from types import MappingProxyType
from typing import Any

from allocator.clusters.adapter import Json, Record
from allocator.executors import report
from allocator.executors.allocation import (
    ERR,
    EXIT,
    OUT,
    PROGRESS,
    SUPERVISOR,
    OpenAllocation,
    build_unstarted_ending,
)
from allocator.executors.errors import NotNow
from allocator.executors.ledger import select_settings
from allocator.executors.ledger_executor import SettingsExecutor
from allocator.io.tables.private_folders import refuse_foreign
from allocator.loop.executor import Observation, Order, Phase

GRACE_S = 60.0
EMPTY: Record = MappingProxyType({})
KEPT_LOGS = 2000  # most files that are kept under logs/


class SupervisedExecutor(SettingsExecutor):
    """The state folder of an executor, and how allocations begin and end in it.

    `grace_s` is the seconds between SIGTERM and SIGKILL.
    """

    def __init__(self, folder: Path, grace_s: float = GRACE_S) -> None:
        self.grace_s = grace_s
        if os.path.lexists(folder):
            # commands of orders in it are run, so a folder that another user made
            # must not be used
            refuse_foreign(Path(os.path.realpath(folder)))
        super().__init__(folder)
        (self.ledger.folder / "logs").mkdir(mode=0o700, exist_ok=True)

    def _begin_to_stop(self, one: OpenAllocation) -> None:
        """Record the end of an allocation that nothing has begun; else its supervisor obeys."""
        if not self._may_have_begun(one):
            with one.hold_unless_supervised() as is_free:
                if is_free and not one.has(SUPERVISOR, EXIT):
                    one.write(EXIT, build_unstarted_ending())

    def _may_have_begun(self, one: OpenAllocation) -> bool:
        """Return whether something may run for the allocation before its supervisor does."""
        return False

    def _read_ending(self, one: OpenAllocation) -> Json | None:
        return one.read_ending()

    def _list_unended(self, order: Order | None = None) -> dict[tuple[str, int], OpenAllocation]:
        """Return the allocations that have not ended.

        Raises NotNow if one of them is of the job of a new order.
        """
        alive = [one for one in self.ledger.known() if not one.has(EXIT)]
        for one in alive:
            if order is not None and one.job_id == order.job_id:
                raise NotNow(f'job "{order.job_id}": its allocation {one.generation} has not ended')
        return {(one.job_id, one.generation): one for one in alive}

    def _create_supervised(
        self, order: Order, files: Mapping[str, Record] = EMPTY, **more: Any
    ) -> None:
        """Make the folder of a new allocation whose supervisor has not started."""
        self.ledger.job_folder(order.job_id).mkdir(mode=0o700, exist_ok=True)
        self.ledger.create(
            order,
            {report.SETTINGS_FILE: select_settings(order), **files},
            grace_s=self.grace_s,
            base=self._find_base(order),
            marker=secrets.token_hex(16),
            **more,
        )

    def _running_observation(self, one: OpenAllocation, detail: str | None = None) -> Observation:
        """Return the observation of one that runs; without a detail it has its progress."""
        seen = report.read(one.folder / PROGRESS)
        if detail is None:
            detail = "" if seen is None else f"{seen[0]:g} done, {seen[1]:g} of it safe"
        return Observation(
            one.job_id,
            one.generation,
            time.time(),
            Phase.RUNNING,
            one.read_safe_work(),
            detail,
            report.read_reported(one.folder / PROGRESS),
        )

    def _clear(self, one: OpenAllocation) -> None:
        """Keep the output of the job under logs/."""
        logs = self.ledger.folder / "logs"
        for name in (OUT, ERR):
            with suppress(FileNotFoundError):
                os.replace(one.folder / name, logs / f"{one.folder.name}.{name}")
        files = list(os.scandir(logs))
        if len(files) > KEPT_LOGS:
            files.sort(key=lambda entry: entry.stat().st_mtime)
            for entry in files[: len(files) - KEPT_LOGS * 9 // 10]:
                os.unlink(entry)
