"""Rules between the columns of jobs.csv, and between jobs and the other tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import compress

import numpy as np

from allocator.domain.findings import (
    HINTED,
    Findings,
    did_you_mean,
    find_near_miss,
    quote,
    suggest_names,
)
from allocator.domain.grid import ParsedTable
from allocator.domain.problem import Bools, Ints, Market, State
from allocator.domain.schema.colocation import BETWEEN_NAMES, first_primary, split_names
from allocator.domain.schema.columns import ASSUMED_RATE, MOST_INTEGER
from allocator.domain.schema.modes import parse_mode
from allocator.domain.schema.names import Names
from allocator.domain.settings import Settings
from allocator.domain.size_rule import EVERY_NODES

LIMITS = (
    "max_gpus",
    "budget_per_hour",
    "max_spot_gpus",
    "max_spot_share",
    "average_per_hour",
    "amount",
)
"""Columns of tenants.csv that limit a tenant."""
NEAR = ("same", "prefer")
"""Beginnings of a placement that names a level of the topology."""
# similarity from which a model's name counts as a misspelt name of a model with rates
SLIP = 0.75
NAMED = 5  # most models that one message names
# a deadline is probably wrong if the work takes so many times the time that it leaves
FAR = 10


def check(
    grids: Mapping[str, ParsedTable], names: Names, config: Settings, now_s: float, found: Findings
) -> None:
    """Check all rules of jobs that concern more than one cell."""
    jobs = grids["jobs.csv"]
    if jobs.present and jobs.whole and not len(jobs):
        found.warn(jobs.schema.file, None, "has no jobs")
    _sizes(jobs, found)
    _check_modes(jobs, found)
    fixed = ~jobs["preemptible"] & jobs["best_effort"] & jobs.ok("preemptible", "best_effort")
    for i in np.flatnonzero(fixed).tolist():
        jobs.fault(found, i, "best_effort jobs may be paused at any time: preemptible is false")
    _check_places(jobs, config.levels, found)
    _check_losses(jobs, found)
    _passed_over(jobs, grids["pools.csv"], found)
    _work(jobs, now_s, found)
    _holdings(jobs, grids["pools.csv"], names, found)
    _check_colocated(grids, names, config, found)
    _models(jobs, grids, names, config["unknown_models"], found)
    _types(jobs, grids, names, found)
    _tenants(jobs, grids["tenants.csv"], names, config["unknown_tenants"] == "refuse", found)
    _speeds(grids, names, found)
    _predecessors(jobs, names, found)


def _sizes(jobs: ParsedTable, found: Findings) -> None:
    low, high, asked = jobs["min_gpus"], jobs["max_gpus"], jobs["requested_gpus"]
    ok = jobs.ok("min_gpus", "max_gpus")

    def span(i: int) -> str:
        return f"min_gpus {jobs.text('min_gpus', i)} to max_gpus {jobs.text('max_gpus', i)}"

    jobs.faults(
        found,
        ok & (high < low),
        lambda i: (
            f"max_gpus {jobs.text('max_gpus', i)} is below min_gpus {jobs.text('min_gpus', i)}"
        ),
    )
    ok &= high >= low
    outside = (
        ok
        & jobs.ok("requested_gpus")
        & jobs.given("requested_gpus")
        & ((asked < low) | (asked > high))
    )
    jobs.faults(
        found,
        outside,
        lambda i: f"requested_gpus {jobs.text('requested_gpus', i)} is outside {span(i)}",
    )
    listed = ok & jobs.ok("sizes") & jobs.given("sizes")
    none = np.zeros(len(jobs), dtype=bool)
    for i in np.flatnonzero(listed).tolist():
        none[i] = not any(low[i] <= k <= high[i] for k in jobs["sizes"][i])
    jobs.faults(
        found, none, lambda i: f"sizes {quote(jobs.text('sizes', i))} has none within {span(i)}"
    )


def _check_modes(jobs: ParsedTable, found: Findings) -> None:
    for i in np.flatnonzero(jobs.given("modes") & jobs.ok("modes")).tolist():
        for text in jobs["modes"][i]:
            try:
                parse_mode(text)
            except ValueError as error:
                jobs.fault(found, i, f"modes {quote(text)} {error}")


def _check_places(jobs: ParsedTable, levels: Sequence[str], found: Findings) -> None:
    """Check that a share of a GPU is all that a job may have, and that its placement is known."""
    share = jobs.given("gpu_fraction") & jobs.ok("gpu_fraction", "max_gpus")
    jobs.faults(
        found,
        share & (jobs["gpu_fraction"] >= 1),
        lambda i: (
            f"gpu_fraction {jobs.text('gpu_fraction', i)} is not below 1; leave it empty for whole"
            " GPUs"
        ),
    )
    jobs.faults(
        found,
        share & (jobs["max_gpus"] > 1),
        lambda i: (
            f"gpu_fraction {jobs.text('gpu_fraction', i)} is a share of one GPU, but max_gpus is"
            f" {jobs.text('max_gpus', i)}"
        ),
    )
    known = {"packed", "spread", *(f"{sort}_{name}" for name in levels for sort in NEAR)}
    unknown = {name for name in jobs.distinct("placement") if name not in known}
    for i, name in enumerate(jobs["placement"] if unknown else ()):
        if name in unknown and jobs.ok("placement")[i]:
            hint = did_you_mean(name, known) or f" (known: {', '.join(sorted(known))})"
            jobs.fault(found, i, f"placement {quote(name)} is not known{hint}")


def _check_losses(jobs: ParsedTable, found: Findings) -> None:
    """Check that what losses say of a job's work is complete, and that it has a target."""
    ok = jobs.ok("target_loss", "loss_work", "loss_error")
    work, error = jobs.given("loss_work"), jobs.given("loss_error")
    for here, name, other in (
        (work & ~error, "loss_work", "loss_error"),
        (error & ~work, "loss_error", "loss_work"),
        (work & error & ~jobs.given("target_loss"), "loss_work", "target_loss"),
    ):
        jobs.faults(
            found,
            ok & here,
            lambda i, name=name, other=other: (  # type: ignore[misc]
                f"{name} {jobs.text(name, i)} needs {other}, which is empty"
            ),
        )


