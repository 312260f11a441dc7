"""Nodes that are alike for every job, as pools and GPU types of a snapshot."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocator.clusters.kubernetes.nodes import GpuNode
from allocator.clusters.kubernetes.workloads.constraints import admits, placement_rules
from allocator.clusters.kubernetes.workloads.jobs import FoundJob
from allocator.objects import Json


@dataclass(frozen=True)
class Pools:
    """Which nodes are alike, and which of them each job may use.

    Two nodes are in one pool if they have the same product, label and market, if they belong to the
    same flavors of Kueue, and if the same jobs may run on them. A GPU type is a product, or the
    part of it that only some jobs may use.

    Parameters
    ----------
    of_node : mapping of str to str
        Pool of each node of nodes.csv.
    types : mapping of str to str
        GPU type of each pool.
    nodes : mapping of str to list of GpuNode
        Nodes of each pool.
    admitted : mapping of str to set of str
        GPU types that each job may use.
    notes : tuple of str
        Products that had to be split.
    """

    of_node: Mapping[str, str]
    types: Mapping[str, str]
    nodes: Mapping[str, list[GpuNode]]
    admitted: Mapping[str, set[str]]
    notes: tuple[str, ...] = ()

    def rows(self, free: Mapping[str, int]) -> list[Json]:
        """Return pools.csv; `free` are the GPUs of each node that the allocator may give away."""
        return [
            {
                "pool": pool,
                "gpu_type": self.types[pool],
                "gpus": sum(free[node.name] for node in nodes if node.state == "up"),
                "gpus_per_node": max(node.gpus for node in nodes),
                "market": "spot" if nodes[0].is_spot else "reserved",
                "memory_gb": nodes[0].memory_gb,
            }
            for pool, nodes in self.nodes.items()
        ]


def slug(text: str) -> str:
    """Return text as lower-case letters, digits and hyphens.

    Examples
    --------
    >>> slug("NVIDIA-A100-SXM4-80GB")
    'nvidia-a100-sxm4-80gb'
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-") or "gpu"


def _name(given: dict[tuple[str, Any], str], wanted: str, key: Any) -> str:
    """Return the name of a key: the one that is wanted, or with a number if another key has it."""
    if (wanted, key) not in given:
        taken = set(given.values())
        numbered = (f"{wanted}-{n}" for n in range(2, len(taken) + 3))
        given[wanted, key] = next(n for n in (wanted, *numbered) if n not in taken)
    return given[wanted, key]


def group_nodes(
    nodes: Sequence[GpuNode], jobs: Sequence[FoundJob], flavors: Mapping[str, set[str]]
) -> Pools:
    """Return the pools of the nodes."""
    rules = {  # jobs that ask for the same are one here: there are few kinds and many jobs
        job.job_id: frozenset(
            (placement_rules(pod_set.pod, job.pinned), pod_set.resource)
            for pod_set in job.pod_sets
            if pod_set.gpus
        )
        for job in jobs
    }
    kinds = Counter(rules.values())
    patterns = sorted({rule for kind in kinds for rule in kind})
    admitting = {
        node.name: frozenset(
            (rule, resource)
            for rule, resource in patterns
            if resource == node.resource
            and admits(rule, node.labels, node.node, node.taints, resource)
        )
        for node in nodes
    }
    users = {
        node: frozenset(k for k in kinds if k <= allowed) for node, allowed in admitting.items()
    }
    ordered = sorted(nodes, key=lambda node: (-sum(kinds[k] for k in users[node.name]), node.name))
    type_names: dict[tuple[str, Any], str] = {}
    pool_names: dict[tuple[str, Any], str] = {}
    of_node: dict[str, str] = {}
    types: dict[str, str] = {}
    members: dict[str, list[GpuNode]] = {}
    for node in ordered:
        gpu_type = _name(type_names, node.product, users[node.name])
        wanted = node.pool or slug(gpu_type + ("-spot" if node.is_spot else ""))
        in_flavors = frozenset(name for name, names in flavors.items() if node.name in names)
        pool = _name(pool_names, wanted, (gpu_type, node.is_spot, node.resource, in_flavors))
        of_node[node.name], types[pool] = pool, gpu_type
        members.setdefault(pool, []).append(node)
    of_kind = {
        kind: {types[of_node[node]] for node, its_users in users.items() if kind in its_users}
        for kind in kinds
    }
    admitted = {job: of_kind[kind] for job, kind in rules.items()}
    notes = tuple(
        f'some jobs may not use all nodes with "{product}": those that fewer jobs may use are the'
        f' GPU type "{name}", for which speeds of their own are needed'
        for (product, _), name in sorted(type_names.items(), key=lambda pair: pair[1])
        if name != product
    )
    return Pools(of_node, types, dict(sorted(members.items())), admitted, notes)
