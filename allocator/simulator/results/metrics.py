"""The results of a simulation: the table of jobs.csv, and METRICS."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from allocator.domain.problem import Floats, Market
from allocator.performance.table import slowest_rate
from allocator.simulator.results.fragmentation import unusable_gpu_hours
from allocator.simulator.results.records import ColumnTable
from allocator.simulator.revocations import HOUR
from allocator.simulator.world import World
from formulations.step_means import means_between


def jobs_table(world: World) -> ColumnTable:
    """Return one row per submitted job: times in seconds (nan = never), shares as numbers."""
    p = world.problem
    n = world.arrived
    j = p.jobs
    started = world.started_s[:n]
    finished = world.finished_s[:n]
    # the run time at requested_gpus on the slowest allowed type
    requested_s = (j.total_work / slowest_rate(p, j.requested_gpus))[:n]
    return {
        "job_id": j.job_id[:n],
        "model": [p.models[m] for m in j.model[:n]],
        "tenant": [p.tenants.tenant[q] for q in j.tenant[:n]],
        "submitted_s": j.submitted_s[:n],
        "started_s": started,
        "finished_s": finished,
        "queue_s": started - j.submitted_s[:n],
        "jct_s": finished - j.submitted_s[:n],
        "efficiency": requested_s / (finished - started),
        "ftf": (finished - j.submitted_s[:n]) / completion_alone_s(world)[:n],
        "restarts": np.maximum(0, world.starts[:n] - 1),
        "revocations": world.revocations[:n],
        "gpu_hours": world.attained[:n] / HOUR,
        "dollars": world.dollars[:n],
        "requested_gpus": j.requested_gpus[:n],
        "total_work": j.total_work[:n],
    }


def metrics(world: World, tables: Mapping[str, ColumnTable]) -> dict[str, Any]:
    """Return METRICS over all jobs that were submitted; `tables` are those of a simulation.

    queue_s is over the jobs that were started; jct_s, efficiency and ftf are over those that
    finished. Numbers that do not exist (no job finished, for example) are None.

        makespan_s      from the start of the workload to the last completion, or to now if some
                        jobs are not done
        utilisation     GPU-seconds held divided by the GPU-seconds of the cluster in that time
        mean_gpus       GPU-seconds held divided by makespan_s
        bill_dollars    what the owner pays in that time: reserved GPUs whether used or not, and
                        others as held
        deadlines_met   share of the jobs with a deadline that are done in time

    Where pools have nodes:

        node_failures       how often a node went down
        moves               how often a running job moved to other nodes of its pool
        unusable_gpu_hours  GPU-hours that were free and of no use (fragmentation.py)
    """
    jobs, rounds = tables["jobs"], tables["rounds"]
    count = len(jobs["job_id"])
    finished_s = np.asarray(jobs["finished_s"])
    ends = finished_s[~np.isnan(finished_s)]
    begin = world.problem.now_s
    end = float(ends.max()) if len(ends) == count and count else world.now
    there, paid = _totals_until(world, end)
    out: dict[str, Any] = {"jobs": count, "finished": len(ends)}
    for name in ("queue_s", "jct_s"):
        out |= _summarise_column(name, jobs[name], mean=None, median=50, p99=99)
    due = world.problem.jobs.deadline_s[:count]
    dated = ~np.isnan(due)
    met = (finished_s <= due + 1e-6)[dated]
    gpu_s = float(world.attained.sum())
    out |= {
        "makespan_s": end - begin,
        **_summarise_column("efficiency", jobs["efficiency"], mean=None),
        "gpu_hours": gpu_s / HOUR,
        "mean_gpus": gpu_s / (end - begin) if end > begin else None,
        "dollars": float(world.dollars.sum()),
        "bill_dollars": paid + float(world.rented.sum()),
        "restarts": int(np.sum(jobs["restarts"])),
        "failures": int(world.failures.sum()),
        "revocations": int(world.revocations.sum()),
        "deadlines_met": float(met.mean()) if len(met) else None,
        "utilisation": gpu_s / there if there > 0 else None,
        "rounds": len(rounds["round"]),
        **_summarise_column("decision_s", rounds["decision_s"], mean=None, p99=99, max=100),
        **_summarise_column("gap", rounds["gap"], mean=None, max=100),
        **_summarise_column("ftf", jobs["ftf"], mean=None, max=100),
    }
    if world.has_nodes.any():
        out |= {
            "node_failures": int(world.nodes.failures.sum()),
            "moves": int(world.moves.sum()),
            "unusable_gpu_hours": unusable_gpu_hours(tables["fragmentation"], world.now),
        }
    return out


def _summarise_column(name: str, column: Any, **parts: float | None) -> dict[str, float | None]:
    """Return {name_part: percentile} of a column, or the mean if the part has None."""
    values = np.asarray(column, np.float64)
    values = values[np.isfinite(values)]
    return {
        f"{name}_{part}": (
            None
            if not len(values)
            else (
                float(values.mean())
                if percentile is None
                else float(np.percentile(values, percentile))
            )
        )
        for part, percentile in parts.items()
    }


def completion_alone_s(world: World) -> Floats:
    """Return the completion time alone on an equal share of the cluster, in seconds, (N,).

    This is the denominator of finish-time fairness. The share of job j is s = G / n. G is the mean
    number of GPUs of the cluster, and n the mean number of jobs, between the submission and the
    completion of j. The job runs at the rate of s GPUs on its slowest allowed type. Between whole
    numbers of GPUs the rate is a straight line. Below min_gpus it is proportional to s, as if the
    job took turns, and above max_gpus it is the rate at max_gpus.

    References
    ----------
    K. Mahajan et al., "Themis: Fair and efficient GPU cluster scheduling", NSDI 2020, section 3.
    Here n is the contention that truly was.
    """
    p = world.problem
    a = p.jobs.submitted_s
    b = np.where(np.isnan(world.finished_s), world.now, world.finished_s)
    there = np.isfinite(b) & (np.arange(len(a)) < world.arrived)
    times = np.concatenate([a[there], b[there]])
    step = np.concatenate([np.ones(int(there.sum())), -np.ones(int(there.sum()))])
    contention = means_between(times, step, a, b)
    at = np.array([t for t, _, _ in world.log])
    size = np.diff([g.sum() for _, g, _ in world.log], prepend=0)
    share = means_between(at, size, a, b) / np.maximum(1.0, contention)
    low = p.jobs.min_gpus
    high = p.jobs.max_gpus
    s = np.clip(share, low, high)
    whole = np.floor(s).astype(np.int64)
    r0 = slowest_rate(p, whole)
    r1 = slowest_rate(p, np.minimum(whole + 1, high))
    r1 = np.where(np.isnan(r1), r0, r1)
    rate = (r0 + (r1 - r0) * (s - whole)) * np.minimum(1.0, share / low)
    with np.errstate(divide="ignore"):
        return p.jobs.total_work / rate


def _totals_until(world: World, end: float) -> tuple[float, float]:
    """Return the GPU-seconds of the cluster, and the dollars of its reserved GPUs, used or not.

    Both are from the first submission to `end`.
    """
    reserved = world.problem.pools.market == Market.RESERVED
    times = [t for t, _, _ in world.log] + [end]
    passed = [max(0.0, min(t1, end) - t0) for t0, t1 in pairwise(times)]
    there = math.fsum(float(g.sum()) * s for (_, g, _), s in zip(world.log, passed, strict=True))
    paid = math.fsum(
        float((g * price)[reserved].sum()) * s
        for (_, g, price), s in zip(world.log, passed, strict=True)
    )
    return there, paid / HOUR