def _passed_over(jobs: ParsedTable, pools: ParsedTable, found: Findings) -> None:
    """Warn of pools so large that jobs without `sizes` are not offered every number of nodes."""
    ruled = jobs.ok("sizes", "max_gpus") & ~jobs.given("sizes")
    top = np.minimum(pools["gpus"], max(jobs["max_gpus"][ruled], default=0))
    pools.warnings(
        found,
        pools.ok("gpus", "gpus_per_node") & (top > EVERY_NODES * pools["gpus_per_node"]),
        lambda i: (
            f"has {top[i] // pools['gpus_per_node'][i]:,} nodes for one job; above {EVERY_NODES:,} "
            "nodes a job without sizes is offered only numbers that differ by less than 0.8 %"
        ),
        "pools of very many nodes",
    )


def _work(jobs: ParsedTable, now_s: float, found: Findings) -> None:
    with np.errstate(invalid="ignore"):
        short = jobs.given("total_work") & (jobs["total_work"] < jobs["remaining_work"])
        early = jobs["submitted_s"] > now_s
    jobs.faults(
        found,
        jobs.ok("every_s", "times") & jobs.given("times") & ~jobs.given("every_s"),
        lambda i: "times needs every_s, the seconds from one time to the next",
    )
    jobs.faults(
        found,
        short & jobs.ok("total_work", "remaining_work"),
        lambda i: (
            "total_work "
            f"{jobs.text('total_work', i)} is below remaining_work {jobs.text('remaining_work', i)}"
        ),
    )
    jobs.warnings(
        found,
        early & jobs.ok("submitted_s"),
        lambda i: f"submitted_s {jobs.text('submitted_s', i)} is after now_s {now_s:.15g}",
        "jobs submitted after now_s",
    )
    with np.errstate(invalid="ignore"):
        late = jobs.ok("deadline_s", "submitted_s") & (jobs["deadline_s"] <= jobs["submitted_s"])
    jobs.warnings(
        found,
        late,
        lambda i: (
            f"deadline_s {jobs.text('deadline_s', i)} is not after submitted_s "
            f"{jobs.text('submitted_s', i)}; it is a time on the same clock, in seconds"
        ),
        "deadlines that have passed at submission",
    )


