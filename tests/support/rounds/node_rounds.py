"""Random rounds with nodes: odd sizes, drained nodes, racks, shares of a GPU, CPUs and memory."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.random import Generator

import allocator as api
from allocator.domain.problem import Problem
from allocator.domain.records import (
    Job,
    Node,
    Placement,
    Pool,
    Rate,
    Tenant,
    snapshot_of_records,
)
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot

SIZES = (1, 1, 2, 3, 4, 5, 6, 8, 12, 16)
SHARES = (0.25, 0.3, 0.5, 0.6, 0.75)


def node_snapshot(
    seed: int,
    *,
    jobs: int = 30,
    nodes: int = 6,
    pools: int = 3,
    spread: bool = False,
    plain: bool = False,
) -> Snapshot:
    """Return a round whose running jobs are placed at random, scattered over their pools.

    `jobs` and `nodes` (of a pool) and `pools` are the most there are. `spread` adds speeds on more
    nodes than sizes need, and jobs that may be on them. `plain` leaves out what limits plans but
    nodes and jobs: shares of GPUs, CPUs, memory, lost nodes, tenants, budgets.
    """
    rng = np.random.default_rng(seed)
    machines = _Machines(rng, int(rng.integers(1, pools + 1)), nodes, plain)
    owners = ("red", "blue", "green")
    every = [machines.job(rng, i, owners) for i in range(int(rng.integers(2, jobs + 1)))]
    rates = [
        Rate(model, kind, k, round(base * k**power, 4))
        for model, power in (("m0", 0.6), ("m1", 0.8), ("m2", 0.95))
        for kind, base in (("A", 3.0), ("B", 2.0))
        for k in sorted(set(SIZES))
    ]
    if spread:
        other = np.random.default_rng([seed, 1])
        rates += _spread_rates(other, rates, machines.pools)
        every = [_spread_job(other, job) for job in every]
    tenants = [
        Tenant(
            name,
            max_gpus=_pick(rng, None, None, 10, 20),
            guaranteed_gpus=_pick(rng, 0, 0, 0, 2, 4),
        )
        for name in owners
    ]
    config: dict[str, Any] = {"now_s": 1000.0, "topology": {"levels": ["rack", "block"]}}
    if rng.random() < 0.3 and not plain:
        config["max_changes"] = int(rng.integers(0, 6))
    if rng.random() < 0.3 and not plain:
        config["budget_per_hour"] = float(rng.integers(5, 60))
    return snapshot_of_records(
        f"nodes-{seed}",
        config,
        {
            "jobs": every,
            "pools": machines.pools,
            "rates": rates,
            "tenants": [] if plain else tenants,
            "nodes": machines.nodes,
            "placements": machines.placements,
        },
    )


def sized_job(name: str, gpus: int, on: str = "", **more: Any) -> Job:
    """A job of one size; `on` is the pool in which it runs."""
    state = {"state": "running", "pool": on, "gpus": gpus} if on else {}
    values = {"min_gpus": gpus, "sizes": [gpus], "remaining_work": 10_000, **state, **more}
    return Job(name, "m", max_gpus=gpus, **values)


def one_pool(
    jobs: list[Job],
    sizes: list[int],
    placed: dict[str, dict[str, int]] | None = None,
    *,
    rates: list[Rate],
    gpus_per_node: int = 8,
    **more: Any,
) -> api.Problem:
    """A pool "p" of nodes n0, n1, ... of these sizes; GPUs of each job by node."""
    return api.Problem.build(
        jobs=jobs,
        pools=[Pool("p", "A", sum(sizes), gpus_per_node=gpus_per_node)],
        rates=rates,
        nodes=[Node(f"n{i}", "p", k, **more.pop(f"n{i}", {})) for i, k in enumerate(sizes)],
        placements=[
            Placement(name, node, k)
            for name, spot in (placed or {}).items()
            for node, k in spot.items()
        ],
        **more,
    )


def nodes_of(plan: api.Plan) -> dict[str, dict[str, int]]:
    """The nodes of each job that has some."""
    return {
        name: {place["node"]: place["gpus"] for place in places}
        for name, places in zip(plan.jobs["job_id"], plan.jobs["nodes"], strict=True)
        if places
    }


def _spread_rates(rng: Generator, rates: list[Rate], pools: list[Pool]) -> list[Rate]:
    """Return speeds of some sizes on more nodes than they need, some of them faster."""
    largest: dict[str, int] = {}
    for pool in pools:
        largest[pool.gpu_type] = max(pool.gpus_per_node, largest.get(pool.gpu_type, 0))
    found = []
    for row in rates:
        fewest = -(-row.gpus // largest[row.gpu_type]) if row.gpu_type in largest else row.gpus
        for k in {fewest + 1, fewest + 2, row.gpus}:
            if fewest < k <= row.gpus and rng.random() < 0.7:
                factor = float(rng.uniform(0.6, 1.6))
                found.append(
                    dataclasses.replace(row, work_per_s=round(row.work_per_s * factor, 4), spread=k)
                )
    return found


def _spread_job(rng: Generator, job: Job) -> Job:
    """Let half of the jobs of whole GPUs be on more nodes, if they may be changed."""
    if job.gpu_fraction or not job.preemptible or rng.random() < 0.5:
        return job
    return dataclasses.replace(job, placement=_pick(rng, "spread", "spread", "prefer_rack"))


def node_round(seed: int, **asked: Any) -> Problem:
    """Return `node_snapshot` as a checked problem."""
    return validate(node_snapshot(seed, **asked))


def _pick(rng: Generator, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


class _Machines:
    """Pools and nodes, and what is free on them."""

    def __init__(self, rng: Generator, pools: int, most: int, plain: bool) -> None:
        self.pools, self.nodes, self.placements = list[Pool](), list[Node](), list[Placement]()
        self._plain, self._limited = plain, bool(rng.random() < 0.5) and not plain
        for p in range(pools):
            per, mine = _pick(rng, 2, 4, 8, 8), list[Node]()
            for i in range(int(rng.integers(1, most + 1))):
                gpus = per if rng.random() < 0.8 else int(rng.integers(1, per + 1))
                mine.append(
                    Node(
                        f"n{p}-{i}",
                        f"p{p}",
                        gpus,
                        state=_pick(rng, *["up"] * 8, *([] if plain else ["drain", "down"])),
                        rack=f"r{i % 3}",
                        cpus=_pick(rng, None, 4 * gpus, 8 * gpus) if self._limited else None,
                        host_memory_gb=_pick(rng, None, 64 * gpus) if self._limited else None,
                        labels={"block": f"b{i % 2}"},
                    )
                )
            self.nodes += mine
            total = sum(node.gpus for node in mine)
            price = _pick(rng, 0.0, 1.0, 2.5)
            self.pools.append(
                Pool(f"p{p}", "AB"[p % 2], total, gpus_per_node=per, price_per_gpu_hour=price)
            )
        self._free = {node.node: node.gpus for node in self.nodes}
        self._cpus = {node.node: node.cpus or math.inf for node in self.nodes}
        self._memory_gb = {node.node: node.host_memory_gb or math.inf for node in self.nodes}
        self._shares: dict[tuple[str, int], float] = {}

    def job(self, rng: Generator, number: int, owners: tuple[str, ...]) -> Job:
        """Return a job that waits, or that runs where GPUs were free."""
        most = _pick(rng, *SIZES)
        share = _pick(rng, *SHARES) if rng.random() < 0.2 and not self._plain else None
        most = most if share is None else 1
        least = 1 if rng.random() < 0.6 else most
        sizes = {least, most, *rng.integers(least, most + 1, 2).tolist()}
        values: dict[str, Any] = {
            "submitted_s": float(rng.integers(0, 1000)),
            "remaining_work": float(_pick(rng, 500, 2000, 8000)),
            "max_gpus": most,
            "min_gpus": least,
            "sizes": sorted(sizes),
            "tenant": _pick(rng, *owners),
            "weight": _pick(rng, 0.5, 1.0, 1.0, 2.0),
            "resizes_left": _pick(rng, *[None] * 6, 0, 1),
            "restart_s": _pick(rng, None, 0.0, 60.0),
            "gpu_fraction": share,
            "placement": _pick(
                rng, *["packed"] * 4, "spread", "same_rack", "prefer_rack", "same_block"
            ),
        }
        if self._limited:
            values |= {"cpus_per_gpu": _pick(rng, 0.0, 3.0, 4.0, 8.0)}
            values |= {"host_memory_gb_per_gpu": _pick(rng, 0.0, 32.0, 64.0)}
        job = Job(f"j{number}", _pick(rng, "m0", "m1", "m2"), **values)
        if rng.random() < 0.55:
            return self._run(rng, job, int(rng.integers(least, most + 1)))
        return job

    def _run(self, rng: Generator, job: Job, gpus: int) -> Job:
        pool = _pick(rng, *self.pools).pool
        mine = [node for node in self.nodes if node.pool == pool]
        mine = [mine[i] for i in rng.permutation(len(mine)).tolist()]
        found = self._share(job, mine) if job.gpu_fraction else self._whole(job, mine, gpus)
        if not found:
            return job
        if self._plain or rng.random() < 0.95:  # else its nodes are unknown
            self.placements += found
        firm = job.placement == "packed" and rng.random() < 0.3
        return dataclasses.replace(
            job,
            state="running",
            pool=pool,
            gpus=1 if job.gpu_fraction else gpus,
            preemptible=not firm,
        )

    def _whole(self, job: Job, nodes: list[Node], gpus: int) -> list[Placement]:
        left, found = gpus, list[Placement]()
        for node in nodes:
            fit = min(left, self._free[node.node])
            for limit, each in (
                (self._cpus[node.node], job.cpus_per_gpu),
                (self._memory_gb[node.node], job.host_memory_gb_per_gpu),
            ):
                if each > 0 and math.isfinite(limit):
                    fit = min(fit, int(limit // each))
            if fit > 0:
                found.append(Placement(job.job_id, node.node, fit))
                left -= fit
        if left:
            return []
        for place in found:
            self._free[place.node] -= place.gpus
            self._use(job, place.node, place.gpus)
        return found

    def _share(self, job: Job, nodes: list[Node]) -> list[Placement]:
        share = job.gpu_fraction or 0.0
        for node in nodes:
            name = node.node
            if (
                self._cpus[name] < job.cpus_per_gpu
                or self._memory_gb[name] < job.host_memory_gb_per_gpu
            ):
                continue
            split = [g for n, g in self._shares if n == name]
            gpu = next((g for g in split if self._shares[name, g] + share <= 1 + 1e-9), None)
            if gpu is None and self._free[name] > 0:
                gpu = next(g for g in range(node.gpus) if g not in split)
                self._free[name] -= 1
                self._shares[name, gpu] = 0.0
            if gpu is not None:
                self._shares[name, gpu] += share
                self._use(job, name, 1)
                return [Placement(job.job_id, name, 1, gpu=gpu)]
        return []

    def _use(self, job: Job, node: str, gpus: int) -> None:
        self._cpus[node] -= gpus * job.cpus_per_gpu
        self._memory_gb[node] -= gpus * job.host_memory_gb_per_gpu
