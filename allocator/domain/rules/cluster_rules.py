"""Rules between pools, prices, nodes, placements, tenants and speeds."""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from allocator.domain.findings import quote, suggest_names
from allocator.domain.grid import ParsedTable, number_names
from allocator.domain.problem import Bools, Isolation, State
from allocator.domain.rules import price_rules, quota_rules, spread_rules
from allocator.domain.rules.job_rules import primary_of_jobs
from allocator.domain.rules.rule import Check, Round, Rule, lacks, reference
from allocator.domain.schema.cells import parse_value
from allocator.domain.schema.columns import CURVE_PARAMETERS
from allocator.domain.schema.texts import parse_hazard
from allocator.domain.settings import longrun_faults

HEADROOM = "headroom_gpus sessions_per_hour session_s"
"""Columns that say how much headroom a pool keeps: a number, or the sessions to come."""
MOST_RESERVED = 8  # of a pool at once: each doubles the rows of the pool


def _check_curves(x: Round) -> None:
    """Check the parameters of speed curves."""
    curves = x["models.csv"]
    for i in np.flatnonzero(curves.ok("kind", "parameters")).tolist():
        _, wrong, strange = curve_parameters(curves.shown("kind", i), curves["parameters"][i])
        for message in wrong:
            curves.fault(i, f"parameters: {message}")
        for message in strange:
            words = f"parameters: {message}"
            x.found.warn(curves.schema.file, curves.lines[i], words, "unknown parameters")


# the curves of the next round have the same numbers
_read_number = lru_cache(maxsize=1 << 14, typed=True)(parse_value)


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
            is_plain = isinstance(given[name], int | float)
            read = _read_number if is_plain else parse_value
            values[name], message = read(column, given[name])
            wrong += [message] if message is not None else []
        elif column.default is not None:
            values[name] = column.default
    if not wrong and values["max_gpus"] < values["min_gpus"]:
        wrong.append(f"max_gpus {values['max_gpus']:g} is below min_gpus {values['min_gpus']:g}")
    return values, wrong, strange


def _check_rates(x: Round) -> None:
    """Warn of rates that need more memory than any GPU of their type has, and of speeds of 0."""
    rates, pools = x["rates.csv"], x["pools.csv"]
    largest: dict[str, float] = {}
    # an unknown memory may have any size
    memory_gb = np.nan_to_num(pools["memory_gb"], nan=math.inf)
    for gpu_type, gb in zip(pools["gpu_type"], memory_gb.tolist(), strict=True):
        largest[gpu_type] = max(largest.get(gpu_type, 0.0), gb)
    most = np.array([largest.get(gpu_type, math.inf) for gpu_type in rates["gpu_type"]])
    with np.errstate(invalid="ignore"):
        over = rates["memory_gb"] > most
    rates.warnings(
        over & rates.ok("memory_gb", "gpu_type"),
        "memory_gb {memory_gb} is more than any {gpu_type} GPU of pools.csv has, {most:g}",
        "memory_gb above that of every pool",
        most=most,
    )
    rates.warnings(
        rates.ok("work_per_s", "model") & (rates["work_per_s"] == 0),
        "work_per_s 0: model {model} is taken as not able to run at {gpus} x {kind}",
        "speeds of 0",
        kind=rates["gpu_type"],
    )


def _check_pools(x: Round) -> None:
    """Check revocations by age, and warn of a cluster without pools."""
    pools = x["pools.csv"]
    if pools.present and pools.whole and not len(pools):
        x.found.warn("pools.csv", None, "has no pools; every job waits")
    for i in np.flatnonzero(pools.given("hazard_by_age")).tolist():
        if pools["revocations_per_gpu_hour"][i] > 0:
            words = "both revocations_per_gpu_hour and hazard_by_age are given; leave one empty"
            pools.fault(i, words)
        try:
            parse_hazard(pools["hazard_by_age"][i])
        except ValueError as why:
            pools.fault(i, f"hazard_by_age {pools.shown('hazard_by_age', i)} {why}")


def _check_longrun_budgets(x: Round) -> None:
    tenants = x["tenants.csv"]
    keys = ("average_per_hour", "amount", "until_s")
    given = np.array([tenants.given(name) for name in keys])
    for i in np.flatnonzero(given.any(axis=0)).tolist():
        for message in longrun_faults(
            {key for key, some in zip(keys, given[:, i], strict=True) if some}
        ):
            tenants.fault(i, message)


