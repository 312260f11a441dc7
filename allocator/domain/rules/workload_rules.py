"""Check the tables of a workload folder, and build its Workload.

The rules are those of snapshots and of workloads (docs/reference/rules.md, R50 to R53).
workload.csv is presented to the rules of jobs.csv as jobs that have just been submitted, with all
their work left. Changes of a pool over time are in capacity.csv (gpus) and prices.csv (price,
gpus); each holds from its own time on. If both give the GPUs of a pool at one time, capacity.csv
takes precedence. In a pool with nodes neither counts: nodes.csv has the nodes at the start, and
node_events.csv has their later states.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from allocator.domain.cluster import rows
from allocator.domain.findings import Findings, quote, suggest_names
from allocator.domain.grid import HEADER, Names, ParsedTable, grids, names
from allocator.domain.problem import NO_CHANGES
from allocator.domain.rules import cluster_rules, job_rules
from allocator.domain.rules.periodic import expand_rows
from allocator.domain.rules.rule import Round
from allocator.domain.rules.snapshot_rules import build_problem, check_settings
from allocator.domain.schema.cells import default_column
from allocator.domain.schema.columns import JOBS
from allocator.domain.schema.workload_columns import (
    CAPACITY,
    NODE_EVENTS,
    NOT_STARTED,
    RECORDED,
    UNDER_WAY,
    WORKLOAD,
    WORKLOAD_CONFIG,
    WORKLOAD_TABLES,
)
from allocator.domain.settings import FILE as CONFIG_FILE, settings
from allocator.domain.snapshot import Snapshot, Table
from allocator.domain.workload import NOT_RECORDED, NodeEvents, RecordedTimes, Workload
from allocator.errors import InvalidInput

SUBMITTED = replace(JOBS, file=WORKLOAD.file)


def validate_workload(raw: Snapshot) -> Workload:
    """Check a workload folder, and return its Workload, with warnings in problem.warnings.

    Jobs are sorted by submitted_s, and by row where equal.

    Parameters
    ----------
    raw : Snapshot
        The folder as read (io/workloads.py), tables by file name.

    Raises
    ------
    InvalidInput
        With all faults, sorted by file and line.
    """
    findings = Findings(raw.faults)
    config = settings(raw, findings, WORKLOAD_CONFIG)
    tables = grids(
        _drop_columns_of_started_jobs(raw, findings), findings, config.levels, WORKLOAD_TABLES
    )
    _check_recorded(tables[WORKLOAD.file])
    tables |= {
        "jobs.csv": _as_jobs(expand_rows(tables[WORKLOAD.file])),
        **grids(replace(raw, tables={}), findings, (), NOT_STARTED),
    }
    known = names(tables)
    checked = Round(tables, known, config, math.inf, findings)
    checked.apply(job_rules.RULES)
    start = _find_start(config["now_s"], tables["jobs.csv"], raw, findings)
    checked = replace(checked, now_s=start)
    checked.apply(cluster_rules.RULES)
    checked.refer(CAPACITY.file, "pool")
    checked.refer(NODE_EVENTS.file, "node")
    _warn_of_missing_predecessors(tables["jobs.csv"], known)
    if config["assumed"]:
        findings.warn(CONFIG_FILE, raw.config_lines.get("assumed"), f"assumed: {config['assumed']}")
    if findings.faults:
        raise InvalidInput(findings.faults, (*raw.warnings, *findings.warnings))
    check_settings(config, tables)
    events = rows(NodeEvents, tables[NODE_EVENTS.file], known)
    events = events.select(np.argsort(events.at_s, kind="stable"))
    is_early = events.at_s <= start
    tables["nodes.csv"] = _apply_events(tables["nodes.csv"], events.select(is_early))
    _warn_of_counts(tables, start)
    problem = build_problem(raw, config, tables, known, start)
    recorded = RecordedTimes(*(tables["jobs.csv"][column.name] for column in RECORDED))
    is_recorded = not all(np.isnan(times).all() for times in vars(recorded).values())
    return Workload(
        replace(problem, announced=NO_CHANGES),
        problem.announced,
        events.select(~is_early),
        config["assumed"],
        recorded if is_recorded else NOT_RECORDED,
    )


def _check_recorded(table: ParsedTable) -> None:
    """Check the recorded times of a job against its submission, and each other."""
    for early, late in (
        ("submitted_s", "recorded_start_s"),
        ("recorded_start_s", "recorded_end_s"),
        ("submitted_s", "recorded_end_s"),
    ):
        given = table.given(early) & table.given(late) & table.ok(early, late)
        with np.errstate(invalid="ignore"):
            wrong = given & (table[late] < table[early])
        table.faults(wrong, f"{late} {{{late}}} is before {early} {{{early}}}")
    for name in (column.name for column in RECORDED):
        several = table.given("every_s") | table.given("cells")
        table.faults(several & table.given(name), f"{name} is of one job, and this row has several")


def _apply_events(nodes: ParsedTable, events: NodeEvents) -> ParsedTable:
    """Return nodes.csv with the states after events; the last one of a node counts."""
    state = nodes["state"].copy()
    state[events.node] = events.state
    column = replace(nodes.columns["state"], value=state)
    return replace(nodes, columns={**nodes.columns, "state": column})


def _warn_of_counts(tables: Mapping[str, ParsedTable], start: float) -> None:
    """Warn of later numbers of GPUs of pools with nodes, which have no effect."""
    has_nodes = set(tables["nodes.csv"]["pool"])
    for table in (tables[CAPACITY.file], tables["prices.csv"]):
        listed = np.array([name in has_nodes for name in table["pool"]], dtype=bool)
        table.warnings(
            listed & table.given("gpus") & (table["at_s"] > start),
            "gpus of pool {pool} has no effect: its GPUs are those of its nodes, whose states are"
            f" in {NODE_EVENTS.file}",
            "later numbers of GPUs of pools with nodes",
        )


def _drop_columns_of_started_jobs(raw: Snapshot, findings: Findings) -> Snapshot:
    """Return the folder without the columns of workload.csv that only started jobs can have.

    Each column that is dropped gives a warning.
    """
    table = raw.tables.get(WORKLOAD.file)
    if table is None:
        return raw
    for name in (n for n in table.columns if n in UNDER_WAY):
        findings.warn(
            WORKLOAD.file,
            HEADER,
            f"column {name} is of jobs under way and is ignored; a job of a workload "
            "starts with total_work left and nothing held",
        )
    columns = {name: cells for name, cells in table.columns.items() if name not in UNDER_WAY}
    return replace(
        raw, tables={**raw.tables, WORKLOAD.file: Table(table.file, columns, table.lines)}
    )


def _as_jobs(table: ParsedTable) -> ParsedTable:
    """Return workload.csv as a table of queued jobs with all columns of jobs.csv.

    Jobs are sorted by submitted_s.
    """
    table = table.take(np.argsort(table["submitted_s"], kind="stable"))
    columns = dict(table.columns)
    columns["remaining_work"] = columns["total_work"]
    columns |= {
        c.name: default_column(c, len(table)) for c in SUBMITTED.columns if c.name not in columns
    }
    cells = dict(table.cells)
    cells |= {"remaining_work": cells["total_work"]} if "total_work" in cells else {}
    return replace(table, schema=SUBMITTED, cells=cells, columns=columns)


def _warn_of_missing_predecessors(jobs: ParsedTable, known: Names) -> None:
    """Warn of predecessors that never appear, which are probably misspelt."""
    if not jobs.complete:
        return
    missing = {
        i: name
        for i in np.flatnonzero(jobs.given("after") & jobs.ok("after")).tolist()
        for name in jobs["after"][i]
        if name not in known.jobs
    }
    hint = suggest_names(missing.values(), known.jobs)
    rows = np.zeros(len(jobs), dtype=bool)
    rows[list(missing)] = True
    jobs.warnings(
        rows,
        lambda i: (
            f"after {quote(missing[i])} is no job of the workload and counts as done"
            f"{hint[missing[i]]}"
        ),
        "predecessors that are no jobs of the workload",
    )


def _find_start(given: float | None, jobs: ParsedTable, raw: Snapshot, findings: Findings) -> float:
    """Return when the workload starts, in seconds.

    It is now_s of config.toml or the earliest submitted_s, whichever is earlier, and 0 if neither
    is given.
    """
    earliest = float(jobs["submitted_s"][0]) if len(jobs) else None
    if earliest is None or given is None:
        return next((float(t) for t in (given, earliest) if t is not None), 0.0)
    if given > earliest:
        findings.warn(
            CONFIG_FILE,
            raw.config_lines.get("now_s"),
            f"now_s {given:.15g} is after the earliest submitted_s; "
            f"the workload starts there, at {earliest:.15g}",
        )
    return min(float(given), earliest)
