"""Random rounds with nodes: odd sizes, drained nodes, racks, shares of a GPU, CPUs and memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.random import Generator

import allocator as api
from allocator.domain.problem import Problem
from allocator.domain.records import Job, Node, Placement, Pool, Rate, Tenant
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot, snapshot_of_records

SIZES = (1, 1, 2, 3, 4, 5, 6, 8, 12, 16)
SHARES = (0.25, 0.3, 0.5, 0.6, 0.75)
OWNERS = ("red", "blue", "green")
MUCH = 1e9


def node_snapshot(
    seed: int,
    *,
    jobs: int = 30,
    nodes: int = 6,
    pools: int = 3,
    spread: bool = False,
    pods: bool = False,
    plain: bool = False,
    leaving: bool = False,
) -> Snapshot:
    """Return a round whose running jobs are placed at random, scattered over their pools.

    `jobs` and `nodes` (of a pool) and `pools` are the most there are. `spread` adds speeds on more
    nodes than sizes need, and jobs that may be on them. `pods` makes half of the jobs gangs of
    pods, some of which run torn. `plain` leaves out what limits plans but nodes and jobs: shares of
    GPUs, CPUs, memory, lost nodes, tenants, budgets. `leaving` lets nodes leave, and jobs that wait
    be such that may not be stopped.
    """
    rng = np.random.default_rng(seed)
    count, most_nodes = int(rng.integers(1, pools + 1)), nodes
    limited = bool(rng.random() < 0.5) and not plain
    pool_rows, node_rows, placed = list[Pool](), list[Node](), list[Placement]()
    for p in range(count):
        per, mine = _pick(rng, 2, 4, 8, 8), list[Node]()
        for i in range(int(rng.integers(1, most_nodes + 1))):
            gpus = per if rng.random() < 0.8 else int(rng.integers(1, per + 1))
            mine.append(
                Node(
                    f"n{p}-{i}",
                    f"p{p}",
                    gpus,
                    state=_pick(rng, *["up"] * 8, *([] if plain else ["drain", "down"])),
                    rack=f"r{i % 3}",
                    cpus=_pick(rng, None, 4 * gpus, 8 * gpus) if limited else None,
                    host_memory_gb=_pick(rng, None, 64 * gpus) if limited else None,
                    labels={"block": f"b{i % 2}"},
                )
            )
        node_rows += mine
        price, total = _pick(rng, 0.0, 1.0, 2.5), sum(node.gpus for node in mine)
        made = Pool(f"p{p}", "AB"[p % 2], total, gpus_per_node=per, price_per_gpu_hour=price)
        pool_rows.append(made)
    room = {n.node: [n.gpus, n.cpus or MUCH, n.host_memory_gb or MUCH] for n in node_rows}
    shares: dict[tuple[str, int], float] = {}
    every = list[Job]()
    for number in range(int(rng.integers(2, jobs + 1))):
        job = _job(rng, number, limited, plain)
        if rng.random() < 0.55:
            gpus = int(rng.integers(job.min_gpus, job.max_gpus + 1))
            pool = _pick(rng, *pool_rows).pool
            mine = [node for node in node_rows if node.pool == pool]
            mine = [mine[i] for i in rng.permutation(len(mine)).tolist()]
            if found := _place(job, gpus, mine, room, shares):
                if plain or rng.random() < 0.95:  # else its nodes are unknown
                    placed += found
                firm = job.placement == "packed" and rng.random() < 0.3
                holds = {"state": "running", "pool": pool, "gpus": 1 if job.gpu_fraction else gpus}
                job = dataclasses.replace(job, **holds, preemptible=not firm)
        every.append(job)
    rates = [
        Rate(model, kind, k, round(base * k**power, 4))
        for model, power in (("m0", 0.6), ("m1", 0.8), ("m2", 0.95))
        for kind, base in (("A", 3.0), ("B", 2.0))
        for k in sorted(set(SIZES))
    ]
    if spread:
        other = np.random.default_rng([seed, 1])
        rates += _spread_rates(other, rates, pool_rows)
        every = [_spread_job(other, job) for job in every]
    if pods:
        other = np.random.default_rng([seed, 2])
        every = [_pod_job(other, job) for job in every]
    if leaving:
        other = np.random.default_rng([seed, 2])
        node_rows = [_leaving_node(other, node) for node in node_rows]
        pool_rows = [dataclasses.replace(p, startup_s=_pick(other, 0.0, 40.0)) for p in pool_rows]
        every = [
            job if job.pool else dataclasses.replace(job, preemptible=other.random() < 0.5)
            for job in every
        ]
    tenants = [
        Tenant(
            name,
            max_gpus=_pick(rng, None, None, 10, 20),
            guaranteed_gpus=_pick(rng, 0, 0, 0, 2, 4),
        )
        for name in OWNERS
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
            "pools": pool_rows,
            "rates": rates,
            "tenants": [] if plain else tenants,
            "nodes": node_rows,
            "placements": placed,
        },
    )


def fragmented(seed: int, nodes: int = 500) -> Problem:
    """Return a pool of nodes of 8 GPUs, 60 to 95 % of them held by jobs of 1, 2 or 4 GPUs at random
    places. Jobs of 8 to 80 GPUs wait for the others; every job has a weight, work and pause."""
    rng = np.random.default_rng(seed)
    jobs, placed, free = list[Job](), list[Placement](), np.full(nodes, 8)
    most = rng.uniform(0.6, 0.95) * 8 * nodes

    def add(size: int, on: str = "") -> str:
        values = {
            "weight": _pick(rng, 0.5, 1.0, 1.0, 2.0),
            "restart_s": _pick(rng, 10.0, 30.0, 60.0),
        }
        work = float(rng.uniform(2000, 40_000)) * (1 if on else size)
        jobs.append(sized_job(f"j{len(jobs)}", size, on, remaining_work=work, **values))
        return jobs[-1].job_id

    while 8 * nodes - free.sum() < most:
        size = _pick(rng, *(k for k in (1, 1, 2, 4) if k <= free.max()))
        node = int(rng.choice(np.flatnonzero(free >= size)))
        free[node] -= size
        placed.append(Placement(add(size, "p"), f"n{node}", size))
    left = int(free.sum())
    while (size := _pick(rng, 8, 16, 32, 64, 80)) <= left:
        left -= size
        add(size)
    return in_one_pool(jobs, nodes, placed)


def in_one_pool(jobs: list[Job], nodes: int, placed: list[Placement]) -> Problem:
    """Return jobs of one model on a pool of nodes of 8 GPUs."""
    sizes = {size for job in jobs for size in job.sizes or ()}
    tables = {
        "jobs": jobs,
        "pools": [Pool("p", "A", 8 * nodes, gpus_per_node=8)],
        "rates": [Rate("m", "A", size, size**0.9) for size in sorted(sizes)],
        "nodes": [Node(f"n{i}", "p", 8, rack=f"r{i // 10}") for i in range(nodes)],
        "placements": placed,
    }
    return validate(snapshot_of_records("one-pool", {"now_s": 0.0}, tables))


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


def _leaving_node(rng: Generator, node: Node) -> Node:
    """Let most nodes leave: before the round, in it, at its end, or later; some come back."""
    leaves_s = _pick(rng, None, 800.0, 1200.0, 1300.0, 1400.0, 1700.0, 1700.0, 2500.0)
    back_s = _pick(rng, None, 100.0, 250.0, 4000.0)
    both = leaves_s is not None and back_s is not None
    return dataclasses.replace(
        node, leaves_s=leaves_s, returns_s=leaves_s + back_s if both else None
    )


def _spread_job(rng: Generator, job: Job) -> Job:
    """Let half of the jobs of whole GPUs be on more nodes, if they may be changed."""
    if job.gpu_fraction or not job.preemptible or rng.random() < 0.5:
        return job
    return dataclasses.replace(job, placement=_pick(rng, "spread", "spread", "prefer_rack"))


def _pod_job(rng: Generator, job: Job) -> Job:
    """Make half of the jobs of whole GPUs gangs of pods."""
    if job.gpu_fraction or rng.random() < 0.5:
        return job
    pod = _pick(rng, 2, 3)
    most = max(1, job.max_gpus // pod)
    sizes = sorted({pod * int(k) for k in (*rng.integers(1, most + 1, 2), most)})
    more = {"min_gpus": 1, "max_gpus": most * pod, "sizes": _pick(rng, sizes, None)}
    return dataclasses.replace(job, gpus_per_pod=pod, **more)


def node_round(seed: int, **asked: Any) -> Problem:
    """Return `node_snapshot` as a checked problem."""
    return validate(node_snapshot(seed, **asked))


def _pick(rng: Generator, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _job(rng: Generator, number: int, limited: bool, plain: bool) -> Job:
    """Return a job that waits."""
    most = _pick(rng, *SIZES)
    share = _pick(rng, *SHARES) if rng.random() < 0.2 and not plain else None
    most = most if share is None else 1
    least = 1 if rng.random() < 0.6 else most
    sizes = {least, most, *rng.integers(least, most + 1, 2).tolist()}
    values: dict[str, Any] = {
        "submitted_s": float(rng.integers(0, 1000)),
        "remaining_work": float(_pick(rng, 500, 2000, 8000)),
        "max_gpus": most,
        "min_gpus": least,
        "sizes": sorted(sizes),
        "tenant": _pick(rng, *OWNERS),
        "weight": _pick(rng, 0.5, 1.0, 1.0, 2.0),
        "resizes_left": _pick(rng, *[None] * 6, 0, 1),
        "restart_s": _pick(rng, None, 0.0, 60.0),
        "gpu_fraction": share,
        "placement": _pick(
            rng, *["packed"] * 4, "spread", "same_rack", "prefer_rack", "same_block"
        ),
    }
    if limited:
        values |= {"cpus_per_gpu": _pick(rng, 0.0, 3.0, 4.0, 8.0)}
        values |= {"host_memory_gb_per_gpu": _pick(rng, 0.0, 32.0, 64.0)}
    return Job(f"j{number}", _pick(rng, "m0", "m1", "m2"), **values)


def _place(
    job: Job,
    gpus: int,
    nodes: list[Node],
    room: dict[str, list[float]],
    shares: dict[tuple[str, int], float],
) -> list[Placement]:
    """Take free GPUs, CPUs and memory of nodes, or nothing where there is not enough."""
    needs, found, left = (1, job.cpus_per_gpu, job.host_memory_gb_per_gpu), list[Placement](), gpus
    for node in nodes:
        free = room[node.node]
        if job.gpu_fraction:
            gpu = _find_gpu(job.gpu_fraction, node, free[0], shares)
            if gpu is None or any(a < b for a, b in zip(free[1:], needs[1:], strict=True)):
                continue
            is_new = (node.node, gpu) not in shares
            shares[node.node, gpu] = shares.get((node.node, gpu), 0.0) + job.gpu_fraction
            room[node.node] = [free[0] - is_new, free[1] - needs[1], free[2] - needs[2]]
            return [Placement(job.job_id, node.node, 1, gpu=gpu)]
        fit = int(min(left, *(a // b for a, b in zip(free, needs, strict=True) if b)))
        if fit > 0:
            found.append(Placement(job.job_id, node.node, fit))
            left -= fit
    for place in found if left == 0 else ():
        has = room[place.node]
        room[place.node] = [a - place.gpus * b for a, b in zip(has, needs, strict=True)]
    return found if left == 0 else []


def _find_gpu(
    share: float, node: Node, free: float, shares: dict[tuple[str, int], float]
) -> int | None:
    """Return a GPU of a node that has so large a share left, a split one first."""
    split = [g for n, g in shares if n == node.node]
    new = [g for g in range(node.gpus) if g not in split] if free > 0 else []
    able = [g for g in split if shares[node.node, g] + share <= 1 + 1e-9]
    return next(iter(able + new), None)