def _holdings(jobs: ParsedTable, pools: ParsedTable, names: Names, found: Findings) -> None:
    running = jobs["state"] == State.RUNNING
    ok = jobs.ok("state")
    choices = jobs.schema.column("state").choices
    for column in ("pool", "gpus"):
        given = jobs.given(column)
        for i in np.flatnonzero(ok & jobs.ok(column) & (running != given)).tolist():
            jobs.fault(
                found,
                i,
                (
                    f"{column} is empty, but state is running"
                    if running[i]
                    else (
                        f"{column} {_shown(jobs, column, i)} is given, but state is"
                        f" {choices[jobs['state'][i]]}"
                    )
                ),
            )
    jobs.refer(found, "pool", names.pools, among="is not in pools.csv", judge=pools.complete)


def _check_colocated(
    grids: Mapping[str, ParsedTable], names: Names, config: Settings, found: Findings
) -> None:
    """Check that at most two running jobs share the same GPUs."""
    jobs = grids["jobs.csv"]
    given = jobs.given("shared_with")
    if not given.any():
        return
    state, choices = jobs["state"], jobs.schema.column("state").choices
    most = int(config["max_primaries"])
    taken: dict[int, int] = {}

    def report_fault(i: int, name: str, words: str) -> None:
        jobs.fault(found, i, f"shared_with {quote(name)} {words}")

    def where(i: int) -> str:
        return f"{jobs['gpus'][i]} GPUs of pool {quote(jobs['pool'][i])}"

    def find_fault(i: int, m: int, has_others: bool) -> str | None:
        """Say why job m can not be a primary job of job i, None = it can."""
        if m == i:
            return "names the job itself"
        if state[i] != State.RUNNING:
            return f"is given, but state is {choices[state[i]]}"
        if not jobs.ok("state", "pool", "gpus")[m]:
            return None
        if state[m] != State.RUNNING:
            return f"is not running ({jobs.schema.file}:{jobs.lines[m]})"
        if jobs["pool"][m] != jobs["pool"][i] or (
            jobs["gpus"][m] != jobs["gpus"][i] and not has_others
        ):
            return f"holds {where(m)}, this job {where(i)}"
        if given[m] and (named.get(m) != [i] or has_others):
            other = quote(jobs["shared_with"][m])
            return f"shares the GPUs of {other}; a GPU has two jobs at most"
        if taken.setdefault(m, i) != i:
            other = quote(jobs["job_id"][taken[m]])
            return f"already shares its GPUs with {other}; a GPU has two jobs at most"
        return None

    named = _named_primaries(jobs, names, found)
    for i in [i for i in named if jobs.ok("state", "pool", "gpus")[i]]:
        others = named[i]
        total = sum(int(jobs["gpus"][m]) for m in others if jobs.ok("gpus")[m])
        has_others = len(others) > 1 or (
            most > 1 and state[i] == State.RUNNING and total < jobs["gpus"][i]
        )
        cell = jobs["shared_with"][i]
        if len(others) > most:
            report_fault(i, cell, f"names {len(others)} jobs, max_primaries is {most}")
            continue
        if has_others and (words := _why_one_of_its_size(grids, i, others)):
            report_fault(i, cell, words)
        elif has_others and total > jobs["gpus"][i]:
            report_fault(i, cell, f"holds {total} GPUs, this job {where(i)}")
        for m in others:
            if fault := find_fault(i, m, has_others):
                report_fault(i, jobs["job_id"][m], fault)


def _named_primaries(jobs: ParsedTable, names: Names, found: Findings) -> dict[int, list[int]]:
    """Return the jobs that each job of `shared_with` names; unknown names are faults."""
    cells = {
        cell: split_names(cell)
        for cell in compress(jobs["shared_with"], jobs.given("shared_with").tolist())
    }
    known = {
        cell: [names.jobs[name] for name in named]
        for cell, named in cells.items()
        if all(name in names.jobs for name in named)
    }
    listed = dict(names.jobs) | {
        cell: places[0] for cell, places in known.items() if BETWEEN_NAMES in cell
    }
    jobs.refer(found, "shared_with", listed, among="is not in jobs.csv", judge=jobs.complete)
    here = np.flatnonzero(jobs.given("shared_with") & jobs.ok("shared_with")).tolist()
    return {i: known[cell] for i in here if (cell := jobs["shared_with"][i]) in known}