def _check_placements(x: Round) -> None:
    """Check that placements name running jobs, nodes of their pools, and all of their GPUs.

    A job with gpu_fraction names the GPU of which it has a share. Warn of nodes on which more GPUs
    are placed than they have.
    """
    placed, jobs, nodes = x["placements.csv"], x["jobs.csv"], x["nodes.csv"]
    if not len(placed):
        return
    if not nodes.present and nodes.whole:
        x.found.fault("placements.csv", None, "names nodes, but there is no nodes.csv")
    x.refer("placements.csv", "job_id")
    if nodes.present:
        x.refer("placements.csv", "node")
    job, node = placed.codes("job_id", x.names.jobs), placed.codes("node", x.names.nodes)

    def of_jobs(column: Iterable[Any], none: Any = False) -> Any:
        """Return the entries of the jobs of the rows, (n,); `none` where there is no such job."""
        return np.array([*column, none])[job]

    at = of_jobs(jobs.lines)
    known = of_jobs(jobs.ok("state", "pool", "gpus"))
    runs = known & of_jobs(jobs["state"] == State.RUNNING)
    words = "job_id {job_id} is not running (jobs.csv:{at})"
    placed.faults(known & ~runs, words, at=at)
    pool = of_jobs(jobs["pool"], "")
    home = np.array([*nodes["pool"], ""])[node]
    placed.faults(
        runs & (node >= 0) & placed.ok("node") & (pool != "") & (home != "") & (pool != home),
        lambda i: (
            f"node {placed.shown('node', i)} is in pool {quote(str(home[i]))}, "
            f"job {placed.shown('job_id', i)} runs in pool {quote(str(pool[i]))}"
        ),
    )
    if not (placed.whole and placed.ok("job_id", "gpus").all()):
        return
    total = np.bincount(job[runs], placed["gpus"][runs], minlength=len(jobs) + 1)[job]
    held = of_jobs(jobs["gpus"])
    is_first = np.isin(
        np.arange(len(placed)), np.unique(np.where(runs, job, -1), return_index=True)[1]
    )
    placed.faults(
        runs & is_first & of_jobs(jobs.given("gpus")) & (total != held),
        "job {job_id} has {total:g} GPUs on nodes, but gpus {held} in jobs.csv:{at}",
        total=total,
        held=held,
        at=at,
    )
    shares = runs & of_jobs(jobs.given("gpu_fraction"))
    ok, given = placed.ok("gpu"), placed.given("gpu")
    words = "gpu is empty, but job {job_id} has gpu_fraction (jobs.csv:{at})"
    placed.faults(shares & ok & ~given, words, at=at)
    words = "gpu {gpu} is given, but job {job_id} has no gpu_fraction"
    placed.faults(runs & ~shares & ok & given, words)
    # the GPUs of two jobs of a colocation count once, and so does a GPU of which jobs have shares
    on = (node >= 0) & (of_jobs(primary_of_jobs(jobs, x.names), -1) < 0)
    whole = on & ~shares
    parts = np.stack([node, placed["gpu"]])[:, on & shares]
    used = np.bincount(node[whole], placed["gpus"][whole], minlength=len(nodes))
    used = used + np.bincount(np.unique(parts, axis=1)[0], minlength=len(nodes))
    nodes.warnings(
        (used > nodes["gpus"]) & nodes.ok("gpus") if len(nodes) else nodes.ok(),
        "gpus {gpus}, but {used:g} are placed there",
        "nodes with more GPUs placed than they have",
        used=used,
    )


def _check_sharing(x: Round) -> None:
    """Warn of slowdowns of colocation that no pool uses."""
    sharing, pools = x["sharing.csv"], x["pools.csv"]
    is_alone = pools["sharing"] == Isolation.NONE
    if len(sharing) and len(pools) and (pools.ok("sharing") & is_alone).all():
        words = "is checked, but no pool of pools.csv lets jobs share GPUs (column sharing)"
        x.found.warn(sharing.schema.file, None, words)


def _has_many_reservations(t: ParsedTable) -> Bools:
    """Find the reservations at whose begin more than MOST_RESERVED of their pool are in force."""
    at_s, until_s = t["at_s"], np.where(t.given("until_s"), t["until_s"], np.inf)
    pool = np.array(t["pool"])
    begin = at_s[:, None]
    in_force = (at_s <= begin) & (begin < until_s) & (pool[:, None] == pool)
    return np.asarray(in_force.sum(axis=1) > MOST_RESERVED)


