"""The same jobs on the same cluster, otherwise: rigid, some of them elastic, on fewer GPUs."""

from dataclasses import replace

import numpy as np

from allocator.domain.problem import Curves
from allocator.domain.size_rule import sizes_by_rule
from allocator.domain.workload import Workload
from allocator.performance.table import RateTable

DOWN = 2  # state of a node


def make_rigid(workload: Workload) -> Workload:
    """Return the workload with every job at the GPUs it asks for, and never stopped."""
    jobs = workload.problem.jobs
    requested = jobs.requested_gpus
    sizes, number = np.unique(requested, return_inverse=True)
    jobs = replace(
        jobs,
        min_gpus=requested,
        max_gpus=requested,
        sizes=number.reshape(-1),
        preemptible=np.zeros(len(jobs), dtype=bool),
    )
    lists = tuple(sizes[:, None])
    return replace(workload, problem=replace(workload.problem, jobs=jobs, size_lists=lists))


def make_elastic(
    rigid: Workload, share: float, span: tuple[float, float], overhead: float, seed: int
) -> Workload:
    """Return a rigid workload in which a share of the jobs may use a range of sizes, and be paused.

    Parameters
    ----------
    rigid : Workload
        As of `make_rigid`.
    share : float
        Each job is elastic with this chance; a larger share has the elastic jobs of a smaller one.
    span : tuple of float
        Smallest and largest size, as multiples of the GPUs asked for.
    overhead : float
        c of the speed k / (1 + c (k - 1)) on k GPUs; at the size asked for a job is as fast as
        before.
    seed : int
        Seed of the draw.
    """
    problem = rigid.problem
    jobs, pools = problem.jobs, problem.pools
    drawn = np.random.default_rng(seed).random(len(jobs)) < share
    drawn &= np.isnan(jobs.gpu_fraction)
    low = np.maximum(1, np.ceil(span[0] * jobs.requested_gpus).astype(np.int64))
    high = np.minimum(np.floor(span[1] * jobs.requested_gpus), pools.gpus.max(initial=0))
    low, high = (
        np.where(drawn, end, jobs.requested_gpus).astype(np.int64)
        for end in (low, np.maximum(high, jobs.requested_gpus))
    )
    node = int(pools.gpus_per_node.max(initial=1))
    kinds, number = np.unique(
        np.stack([jobs.model, jobs.requested_gpus, low, high])[:, drawn],
        axis=1,
        return_inverse=True,
    )
    lists = [
        np.union1d(rule[rule >= least], requested)
        for _, requested, least, most in kinds.T.tolist()
        for rule in (sizes_by_rule(node, most),)
    ]
    sizes, model = jobs.sizes.copy(), jobs.model.copy()
    sizes[drawn] = len(problem.size_lists) + number.reshape(-1)
    model[drawn] = len(problem.models) + number.reshape(-1)
    kind, gpu_type = (x.ravel() for x in np.indices((kinds.shape[1], len(problem.gpu_types))))
    rate, _ = RateTable.of(problem).rate(kinds[0][kind], gpu_type, kinds[1][kind])
    known = np.flatnonzero(np.nan_to_num(rate) > 0)
    kind, requested = kind[known], kinds[1][kind[known]]
    rate_1 = rate[known] * (1.0 + overhead * (requested - 1)) / requested
    speeds = zip(rate_1.tolist(), kinds[3][kind].tolist(), strict=True)
    curves = Curves(
        len(problem.models) + kind,
        gpu_type[known],
        ("overhead",) * len(known),
        tuple(
            {"rate_1": r, "c": overhead, "min_gpus": 1.0, "max_gpus": float(most)}
            for r, most in speeds
        ),
    )
    jobs = replace(
        jobs,
        model=model,
        sizes=sizes,
        min_gpus=low,
        max_gpus=high,
        preemptible=jobs.preemptible | drawn,
    )
    problem = replace(
        problem,
        jobs=jobs,
        curves=problem.curves.append(curves),
        models=(*problem.models, *(f"elastic {k}" for k in range(kinds.shape[1]))),
        size_lists=(*problem.size_lists, *lists),
    )
    return replace(rigid, problem=problem)


def scale_gpus(workload: Workload, share: float) -> Workload:
    """Return the workload on this share of the GPUs of each pool, or of its nodes, rounded down."""
    problem, changes, events = workload.problem, workload.changes, workload.node_events
    nodes, pools = problem.nodes, problem.pools
    count = np.bincount(nodes.pool, minlength=len(pools))
    place = np.zeros(len(nodes), dtype=np.int64)  # of each node in its pool
    for p in np.flatnonzero(count):
        place[nodes.pool == p] = np.arange(count[p])
    gone = place >= np.floor(share * count[nodes.pool] + 1e-9)
    state = np.where(gone, DOWN, nodes.state)
    up = state == 0
    on_nodes = np.bincount(nodes.pool[up], nodes.gpus[up], minlength=len(pools)).astype(np.int64)
    gpus = np.where(count > 0, on_nodes, np.floor(share * pools.gpus + 1e-9).astype(np.int64))
    later = np.where(changes.gpus < 0, changes.gpus, np.floor(share * changes.gpus + 1e-9))
    problem = replace(problem, pools=replace(pools, gpus=gpus), nodes=replace(nodes, state=state))
    return replace(
        workload,
        problem=problem,
        changes=replace(changes, gpus=later.astype(np.int64)),
        node_events=events.select(~gone[events.node]) if len(events) else events,
    )