def _why_one_of_its_size(grids: Mapping[str, ParsedTable], i: int, others: list[int]) -> str:
    """Say why a job may only share with one job of its size, "" = it may share with others."""
    jobs, pools, nodes = (grids[f] for f in ("jobs.csv", "pools.csv", "nodes.csv"))
    for j in (i, *others):
        if jobs.ok("preemptible")[j] and not jobs["preemptible"][j]:
            name = quote(jobs["job_id"][j])
            return f"must be one job of as many GPUs: preemptible is false for {name}"
    pool = jobs["pool"][i]
    if pool in nodes["pool"]:
        return f"must be one job of as many GPUs: pool {quote(pool)} has nodes"
    place = list(pools["pool"]).index(pool) if pool in pools["pool"] else -1
    if place >= 0 and pools["market"][place] == Market.SPOT:
        return f"must be one job of as many GPUs: pool {quote(pool)} is a spot pool"
    return ""


def primary_of_jobs(jobs: ParsedTable, names: Names) -> Ints:
    """Return the first job on whose GPUs each secondary job runs, (J,), -1 = none."""
    return first_primary(secondary_of_jobs(jobs, names))


def secondary_of_jobs(jobs: ParsedTable, names: Names) -> Ints:
    """Return the job that runs on the GPUs of each primary job, (J,), -1 = none.

    If two jobs name each other, the primary job is the one submitted first, then the first by name.
    """
    secondary = np.full(len(jobs), -1)
    for g, cell in enumerate(jobs["shared_with"] if jobs.given("shared_with").any() else ()):
        for h in (names.jobs.get(name, -1) for name in split_names(cell or "")):
            if h >= 0:
                secondary[h] = g
    for h in np.flatnonzero(secondary >= 0).tolist():
        g = int(secondary[h])
        if g >= 0 and secondary[g] == h:
            first, _ = sorted((g, h), key=lambda j: (jobs["submitted_s"][j], jobs["job_id"][j]))
            secondary[g + h - first] = -1
    return secondary


def _shown(jobs: ParsedTable, column: str, i: int) -> str:
    text = jobs.text(column, i)
    return text[:40] if column == "gpus" else quote(text)


def _rate_files(grids: Mapping[str, ParsedTable]) -> str:
    return " or ".join(f for f in ("rates.csv", "models.csv") if grids[f].present) or "rates.csv"


def _models(
    jobs: ParsedTable,
    grids: Mapping[str, ParsedTable],
    names: Names,
    rule: str | None,
    found: Findings,
) -> None:
    """Report models without any rate.

    Their jobs run at an assumed speed, unless `rule`, the setting unknown_models, refuses them. If
    `rule` is None, a name is refused if it looks like a misspelt model with rates.
    """
    known, among = names.rated_models, f"has no row in {_rate_files(grids)}"
    if not names.complete:
        return
    if rule == "refuse":
        rated = grids["rates.csv"].present or grids["models.csv"].present
        if not rated:
            found.fault(
                "rates.csv",
                None,
                "is missing; without models.csv it must say how fast each model runs",
            )
        jobs.refer(found, "model", known, among=among, judge=rated)
        return
    ok = jobs.ok("model")
    unknown = {name for name in jobs.distinct("model") if name and name not in known}
    count = Counter(
        name
        for name, fine in zip(jobs["model"] if unknown else (), ok.tolist(), strict=bool(unknown))
        if fine and name in unknown
    )
    if rule is None:
        near = {
            name: hit
            for name in list(count)[:HINTED]
            if (hit := find_near_miss(name, names.given_models, SLIP)) is not None
        }
        slips = _is_among(jobs["model"], near)
        jobs.faults(
            found,
            slips & ok,
            lambda i: (
                f"model {quote(jobs['model'][i])} {among}; did you mean"
                f" {quote(near[jobs['model'][i]])}? If it is another model, set unknown_models ="
                ' "assume"'
            ),
        )
        count = Counter({name: n for name, n in count.items() if name not in near})
    if count:
        hint = suggest_names(count, known)
        some = ", ".join(
            quote(name) + hint[name].replace("; did", " (did").replace("?", "?)")
            for name in list(count)[:NAMED]
        )
        found.warn(
            jobs.schema.file,
            None,
            f"{_number(count.total(), 'job')} of {_number(len(count), 'model')} without "
            f"a rate, {some}{' ...' if len(count) > NAMED else ''}: {assumption(count.total())}",
        )


def assumption(jobs: int) -> str:
    """Describe what is assumed of jobs whose model has no rate."""
    return (
        f"{'it runs' if jobs == 1 else 'each runs'} at requested_gpus only, at an assumed speed of "
        f"{ASSUMED_RATE:g} work/s, until it is measured"
    )


