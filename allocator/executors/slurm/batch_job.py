"""The supervisor of an allocation inside its batch job, on the first node of the job.

Usage: python -m allocator.executors.slurm.batch_job FOLDER

Slurm chose GPUs and nodes. They are compared with the order before the command starts; a
difference ends the allocation as lost, so that the next round mends it. While the supervisor lives
it touches keeper.json once a second. It ends its job when revoked.json appears, or when
somebody else has recorded the end of the allocation.
"""

from __future__ import annotations

import glob
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from allocator.clusters.slurm.name_lists import expand_names
from allocator.executors import supervisor
from allocator.io.tables.limited_reader import read_json

REVOKED = "revoked.json"
SHARED_GPUS = "ALLOCATOR_SHARED_GPUS"  # indices of GPUs that another batch job holds
HEARTBEAT_S = 1.0


class BatchSupervisor(supervisor.Supervisor):
    """The supervisor of one batch job."""

    tick_s = 0.25

    def __init__(self, folder: Path, order: dict[str, Any]) -> None:
        if (indices := os.environ.get(SHARED_GPUS)) is not None:
            order["devices"] = indices.split(",")
        super().__init__(folder, order)
        self.identity = self.read_given()
        self._touched = 0.0

    def supervise(self) -> dict[str, Any]:
        """Run the command to its end if the job was given what the order asks for."""
        difference = self.describe_difference()
        if difference:
            return self._build_exit("lost", None, difference)
        return super().supervise()

    def read_given(self) -> dict[str, Any]:
        """Return what the batch system gave to this batch job."""
        return read_given(os.environ)

    def describe_difference(self) -> str:
        """Return how what was given differs from the order; "" if it does not."""
        return describe_difference(self.order, self.identity)

    def _build_exit(self, phase: str, code: int | None, detail: str) -> dict[str, Any]:
        revoked = read_json(self.folder / REVOKED)
        words = detail if revoked is None else f"{detail}; {revoked['why']}"
        return super()._build_exit(phase, code, words)

    def _check_processes(self, pid: int) -> bool:
        if time.monotonic() - self._touched >= HEARTBEAT_S:
            self._touched = time.monotonic()
            self._renew_lease()
        return super()._check_processes(pid)

    def _renew_lease(self) -> None:
        with suppress(OSError):
            os.utime(self.folder / supervisor.SUPERVISOR)
        if not self.folder.is_dir() or (self.folder / supervisor.EXIT).exists():
            self._kill_descendants()  # the job may run somewhere else by now
        elif (self.folder / REVOKED).exists():
            self.is_termination_requested = True


def read_given(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what Slurm gave to the batch job of this environment."""
    return {
        "slurm_job_id": environment.get("SLURM_JOB_ID", ""),
        "partition": environment.get("SLURM_JOB_PARTITION", ""),
        "nodes": expand_names(environment.get("SLURM_JOB_NODELIST", "")),
        "node": environment.get("SLURMD_NODENAME", ""),
        "gpus": int(environment.get("SLURM_GPUS_ON_NODE") or 0),
        "indices": environment.get("SLURM_JOB_GPUS", ""),
    }


def describe_difference(order: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Return how what Slurm gave differs from the order; "" if it does not."""
    if not order["asked"]:
        return ""
    asked = {node: gpus for node, gpus in order["asked"] if node}
    here = asked.get(given["node"], order["asked"][0][1])
    if asked and set(asked) != set(given["nodes"]):
        return f"asked for nodes {' '.join(asked)}, got {' '.join(given['nodes'])}"
    if len(order["asked"]) != len(given["nodes"]):
        return f"asked for {len(order['asked'])} nodes, got {len(given['nodes'])}"
    if given["partition"] != order["pool"]:
        return f"asked for partition {order['pool']}, got {given['partition']}"
    if here != given["gpus"]:
        return f"asked for {here} GPUs on {given['node']}, got {given['gpus']}"
    return ""


def main(folder: Path) -> int:
    """Supervise the allocation, and keep its GPUs while another one uses them too."""
    code = supervisor.main(folder, BatchSupervisor)
    while any(folder.parent.glob(f"*/on.{glob.escape(folder.name)}")):
        time.sleep(HEARTBEAT_S)
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