def _check_reservations(x: Round) -> None:
    """Warn of reservations of more GPUs than their pools have."""
    rows, pools = x["reservations.csv"], x["pools.csv"]
    size = dict(zip(pools["pool"], pools["gpus"].tolist(), strict=True))
    most = np.array([size.get(pool, np.inf) for pool in rows["pool"]])
    rows.warnings(
        rows.ok("gpus") & (rows["gpus"] > most),
        "gpus {gpus} are more than the {most:g} GPUs of pool {pool}",
        "reservations of more GPUs than pools have",
        most=most,
    )


def _check_finished(x: Round) -> None:
    """Warn of finished jobs whose model has no rate and is that of no job; they teach nothing."""
    finished, jobs = x["finished.csv"], x["jobs.csv"]
    if len(finished) and x.names.complete and jobs.complete:
        known = number_names(x.names.rated_models, jobs["model"])
        sort = "models without a rate and a job"
        finished.refer("model", known, "has no rate and no job", sort)


def _check_rated(
    file: str, column: str, why: str = "has no rate", sort: str = "names without a rate"
) -> Check:
    """Return the rule that warns of models, or GPU types, without any rate."""

    def check(x: Round) -> None:
        known = x.names.rated_types if column == "gpu_type" else x.names.rated_models
        if x.names.complete and (known or file != "pools.csv"):
            x[file].refer(column, known, why, sort)

    return check


RULES: tuple[Check, ...] = (
    _check_curves,
    _check_rates,
    *(
        Rule(
            "rates.csv",
            f"{name} needs compute_s, the time that a step computes",
            name,
            lambda t, name=name, usual=usual: (  # type: ignore[misc]
                t.given(name) & (t[name] != usual) & ~t.given("compute_s")
            ),
        )
        for name, usual in (("codec_s", 0.0), ("volume_gb", 0.0), ("ratio", 1.0))
    ),
    spread_rules.check,
    _check_pools,
    _check_rated("pools.csv", "gpu_type", "has no rate of any model", "GPU types without any rate"),
    *(
        reference(file, "pool")
        for file in ("prices.csv", "nodes.csv", "interactive.csv", "reservations.csv")
    ),
    reference("reservations.csv", "tenant"),
    Rule(
        "reservations.csv",
        "until_s {until_s} is not after at_s {at_s}",
        "at_s until_s",
        lambda t: t.given("until_s") & (t["until_s"] <= t["at_s"]),
    ),
    Rule(
        "reservations.csv",
        f"is one of more than {MOST_RESERVED} reservations of pool {{pool}} at {{at_s}}",
        "pool at_s until_s",
        _has_many_reservations,
    ),
    Rule(
        "reservations.csv",
        "is for job {job_id} and for tenant {tenant}; it can be for one of them",
        "job_id tenant",
        lambda t: t.given("job_id") & t.given("tenant"),
    ),
    _check_reservations,
    Rule(
        "nodes.csv",
        "returns_s {returns_s} needs leaves_s, which is empty",
        "leaves_s returns_s",
        lacks("returns_s", "leaves_s"),
    ),
    Rule(
        "nodes.csv",
        "returns_s {returns_s} is not after leaves_s {leaves_s}",
        "leaves_s returns_s",
        lambda t: t.given("leaves_s") & (t["returns_s"] <= t["leaves_s"]),
    ),
    price_rules.check,
    *quota_rules.RULES,
    _check_longrun_budgets,
    _check_placements,
    *(reference("received.csv", column) for column in ("job_id", "gpu_type")),
    *(_check_rated("pauses.csv", column) for column in ("model", "gpu_type")),
    Rule(
        "interactive.csv",
        "headroom_gpus and sessions are both given; headroom is one of them",
        HEADROOM,
        lambda t: t.given("headroom_gpus") & (t.given("sessions_per_hour") | t.given("session_s")),
    ),
    Rule(
        "interactive.csv",
        "needs both sessions_per_hour and session_s, or none of them",
        HEADROOM,
        lambda t: ~t.given("headroom_gpus") & (t.given("sessions_per_hour") ^ t.given("session_s")),
    ),
    Rule(
        "interactive.csv",
        "keeps nothing: it says neither headroom_gpus nor which sessions come; a queue keeps what"
        " its own sessions needed",
        HEADROOM,
        lambda t: ~(t.given("headroom_gpus") | t.given("sessions_per_hour") | t.given("session_s")),
        "headroom left to a queue",
    ),
    _check_finished,
    _check_sharing,
    *(_check_rated("sharing.csv", column) for column in ("model_a", "model_b", "gpu_type")),
)
"""Rules in the order in which messages about one row are listed."""
