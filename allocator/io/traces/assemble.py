"""Build the files of a workload from the selected jobs of a trace.

The files are workload.csv, pools.csv, rates.csv and config.toml.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from allocator.domain.problem import Floats, Ints
from allocator.domain.schema.texts import format_numbers
from allocator.domain.size_rule import sizes_by_rule
from allocator.errors import UsageError
from allocator.io.traces import curves
from allocator.io.traces.base import (
    CURVES,
    Cells,
    MeasuredSpeeds,
    Trace,
    TraceJobs,
    TraceOptions,
    TracePool,
    WorkloadText,
)
from allocator.io.traces.selection import largest_pool, measured_range


def workload(trace: Trace, options: TraceOptions) -> WorkloadText:
    """Return the files of the workload, with the jobs in order of submission.

    Most formats use this as their third function. `min_gpus` is 1, or the
    requested size if sizes are rigid. `max_gpus` is max_factor times
    the requested size, at most `most_gpus`, and at least the requested size. It is also at most
    what the largest allowed pool and the measured speeds hold. With `rigid`, `requested_gpus` is
    the only size; so it is for a trace without speeds, unless `max_factor` is given. What is
    assumed of such a trace is in the config. If the size rule (docs/reference/rules.md, R6) does
    not offer the requested size of a job, that size is added to the `sizes` of the job, unless
    `rule_sizes` is set.
    """
    jobs = trace.jobs
    if trace.speeds is None:
        options = replace(options, rigid=not options.invents)
    if options.rigid and (options.rule_sizes or options.curves != CURVES):
        raise UsageError(
            "--rule-sizes and --curves are for jobs that may run at other sizes than asked for;"
            " that takes --max-factor, and no --rigid"
        )
    most = _largest_sizes(trace, jobs, options)
    speeds = trace.speeds
    if speeds is None:
        speeds = curves.speeds(jobs.model, trace.pools, _measured_sizes(trace.pools, jobs, most))
    files: dict[str, Cells] = {
        "workload.csv": _jobs(trace, jobs, most, options),
        "pools.csv": _pools(trace.pools),
        "rates.csv": _rates(speeds, trace.pools, set(jobs.model)),
    }
    config: dict[str, object] = {}
    if not np.isnan(trace.interval_s):
        config["interval_s"] = trace.interval_s
    if trace.speeds is None:
        config["assumed"] = _assumptions(trace, options)
    return WorkloadText(files, config)


def scale_pools(pools: Sequence[TracePool], gpus: int | None) -> tuple[TracePool, ...]:
    """Scale the pools to about `gpus` GPUs in all, in whole nodes.

    Largest remainders keep the shares of the pools. Every pool keeps at least one node if there are
    enough nodes.

    Raises
    ------
    UsageError
        If `gpus` is less than one node.
    """
    if gpus is None:
        return tuple(pools)
    share = np.array([p.gpus for p in pools], dtype=np.float64)
    per_node = np.array([p.gpus_per_node for p in pools])
    want = share / share.sum() * gpus / per_node
    nodes = np.floor(want).astype(np.int64)
    for i in np.argsort(nodes - want, kind="stable"):
        if (nodes * per_node).sum() + per_node[i] <= gpus:
            nodes[i] += 1
    if not nodes.any():
        raise UsageError(
            f"--gpus {gpus} is less than one node of this trace's pools"
            f" ({', '.join(map(str, per_node))})"
        )
    return tuple(
        TracePool(p.pool, p.gpu_type, int(n) * p.gpus_per_node, p.gpus_per_node, p.speed)
        for p, n in zip(pools, nodes, strict=True)
        if n
    )


def one_pool(options: TraceOptions, gpu_type: str, gpus: int) -> tuple[TracePool, ...]:
    """Return a single pool of `options.gpus` GPUs (default `gpus`).

    Its nodes have `options.gpus_per_node` GPUs (default 8, or fewer).
    """
    total = options.gpus or gpus
    per_node = options.gpus_per_node or min(8, total)
    if total < per_node:
        raise UsageError(f"--gpus {total} is less than --gpus-per-node {per_node}")
    return (TracePool("gpus", gpu_type, total, per_node),)


def seconds_at_request(
    speeds: MeasuredSpeeds,
    pools: Sequence[TracePool],
    model: Sequence[str],
    gpus: Ints,
    work: Floats,
) -> Floats:
    """Return the run time of each job at its requested size, shape (n,) in seconds.

    It is the mean over the GPU types that were measured at that size, weighted by their GPUs; nan
    if none was. Speeds between measured sizes are interpolated linearly. Of several rows of one
    size the fastest counts.
    """
    held: dict[str, int] = {}
    for p in pools:
        held[p.gpu_type] = held.get(p.gpu_type, 0) + p.gpus
    best: dict[tuple[str, str], dict[int, float]] = {}
    rate = speeds.work_per_s * speeds.efficiency
    for m, t, k, r in zip(
        speeds.model, speeds.gpu_type, speeds.gpus.tolist(), rate.tolist(), strict=True
    ):
        if t in held and r > 0:
            sizes = best.setdefault((m, t), {})
            sizes[k] = max(r, sizes.get(k, 0.0))

    def per_work(m: str, k: int) -> float:
        total = 0.0
        weight = 0
        for t, n in held.items():
            sizes = best.get((m, t))
            if sizes and min(sizes) <= k <= max(sizes):
                known = sorted(sizes)
                total += n / float(np.interp(k, known, [sizes[s] for s in known]))
                weight += n
        return total / weight if weight else np.nan

    keys = list(zip(model, gpus.tolist(), strict=True))
    known = {key: per_work(*key) for key in set(keys)}
    return work * np.array([known[key] for key in keys], dtype=np.float64)


def rule_sizes(pools: Sequence[TracePool], largest: int) -> set[int]:
    """Return the sizes that the size rule (docs/reference/rules.md, R6) offers in any pool."""
    return {k for p in pools for k in sizes_by_rule(p.gpus_per_node, largest).tolist()}


def _assumptions(trace: Trace, options: TraceOptions) -> str:
    """Describe what the workload of a trace without speeds has that the trace does not say."""
    sizes = (
        "each job runs at the GPUs it asked for, or not at all"
        if options.rigid
        else f"each job may run at 1 to {options.max_factor:g} times the GPUs it asked for"
        f" (--max-factor, --max-gpus {options.most_gpus}), at k / (1 + c (k - 1)) times the speed"
        f" of one GPU, where c is drawn from {', '.join(f'{c:g}' for c in options.curves)}"
    )
    said = [sizes, "every job may be paused", *trace.assumed]
    types = {p.gpu_type: f"{p.gpu_type} {p.speed:g}" for p in trace.pools}
    if len(types) > 1 and any(name not in types for name in trace.jobs.gpu_types):
        said.append(f"speeds of GPU types are {', '.join(types.values())}")
    return "; ".join(said)


def _largest_sizes(trace: Trace, jobs: TraceJobs, options: TraceOptions) -> Ints:
    if options.rigid:
        return jobs.gpus
    factor = trace.max_factor if options.max_factor is None else options.max_factor
    most = np.minimum(np.floor(factor * jobs.gpus), options.most_gpus)
    most = np.minimum(most, largest_pool(trace, jobs))
    if trace.speeds is not None:
        most = np.minimum(most, measured_range(trace, jobs)[1])
    grown: Ints = np.maximum(jobs.gpus, most.astype(np.int64))
    return grown


def _measured_sizes(pools: Sequence[TracePool], jobs: TraceJobs, most: Ints) -> Ints:
    sizes = rule_sizes(pools, int(most.max())) | set(jobs.gpus.tolist()) | {1}
    return np.array(sorted(sizes), dtype=np.int64)


def _work(trace: Trace, jobs: TraceJobs) -> Floats:
    """Return the work of each job, shape (n,).

    It is what the trace gives, or else the duration times the rate at the requested size on the
    slowest type that could hold the job.
    """
    if trace.speeds is not None:
        return jobs.work
    speed = {}
    for types, k in set(zip(jobs.gpu_types, jobs.gpus.tolist(), strict=True)):
        allowed = set(types.split("|")) if types else None
        speed[types, k] = min(
            p.speed
            for p in trace.pools
            if p.gpus >= k and (allowed is None or p.gpu_type in allowed)
        )
    slowest = np.array([speed[key] for key in zip(jobs.gpu_types, jobs.gpus.tolist(), strict=True)])
    work: Floats = jobs.duration_s * (curves.rate(curves.overhead(jobs.model), jobs.gpus) * slowest)
    return work


def _jobs(trace: Trace, jobs: TraceJobs, most: Ints, options: TraceOptions) -> Cells:
    cells: dict[str, Sequence[str]] = {
        "job_id": jobs.job_id,
        "submitted_s": format_numbers(jobs.submitted_s),
        "model": jobs.model,
        "total_work": format_numbers(_work(trace, jobs)),
        "requested_gpus": _integer_texts(jobs.gpus),
        "min_gpus": _integer_texts(jobs.gpus if options.rigid else np.ones_like(jobs.gpus)),
        "max_gpus": _integer_texts(most),
        "sizes": _sizes(trace.pools, jobs.gpus, most, options),
    }
    optional = {
        "tenant": jobs.tenant,
        "gpu_types": jobs.gpu_types,
        "restart_s": _known_numbers(jobs.restart_s),
        "weight": ["" if t == "1" else t for t in format_numbers(jobs.weight)],
        "recorded_start_s": _known_numbers(jobs.recorded_start_s),
        "recorded_end_s": _known_numbers(jobs.recorded_end_s),
        "recorded_limit_s": _known_numbers(jobs.recorded_limit_s),
    }
    return {
        **{k: v for k, v in cells.items() if any(v)},
        **{k: v for k, v in optional.items() if any(v)},
    }


def _known_numbers(values: Floats) -> list[str]:
    return ["" if text == "nan" else text for text in format_numbers(values)]


def _sizes(pools: Sequence[TracePool], asked: Ints, most: Ints, options: TraceOptions) -> list[str]:
    """Return the cell `sizes` of each job.

    It is "" if the size rule offers the requested size in every pool that could hold it, and lists
    the sizes otherwise.
    """
    if options.rule_sizes and not options.rigid:
        return [""] * len(asked)

    def listed(k: int, top: int) -> str:
        if options.rigid:
            return str(k)
        if all(k in rule_sizes([p], k) for p in pools if p.gpus >= k):
            return ""
        return "|".join(map(str, sorted(rule_sizes(pools, top) | {k})))

    pairs = list(zip(asked.tolist(), most.tolist(), strict=True))
    known = {pair: listed(*pair) for pair in set(pairs)}
    return [known[pair] for pair in pairs]


def _pools(pools: Sequence[TracePool]) -> Cells:
    return {
        "pool": [p.pool for p in pools],
        "gpu_type": [p.gpu_type for p in pools],
        "gpus": [str(p.gpus) for p in pools],
        "gpus_per_node": [str(p.gpus_per_node) for p in pools],
    }


def _rates(speeds: MeasuredSpeeds, pools: Sequence[TracePool], models: set[str]) -> Cells:
    """Return the rows of the models in use, for GPU types that a pool has."""
    types = {p.gpu_type for p in pools}
    use = [
        i
        for i, (m, t) in enumerate(zip(speeds.model, speeds.gpu_type, strict=True))
        if m in models and t in types
    ]

    def whole(values: Ints) -> list[str]:
        return [str(v) if v else "" for v in values[use].tolist()]

    cells: dict[str, Sequence[str]] = {
        "model": [speeds.model[i] for i in use],
        "gpu_type": [speeds.gpu_type[i] for i in use],
        "gpus": _integer_texts(speeds.gpus[use]),
        "work_per_s": format_numbers(speeds.work_per_s[use]),
    }
    optional = {
        "efficiency": ["" if t == "1" else t for t in format_numbers(speeds.efficiency[use])],
        "batch_size": whole(speeds.batch_size),
        "accumulation": whole(speeds.accumulation),
    }
    return {**cells, **{k: v for k, v in optional.items() if any(v)}}


def _integer_texts(values: Ints) -> list[str]:
    known = {v: str(v) for v in np.unique(values).tolist()}
    return [known[v] for v in values.tolist()]
