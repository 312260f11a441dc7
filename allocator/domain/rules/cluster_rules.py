"""Rules between pools, prices, nodes, placements, tenants and speeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from allocator.domain.findings import Findings, quote, suggest_names
from allocator.domain.grid import ParsedTable
from allocator.domain.problem import Isolation, State
from allocator.domain.rules import price_rules, quota_rules, spread_rules
from allocator.domain.rules.job_rules import primary_of_jobs
from allocator.domain.schema.cells import parse_value
from allocator.domain.schema.columns import CURVE_PARAMETERS
from allocator.domain.schema.hazards import parse_hazard
from allocator.domain.schema.names import Names
from allocator.domain.settings import longrun_faults


def check(grids: Mapping[str, ParsedTable], names: Names, begin_s: float, found: Findings) -> None:
    """Check all rules of the cluster that concern more than one cell.

    begin_s is the time of the round, or the start of the workload.
    """
    _speeds(grids, found)
    spread_rules.check(grids, found)
    _pools(grids, names, found)
    pools = grids["pools.csv"]
    for file in ("prices.csv", "nodes.csv", "interactive.csv"):
        grids[file].refer(
            found, "pool", names.pools, among="is not in pools.csv", judge=pools.complete
        )
    price_rules.check(grids, begin_s, found)
    quota_rules.check(grids, names, found)
    _tenants(grids["tenants.csv"], found)
    _placements(grids, names, found)
    _received(grids, names, found)
    _rated(grids["pauses.csv"], ("model",), names, found)
    _interactive(grids["interactive.csv"], found)
    _finished(grids["finished.csv"], grids["jobs.csv"], names, found)
    _sharing(grids["sharing.csv"], pools, names, found)


def _speeds(grids: Mapping[str, ParsedTable], found: Findings) -> None:
    """Check the parameters of speed curves, and warn of rates that no GPU can reach."""
    rates = grids["rates.csv"]
    curves = grids["models.csv"]
    pools = grids["pools.csv"]
    for i in np.flatnonzero(curves.ok("kind", "parameters")).tolist():
        _, wrong, strange = curve_parameters(
            curves.schema.column("kind").choices[curves["kind"][i]], curves["parameters"][i]
        )
        for message in wrong:
            curves.fault(found, i, f"parameters: {message}")
        for message in strange:
            found.warn(
                curves.schema.file, curves.lines[i], f"parameters: {message}", "unknown parameters"
            )
    largest: dict[str, float] = {}
    for t, memory in zip(pools["gpu_type"], pools["memory_gb"].tolist(), strict=True):
        # an unknown memory may have any size
        largest[t] = max(largest.get(t, 0.0), np.inf if math.isnan(memory) else memory)
    most = {t: largest.get(t, np.inf) for t in set(rates["gpu_type"])}
    gpu_memory_gb = np.fromiter(
        map(most.__getitem__, rates["gpu_type"]), dtype=np.float64, count=len(rates)
    )
    with np.errstate(invalid="ignore"):
        over = (rates["memory_gb"] > gpu_memory_gb) & rates.ok("memory_gb", "gpu_type")
    rates.warnings(
        found,
        over,
        lambda i: (
            f"memory_gb {rates.text('memory_gb', i)} is more than any "
            f"{quote(rates['gpu_type'][i])} GPU of pools.csv has, {gpu_memory_gb[i]:g}"
        ),
        "memory_gb above that of every pool",
    )
    for name, none in (("codec_s", 0.0), ("volume_gb", 0.0), ("ratio", 1.0)):
        stated = rates.given(name) & (rates[name] != none) & rates.ok(name)
        for i in np.flatnonzero(stated & ~rates.given("compute_s")).tolist():
            rates.fault(found, i, f"{name} needs compute_s, the time that a step computes")
    rates.warnings(
        found,
        rates.ok("work_per_s", "model") & (rates["work_per_s"] == 0),
        lambda i: (
            f"work_per_s 0: model {quote(rates['model'][i])} is taken as not able to run at "
            f"{rates.text('gpus', i)} x {rates['gpu_type'][i]}"
        ),
        "speeds of 0",
    )


def curve_parameters(
    kind: str, given: Mapping[str, object]
) -> tuple[dict[str, float], list[str], list[str]]:
    """Return the parameters of a curve with defaults, their faults, and their warnings."""
    columns = {c.name: c for c in CURVE_PARAMETERS[kind]}
    values: dict[str, float] = {}
    hint = suggest_names([name for name in given if name not in columns], columns)
    strange = [
        f"{quote(name)} is not a parameter of kind {kind}{words}" for name, words in hint.items()
    ]
    wrong = [
        f"{name} is missing; kind {kind} needs it"
        for name, c in columns.items()
        if c.required and name not in given
    ]
    for name, column in columns.items():
        if name in given:
            value, message = parse_value(column, given[name])
            wrong += [message] if message is not None else []
            values[name] = value
        elif column.default is not None:
            values[name] = column.default
    if not wrong and values["max_gpus"] < values["min_gpus"]:
        wrong.append(f"max_gpus {values['max_gpus']:g} is below min_gpus {values['min_gpus']:g}")
    return values, wrong, strange


def _pools(grids: Mapping[str, ParsedTable], names: Names, found: Findings) -> None:
    """Warn of a cluster without pools, and of GPU types for which no model has a rate."""
    pools = grids["pools.csv"]
    if pools.present and pools.whole and not len(pools):
        found.warn("pools.csv", None, "has no pools; every job waits")
    _hazards(pools, found)
    if not names.complete or not names.rated_types:
        return
    unrated = np.fromiter(
        (bool(t) and t not in names.rated_types for t in pools["gpu_type"]), bool, len(pools)
    )
    hint = suggest_names(
        [pools["gpu_type"][i] for i in np.flatnonzero(unrated).tolist()], names.rated_types
    )
    pools.warnings(
        found,
        unrated,
        lambda i: (
            f"gpu_type {quote(pools['gpu_type'][i])} has no rate of any model"
            f"{hint[pools['gpu_type'][i]]}"
        ),
        "GPU types without any rate",
    )


def _hazards(pools: ParsedTable, found: Findings) -> None:
    """Check revocations by age."""
    by_age = pools.given("hazard_by_age")
    pools.faults(
        found,
        by_age & (pools["revocations_per_gpu_hour"] > 0),
        lambda i: "both revocations_per_gpu_hour and hazard_by_age are given; leave one empty",
    )
    for i in np.flatnonzero(by_age).tolist():
        try:
            parse_hazard(pools["hazard_by_age"][i])
        except ValueError as why:
            pools.fault(found, i, f"hazard_by_age {quote(pools['hazard_by_age'][i])} {why}")


def _tenants(tenants: ParsedTable, found: Findings) -> None:
    """Check the long-run budgets of tenants."""
    given = {name: tenants.given(name) for name in ("average_per_hour", "amount", "until_s")}
    odd = given["average_per_hour"] & given["amount"] | (given["amount"] != given["until_s"])
    for i in np.flatnonzero(odd).tolist():
        for message in longrun_faults({name for name, some in given.items() if some[i]}):
            tenants.fault(found, i, message)


def _placements(grids: Mapping[str, ParsedTable], names: Names, found: Findings) -> None:
    """Check that placements name running jobs, nodes of their pools, and all of their GPUs.

    A job with gpu_fraction names the GPU of which it has a share. Warn of nodes on which more GPUs
    are placed than they have.
    """
    placed = grids["placements.csv"]
    jobs = grids["jobs.csv"]
    nodes = grids["nodes.csv"]
    if not len(placed):
        return
    if not nodes.present and nodes.whole:
        found.fault("placements.csv", None, "names nodes, but there is no nodes.csv")
    job = placed.refer(found, "job_id", names.jobs, among="is not in jobs.csv", judge=jobs.complete)
    node = placed.refer(
        found,
        "node",
        names.nodes,
        among="is not in nodes.csv",
        judge=nodes.present and nodes.complete,
    )

    def job_name(i: int) -> str:
        return quote(placed["job_id"][i])

    known = (job >= 0) & jobs.ok("state", "pool", "gpus")[job] if len(jobs) else job >= 0
    runs = known & (jobs["state"][job] == State.RUNNING) if len(jobs) else known
    placed.faults(
        found,
        known & ~runs,
        lambda i: f"job_id {job_name(i)} is not running (jobs.csv:{jobs.lines[job[i]]})",
    )
    where = runs & (node >= 0) & placed.ok("node")
    for i in np.flatnonzero(where).tolist():
        pool = jobs["pool"][job[i]]
        home = nodes["pool"][node[i]]
        if pool and home and pool != home:
            placed.fault(
                found,
                i,
                f"node {quote(placed['node'][i])} is in pool {quote(home)}, "
                f"job {job_name(i)} runs in pool {quote(pool)}",
            )
    if not (placed.whole and placed.ok("job_id", "gpus").all()):
        return
    total = (
        np.bincount(job[runs], placed["gpus"][runs], minlength=len(jobs))
        if len(jobs)
        else np.zeros(0)
    )
    seen: set[int] = set()
    for i in np.flatnonzero(runs).tolist():
        j = int(job[i])
        if j not in seen and jobs.given("gpus")[j] and total[j] != jobs["gpus"][j]:
            placed.fault(
                found,
                i,
                f"job {job_name(i)} has {total[j]:g} GPUs on nodes, but gpus {jobs['gpus'][j]} in "
                f"jobs.csv:{jobs.lines[j]}",
            )
        seen.add(j)
    shares = runs & jobs.given("gpu_fraction")[job] if len(jobs) else runs
    placed.faults(
        found,
        shares & placed.ok("gpu") & ~placed.given("gpu"),
        lambda i: (
            f"gpu is empty, but job {job_name(i)} has gpu_fraction (jobs.csv:{jobs.lines[job[i]]})"
        ),
    )
    placed.faults(
        found,
        runs & ~shares & placed.ok("gpu") & placed.given("gpu"),
        lambda i: f"gpu {placed['gpu'][i]} is given, but job {job_name(i)} has no gpu_fraction",
    )
    # the GPUs of two jobs of a colocation count once, and so does a GPU of which jobs have shares
    on = node >= 0
    if len(jobs):
        on &= ~((job >= 0) & (primary_of_jobs(jobs, names)[job] >= 0))
    whole = on & ~shares
    parts = np.flatnonzero(on & shares)
    split = np.unique(np.stack([node[parts], placed["gpu"][parts]], axis=1), axis=0)[:, 0]
    used = (
        np.bincount(node[whole], placed["gpus"][whole], minlength=len(nodes))
        + np.bincount(split, minlength=len(nodes))
        if len(nodes)
        else np.zeros(0)
    )
    over = (used > nodes["gpus"]) & nodes.ok("gpus") if len(nodes) else np.zeros(0, dtype=bool)
    nodes.warnings(
        found,
        over,
        lambda n: f"gpus {nodes.text('gpus', n)}, but {used[n]:g} are placed there",
        "nodes with more GPUs placed than they have",
    )


def _received(grids: Mapping[str, ParsedTable], names: Names, found: Findings) -> None:
    """Check that received.csv names jobs and GPU types that exist."""
    received = grids["received.csv"]
    received.refer(
        found, "job_id", names.jobs, among="is not in jobs.csv", judge=grids["jobs.csv"].complete
    )
    received.refer(
        found,
        "gpu_type",
        names.gpu_types,
        among="is a type of no pool and has no rate",
        judge=grids["pools.csv"].whole and names.complete,
    )


def _sharing(sharing: ParsedTable, pools: ParsedTable, names: Names, found: Findings) -> None:
    """Warn of slowdowns of colocation that no pool or no rate uses."""
    if (
        len(sharing)
        and len(pools)
        and pools.ok("sharing").all()
        and (pools["sharing"] == Isolation.NONE).all()
    ):
        found.warn(
            sharing.schema.file,
            None,
            "is checked, but no pool of pools.csv lets jobs share GPUs (column sharing)",
        )
    _rated(sharing, ("model_a", "model_b"), names, found)


def _interactive(table: ParsedTable, found: Findings) -> None:
    """Check how the headroom of each pool is given.

    It is a number of GPUs, or follows from the rate and the length of sessions, or is left to what
    a queue has observed.
    """
    number, often, long = (
        table.given(name) for name in ("headroom_gpus", "sessions_per_hour", "session_s")
    )
    ok = table.ok("headroom_gpus", "sessions_per_hour", "session_s")
    table.faults(
        found,
        ok & number & (often | long),
        lambda i: "headroom_gpus and sessions are both given; headroom is one of them",
    )
    table.faults(
        found,
        ok & ~number & (often ^ long),
        lambda i: "needs both sessions_per_hour and session_s, or none of them",
    )
    table.warnings(
        found,
        ok & ~number & ~often & ~long,
        lambda i: (
            "keeps nothing: it says neither headroom_gpus nor "
            "which sessions come; a queue keeps what its own sessions needed"
        ),
        "headroom left to a queue",
    )


def _finished(finished: ParsedTable, jobs: ParsedTable, names: Names, found: Findings) -> None:
    """Warn of finished jobs whose model has no rate and is that of no job; they teach nothing."""
    if not (len(finished) and names.complete and jobs.complete):
        return
    known = dict.fromkeys((*names.rated_models, *jobs["model"]))
    strange = np.fromiter((m not in known for m in finished["model"]), bool, len(finished))
    strange &= finished.ok("model")
    hint = suggest_names([finished["model"][i] for i in np.flatnonzero(strange).tolist()], known)
    finished.warnings(
        found,
        strange,
        lambda i: (
            f"model {quote(finished['model'][i])} has no rate and no job"
            f"{hint[finished['model'][i]]}"
        ),
        "models without a rate and a job",
    )


def _rated(table: ParsedTable, models: Sequence[str], names: Names, found: Findings) -> None:
    """Warn of models and GPU types in these columns for which no rate is known."""
    if not (len(table) and names.complete):
        return
    for column, known in (
        *((name, names.rated_models) for name in models),
        ("gpu_type", names.rated_types),
    ):
        strange = np.fromiter((bool(v) and v not in known for v in table[column]), bool, len(table))
        hint = suggest_names([table[column][i] for i in np.flatnonzero(strange).tolist()], known)
        words = {v: f"{column} {quote(v)} has no rate{hint.get(v, '')}" for v in table[column]}
        table.warnings(found, strange, _lookup(words, table[column]), "names without a rate")


def _lookup(words: Mapping[str, str], column: Sequence[str]) -> Callable[[int], str]:
    """Return a function from a row to the words for its cell."""
    return lambda i: words[column[i]]
