"""Cluster queues and cohorts, or quotas of namespaces, as tenants of a snapshot."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from allocator.clusters.kubernetes.kueue import Kueue, Quota, QuotaNode
from allocator.clusters.kubernetes.nodes import is_gpu
from allocator.clusters.kubernetes.objects import Objects, field, namespace_of, quantity
from allocator.clusters.kubernetes.pools import Pools
from allocator.objects import Json

Rows = list[Json]


def read_limits(
    objects: Objects, kueue: Kueue, pools: Pools, flavors: Mapping[str, set[str]]
) -> tuple[Rows, Rows, list[str]]:
    """Return the quotas of Kueue; without Kueue, those of the namespaces.

    Returns
    -------
    tuple
        Rows of tenants.csv and of quotas.csv, and what the tables cannot say.
    """
    if not kueue.is_installed:
        return list(_namespace_rows(objects)), [], []
    return _Limits(kueue, pools, flavors).read()


def fit_guarantees(quotas: Rows, pools: Pools, room: Mapping[str, int]) -> list[str]:
    """Lower guarantees to what the nodes can keep, and return notes about them.

    Kueue compares quotas with no nodes.

    Parameters
    ----------
    quotas : list of dict
        Rows of quotas.csv; they are changed.
    pools : Pools
        Pools of the nodes.
    room : mapping of str to int
        GPUs of each pool that jobs in queues can have.
    """
    wanted: Counter[tuple[Any, Any]] = Counter()
    for row in quotas:
        wanted[row["gpu_type"], row["pool"]] += row.get("guaranteed_gpus") or 0
    there = {
        (gpu_type, pool): sum(
            n * ((name == pool) + (pools.types[name] == gpu_type)) for name, n in room.items()
        )
        for gpu_type, pool in wanted
    }
    for row in quotas:
        place = row["gpu_type"], row["pool"]
        if wanted[place] > there[place] and row.get("guaranteed_gpus"):
            row["guaranteed_gpus"] = row["guaranteed_gpus"] * there[place] // wanted[place]
            row["lend_gpus"] = None
    return [
        f"quotas guarantee {total} GPUs of {place[0] or place[1]}, whose nodes have {there[place]}"
        for place, total in wanted.items()
        if total > there[place]
    ]


def _namespace_rows(objects: Objects) -> Iterator[Json]:
    most: defaultdict[str, list[int]] = defaultdict(list)
    for quota in objects.of_kind("ResourceQuota"):
        for name, amount in (field(quota, "spec", "hard") or {}).items():
            if name.startswith("requests.") and is_gpu(name.removeprefix("requests.")):
                most[namespace_of(quota)].append(int(quantity(amount)))
    for space, gpus in sorted(most.items()):
        yield {"tenant": space, "max_gpus": min(gpus)}


@dataclass(frozen=True)
class _Limits:
    """The quotas of cluster queues and cohorts, on the pools of a cluster."""

    kueue: Kueue
    pools: Pools
    flavors: Mapping[str, set[str]]

    def read(self) -> tuple[Rows, Rows, list[str]]:
        """Return tenants, quotas, and notes."""
        notes: list[str] = []
        quotas: Rows = []
        for queue in self.kueue.cluster_queues.values():
            for quota in queue.quotas:
                place = self._place(quota.flavor, quota.resource)
                if place is None:
                    notes.append(
                        f"ClusterQueue {queue.name}: the nodes of flavor {quota.flavor} are neither"
                        " one pool nor all of a GPU type; its quota is left out"
                    )
                else:
                    quotas.append({"tenant": queue.name, **place, **_queue_limits(queue, quota)})
            # 0 for each pool that no flavor of it has a node of
            listed = {
                (name, quota.resource)
                for quota in queue.quotas
                for name in self.flavors.get(quota.flavor, ())
            }
            for pool, nodes in self.pools.nodes.items():
                if not any((node.name, node.resource) in listed for node in nodes):
                    limits = {"guaranteed_gpus": 0, "max_gpus": 0, "lend_gpus": None}
                    quotas.append({"tenant": queue.name, "gpu_type": None, "pool": pool, **limits})
        cohorts = self.kueue.cohorts.values()
        quotas += [row for cohort in cohorts for row in self._cohort_rows(cohort)]
        tenants = [
            {"tenant": node.name, "weight": node.weight, "parent": node.cohort or None}
            for node in (*cohorts, *self.kueue.cluster_queues.values())
        ]
        return tenants, _merged(quotas), notes

    def _place(self, flavor: str, resource: str) -> Json | None:
        """Return the pool or the GPU type that the nodes of a flavor are, or None."""
        of_flavor = self.flavors.get(flavor, set())
        of_resource = {
            pool: {node.name for node in nodes if node.resource == resource}
            for pool, nodes in self.pools.nodes.items()
        }
        pools = [pool for pool, names in of_resource.items() if names & of_flavor]
        if len(pools) == 1 and of_resource[pools[0]] <= of_flavor:
            return {"gpu_type": None, "pool": pools[0]}
        types = {self.pools.types[pool] for pool in pools}
        whole = [names for pool, names in of_resource.items() if self.pools.types[pool] in types]
        if len(types) == 1 and all(names <= of_flavor for names in whole):
            return {"gpu_type": types.pop(), "pool": None}
        return None

    def _cohort_rows(self, cohort: QuotaNode) -> Iterator[Json]:
        """Yield the most GPUs of a cohort: those of its members, and what it may borrow itself."""
        borrowed = {(quota.flavor, quota.resource): quota.borrowing for quota in cohort.quotas}
        totals: Counter[tuple[str, str]] = Counter()
        for member in self._members(cohort.name, frozenset()):
            for quota in member.quotas:
                totals[quota.flavor, quota.resource] += quota.nominal
        for key, total in totals.items():
            place = self._place(*key)
            extra = borrowed.get(key) if cohort.cohort else 0
            if place is not None and extra is not None:
                yield {"tenant": cohort.name, **place, "max_gpus": total + extra}

    def _members(self, name: str, seen: frozenset[str]) -> Iterator[QuotaNode]:
        """Yield a cohort and all that is below it."""
        if name in seen:
            return
        yield self.kueue.cohorts[name]
        yield from (queue for queue in self.kueue.cluster_queues.values() if queue.cohort == name)
        for below in self.kueue.cohorts.values():
            if below.cohort == name:
                yield from self._members(below.name, seen | {name})


def _queue_limits(node: QuotaNode, quota: Quota) -> Json:
    """Return the limits of one flavor of a cluster queue.

    What it lends and never takes back is not guaranteed to it.
    """
    most = None if quota.borrowing is None else quota.nominal + quota.borrowing
    lent = quota.nominal if quota.lending is None else min(quota.lending, quota.nominal)
    is_safe = node.reclaims or not node.cohort
    return {
        "guaranteed_gpus": quota.nominal if is_safe else quota.nominal - lent,
        "max_gpus": most if node.cohort else quota.nominal,
        "lend_gpus": quota.lending if node.cohort and is_safe else None,
    }


def _merged(quotas: Rows) -> Rows:
    """Return rows with one for each tenant and place: flavors of the same GPUs add up."""
    merged: dict[tuple[Any, ...], Json] = {}
    for row in quotas:
        known = merged.setdefault((row["tenant"], row["gpu_type"], row["pool"]), row)
        for name in ("guaranteed_gpus", "max_gpus", "lend_gpus"):
            if known is not row:
                total, other = known.get(name), row.get(name)
                known[name] = None if total is None or other is None else total + other
    return list(merged.values())
