"""The supervisor of an allocation inside its batch job, on the first node of the job.

What the batch system gave is compared with the order before the command starts; a difference ends
the allocation as lost, so that the next round mends it. While the supervisor lives it touches
keeper.json once a second. It ends its job when revoked.json appears, or when somebody else has
recorded the end of the allocation.
"""

from __future__ import annotations

import glob
import os
import time
from abc import abstractmethod
from contextlib import suppress
from pathlib import Path

from allocator.clusters.adapter import Json
from allocator.executors.allocation import EXIT, SUPERVISOR
from allocator.executors.supervision import supervisor

REVOKED = "revoked.json"
HEARTBEAT_S = 1.0


class BatchSupervisor(supervisor.Supervisor):
    """The supervisor of one batch job."""

    tick_s = 0.25

    def __init__(self, folder: Path, order: Json) -> None:
        super().__init__(folder, order)
        self.identity = self.read_given()
        self._touched = 0.0

    def supervise(self) -> Json:
        """Run the command to its end if the job was given what the order asks for."""
        difference = self.describe_difference()
        if difference:
            return self._build_exit("lost", None, difference)
        return super().supervise()

    @abstractmethod
    def read_given(self) -> Json:
        """Return what the batch system gave to this batch job."""

    @abstractmethod
    def describe_difference(self) -> str:
        """Return how what was given differs from the order; "" if it does not."""

    def _build_exit(self, phase: str, code: int | None, detail: str) -> Json:
        revoked = self.allocation.read(REVOKED)
        words = detail if revoked is None else f"{detail}; {revoked['why']}"
        return super()._build_exit(phase, code, words)

    def _check_processes(self, pid: int) -> bool:
        if time.monotonic() - self._touched >= HEARTBEAT_S:
            self._touched = time.monotonic()
            self._renew_lease()
        return super()._check_processes(pid)

    def _renew_lease(self) -> None:
        with suppress(OSError):
            os.utime(self.folder / SUPERVISOR)
        if not self.folder.is_dir() or self.allocation.has(EXIT):
            self._kill_descendants()  # the job may run somewhere else by now
        elif self.allocation.has(REVOKED):
            self.is_termination_requested = True


def supervise_batch_job(folder: Path, make: type[BatchSupervisor]) -> int:
    """Supervise an allocation to its end, and hold its GPUs while another allocation uses them.

    Returns the exit code of this process.
    """
    code = supervisor.main(folder, make)
    while any(folder.parent.glob(f"*/on.{glob.escape(folder.name)}")):
        time.sleep(HEARTBEAT_S)
    return code
