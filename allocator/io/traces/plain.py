"""csv: any table of jobs with one row per job; the user says what each column is.

    submitted_s             seconds, or a date                              required
    gpus                    GPUs asked for                                  required
    duration_s              run time at that size; or started_s, ended_s    required
    job_id, tenant, model                                                   optional

`--map submitted_s=submit_time` names the column of a field. A field without `--map` is the column
of its name, or else the first of its ALIASES that is present (names that Helios, Chronus,
ElasticFlow, Muri and others use). `--unit ms` is for times that are not in seconds. `--where
state=COMPLETED|Pass` keeps only rows with one of these texts. Jobs of one model scale alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from allocator.domain.findings import did_you_mean, quote
from allocator.domain.problem import Floats
from allocator.errors import UsageError
from allocator.io.traces import assemble
from allocator.io.traces.base import Trace, TraceOptions, sort_out, trace_jobs
from allocator.io.traces.text import (
    CsvRows,
    csv_rows,
    input_error,
    integer,
    number,
    parse_seconds,
    read_header,
    text,
)

GPUS = 64
UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
ALIASES = {
    "submitted_s": ("submit_time", "submission_time", "arrival_time", "timestamp", "time"),
    "started_s": ("start_time",),
    "ended_s": ("end_time", "finish_time"),
    "duration_s": ("duration", "run_time", "runtime"),
    "gpus": ("gpu_num", "num_gpu", "num_gpus", "gpu_request", "requested_gpus"),
    "job_id": ("job", "name", "id"),
    "tenant": ("vc", "user", "cluster"),
    "model": ("model_name",),
}
KIND = {"duration_s": number, "gpus": integer}  # of the cells of fields that are no text


def recognise(source: Path) -> str:
    """Return "" if the first line has columns for the three required fields, else why not.

    A column may have the name of the field or one of its aliases.
    """
    lost = _missing(_names(read_header(source), {}))
    return f"has no column that looks like {', '.join(lost)}" if lost else ""


def read(source: Path, options: TraceOptions) -> Trace:
    """Read all rows with GPUs and a duration, on one pool.

    Raises InvalidInput, and UsageError for a wrong --map.
    """
    there = read_header(source)
    if len(there) == 1 or "\0" in "".join(there):
        # the file is no CSV: the reader says why, a message about a missing column would not
        csv_rows(source, [])
    names = _names(there, _mapped(options.extra.get("map", ()), there, source))
    lost = _missing(names)
    if there and lost:
        raise input_error(
            source,
            f"no column is known for {', '.join(lost)}; name it by --map, e.g. --map"
            f" {lost[0]}=COLUMN (columns: {', '.join(there[:12])})",
            1,
        )
    where = [_condition(w, there) for w in options.extra.get("where", ())]
    wanted = {
        column: KIND.get(field, text)(column, required=False) for field, column in names.items()
    }
    wanted |= {column: text(column) for column, _ in where if column not in wanted}
    rows = csv_rows(source, list(wanted.values()))
    unit = UNITS[options.choose("unit", UNITS, "s")]
    submitted, dated = _clock(rows, names["submitted_s"], unit)
    start = end = np.full(len(rows), np.nan)
    if "duration_s" in names:
        duration = rows[names["duration_s"]] * unit
    else:
        start, end = (_clock(rows, names[field], unit)[0] for field in ("started_s", "ended_s"))
        duration = end - start
    is_wanted = np.ones(len(rows), dtype=bool)
    for column, values in where:
        is_wanted &= np.array([cell in values for cell in rows[column]], dtype=bool)
    gpus = rows[names["gpus"]]
    works = (gpus >= 1) & (duration > 0) & ~np.isnan(submitted)
    dropped, keep = sort_out(
        {"excluded by --where": ~is_wanted, "have no GPU, time or duration": ~works}
    )
    texts = {field: rows[names[field]] for field in ("tenant", "model") if field in names}
    ids = rows[names["job_id"]] if "job_id" in names else [""] * len(rows)
    whole = trace_jobs(ids, submitted, duration, gpus, recorded=(start, end), **texts)
    jobs, origin = whole.select(keep).begin_at_first()
    jobs = replace(jobs, job_id=_unique(jobs.job_id, [rows.lines[i] for i in keep]))
    columns = ", ".join(f"{field} = {column}" for field, column in names.items())
    return Trace(
        jobs,
        assemble.one_pool(options, "GPU", GPUS),
        len(rows),
        dropped,
        (f"columns: {columns}",),
        origin_s=origin if dated else np.nan,
    )


def _names(there: Sequence[str], mapped: dict[str, str]) -> dict[str, str]:
    """Return field -> column: the mapped one, else one of that name, else the first alias found."""
    out = dict(mapped)
    for field, aliases in ALIASES.items():
        hit = next((c for c in (field, *aliases) if c in there), None)
        if field not in out and hit is not None and hit not in out.values():
            out[field] = hit
    return out


def _missing(names: Mapping[str, str]) -> list[str]:
    """Return the required fields that have no column."""
    lost = [field for field in ("submitted_s", "gpus") if field not in names]
    has_time = "duration_s" in names or {"started_s", "ended_s"} <= names.keys()
    return lost if has_time else [*lost, "duration_s"]


def _mapped(pairs: Sequence[str], there: Sequence[str], source: Path) -> dict[str, str]:
    out: dict[str, str] = {}
    for pair in pairs:
        field, equals, column = pair.partition("=")
        if not equals or field not in ALIASES:
            raise UsageError(f"--map {pair}: write FIELD=COLUMN, FIELD one of {', '.join(ALIASES)}")
        if there and column not in there:
            raise input_error(
                source,
                f"has no column {quote(column)} (--map {pair}){did_you_mean(column, there)}",
                1,
            )
        out[field] = column
    return out


def _condition(pair: str, there: Sequence[str]) -> tuple[str, set[str]]:
    column, equals, values = pair.partition("=")
    if not equals or column not in there:
        raise UsageError(
            f"--where {pair}: write COLUMN=VALUE|VALUE, COLUMN one of {', '.join(there[:12])}"
        )
    return column, set(values.split("|"))


def _clock(rows: CsvRows, column: str, unit: float) -> tuple[Floats, bool]:
    value, dated = parse_seconds(rows, column)
    return (value, True) if dated else (value * unit, False)


def _unique(ids: Sequence[str], lines: Sequence[int]) -> tuple[str, ...]:
    """Return the names; an empty or repeated one gets the number of its line."""
    seen: set[str] = set()
    out = []
    for name, line in zip(ids, lines, strict=True):
        own = name if name and name not in seen else f"{name or 'job'}-{line}"
        seen.add(own)
        out.append(own)
    return tuple(out)