def _number(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _types(
    jobs: ParsedTable, grids: Mapping[str, ParsedTable], names: Names, found: Findings
) -> None:
    files, pools = _rate_files(grids), grids["pools.csv"]
    if not (names.complete and pools.whole and pools.ok("gpu_type").all()):
        return
    known = names.gpu_types
    # most jobs have one of a few lists
    listed = {names_: set(names_) - known.keys() for names_ in jobs.distinct("gpu_types")}
    unknown = {
        (i, name)
        for i in np.flatnonzero(
            _is_among(jobs["gpu_types"], {k for k, v in listed.items() if v})
        ).tolist()
        if jobs.ok("gpu_types")[i]
        for name in listed[jobs["gpu_types"][i]]
    }
    hint = suggest_names([name for _, name in sorted(unknown)], known)
    for i, name in sorted(unknown):
        jobs.fault(
            found, i, f"gpu_types {quote(name)} is neither in pools.csv nor in {files}{hint[name]}"
        )


def _tenants(
    jobs: ParsedTable, tenants: ParsedTable, names: Names, refuses: bool, found: Findings
) -> None:
    """Report tenants that are not in tenants.csv, because limits hold for listed tenants only.

    They are faults if `refuses` is True. Otherwise they are warnings, if any tenant has a limit or
    the name looks like a misspelt one.
    """
    if not tenants.complete or not (tenants.present or refuses):
        return
    known, busy = names.listed_tenants, set(jobs.distinct("tenant"))
    others = [name for name in jobs.distinct("tenant") if name and name not in known]
    hint = dict.fromkeys(others, "")
    for name in others[:HINTED]:
        near = find_near_miss(name, known, cutoff=0.6)
        if near is not None:
            hint[name] = (
                f"; did you mean {quote(near)}{', which has no jobs' if near not in busy else ''}?"
            )
    limited = any(tenants.given(name).any() for name in LIMITS)
    report_fault = {name for name in others if refuses or limited or hint[name]}
    rows = _is_among(jobs["tenant"], report_fault)
    where = "is not in tenants.csv" + (
        ", whose limits do not hold for it" if limited and not refuses else ""
    )

    def words(i: int) -> str:
        return f"tenant {quote(jobs['tenant'][i])} {where}{hint[jobs['tenant'][i]]}"

    if refuses:
        jobs.faults(found, rows, words)
    else:
        jobs.warnings(found, rows, words, "tenants that are not in tenants.csv")


def _find_unrated_holders(grids: Mapping[str, ParsedTable], names: Names) -> Bools:
    """Find the running jobs at whose size and type their model, which has rates, has none, (J,)."""
    jobs, pools, rates, curves = (
        grids[f] for f in ("jobs.csv", "pools.csv", "rates.csv", "models.csv")
    )
    types = max(1, len(names.gpu_types))
    places = len(names.models) * types

    def place_of(table: ParsedTable) -> Ints:
        model = table.codes("model", names.models)
        return model * types + table.codes("gpu_type", names.gpu_types)

    rated, fitted = place_of(rates), place_of(curves)
    low, high = np.full(places, MOST_INTEGER), np.full(places, -1)
    np.minimum.at(low, rated, rates["gpus"])
    np.maximum.at(high, rated, rates["gpus"])
    low[fitted], high[fitted] = 0, MOST_INTEGER
    has_rates = (high >= 0).reshape(-1, types).any(axis=1)
    kind = np.append(pools.codes("gpu_type", names.gpu_types), -1)[jobs.codes("pool", names.pools)]
    model = jobs.codes("model", names.models)
    place = model * types + kind
    runs = (jobs["state"] == State.RUNNING) & (kind >= 0) & (model >= 0)
    at = np.flatnonzero(runs & np.append(has_rates, False)[model])
    out = np.zeros(len(jobs), dtype=bool)
    out[at] = (jobs["gpus"][at] < low[place[at]]) | (jobs["gpus"][at] > high[place[at]])
    return out


def _speeds(grids: Mapping[str, ParsedTable], names: Names, found: Findings) -> None:
    """Warn of jobs that run where no speed is known, and of deadlines that no speed comes near."""
    jobs, pools, rates, curves = (
        grids[f] for f in ("jobs.csv", "pools.csv", "rates.csv", "models.csv")
    )
    if not all(
        t.whole and bool(t.ok(*(c.name for c in t.schema.columns)).all())
        for t in (jobs, pools, rates, curves)
    ):
        return
    kind_of = dict(zip(pools["pool"], pools["gpu_type"], strict=True))
    jobs.warnings(
        found,
        _find_unrated_holders(grids, names),
        lambda i: (
            f"runs on {jobs['gpus'][i]} GPUs of type {quote(kind_of[jobs['pool'][i]])}, where"
            f" model {quote(jobs['model'][i])} has no rate: it cannot stay there"
        ),
        "running jobs without a rate",
    )

    dated = jobs.given("deadline_s") & (jobs["deadline_s"] > jobs["submitted_s"])
    if not dated.any():
        return
    fastest: dict[str, list[tuple[int, float]]] = {}
    for model, k, rate in zip(
        rates["model"],
        rates["gpus"].tolist(),
        (rates["work_per_s"] * rates["efficiency"]).tolist(),
        strict=True,
    ):
        fastest.setdefault(model, []).append((k, rate))
    formulas, least_s = set(curves["model"]), np.zeros(len(jobs))
    work = np.where(jobs.given("total_work"), jobs["total_work"], jobs["remaining_work"])

    @cache
    def best_rate(model: str, most: int) -> float:
        return max((r for k, r in fastest.get(model, ()) if k <= most), default=0.0)

    for i in np.flatnonzero(dated).tolist():
        best = best_rate(jobs["model"][i], int(jobs["max_gpus"][i]))
        least_s[i] = work[i] / best if best > 0 and jobs["model"][i] not in formulas else 0.0
    given_s = np.where(dated, jobs["deadline_s"] - jobs["submitted_s"], np.inf)
    jobs.warnings(
        found,
        least_s > FAR * given_s,
        lambda i: (
            f"deadline_s {jobs.text('deadline_s', i)} is {given_s[i]:g} s after submitted_s, but"
            f" the work takes {least_s[i]:.0f} s at the best rate; deadline_s is a time on the"
            " clock of submitted_s, in seconds"
        ),
        "deadlines that no speed can keep",
    )


def _predecessors(jobs: ParsedTable, names: Names, found: Findings) -> None:
    """Check that no job waits for itself, directly or in a cycle.

    Predecessors that are not in jobs.csv count as done.
    """
    waits: dict[int, list[int]] = {}
    for i in np.flatnonzero(jobs.given("after") & jobs.ok("after")).tolist():
        before = [names.jobs[name] for name in jobs["after"][i] if name in names.jobs]
        if i in before:
            jobs.fault(found, i, "after names the job itself")
        waits[i] = [j for j in before if j != i]
    for circle in find_cycles(waits):
        chain = " after ".join(quote(jobs["job_id"][i]) for i in (*circle[:6], circle[0]))
        chain += "" if len(circle) <= 6 else f" ({len(circle)} jobs)"
        jobs.fault(found, circle[0], f"after makes a circle: {chain}")


def _is_among(names: Sequence[str], some: Collection[str]) -> Bools:
    """Return which names are among some others, (n,)."""
    if not some:
        return np.zeros(len(names), dtype=np.bool_)
    return np.fromiter((name in some for name in names), dtype=np.bool_, count=len(names))


def find_cycles(edges: Mapping[int, Sequence[int]]) -> Iterator[list[int]]:
    """Yield disjoint cycles of a directed graph, each from its smallest node on.

    The graph has no cycle exactly if nothing is yielded.
    """
    state: dict[int, float] = {}  # place on the present path; inf = finished
    for root in sorted(edges):
        if root in state:
            continue
        path, steps = [root], [iter(edges[root])]
        state[root] = 0
        while path:
            after = next((n for n in steps[-1] if n in edges and state.get(n, 0) < math.inf), None)
            if after is None:
                state[path.pop()] = math.inf
                steps.pop()
            elif after in state:  # on the path: a cycle, whose nodes are then finished
                circle = path[int(state[after]) :]
                for node in circle:
                    state[node] = math.inf
                del path[len(path) - len(circle) :], steps[len(steps) - len(circle) :]
                least = circle.index(min(circle))
                yield circle[least:] + circle[:least]
            else:
                state[after] = len(path)
                path.append(after)
                steps.append(iter(edges[after]))
