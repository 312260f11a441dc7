"""The supervisor of an allocation inside its job of Ray, on the first node of the job.

Usage: python -m allocator.executors.ray.ray_job FOLDER

Ray kills the process group of an entrypoint without notice when its raylet dies. So the entrypoint
only watches: the supervisor is its child in a session of its own, which ends the job in good order
when the entrypoint is gone. When the supervisor itself is killed, the entrypoint ends the processes
that the supervisor left.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from allocator.executors.allocation import EXIT, SUPERVISOR
from allocator.executors.ray.workers import GROUP, is_own_workers, make_group
from allocator.executors.supervision.processes import adopt_orphans, find_descendants, kill_all
from allocator.executors.supervision.supervisor import (
    HEARTBEAT_S,
    BatchSupervisor,
    supervise_batch_job,
)
from allocator.io.tables.limited_reader import read_json
from allocator.objects import Json

GROUP_WAIT_S = 60.0  # seconds that a placement group may take
VISIBLE = "CUDA_VISIBLE_DEVICES"


class RaySupervisor(BatchSupervisor):
    """The supervisor of one job of Ray."""

    def __init__(self, folder: Path, order: Json) -> None:
        self.entrypoint = os.getppid()
        self.has_group = len(order["asked"]) > 1 or is_own_workers(order["environment"])
        if order["holder"] is not None:
            partner = read_json(folder.parent / order["partner"] / SUPERVISOR) or {}
            order["devices"] = _split(partner.get("indices", ""))
        elif self.has_group:
            order["devices"] = []
        super().__init__(folder, order)

    def read_given(self) -> Json:
        """Return what Ray gave to this job; the nodes are those of the order."""
        indices = "" if "devices" in self.order else os.environ.get(VISIBLE, "")
        return {
            "node": self.order["asked"][0][0] if self.order["asked"] else "",
            "gpus": len(_split(indices)),
            "indices": ",".join(self.order["devices"]) if "devices" in self.order else indices,
        }

    def describe_difference(self) -> str:
        """Return how what Ray gave differs from the order; "" if it does not.

        Waits for GPUs that an earlier allocation still uses, and for the placement group.
        """
        if not self.order["asked"]:
            return ""
        node, gpus = self.order["asked"][0]
        if self.has_group:
            return self._make_group()
        if gpus != self.identity["gpus"]:
            return f"asked for {gpus} GPUs on {node}, got {self.identity['gpus']}"
        deadline = time.monotonic() + self.order["grace_s"]
        while user := self._find_user_of_gpus():
            if time.monotonic() > deadline or self.is_termination_requested:
                return f"GPUs {self.identity['indices']} of {node} are still used by {user}"
            self._renew_lease()
            time.sleep(self.tick_s)
        return ""

    def _find_user_of_gpus(self) -> str:
        """Return an allocation that uses one of the GPUs, though Ray gave them away; "" if none."""
        indices = set(_split(self.identity["indices"]))
        for place in self.folder.parent.iterdir():
            other = read_json(place / SUPERVISOR) or {}
            is_other = place != self.folder and other.get("node") == self.identity["node"]
            if is_other and indices & set(_split(other["indices"])):
                began = (read_json(self.folder / SUPERVISOR) or {}).get("at_s", 0.0)
                if other["at_s"] <= began and not (place / EXIT).exists():
                    return place.name
        return ""

    def _make_group(self) -> str:
        """Make the placement group with a bundle for each node; return why there is none, or ""."""
        node_ids = (read_json(self.folder / "attempt.json") or {})["node_ids"]
        asked = zip(node_ids, self.order["asked"], strict=True)
        bundles = [(ident, int(gpus)) for ident, (_, gpus) in asked]
        state = (read_json(self.folder.parent.parent / "fence.json") or {})["state"]
        name = f"{self.folder.name}.{state[:8]}"
        self._group = group = make_group(name, bundles)
        self.install_signal_handlers()  # Ray installs others
        self.order["environment"] = {**self.order["environment"], GROUP: name}
        deadline = time.monotonic() + GROUP_WAIT_S
        while not group.wait(HEARTBEAT_S):
            self._renew_lease()
            if time.monotonic() > deadline or self.is_termination_requested:
                return "Ray did not make its placement group"
        return ""

    def _check_processes(self, pid: int) -> bool:
        if os.getppid() != self.entrypoint:
            self.is_termination_requested = True
        return super()._check_processes(pid)


def _split(indices: str) -> list[str]:
    return [index for index in indices.split(",") if index]


def main(folder: Path) -> int:
    """Start the supervisor, wait for its end, and kill the processes that it leaves."""
    adopt_orphans()
    child = os.fork()
    if child == 0:
        os.setsid()
        os._exit(supervise_batch_job(folder, RaySupervisor))

    def forward_signal(number: int, frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward_signal)
    _, status = os.waitpid(child, 0)
    kill_all(lambda: find_descendants(os.getpid()), 0.0)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
