"""Build the files of a workload from the selected jobs of a trace.

The files are workload.csv, pools.csv, config.toml, nodes.csv if the trace has nodes, and rates.csv
if it has speeds, else models.csv.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from allocator.domain.problem import Floats, Ints
from allocator.domain.schema.cells import Cells, texts_of
from allocator.domain.schema.workload_columns import WORKLOAD_TABLES
from allocator.domain.size_rule import sizes_by_rule
from allocator.domain.snapshot import Snapshot, Table
from allocator.errors import UsageError
from allocator.io.traces import curves
from allocator.io.traces.base import (
    CURVES,
    MeasuredSpeeds,
    Trace,
    TraceOptions,
    TracePool,
    map_distinct,
)
from allocator.io.traces.selection import largest_pool, measured_range


def workload(trace: Trace, options: TraceOptions) -> Snapshot:
    """Return the workload, not yet checked, with the jobs in order of submission.

    `min_gpus` is 1, or the requested size if sizes are rigid. `max_gpus` is max_factor times the
    requested size, at most `most_gpus`, and at least the requested size. It is also at most what
    the largest allowed pool and the measured speeds hold. With `rigid`, `requested_gpus` is
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
    names = ("pool", "gpu_type", "gpus", "gpus_per_node")
    files: dict[str, Mapping[str, Cells]] = {
        "workload.csv": _jobs(trace, _largest_sizes(trace, options), options),
        "pools.csv": {name: [getattr(pool, name) for pool in trace.pools] for name in names},
    }
    config: dict[str, object] = {}
    if not np.isnan(trace.interval_s):
        config["interval_s"] = trace.interval_s
    if trace.speeds is None:
        files["models.csv"] = curves.list_curves(jobs.model, trace.pools)
        config["assumed"] = _assumptions(trace, options)
    else:
        files["rates.csv"] = _rates(trace.speeds, trace.pools, set(jobs.model))
    if trace.has_nodes:
        files["nodes.csv"] = _nodes(trace.pools)
    tables = {
        file: Table.of(WORKLOAD_TABLES[file], {n: list(texts_of(v)) for n, v in columns.items()})
        for file, columns in files.items()
    }
    return Snapshot("trace", config, tables)


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
        replace(p, gpus=int(n) * p.gpus_per_node) for p, n in zip(pools, nodes, strict=True) if n
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
    gpus_of: Counter[str] = Counter()
    for p in pools:
        gpus_of[p.gpu_type] += p.gpus

    def per_work(m: str, k: int) -> float:
        total = weight = 0.0
        for t, n in gpus_of.items():
            known = speeds.best.get((m, t))
            if known and min(known) <= k <= max(known):
                total += n / float(np.interp(k, [*known], [*known.values()]))
                weight += n
        return total / weight if weight else np.nan

    return work * np.array(map_distinct(per_work, model, gpus.tolist()), dtype=np.float64)


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
    assumptions = [sizes, "every job may be paused", *trace.assumed]
    types = {p.gpu_type: f"{p.gpu_type} {p.speed:g}" for p in trace.pools}
    if len(types) > 1 and any(name not in types for name in trace.jobs.gpu_types):
        assumptions.append(f"speeds of GPU types are {', '.join(types.values())}")
    return "; ".join(assumptions)


def _largest_sizes(trace: Trace, options: TraceOptions) -> Ints:
    jobs = trace.jobs
    if options.rigid:
        return jobs.gpus
    factor = trace.max_factor if options.max_factor is None else options.max_factor
    most = np.minimum(np.floor(factor * jobs.gpus), options.most_gpus)
    most = np.minimum(most, largest_pool(trace, jobs))
    if trace.speeds is not None:
        most = np.minimum(most, measured_range(trace, jobs)[1])
    grown: Ints = np.maximum(jobs.gpus, most.astype(np.int64))
    return grown


def _work(trace: Trace) -> Floats:
    """Return the work of each job, shape (n,).

    It is what the trace gives, or else the duration times the rate at the requested size on the
    slowest type that could hold the job.
    """
    jobs = trace.jobs
    if trace.speeds is not None:
        return jobs.work

    def slowest(types: str, k: int) -> float:
        return min(p.speed for p in trace.pools_for(types) if p.gpus >= k)

    speed = np.array(map_distinct(slowest, jobs.gpu_types, jobs.gpus.tolist()))
    work: Floats = jobs.duration_s * (curves.rate(curves.overhead(jobs.model), jobs.gpus) * speed)
    return work


def _jobs(trace: Trace, most: Ints, options: TraceOptions) -> dict[str, Cells]:
    jobs = trace.jobs
    names = ("tenant", "gpu_types", "restart_s", "time_limit_s")
    recorded = ("recorded_start_s", "recorded_end_s")
    return {
        "job_id": jobs.job_id,
        "submitted_s": jobs.submitted_s,
        "model": jobs.model,
        "total_work": _work(trace),
        "requested_gpus": jobs.gpus,
        "min_gpus": jobs.gpus if options.rigid else np.ones_like(jobs.gpus),
        "max_gpus": most,
        "sizes": _sizes(trace.pools, jobs.gpus, most, options),
        **{name: getattr(jobs, name) for name in names},
        "weight": np.where(jobs.weight == 1, np.nan, jobs.weight),
        **{name: getattr(jobs, name) for name in recorded},
    }


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

    return map_distinct(listed, asked.tolist(), most.tolist())


def _nodes(pools: Sequence[TracePool]) -> dict[str, Cells]:
    """Return full nodes, and a last one with what is left."""
    rows = [
        (f"{p.pool}-{at // p.gpus_per_node}", p.pool, str(min(p.gpus_per_node, p.gpus - at)))
        for p in pools
        for at in range(0, p.gpus, p.gpus_per_node)
    ]
    return dict(zip(("node", "pool", "gpus"), zip(*rows, strict=True), strict=True))


def _rates(
    speeds: MeasuredSpeeds, pools: Sequence[TracePool], models: set[str]
) -> dict[str, Cells]:
    """Return the rows of the models in use, for GPU types that a pool has."""
    types = {p.gpu_type for p in pools}
    pairs = enumerate(zip(speeds.model, speeds.gpu_type, strict=True))
    use = [i for i, (m, t) in pairs if m in models and t in types]

    def known(values: Floats | Ints, usual: int) -> Floats:
        return np.where(values[use] == usual, np.nan, values[use])

    return {
        "model": [speeds.model[i] for i in use],
        "gpu_type": [speeds.gpu_type[i] for i in use],
        "gpus": speeds.gpus[use],
        "work_per_s": speeds.work_per_s[use],
        "efficiency": known(speeds.efficiency, 1),
        "batch_size": known(speeds.batch_size, 0),
        "accumulation": known(speeds.accumulation, 0),
    }
