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

import re
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType

from allocator.clusters.adapter import Capabilities
from allocator.domain.findings import did_you_mean, quote
from allocator.errors import UsageError
from allocator.executors.allocation import (
    EXIT,
    LOCK,
    SUPERVISOR,
    OpenAllocation,
    build_ending_without_work,
)
from allocator.executors.disk import is_locked
from allocator.executors.ledger_executor import (
    GRACE_S,
    PACKAGES,
    SupervisedExecutor,
    observe_ending,
)
from allocator.executors.supervision import supervisor
from allocator.executors.supervision.processes import Process, find_orphans, kill_all, read_boot_id
from allocator.loop.executor import NotNow, Observation, Order, find_shared
from allocator.objects import Json

SHARE_TOLERANCE = 1e-6  # that sums of shares may exceed 1 by
KILL_WAIT_S = 2.0


class LocalExecutor(SupervisedExecutor):
    """The executor of this machine (Linux).

    `devices` has the GPU indices by pool, or by node where a pool has nodes; no index is in two of
    them. `grace_s` is the seconds between SIGTERM and SIGKILL. `pool_of` is the pool of each node.
    """

    name = "local"
    capabilities = Capabilities(reports_progress=True, pins_nodes=True, shares_with_several=True)

    def __init__(
        self,
        folder: Path,
        devices: Mapping[str, Sequence[int]],
        grace_s: float = GRACE_S,
        pool_of: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        indices = [d for pool in devices.values() for d in pool]
        if len(set(indices)) != len(indices):
            raise UsageError("a GPU index was given twice")
        if not sys.platform.startswith("linux"):
            raise UsageError("the local executor needs Linux")
        self.nodes = {name: tuple(d) for name, d in devices.items() if name in pool_of}
        self.devices: dict[str, tuple[int, ...]] = {}
        for name, d in devices.items():
            pool = pool_of.get(name, name)
            self.devices[pool] = (*self.devices.get(pool, ()), *d)
        super().__init__(folder, grace_s)
        # supervisors started by this object
        self._children: dict[Path, subprocess.Popen[bytes]] = {}

    def _begin(self, allocation: OpenAllocation) -> None:
        """Start the supervisor, again after a crash too: a second one ends by itself."""
        if not allocation.has(EXIT, SUPERVISOR):
            self._spawn(allocation.folder)

    def _observe_all(self) -> Sequence[Observation | None]:
        self._reap()
        return super()._observe_all()

    def capacity(self) -> Mapping[str, int]:
        """Count the indices of each pool.

        Indices that moved from one pool to another do not count while jobs of the earlier pool hold
        them.
        """
        unended = self._list_unended().values()
        taken = {
            d: allocation.order["pool"]
            for allocation in unended
            for d in allocation.order["devices"]
        }
        return {
            pool: sum(taken.get(d, pool) == pool for d in numbers)
            for pool, numbers in self.devices.items()
        }

    def _create(self, order: Order) -> None:
        numbers = self.devices.get(order.pool, ())
        if order.gpus > len(numbers) or order.gpus < 1:
            why = f'pool "{order.pool}" of this machine has {len(numbers)} GPUs, not {order.gpus}'
            ending = build_ending_without_work("failed", why)
            self.ledger.create(order, {EXIT: ending}, devices=[])
        else:
            self._create_supervised(order, devices=self._choose_devices(order, numbers))

    def _choose_devices(self, order: Order, numbers: Sequence[int]) -> list[int]:
        """Choose the GPU indices of a new allocation. Raises NotNow."""
        given = {
            key: allocation.order["devices"]
            for key, allocation in self._list_unended(order).items()
        }
        taken = {d for devices in given.values() for d in devices}
        neighbours = [other.key for other in find_shared(order, lambda other: other.key in given)]
        shared = [d for key in neighbours for d in given[key]]
        others = {d for key, devices in given.items() if key not in neighbours for d in devices}
        if len(shared) > order.gpus or not others.isdisjoint(shared):
            raise NotNow(
                f'job "{order.job_id}": GPUs {shared} have two jobs, or are not {order.gpus}'
            )
        if order.nodes and not shared:
            return self._choose_on_nodes(order, taken)
        free = [d for d in numbers if d not in taken]
        own = order.gpus - len(shared)
        if len(free) < own:
            raise NotNow(
                f'job "{order.job_id}": {len(free)} GPUs are free in pool "{order.pool}", not {own}'
            )
        return shared + free[:own]

    def _choose_on_nodes(self, order: Order, taken: Collection[int]) -> list[int]:
        """Choose GPU indices of the nodes that the order names. Raises NotNow.

        The first share of a GPU takes any free index of its node, and others with the same number
        of the GPU join it.
        """
        shares = self._read_shares()
        chosen: list[int] = []
        for part in order.nodes:
            if (part.node, part.gpu) in shares:
                index, used = shares[part.node, part.gpu]
                if used + (part.fraction or 0.0) > 1.0 + SHARE_TOLERANCE:
                    raise NotNow(
                        f'job "{order.job_id}": {used:g} of GPU {part.gpu} of node "{part.node}" is'
                        f" taken, so that {part.fraction:g} is not free"
                    )
                chosen.append(index)
                continue
            free = [d for d in self.nodes.get(part.node, ()) if d not in taken]
            if len(free) < part.gpus:
                raise NotNow(
                    f'job "{order.job_id}": {len(free)} GPUs are free on node "{part.node}", not'
                    f" {part.gpus}"
                )
            chosen += free[: part.gpus]
        return chosen

    def _read_shares(self) -> dict[tuple[str, int | None], tuple[int, float]]:
        """Return the index and the taken share of each GPU of which allocations have shares."""
        out: dict[tuple[str, int | None], tuple[int, float]] = {}
        for allocation in self._list_unended().values():
            for part in allocation.order["nodes"]:
                if part["gpu"] is not None:
                    key = part["node"], part["gpu"]
                    used = out[key][1] if key in out else 0.0
                    out[key] = allocation.order["devices"][0], used + part["fraction"]
        return out

    def _spawn(self, place: Path) -> None:
        self._reap()
        if place in self._children:
            return  # the supervisor is still starting
        with supervisor.open_for_appending(place / "keeper.log") as log:
            self._children[place] = subprocess.Popen(
                [sys.executable, "-m", "allocator.executors.supervision.supervisor", str(place)],
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

    def _observe_allocation(self, allocation: OpenAllocation) -> Observation | None:
        end = allocation.read_ending()
        if end is None:
            who = allocation.read(SUPERVISOR)
            if who is None:
                return None
            if is_locked(allocation.folder / LOCK):
                return self._running_observation(allocation)
            why = "its supervisor vanished; its processes are dead"
            # on a full disk the allocation ends once this can be written
            with suppress(OSError):
                end = allocation.end("lost", why, lambda: _kill_orphans(allocation, who))
            if end is None:
                return self._running_observation(
                    allocation, "its supervisor is gone, and its end cannot be recorded yet"
                )
        return observe_ending(allocation, end)


def _kill_orphans(allocation: OpenAllocation, who: Json) -> bool:
    """Kill what a supervisor left, unless the machine has booted since; False: it lives on."""
    left = Process(who["pid"], "X", 0, 0, who["started"])
    marker = f"{supervisor.MARKER}={allocation.order['marker']}".encode()
    return who["boot"] != read_boot_id() or kill_all(
        lambda: find_orphans(left, marker), KILL_WAIT_S
    )


MOST_INDEX = 65_535
_RANGE = re.compile(r"\s*([0-9]{1,6})\s*(?:-\s*([0-9]{1,6})\s*)?")


def device_numbers(gpus: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return GPU indices by pool, counted through in the order of the pools."""
    ends = dict(zip(gpus, accumulate(gpus.values()), strict=True))
    return {pool: tuple(range(ends[pool] - n, ends[pool])) for pool, n in gpus.items()}


def device_map(text: str, gpus: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Parse GPU indices by pool from text such as POOL=0-3,POOL=4-7.

    An index or range without a pool belongs to the pool before it.

    Parameters
    ----------
    text : str
        The indices as the user wrote them.
    gpus : mapping of str to int
        GPUs of each pool of the queue; nodes take the place of a pool that has some. A pool may
        have more indices than that, so that its number of GPUs can be raised later.

    Raises
    ------
    UsageError
        With every fault: a malformed range, an unknown pool, an index named twice, or too few
        indices for a pool.
    """
    faults: list[str] = []
    owner: dict[int, str] = {}
    devices: dict[str, list[int]] = {}
    pool = ""
    for part in text.split(","):
        head, named, span = part.rpartition("=")
        if named:
            pool = head.strip()
            if pool not in gpus:
                faults.append(f"the queue has no pool {quote(pool)}{did_you_mean(pool, gpus)}")
        elif not pool:
            faults.append(f"{quote(part)} belongs to no pool: say POOL=0-3")
        match = _RANGE.fullmatch(span)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        indices = range(first, last + 1)
        if not first <= last <= MOST_INDEX:
            faults.append(
                f"{quote(part)}: {quote(span)} is neither a GPU index nor a range such as 0-3"
            )
            continue
        twice = [i for i in indices if i in owner]
        if twice:
            before = quote(owner[twice[0]])
            faults.append(
                f"GPU {twice[0]} is named for pool {before} and again for pool {quote(pool)}"
            )
        owner.update((i, pool) for i in indices if i not in owner)
        devices.setdefault(pool, []).extend(indices)
    faults += [
        f"pool {quote(name)} has {n} GPUs in the queue, but {len(devices.get(name, ()))} indices"
        for name, n in gpus.items()
        if len(devices.get(name, ())) < n
    ]
    if faults:
        raise UsageError("devices: " + "; ".join(faults))
    return {name: tuple(devices.get(name, ())) for name in gpus}
