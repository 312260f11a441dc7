"""Cluster queues and cohorts, or quotas of namespaces, as tenants of a snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from allocator.clusters.kubernetes.kueue import Kueue, Quota, QuotaNode
from allocator.clusters.kubernetes.nodes import is_gpu
from allocator.clusters.kubernetes.objects import Objects, field, namespace_of, quantity
from allocator.clusters.kubernetes.pools import Pools

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Limits:
    """What tenants may hold.

    Parameters
    ----------
    tenants, quotas : list of dict
        Rows of tenants.csv and quotas.csv.
    notes : list of str
        What the tables cannot say.
    """

    tenants: Rows
    quotas: Rows
    notes: list[str]


def read_limits(
    objects: Objects, kueue: Kueue, pools: Pools, flavors: Mapping[str, set[str]]
) -> Limits:
    """Return the quotas of Kueue; without Kueue, those of the namespaces."""
    if not kueue.is_installed:
        return Limits(list(_namespace_rows(objects)), [], [])
    notes: list[str] = []
    quotas: Rows = []
    for node in kueue.cluster_queues.values():
        for one in node.quotas:
            place = _place(one.flavor, one.resource, pools, flavors)
            if place is None:
                notes.append(
                    f"ClusterQueue {node.name}: the nodes of flavor {one.flavor} are neither one"
                    " pool nor all of a GPU type; its quota is left out"
                )
                continue
            quotas.append({"tenant": node.name, **place, **_queue_limits(node, one)})
        quotas.extend(_unlisted_rows(node, pools, flavors))
    for cohort in kueue.cohorts.values():
        quotas.extend(_cohort_rows(cohort, kueue, pools, flavors))
    tenants = [
        {"tenant": one.name, "weight": one.weight, "parent": one.cohort or None}
        for one in (*kueue.cohorts.values(), *kueue.cluster_queues.values())
    ]
    return Limits(tenants, _merged(quotas), notes)


def fit_guarantees(limits: Limits, pools: Pools, room: Mapping[str, int]) -> Limits:
    """Return limits whose guarantees the nodes can keep: Kueue compares quotas with no nodes.

    Parameters
    ----------
    limits : Limits
        Limits of Kueue.
    pools : Pools
        Pools of the nodes.
    room : mapping of str to int
        GPUs of each pool that jobs in queues can have.
    """
    wanted: Counter[tuple[Any, Any]] = Counter()
    for row in limits.quotas:
        wanted[row["gpu_type"], row["pool"]] += row.get("guaranteed_gpus") or 0
    there = {
        (gpu_type, pool): sum(n for name, n in room.items() if name == pool)
        + sum(n for name, n in room.items() if pools.types[name] == gpu_type)
        for gpu_type, pool in wanted
    }
    notes = [
        f"quotas guarantee {total} GPUs of {place[0] or place[1]}, whose nodes have {there[place]}"
        for place, total in wanted.items()
        if total > there[place]
    ]
    rows = [dict(row) for row in limits.quotas]
    for row in rows:
        place = row["gpu_type"], row["pool"]
        if wanted[place] > there[place] and row.get("guaranteed_gpus"):
            row["guaranteed_gpus"] = row["guaranteed_gpus"] * there[place] // wanted[place]
            row["lend_gpus"] = None
    return Limits(limits.tenants, rows, [*limits.notes, *notes])


def _namespace_rows(objects: Objects) -> Iterator[dict[str, Any]]:
    most: dict[str, int] = {}
    for one in objects.of_kind("ResourceQuota"):
        for name, amount in (field(one, "spec", "hard") or {}).items():
            if name.startswith("requests.") and is_gpu(name.removeprefix("requests.")):
                space, gpus = namespace_of(one), int(quantity(amount))
                most[space] = min(gpus, most.get(space, gpus))
    for space, gpus in sorted(most.items()):
        yield {"tenant": space, "max_gpus": gpus}


def _place(
    flavor: str, resource: str, pools: Pools, flavors: Mapping[str, set[str]]
) -> dict[str, Any] | None:
    """Return the pool or the GPU type that the nodes of a flavor are, or None."""
    held = flavors.get(flavor, set())
    of_resource = {
        pool: {node.name for node in nodes if node.resource == resource}
        for pool, nodes in pools.nodes.items()
    }
    mine = [pool for pool, names in of_resource.items() if names & held]
    if len(mine) == 1 and of_resource[mine[0]] <= held:
        return {"gpu_type": None, "pool": mine[0]}
    types = {pools.types[pool] for pool in mine}
    whole = [names for pool, names in of_resource.items() if pools.types[pool] in types]
    if len(types) == 1 and all(names <= held for names in whole):
        return {"gpu_type": types.pop(), "pool": None}
    return None


def _unlisted_rows(
    queue: QuotaNode, pools: Pools, flavors: Mapping[str, set[str]]
) -> Iterator[dict[str, Any]]:
    """Yield a quota of 0 for each pool that no flavor of a cluster queue has a node of."""
    listed = {(name, one.resource) for one in queue.quotas for name in flavors.get(one.flavor, ())}
    for pool, nodes in pools.nodes.items():
        if not any((node.name, node.resource) in listed for node in nodes):
            limits = {"guaranteed_gpus": 0, "max_gpus": 0, "lend_gpus": None}
            yield {"tenant": queue.name, "gpu_type": None, "pool": pool, **limits}


def _queue_limits(node: QuotaNode, one: Quota) -> dict[str, Any]:
    """Return the limits of one flavor of a cluster queue.

    What it lends and never takes back is not guaranteed to it.
    """
    most = one.nominal
    if node.cohort:
        most = -1 if one.borrowing is None else one.nominal + one.borrowing
    lent = one.nominal if one.lending is None else min(one.lending, one.nominal)
    is_safe = node.reclaims or not node.cohort
    return {
        "guaranteed_gpus": one.nominal if is_safe else one.nominal - lent,
        "max_gpus": None if most < 0 else most,
        "lend_gpus": one.lending if node.cohort and is_safe else None,
    }


def _cohort_rows(
    cohort: QuotaNode, kueue: Kueue, pools: Pools, flavors: Mapping[str, set[str]]
) -> Iterator[dict[str, Any]]:
    """Yield the most GPUs of a cohort: those of its members, and what it may borrow itself."""
    borrowed = {(one.flavor, one.resource): one.borrowing for one in cohort.quotas}
    totals: Counter[tuple[str, str]] = Counter()
    for member in _members(cohort.name, kueue, frozenset()):
        for one in member.quotas:
            totals[one.flavor, one.resource] += one.nominal
    for key, total in totals.items():
        place = _place(*key, pools, flavors)
        extra = borrowed.get(key) if cohort.cohort else 0
        if place is not None and extra is not None:
            yield {"tenant": cohort.name, **place, "max_gpus": total + extra}


def _members(name: str, kueue: Kueue, seen: frozenset[str]) -> Iterator[QuotaNode]:
    """Yield a cohort and all that is below it."""
    if name in seen:
        return
    yield kueue.cohorts[name]
    yield from (one for one in kueue.cluster_queues.values() if one.cohort == name)
    for below in kueue.cohorts.values():
        if below.cohort == name:
            yield from _members(below.name, kueue, seen | {name})


def _merged(quotas: Rows) -> Rows:
    """Return rows with one for each tenant and place: flavors of the same GPUs add up."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in quotas:
        key = (row["tenant"], row["gpu_type"], row["pool"])
        if key not in merged:
            merged[key] = dict(row)
            continue
        for name in ("guaranteed_gpus", "max_gpus", "lend_gpus"):
            one = merged[key].get(name)
            other = row.get(name)
            merged[key][name] = None if one is None or other is None else one + other
    return list(merged.values())
