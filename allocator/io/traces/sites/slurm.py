"""slurm: what `sacct --parsable2` prints, a record for each run of a job, its columns in any order.

    JobID, Submit, Start, End           required
    AllocTRES, ReqTRES                  GPUs held, else asked for; one of the two is required
    Elapsed                             run time so far of jobs that still run
    Timelimit                           the limit that the user gave
    Account, User, QOS, Partition       one of them is the tenant (--tenant)
    Priority                            the weight, with --weight priority

Each record that ran on GPUs becomes a job. The job needs as many GPUs of the same type as the
record had; it never runs on fewer or more. Each task of an array and each part of a heterogeneous
job has a record, and so becomes a job. A job that was requeued has a record for each run; each run
becomes a job that is submitted when the run was queued. Steps, records without GPUs and records
that never started are left out; the import says how many.

Each GPU type becomes a pool; with `--pools partition` each partition and type does. Its size is
what `--gpus a100=128,v100=16` says. Without that option the size of a pool is the most GPUs that
were in use at once, in whole nodes, and the size of its nodes is the most GPUs that a job held on
one node; the workload says that these sizes are assumed. Jobs are placed on nodes, as in Slurm.

A time is a date, in UTC if it names no zone, or unix seconds (SLURM_TIME_FORMAT=%s).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from allocator.domain.findings import did_you_mean, quote
from allocator.domain.problem import Floats, Ints
from allocator.domain.schema.cells import parse
from allocator.errors import Fault, UsageError
from allocator.io.traces import assemble
from allocator.io.traces.base import Trace, TraceOptions, TracePool, sort_out, trace_jobs
from allocator.io.traces.sites.slurm_records import (
    find_missing,
    names_of,
    read_gpus,
    read_limits,
    read_records,
    read_times,
)
from allocator.io.traces.text import (
    CsvRows,
    input_error,
    number,
    raise_if,
    read_first_lines,
)

TENANTS = {"account": "Account", "user": "User", "qos": "QOS", "partition": "Partition"}
LEAST_WEIGHT = 0.01


def recognise(source: Path) -> str:
    """Return "" if the first line has the columns of sacct that are required, else why not."""
    first = read_first_lines(source)[:1]
    return find_missing(names_of(first[0])) if first else "has no first line that could be read"


def read(source: Path, options: TraceOptions) -> Trace:
    """Read the records that ran on GPUs, and the pools that they ran in.

    Raises InvalidInput, and UsageError for options that do not fit the records.
    """
    return read_rows(read_records(source), options, TENANTS)


def read_rows(rows: CsvRows, options: TraceOptions, tenants: Mapping[str, str]) -> Trace:
    """Read records as `read` does; `tenants` are the columns that --tenant may name."""
    submitted, start, end, seconds = read_times(rows)
    held, nodes = read_gpus(rows)
    gpus = np.array([sum(types.values()) for types in held], dtype=np.int64)
    dropped, keep = sort_out(
        {
            "are steps of jobs": np.array(["." in name for name in rows["JobID"]], dtype=bool),
            "never started, or ran for no time": np.isnan(start) | (seconds == 0),
            "have no GPU": gpus == 0,
            "have GPUs of several types": np.array([len(types) > 1 for types in held], dtype=bool),
            "still run, and nothing says for how long": np.isnan(seconds),
            "have times that go back": (start < submitted) | (seconds < 0),
        }
    )
    whole = trace_jobs(
        rows["JobID"],
        submitted,
        seconds,
        gpus,
        gpu_types=[next(iter(types), "") for types in held],
        recorded=(start, end),
        time_limit_s=read_limits(rows),
    )
    jobs, origin = whole.select(keep).begin_at_first()
    names, types, kept = jobs.job_id, jobs.gpu_types, rows.select(keep)
    if options.choose("pools", ("type", "partition"), "type") == "partition":
        types = _by_partition(types, _cells(kept, "Partition", "--pools partition"))
    begin = start[keep]
    most = _most_at_once(types, jobs.gpus, begin, begin + jobs.duration_s)
    pools, assumed = _form_pools(most, _most_of_type(types, -(-jobs.gpus // nodes[keep])), options)
    jobs = replace(
        jobs,
        job_id=_unique(names),
        tenant=_tenants(kept, options, tenants) or jobs.tenant,
        gpu_types=types,
        weight=_weights(kept, options),
    )
    again, cut = len(names) - len(set(names)), int(np.isnan(end[keep]).sum())
    assumed = [
        "each job runs on the GPU type that it had",
        *assumed,
        *([f"further runs of requeued jobs ({again}) are jobs of their own"] if again else []),
        *([f"jobs that still ran ({cut}) were done when the records were made"] if cut else []),
    ]
    notes = tuple(_notes(kept, most, pools))
    return Trace(
        jobs,
        pools,
        len(rows),
        dropped,
        notes,
        origin_s=origin,
        assumed=tuple(assumed),
        has_nodes=True,
    )


def _cells(rows: CsvRows, column: str, option: str) -> tuple[str, ...]:
    """Return cells of a column that an option needs."""
    if column not in rows.values:
        raise input_error(Path(rows.file), f"has no column {column}, which {option} needs", 1)
    return tuple(rows[column])


def _by_partition(types: Sequence[str], partitions: Sequence[str]) -> tuple[str, ...]:
    """Return names of types that tell partitions apart: "a100@train"."""
    pairs = list(zip(types, partitions, strict=True))
    places = Counter(name for name, _ in set(pairs))
    return tuple(f"{name}@{place}" if places[name] > 1 else name for name, place in pairs)


def _most_at_once(types: Sequence[str], gpus: Ints, start: Floats, end: Floats) -> dict[str, int]:
    """Return the most GPUs of each type that were held at one moment."""
    moments = sorted(zip([*types, *types], [*start, *end], [*gpus, *-gpus], strict=True))
    return {
        name: int(max(accumulate(change for *_, change in of_type)))
        for name, of_type in groupby(moments, key=itemgetter(0))
    }


def _most_of_type(types: Iterable[str], numbers: Iterable[int]) -> dict[str, int]:
    """Return the largest number of each type, in order of names."""
    return {name: int(n) for name, n in sorted(zip(types, numbers, strict=True))}


def _form_pools(
    most: Mapping[str, int], on_node: Mapping[str, int], options: TraceOptions
) -> tuple[tuple[TracePool, ...], list[str]]:
    """Return a pool for each type, and what is assumed of them."""
    given = options.gpus_by_type
    for name in given:
        if name not in most:
            raise UsageError(
                f"--gpus {name}={given[name]}: no job had GPUs of a type {quote(name)}"
                f"{did_you_mean(name, most)} (types: {', '.join(most)})"
            )
    nodes = {n: min(options.gpus_per_node or on_node[n], k) for n, k in (given or most).items()}
    sizes = dict(given) or {name: -(-n // nodes[name]) * nodes[name] for name, n in most.items()}
    assumed = []
    if not given and options.gpus is None and most:
        words = ", ".join(f"{name} {n}" for name, n in sizes.items())
        assumed.append(f"there are as many nodes as could hold what ran at once (GPUs: {words})")
    if not options.gpus_per_node and most:
        words = ", ".join(f"{name} {n}" for name, n in nodes.items())
        assumed.append(f"nodes have as many as a job had on one ({words})")
    pools = [TracePool(name, name, n, nodes[name]) for name, n in sizes.items()]
    return assemble.scale_pools(pools, options.gpus), assumed


def _tenants(rows: CsvRows, options: TraceOptions, tenants: Mapping[str, str]) -> tuple[str, ...]:
    kind = options.choose("tenant", tenants, next(iter(tenants)))
    if "tenant" not in options.extra and tenants[kind] not in rows.values:
        return ()
    return _cells(rows, tenants[kind], f"--tenant {kind}")


def _weights(rows: CsvRows, options: TraceOptions) -> Floats:
    """Return weights in proportion to priorities, if that is asked for; priority 0 counts as 1."""
    if options.choose("weight", ("equal", "priority"), "equal") == "equal":
        return np.ones(len(rows))
    cells = _cells(rows, "Priority", "--weight priority")
    parsed, wrong = parse(number("Priority", required=False), cells)
    faults = [Fault(rows.file, rows.lines[i], message) for i, message in wrong]
    raise_if(Path(rows.file), faults)
    priority = parsed.value
    some = priority > 0
    mean = priority[some].mean() if some.any() else 1.0
    return np.where(some, np.maximum(LEAST_WEIGHT, priority / mean), 1.0)


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of jobs; the second run of job 12 is 12-2."""
    runs: Counter[str] = Counter()
    out = []
    for name in names:
        runs[name] += 1
        out.append(name if runs[name] == 1 else f"{name}-{runs[name]}")
    return tuple(out)


def _notes(rows: CsvRows, most: Mapping[str, int], pools: Sequence[TracePool]) -> Iterator[str]:
    """Say how the jobs ended, and where more ran at once than the pools hold."""
    if "State" in rows.values:
        ends = Counter(state.partition(" ")[0] for state in rows["State"])
        yield "ends: " + ", ".join(f"{n} {state}" for state, n in ends.most_common())
    for pool in pools:
        if most[pool.gpu_type] > pool.gpus:
            yield (
                f"pool {pool.pool}: {most[pool.gpu_type]} GPUs were held at once, more than the"
                f" {pool.gpus} that it has here"
            )
