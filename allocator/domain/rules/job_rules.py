"""Rules between the columns of jobs.csv, and between jobs and the other tables."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import compress
from typing import Any

import numpy as np

from allocator.domain.findings import HINTED, did_you_mean, find_near_miss, quote, suggest_names
from allocator.domain.grid import Names, ParsedTable
from allocator.domain.problem import Bools, Ints, Market, State, Tenants, first_primary, split_names
from allocator.domain.rules.rule import Check, Round, Rule, lacks, reference
from allocator.domain.schema.cells import parse_mode
from allocator.domain.schema.columns import ASSUMED_RATE, MOST_INTEGER
from allocator.domain.size_rule import EVERY_NODES

LIMITS = (*Tenants.OF_TREE, *Tenants.OF_OWN_JOBS, "average_per_hour", "amount")
"""Columns of tenants.csv that limit a tenant."""
NEAR = ("same", "prefer")
"""Beginnings of a placement that names a level of the topology."""
# similarity from which a model's name counts as a misspelt name of a model with rates
SLIP = 0.75
NAMED = 5  # most models that one message names
# a deadline is probably wrong if the work takes so many times the time that it leaves
FAR = 10
_fault = partial(Rule, "jobs.csv")


def _check_any(x: Round) -> None:
    jobs = x["jobs.csv"]
    if jobs.present and jobs.whole and not len(jobs):
        x.findings.warn(jobs.schema.file, None, "has no jobs")


def _is_running(jobs: ParsedTable) -> Bools:
    return np.asarray(jobs["state"] == State.RUNNING)


def _holds(jobs: ParsedTable, name: str, runs: bool) -> Bools:
    """Find the jobs that run, or do not, and whose cell is empty, or is not, (J,)."""
    return np.asarray((_is_running(jobs) == runs) & (jobs.given(name) != runs))


def _has_no_size(jobs: ParsedTable) -> Bools:
    """Find the jobs of which no size is within their range, (J,)."""
    none = np.zeros(len(jobs), dtype=bool)
    for i in np.flatnonzero(jobs.given("sizes")).tolist():
        low, high = jobs["min_gpus"][i], jobs["max_gpus"][i]
        none[i] = low <= high and not any(low <= k <= high for k in jobs["sizes"][i])
    return none


def _has_torn_size(jobs: ParsedTable) -> Bools:
    """Find the jobs with a size that is not of whole pods, (J,)."""
    torn = jobs["gpus_per_pod"] > 1
    for i in np.flatnonzero(torn).tolist():
        torn[i] = any(k % jobs["gpus_per_pod"][i] for k in jobs["sizes"][i])
    return np.asarray(torn)


def _check_modes(x: Round) -> None:
    jobs = x["jobs.csv"]
    for i in np.flatnonzero(jobs.given("modes") & jobs.ok("modes")).tolist():
        for text in jobs["modes"][i]:
            try:
                parse_mode(text)
            except ValueError as error:
                jobs.fault(i, f"modes {quote(text)} {error}")


def _check_placements(x: Round) -> None:
    jobs = x["jobs.csv"]
    known = {"packed", "spread", *(f"{sort}_{name}" for name in x.config.levels for sort in NEAR)}
    unknown = set(jobs.distinct("placement")) - known
    hint = {
        name: did_you_mean(name, known) or f" (known: {', '.join(sorted(known))})"
        for name in unknown
    }
    jobs.faults(
        _is_among(jobs["placement"], unknown) & jobs.ok("placement"),
        lambda i: (
            f"placement {jobs.shown('placement', i)} is not known{hint[jobs['placement'][i]]}"
        ),
    )


def _check_sizes_by_rule(x: Round) -> None:
    """Warn of pools so large that jobs without `sizes` are not offered every number of nodes."""
    jobs, pools = x["jobs.csv"], x["pools.csv"]
    ruled = jobs.ok("sizes", "max_gpus") & ~jobs.given("sizes")
    top = np.minimum(pools["gpus"], max(jobs["max_gpus"][ruled], default=0))
    pools.warnings(
        pools.ok("gpus", "gpus_per_node") & (top > EVERY_NODES * pools["gpus_per_node"]),
        f"has {{nodes:,}} nodes for one job; above {EVERY_NODES:,} nodes a job without sizes is "
        "offered only numbers that differ by less than 0.8 %",
        "pools of very many nodes",
        nodes=top // np.maximum(1, pools["gpus_per_node"]),
    )


def _check_submitted(x: Round) -> None:
    jobs = x["jobs.csv"]
    with np.errstate(invalid="ignore"):
        early = jobs["submitted_s"] > x.now_s
    words = f"submitted_s {{submitted_s}} is after now_s {x.now_s:.15g}"
    sort = "jobs submitted after now_s"
    jobs.warnings(early & jobs.ok("submitted_s"), words, sort)


def _check_colocated(x: Round) -> None:
    """Check that at most two running jobs share the same GPUs."""
    jobs = x["jobs.csv"]
    given, ok = jobs.given("shared_with"), jobs.ok("state", "pool", "gpus")
    if not given.any():
        return
    running, gpus, name = _is_running(jobs), jobs["gpus"], jobs["job_id"]
    most = int(x.config["max_primaries"])
    taken: dict[int, int] = {}

    def where(i: int) -> str:
        return f"{gpus[i]} GPUs of pool {jobs.shown('pool', i)}"

    def find_fault(i: int, m: int, has_others: bool) -> str | None:
        """Say why job m can not be a primary job of job i, None = it can."""
        if m == i:
            return "names the job itself"
        if not running[i]:
            return f"is given, but state is {jobs.shown('state', i)}"
        if not ok[m]:
            return None
        if not running[m]:
            return f"is not running ({jobs.schema.file}:{jobs.lines[m]})"
        if jobs["pool"][m] != jobs["pool"][i] or (gpus[m] != gpus[i] and not has_others):
            return f"holds {where(m)}, this job {where(i)}"
        if given[m] and (named.get(m) != [i] or has_others):
            other = jobs.shown("shared_with", m)
            return f"shares the GPUs of {other}; a GPU has two jobs at most"
        if taken.setdefault(m, i) != i:
            other = quote(name[taken[m]])
            return f"already shares its GPUs with {other}; a GPU has two jobs at most"
        return None

    def find_faults(i: int, others: list[int]) -> Iterator[tuple[str, str | None]]:
        """Yield what is wrong with the primary jobs of job i, each with the text that says so."""
        total = sum(int(gpus[m]) for m in others if jobs.ok("gpus")[m])
        has_others = len(others) > 1 or bool(most > 1 and running[i] and total < gpus[i])
        cell = jobs["shared_with"][i]
        if len(others) > most:
            yield cell, f"names {len(others)} jobs, max_primaries is {most}"
            return
        if has_others and (words := _why_one_of_its_size(x, i, others)):
            yield cell, words
        elif has_others and total > gpus[i]:
            yield cell, f"holds {total} GPUs, this job {where(i)}"
        yield from ((name[m], find_fault(i, m, has_others)) for m in others)

    named = _named_primaries(x)
    for i in named:
        for text, words in find_faults(i, named[i]) if ok[i] else ():
            if words:
                jobs.fault(i, f"shared_with {quote(text)} {words}")


def _named_primaries(x: Round) -> dict[int, list[int]]:
    """Return the jobs that each job of `shared_with` names; unknown names are faults."""
    jobs, number = x["jobs.csv"], x.names.jobs
    cells = {cell: split_names(cell) for cell in jobs.distinct("shared_with") if cell}
    known = {
        cell: [number[name] for name in named]
        for cell, named in cells.items()
        if all(name in number for name in named)
    }
    if jobs.complete:
        # a name that is known is no cell of several names, which only the others are
        listed = dict(number) | {cell: places[0] for cell, places in known.items()}
        jobs.refer("shared_with", listed, "is not in jobs.csv")
    here = np.flatnonzero(jobs.given("shared_with") & jobs.ok("shared_with")).tolist()
    return {i: known[cell] for i in here if (cell := jobs["shared_with"][i]) in known}


def _why_one_of_its_size(x: Round, i: int, others: list[int]) -> str:
    """Say why a job may only share with one job of its size, "" = it may share with others."""
    jobs, pools = x["jobs.csv"], x["pools.csv"]
    pool, why = jobs["pool"][i], ""
    fixed = [j for j in (i, *others) if jobs.ok("preemptible")[j] and not jobs["preemptible"][j]]
    if fixed:
        why = f"preemptible is false for {jobs.shown('job_id', fixed[0])}"
    elif pool in x["nodes.csv"]["pool"]:
        why = f"pool {quote(pool)} has nodes"
    elif pool in pools["pool"] and pools["market"][pools["pool"].index(pool)] == Market.SPOT:
        why = f"pool {quote(pool)} is a spot pool"
    return why and f"must be one job of as many GPUs: {why}"


def primary_of_jobs(jobs: ParsedTable, names: Names) -> Ints:
    """Return the first job on whose GPUs each secondary job runs, (J,), -1 = none."""
    return first_primary(secondary_of_jobs(jobs, names))


def secondary_of_jobs(jobs: ParsedTable, names: Names) -> Ints:
    """Return the job that runs on the GPUs of each primary job, (J,), -1 = none.

    If two jobs name each other, the primary job is the one submitted first, then the first by name.
    """
    secondary = np.full(len(jobs), -1)
    for g in np.flatnonzero(jobs.given("shared_with")).tolist():
        for name in split_names(jobs["shared_with"][g]):
            if name in names.jobs:
                secondary[names.jobs[name]] = g
    for h in np.flatnonzero(secondary >= 0).tolist():
        g = int(secondary[h])
        if g >= 0 and secondary[g] == h:
            first, _ = sorted((g, h), key=lambda j: (jobs["submitted_s"][j], jobs["job_id"][j]))
            secondary[g + h - first] = -1
    return secondary


def _rate_files(x: Round) -> str:
    return " or ".join(f for f in ("rates.csv", "models.csv") if x[f].present) or "rates.csv"


def _check_models(x: Round) -> None:
    """Report models without any rate.

    Their jobs run at an assumed speed, unless the setting unknown_models refuses them. If it is not
    given, a name is refused if it looks like a misspelt model with rates.
    """
    jobs, rule, known = x["jobs.csv"], x.config["unknown_models"], x.names.rated_models
    among = f"has no row in {_rate_files(x)}"
    if not x.names.complete:
        return
    if rule == "refuse":
        if x["rates.csv"].present or x["models.csv"].present:
            jobs.refer("model", known, among)
        else:
            words = "is missing; without models.csv it must say how fast each model runs"
            x.findings.fault("rates.csv", None, words)
        return
    ok = jobs.ok("model") & _is_among(jobs["model"], set(jobs.distinct("model")) - {"", *known})
    count = Counter(jobs["model"][i] for i in np.flatnonzero(ok).tolist())
    if rule is None:
        near = {
            name: hit
            for name in list(count)[:HINTED]
            if (hit := find_near_miss(name, x.names.given_models, SLIP)) is not None
        }
        jobs.faults(
            ok & _is_among(jobs["model"], near),
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
        x.findings.warn(
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


def _check_types(x: Round) -> None:
    jobs, known = x["jobs.csv"], x.names.gpu_types
    if not (x.knows_all("gpu_types") and x["pools.csv"].ok("gpu_type").all()):
        return
    # most jobs have one of a few lists
    listed = {types: set(types) - known.keys() for types in jobs.distinct("gpu_types")}
    wrong = _is_among(jobs["gpu_types"], {types for types in listed if listed[types]})
    unknown = [
        (i, name)
        for i in np.flatnonzero(wrong & jobs.ok("gpu_types")).tolist()
        for name in sorted(listed[jobs["gpu_types"][i]])
    ]
    hint = suggest_names([name for _, name in unknown], known)
    among = f"is neither in pools.csv nor in {_rate_files(x)}"
    for i, name in unknown:
        jobs.fault(i, f"gpu_types {quote(name)} {among}{hint[name]}")


def _check_tenants(x: Round) -> None:
    """Report tenants that are not in tenants.csv, because limits hold for listed tenants only.

    They are faults if the setting unknown_tenants says so. Otherwise they are warnings, if any
    tenant has a limit or the name looks like a misspelt one.
    """
    jobs, tenants, known = x["jobs.csv"], x["tenants.csv"], x.names.listed_tenants
    refuses = x.config["unknown_tenants"] == "refuse"
    if not tenants.complete or not (tenants.present or refuses):
        return
    busy = jobs.distinct("tenant")
    others = [name for name in busy if name and name not in known]
    hint = dict.fromkeys(others, "")
    for name in others[:HINTED]:
        near = find_near_miss(name, known, cutoff=0.6)
        if near is not None:
            idle = "" if near in busy else ", which has no jobs"
            hint[name] = f"; did you mean {quote(near)}{idle}?"
    limited = any(tenants.given(name).any() for name in LIMITS)
    reported = {name for name in others if refuses or limited or hint[name]}
    rows = _is_among(jobs["tenant"], reported)
    effect = ", whose limits do not hold for it" if limited and not refuses else ""

    def words(i: int) -> str:
        name = jobs["tenant"][i]
        return f"tenant {quote(name)} is not in tenants.csv{effect}{hint[name]}"

    if refuses:
        jobs.faults(rows, words)
    else:
        jobs.warnings(rows, words, "tenants that are not in tenants.csv")


def _find_unrated_holders(x: Round) -> Bools:
    """Find the running jobs at whose size and type their model, which has rates, has none, (J,)."""
    jobs, rates, curves, pools = (
        x[f] for f in ("jobs.csv", "rates.csv", "models.csv", "pools.csv")
    )
    sizes: dict[tuple[str, str], list[int]] = defaultdict(list)
    for *place, size in zip(rates["model"], rates["gpu_type"], rates["gpus"].tolist(), strict=True):
        sizes[tuple(place)].append(size)
    fitted = set(zip(curves["model"], curves["gpu_type"], strict=True))
    rated = {model for model, _ in (*sizes, *fitted)}
    kind_of = dict(zip(pools["pool"], pools["gpu_type"], strict=True))

    @cache
    def is_unrated(model: str, pool: str, gpus: int) -> bool:
        place = model, kind_of.get(pool, "")
        known = sizes.get(place, [MOST_INTEGER])
        is_known = place in fitted or min(known) <= gpus <= max(known)
        return model in rated and pool in kind_of and not is_known

    places = zip(jobs["model"], jobs["pool"], jobs["gpus"].tolist(), strict=True)
    runs = _is_running(jobs)
    runs[runs] = [is_unrated(*place) for place in compress(places, runs)]
    return runs


def _check_speeds(x: Round) -> None:
    """Warn of jobs that run where no speed is known, and of deadlines that no speed comes near."""
    jobs, pools, rates, curves = (
        x[f] for f in ("jobs.csv", "pools.csv", "rates.csv", "models.csv")
    )
    if not all(table.all_ok for table in (jobs, pools, rates, curves)):
        return
    kind_of = dict(zip(pools["pool"], pools["gpu_type"], strict=True))
    jobs.warnings(
        _find_unrated_holders(x),
        lambda i: (
            f"runs on {jobs['gpus'][i]} GPUs of type {quote(kind_of[jobs['pool'][i]])}, where"
            f" model {quote(jobs['model'][i])} has no rate: it cannot stay there"
        ),
        "running jobs without a rate",
    )
    given_s = jobs["deadline_s"] - jobs["submitted_s"]
    dated = jobs.given("deadline_s") & (given_s > 0)
    if not dated.any():
        return
    fastest: dict[str, list[tuple[int, float]]] = {}
    speeds = (rates["work_per_s"] * rates["efficiency"]).tolist()
    for model, k, rate in zip(rates["model"], rates["gpus"].tolist(), speeds, strict=True):
        fastest.setdefault(model, []).append((k, rate))

    @cache
    def best_rate(model: str, most: int) -> float:
        """Return the best measured rate of a model, infinite where a formula may be better."""
        if model in formulas:
            return math.inf
        return max((r for k, r in fastest.get(model, ()) if k <= most), default=0.0) or math.inf

    formulas, least_s = set(curves["model"]), np.zeros(len(jobs))
    work = np.where(jobs.given("total_work"), jobs["total_work"], jobs["remaining_work"])
    for i in np.flatnonzero(dated).tolist():
        least_s[i] = work[i] / best_rate(jobs["model"][i], int(jobs["max_gpus"][i]))
    jobs.warnings(
        dated & (least_s > FAR * given_s),
        "deadline_s {deadline_s} is {given_s:g} s after submitted_s, but the work takes"
        " {least_s:.0f} s at the best rate; deadline_s is a time on the clock of submitted_s, in"
        " seconds",
        "deadlines that no speed can keep",
        given_s=given_s,
        least_s=least_s,
    )


def _check_predecessors(x: Round) -> None:
    """Check that no job waits for itself, directly or in a cycle.

    Predecessors that are not in jobs.csv count as done.
    """
    jobs = x["jobs.csv"]
    waits: dict[int, list[int]] = {}
    for i in np.flatnonzero(jobs.given("after") & jobs.ok("after")).tolist():
        before = [jobs.index[name] for name in jobs["after"][i] if name in jobs.index]
        if i in before:
            jobs.fault(i, "after names the job itself")
        waits[i] = [j for j in before if j != i]
    for circle in find_cycles(waits):
        chain = " after ".join(quote(jobs["job_id"][i]) for i in (*circle[:6], circle[0]))
        chain += "" if len(circle) <= 6 else f" ({len(circle)} jobs)"
        jobs.fault(circle[0], f"after makes a circle: {chain}")


def _is_among(names: Sequence[Any], some: Collection[str]) -> Bools:
    """Return which names are among some others, (n,)."""
    if not some:
        return np.zeros(len(names), dtype=np.bool_)
    return np.array([name in some for name in names], dtype=np.bool_)


def find_cycles(edges: Mapping[int, Sequence[int]]) -> Iterator[list[int]]:
    """Yield disjoint cycles of a directed graph, each from its smallest node on.

    The graph has no cycle exactly if nothing is yielded.
    """
    left = set(edges)  # nodes that may still be on a cycle
    for root in sorted(edges):
        path = dict.fromkeys([root] if root in left else [])
        while path:
            node, _ = path.popitem()
            after = next((n for n in edges[node] if n in left), None)
            if after is None:
                left.discard(node)
                continue
            path[node] = None
            if after not in path:
                path[after] = None
            else:
                circle = list(path)[list(path).index(after) :]
                left -= {*circle}
                for _ in circle:
                    path.popitem()
                least = circle.index(min(circle))
                yield circle[least:] + circle[:least]


RULES: tuple[Check, ...] = (
    _check_any,
    _fault(
        "max_gpus {max_gpus} is below min_gpus {min_gpus}",
        "min_gpus max_gpus",
        lambda t: t["max_gpus"] < t["min_gpus"],
    ),
    _fault(
        "requested_gpus {requested_gpus} is outside min_gpus {min_gpus} to max_gpus {max_gpus}",
        "min_gpus max_gpus requested_gpus",
        lambda t: (
            t.given("requested_gpus")
            & (t["min_gpus"] <= t["max_gpus"])
            & (t["requested_gpus"] != t["requested_gpus"].clip(t["min_gpus"], t["max_gpus"]))
        ),
    ),
    _fault(
        "sizes {sizes} has none within min_gpus {min_gpus} to max_gpus {max_gpus}",
        "min_gpus max_gpus sizes",
        _has_no_size,
    ),
    _check_modes,
    _fault(
        "best_effort jobs may be paused at any time: preemptible is false",
        "preemptible best_effort",
        lambda t: ~t["preemptible"] & t["best_effort"],
    ),
    _fault(
        "gpu_fraction {gpu_fraction} is not below 1; leave it empty for whole GPUs",
        "gpu_fraction max_gpus",
        lambda t: t["gpu_fraction"] >= 1,
    ),
    _fault(
        "gpu_fraction {gpu_fraction} is a share of one GPU, but max_gpus is {max_gpus}",
        "gpu_fraction max_gpus",
        lambda t: t.given("gpu_fraction") & (t["max_gpus"] > 1),
    ),
    _fault(
        "gpus_per_pod {gpus_per_pod} has no multiple within min_gpus {min_gpus} to max_gpus"
        " {max_gpus}",
        "gpus_per_pod min_gpus max_gpus",
        lambda t: (
            (t["min_gpus"] <= t["max_gpus"])
            & (t["max_gpus"] // t["gpus_per_pod"] * t["gpus_per_pod"] < t["min_gpus"])
        ),
    ),
    _fault(
        "requested_gpus {requested_gpus} is no multiple of gpus_per_pod {gpus_per_pod}",
        "gpus_per_pod requested_gpus",
        lambda t: t.given("requested_gpus") & (t["requested_gpus"] % t["gpus_per_pod"] > 0),
    ),
    _fault(
        "sizes {sizes} has one that is no multiple of gpus_per_pod {gpus_per_pod}",
        "gpus_per_pod sizes",
        _has_torn_size,
    ),
    _check_placements,
    *(
        _fault(
            f"{given} {{{given}}} needs {missing}, which is empty",
            "target_loss loss_work loss_error",
            lacks(given, missing),
        )
        for given, missing in (("loss_work", "loss_error"), ("loss_error", "loss_work"))
    ),
    _fault(
        "loss_work {loss_work} needs target_loss, which is empty",
        "target_loss loss_work loss_error",
        lambda t: t.given("loss_work") & t.given("loss_error") & ~t.given("target_loss"),
    ),
    _check_sizes_by_rule,
    _fault(
        "times needs every_s, the seconds from one time to the next",
        "every_s times",
        lacks("times", "every_s"),
    ),
    _fault(
        "total_work {total_work} is below remaining_work {remaining_work}",
        "total_work remaining_work",
        lambda t: t.given("total_work") & (t["total_work"] < t["remaining_work"]),
    ),
    _check_submitted,
    _fault(
        "deadline_s {deadline_s} is not after submitted_s {submitted_s}; it is a time on the same"
        " clock, in seconds",
        "deadline_s submitted_s",
        lambda t: t["deadline_s"] <= t["submitted_s"],
        "deadlines that have passed at submission",
    ),
    *(
        _fault(words, f"state {name}", partial(_holds, name=name, runs=runs))
        for name, shown in (("pool", "{pool}"), ("gpus", "{gpus:.40}"))
        for words, runs in (
            (f"{name} is empty, but state is running", True),
            (f"{name} {shown} is given, but state is {{state}}", False),
        )
    ),
    reference("jobs.csv", "pool"),
    _check_colocated,
    _check_models,
    _check_types,
    _check_tenants,
    _check_speeds,
    _check_predecessors,
)
"""Rules in the order in which messages about one row are listed."""
