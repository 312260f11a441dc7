"""Run jobs as processes of this machine, alone or two on the same GPU indices.

The state is a folder (ledger.py, supervisor.py). Nothing is kept in memory: a new object on the
same folder knows all that the old one knew. The folder of an allocation holds, next to order.json:

    keeper.lock                locked by the supervisor as long as it lives
    keeper.json                which process the supervisor is
    stdout, stderr, progress   output and progress of the job; the output is kept under logs/ when
                               the allocation is forgotten
    exit.json                  how the job ended; until it exists, the GPU indices are taken
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from allocator.errors import UsageError
from allocator.executors import report, supervisor
from allocator.executors.disk import is_locked, try_lock, write_json
from allocator.executors.errors import NotNow, starts_on_shared_gpus
from allocator.executors.ledger import ORDER, Ledger, OpenAllocation, file_name, summarise_ending
from allocator.executors.processes import Process, find_orphans, kill_all, read_boot_id
from allocator.io.tables.limited_reader import read_json
from allocator.io.tables.private_folders import refuse_foreign
from allocator.loop.executor import Capabilities, Identity, Observation, Order, Phase

GRACE_S = 60.0
KILL_WAIT_S = 2.0
KEPT_LOGS = 2000  # most files that are kept under logs/
PACKAGES = Path(__file__).resolve().parent.parent.parent


class LocalExecutor:
    """The executor of this machine (Linux).

    `devices` has the GPU indices by pool; no index is in two pools. `grace_s` is the seconds
    between SIGTERM and SIGKILL.
    """

    name = "local"
    capabilities = Capabilities(reports_progress=True)

    def __init__(
        self, folder: Path, devices: Mapping[str, Sequence[int]], grace_s: float = GRACE_S
    ) -> None:
        indices = [d for pool in devices.values() for d in pool]
        if len(set(indices)) != len(indices):
            raise UsageError("a GPU index was given twice")
        if not sys.platform.startswith("linux"):
            raise UsageError("the local executor needs Linux")
        self.devices = {pool: tuple(d) for pool, d in devices.items()}
        self.grace_s = grace_s
        if os.path.lexists(folder):
            # commands of orders in it are run, so a folder that another user made
            # must not be used
            refuse_foreign(Path(os.path.realpath(folder)))
        self.ledger = Ledger(Path(folder), self.name)
        (self.ledger.folder / "logs").mkdir(mode=0o700, exist_ok=True)
        # supervisors started by this object
        self._children: dict[Path, subprocess.Popen[bytes]] = {}

    def identity(self) -> Identity:
        """Return the identity of the folder. Raises WrongState."""
        return self.ledger.identity()

    def claim(self, queue: str) -> None:
        """Make the folder belong to this queue. Raises WrongState."""
        self.ledger.claim(queue)

    def start(self, order: Order) -> None:
        """Start the command of the job under a supervisor.

        An allocation that can never be started on this machine is observed as failed. Raises
        StaleOrder. Raises NotNow while the GPUs are taken, or the last allocation of the job has
        not ended.
        """
        with self.ledger.hold_lock():
            self.ledger.fence.admit(order.token)
            if self.ledger.is_new_generation(order.job_id, order.generation):
                place = self._create(order)
            else:
                place = self.ledger.place(order.job_id, order.generation)
            if (
                place.is_dir()
                and not (place / supervisor.EXIT).exists()
                and not (place / supervisor.SUPERVISOR).exists()
            ):
                # this also repeats a start after a crash; a second supervisor ends by itself
                self._spawn(place)

    def stop(self, job_id: str, generation: int, token: int) -> None:
        """Send SIGTERM to the job's process group, and SIGKILL to what is left after grace_s."""
        with self.ledger.hold_lock():
            self.ledger.fence.admit(token)
            self.ledger.stop(job_id, generation, {supervisor.EXIT: _build_unstarted_ending()})
            place = self.ledger.place(job_id, generation)
            if place.is_dir():
                self._end_unsupervised(place)

    def observe(self) -> Sequence[Observation]:
        """Return every open allocation whose supervisor has started, or that has ended."""
        self._reap()
        seen = (self._observe_allocation(one) for one in self.ledger.known())
        return [one for one in seen if one is not None]

    def acknowledge(self, job_id: str, generation: int) -> None:
        """Forget the allocation; its output stays under logs/.

        Raises UsageError if it has not ended.
        """
        with self.ledger.hold_lock():
            place = self.ledger.place(job_id, generation)
            end = supervisor.read_ending(place)
            if end is None and place.is_dir():
                raise UsageError(f'job "{job_id}": allocation {generation} has not ended')
            before, order = self.ledger.acknowledged(job_id), read_json(place / ORDER)
            kept = _read_safe_work(before)
            if end is not None and order is not None:
                kept = _compute_safe_work(before, order, end) | summarise_ending(
                    order, _ending_observation(job_id, generation, end)
                )
            self._keep_logs(place, job_id, generation)
            self.ledger.forget(job_id, generation, **kept)

    def capacity(self) -> Mapping[str, int]:
        """Count the indices of each pool.

        Indices that moved from one pool to another do not count while jobs of the earlier pool hold
        them.
        """
        taken = {d: one.order["pool"] for one in self._list_unended() for d in one.order["devices"]}
        return {
            pool: sum(taken.get(d, pool) == pool for d in numbers)
            for pool, numbers in self.devices.items()
        }

    def _list_unended(self) -> Iterator[OpenAllocation]:
        """Return the open allocations whose GPU indices are taken."""
        return (one for one in self.ledger.known() if not (one.folder / supervisor.EXIT).exists())

    def _create(self, order: Order) -> Path:
        mine = self.devices.get(order.pool, ())
        if order.gpus > len(mine) or order.gpus < 1:
            why = f'pool "{order.pool}" of this machine has {len(mine)} GPUs, not {order.gpus}'
            return self.ledger.create(
                order, {supervisor.EXIT: _build_ending("failed", why)}, devices=[]
            )
        devices = self._choose_devices(order, mine)
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
            {},
            devices=devices,
            grace_s=self.grace_s,
            base=base,
            marker=secrets.token_hex(16),
        )

    def _choose_devices(self, order: Order, mine: Sequence[int]) -> list[int]:
        """Choose the GPU indices of a new allocation. Raises NotNow."""
        taken: set[int] = set()
        shared: list[int] | None = None
        for one in self._list_unended():
            if one.job_id == order.job_id:
                raise NotNow(f'job "{order.job_id}": its allocation {one.generation} has not ended')
            taken.update(one.order["devices"])
            if order.beside is not None and (one.job_id, one.generation) == (
                order.beside.job_id,
                order.beside.generation,
            ):
                shared = list(one.order["devices"])
        if starts_on_shared_gpus(order, shared is not None) and shared is not None:
            if (
                len(shared) != order.gpus
                or sum(one.order["devices"] == shared for one in self._list_unended()) > 1
            ):
                raise NotNow(
                    f'job "{order.job_id}": GPUs {shared} have two jobs, or are not {order.gpus}'
                )
            return shared
        free = [d for d in mine if d not in taken]
        if len(free) < order.gpus:
            raise NotNow(
                f'job "{order.job_id}": {len(free)} GPUs are free in pool "{order.pool}", not'
                f" {order.gpus}"
            )
        return free[: order.gpus]

    def _spawn(self, place: Path) -> None:
        self._reap()
        if place in self._children:
            return  # the supervisor is still starting
        with supervisor.open_for_appending(place / "keeper.log") as log:
            self._children[place] = subprocess.Popen(
                [sys.executable, "-m", "allocator.executors.supervisor", str(place)],
                cwd=PACKAGES,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _reap(self) -> None:
        self._children = {
            place: child for place, child in self._children.items() if child.poll() is None
        }

    def _end_unsupervised(self, place: Path) -> None:
        """Record the end of an allocation that was stopped before its supervisor started."""
        lock = try_lock(place / supervisor.LOCK)
        if lock is not None:
            try:
                if (
                    not (place / supervisor.SUPERVISOR).exists()
                    and not (place / supervisor.EXIT).exists()
                ):
                    write_json(place / supervisor.EXIT, _build_unstarted_ending())
            finally:
                os.close(lock)

    def _observe_allocation(self, one: OpenAllocation) -> Observation | None:
        end = supervisor.read_ending(one.folder)
        if end is None:
            who = read_json(one.folder / supervisor.SUPERVISOR)
            if who is None:
                return None
            if is_locked(one.folder / supervisor.LOCK):
                return self._running_observation(one, self._describe_progress(one))
            end = self._end_without_supervisor(one, who)
            if end is None:
                return self._running_observation(
                    one, "its supervisor is gone, and its end cannot be recorded yet"
                )
        return _ending_observation(one.job_id, one.generation, end)

    def _running_observation(self, one: OpenAllocation, detail: str) -> Observation:
        return Observation(
            one.job_id,
            one.generation,
            time.time(),
            Phase.RUNNING,
            supervisor.read_safe_work(one.folder, dict(one.order)),
            detail,
        )

    def _describe_progress(self, one: OpenAllocation) -> str:
        seen = report.read(one.folder / supervisor.PROGRESS)
        return "" if seen is None else f"{seen[0]:g} done, {seen[1]:g} of it safe"

    def _end_without_supervisor(
        self, one: OpenAllocation, who: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Return the end of an allocation without supervisor; None while its processes live."""
        lock = try_lock(one.folder / supervisor.LOCK)
        if lock is None:
            return None  # another process is doing this
        try:
            end = supervisor.read_ending(one.folder)
            if end is not None:  # written since the first read
                return end
            left = Process(who["pid"], "X", 0, 0, 0, who["started"])
            marker = f"{supervisor.MARKER}={one.order['marker']}".encode()
            if who["boot"] == read_boot_id() and not kill_all(
                lambda: find_orphans(left, marker), KILL_WAIT_S
            ):
                return None
            end = supervisor.build_ending(
                one.folder,
                dict(one.order),
                "lost",
                "its supervisor vanished; its processes are dead",
            )
            if one.folder.is_dir():
                try:
                    write_json(one.folder / supervisor.EXIT, end)
                # a full disk: the allocation ends once this can be written
                except OSError:
                    return None
            return end
        finally:
            os.close(lock)

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
    generation, first = int(order["generation"]), int(order.get("first_generation", 1))
    if int(order["gpus"]) < 1 and generation > first:
        return _read_safe_work(before)  # it was stopped before it was ordered
    known = (_find_safe_work(before, first), end.get("safe"), 0.0 if generation <= first else None)
    safe = [s for s in known if s is not None]  # 0 for a new job, which begins without work
    return {"safe": max(safe), "safe_since": generation} if safe else {}


def _ending_observation(job_id: str, generation: int, end: Mapping[str, Any]) -> Observation:
    """Return the observation in exit.json."""
    return Observation(
        job_id, generation, end["at_s"], Phase(end["phase"]), end["work_done"], end["detail"]
    )


def _build_ending(phase: str, detail: str) -> dict[str, Any]:
    return {"phase": phase, "detail": detail, "at_s": time.time(), "work_done": 0.0, "safe": None}


def _build_unstarted_ending() -> dict[str, Any]:
    return _build_ending("stopped", "was told to stop before it was started")
