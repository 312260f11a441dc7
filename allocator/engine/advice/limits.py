"""The changes that may help a job: its own cells, and the limits of the round.

Each kind of change is a search (search.py) over texts as they would be in the files. Prices say
where to begin and what to try first. Only decisions count as a result.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np

from allocator.domain.objectives import parse_objectives
from allocator.domain.problem import Bools, Floats, Problem, State
from allocator.domain.schema.columns import LEAST_NUMBER
from allocator.domain.size_rule import sizes_by_rule, sizes_of_pods
from allocator.engine.advice.change import BUDGET_OPTION
from allocator.engine.advice.search import ChangeList, ChangeScale, ChangeSearch
from allocator.engine.advice.trials import SolveCommand, Values
from allocator.engine.decided import Decision
from allocator.options.kept.headroom import wanted_headroom
from allocator.options.option_table import (
    OptionTable,
    find_blocked_jobs,
    find_locked_jobs,
    option_table,
)
from allocator.options.quotas import quota_table
from allocator.performance.table import RateTable
from formulations.objectives.context import HOUR

KINDS = (
    "release",
    "weight",
    "size",
    "type",
    "budget",
    "quota",
    "capacity",
    "headroom",
    "deadline",
    "changes",
    "protected",
    "guarantee",
)
FIRST: Mapping[str | None, tuple[str, ...]] = {  # changes that remove the cause of a reason
    "no_matching_gpu_type": ("type", "size"),
    "exceeds_cluster": ("size", "type", "capacity"),
    "exceeds_quota": ("quota", "size"),
    "protected": ("protected", "capacity", "type"),
    "budget": ("budget",),
    "quota": ("quota",),
    "capacity": ("capacity", "size"),
    "fragmented": ("size", "capacity"),
    "outranked": ("weight", "budget", "capacity"),
}
FINE = 1.001  # ratio of two neighbouring weights
SURE, STEP = 10, 30  # in steps of FINE: margin above a guess from prices, and the first step
LARGEST = 1e9  # largest weight that is tried, in multiples of the weight of the job
DIGITS = 5  # of a weight; more than FINE needs, to avoid round numbers at which plans tie
SIZES = 6  # sizes that are tried on each side of the allowed ones
NAMES = 8  # most other jobs or tenants that are tried
LATEST_S = 30 * 86_400


@dataclass(frozen=True)
class JobContext:
    """A job in a decided round.

    Attributes
    ----------
    price : (n,)
        Price of all that each option of the option table uses.
    factor : float
        Multiple of its weight with which it would be served by the best plan that serves it; 0 =
        no such plan was found, inf = not known.
    """

    decision: Decision
    j: int
    reason: str | None
    price: Floats
    factor: float

    @property
    def problem(self) -> Problem:
        """The round's problem."""
        return self.decision.round.problem

    @property
    def option_table(self) -> OptionTable:
        """All options of the round."""
        return self.decision.round.option_table

    @property
    def gpus(self) -> int:
        """The GPUs that the job got."""
        return int(self.decision.allocation.held[self.j])

    @property
    def options(self) -> slice:
        """The job's options in the option table."""
        return slice(int(self.option_table.start[self.j]), int(self.option_table.start[self.j + 1]))

    @property
    def place(self) -> str:
        """Prefix of the places of its cells."""
        return f"jobs.{self.problem.jobs.job_id[self.j]}"


def list_searches(s: JobContext, command: SolveCommand) -> list[ChangeSearch]:
    """List the searches for a job, the most promising first."""
    if find_blocked_jobs(s.problem)[s.j]:
        return [_search_release(s)]
    p = s.problem
    running = int((p.jobs.state == State.RUNNING).sum())
    most_changes = p.max_changes if p.max_changes >= 0 else math.inf
    dollars = "budget_per_hour" if command.budget is None else BUDGET_OPTION
    every = [
        *_search_weight(s),
        *_search_preemptible(s),
        *_search_sizes(s),
        *_search_types(s),
        *_search_dollars("budget", dollars, p.budget_per_hour, s, np.ones(len(p.jobs), bool)),
        *_search_quotas(s),
        *_search_capacity(s),
        *_search_headroom(s),
        *_search_deadline(s),
        *_search_more("changes", "max_changes", most_changes, running, 1),
        *_search_guarantees(s),
    ]
    # in a large round few searches are completed
    surest = ("weight",) if math.isinf(s.factor) else ()
    rank = (*surest, *FIRST.get(s.reason, ()), *KINDS)
    return sorted(every, key=lambda search: rank.index(search.kind))


def _search_release(s: JobContext) -> ChangeSearch:
    """Search a release from hold or from waiting for another job."""
    values = {}
    if s.problem.jobs.state[s.j] == State.HELD:
        values[f"{s.place}.state"] = "queued"
    if not set(s.problem.jobs.job_id).isdisjoint(s.problem.jobs.after[s.j]):
        values[f"{s.place}.after"] = ""
    return ChangeList("release", (values,))


def _search_weight(s: JobContext) -> Iterator[ChangeSearch]:
    weight = float(s.problem.jobs.weight[s.j])
    most = round(math.log(LARGEST) / math.log(FINE))
    if not s.factor:
        guess = most
    elif math.isfinite(s.factor):
        guess = 1 + math.ceil(math.log(max(s.factor, 1.0)) / math.log(FINE))
    else:
        guess = SURE + bisect_left(range(most), True, key=lambda n: _would_pay(s, FINE**n))
    yield ChangeScale(
        "weight",
        lambda n: {f"{s.place}.weight": round_up(weight * FINE**n)},
        most,
        guess,
        STEP,
    )


def _would_pay(s: JobContext, factor: float) -> bool:
    """Return whether some option would have a better surplus with `factor` times the weight.

    Other jobs keep the present prices.
    """
    jobs = s.problem.jobs
    weight = jobs.weight.copy()
    weight[s.j] *= factor
    value = option_table(replace(s.problem, jobs=replace(jobs, weight=weight))).value
    own = np.flatnonzero(s.option_table.primary < 0)  # secondary jobs have no values here
    own = own[s.option_table.job[own] == s.j]
    first = np.searchsorted(s.option_table.job[s.option_table.primary < 0], s.j)
    surplus = value[first : first + len(own)] - s.price[own]
    has = (s.option_table.pool[own] == s.decision.allocation.pool[s.j]) & (
        s.option_table.gpus[own] == s.gpus
    )
    return bool((surplus > (float(surplus[has][0]) if has.any() else 0.0) + 1e-12).any())


def round_up(number: float) -> str:
    """Return the number with a few digits, not below it, as plain decimals."""
    exact = Decimal(repr(max(number, LEAST_NUMBER)))
    step = Decimal(1).scaleb(exact.adjusted() - DIGITS + 1)
    return format_decimal(
        exact.quantize(step, ROUND_CEILING)
        if step < 1
        else (exact / step).to_integral_value(ROUND_CEILING) * step
    )


def format_decimal(number: Decimal) -> str:
    """Return a decimal without an exponent and without trailing zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _search_preemptible(s: JobContext) -> Iterator[ChangeSearch]:
    """Search jobs to make preemptible: this one, or else those whose GPUs it could use."""
    p = s.problem
    fixed = find_locked_jobs(s.problem)
    allowed = p.allowed_types[s.j]
    others = [
        k
        for k in np.flatnonzero(fixed & (p.jobs.pool >= 0)).tolist()
        if allowed[p.pools.gpu_type[p.jobs.pool[k]]]
    ]
    who = [s.j] if fixed[s.j] else others[:NAMES]
    changes = []
    for k in who:
        place = f"jobs.{p.jobs.job_id[k]}"
        values = {} if p.jobs.preemptible[k] else {f"{place}.preemptible": "true"}
        changes.append(
            values | ({f"{place}.resizes_left": ""} if p.jobs.resizes_left[k] == 0 else {})
        )
    if changes:
        yield ChangeList("protected", changes)


def _search_sizes(s: JobContext) -> Iterator[ChangeSearch]:
    """Search sizes that its range or list excludes, the nearest first."""
    jobs = s.problem.jobs
    pools = s.problem.pools
    low = int(jobs.min_gpus[s.j])
    high = int(jobs.max_gpus[s.j])
    most = int(pools.gpus.max(initial=0))
    by_rule: set[int] = set()
    for per in set(pools.gpus_per_node.tolist()):
        by_rule |= set(sizes_by_rule(per, most).tolist())
    own = s.problem.size_lists[jobs.sizes[s.j]].tolist() if jobs.sizes[s.j] >= 0 else None
    pod = int(jobs.gpus_per_pod[s.j])
    if pod > 1:
        by_rule = {k for k in sizes_of_pods(pod, pod, most, pod) if k <= most}
        ruled = sizes_of_pods(pod, low, high, int(jobs.requested_gpus[s.j]))
        own = None if own == list(ruled) else own
    below = sorted((k for k in by_rule if k < low), reverse=True)
    listed = range(low, high + 1) if own is None else own
    inside = sorted(k for k in by_rule if low <= k <= high and k not in listed)
    above = sorted(k for k in by_rule if k > high and not s.gpus)
    changes: list[Values] = []
    for k in (*below[:SIZES], *inside[:SIZES], *above[:SIZES]):
        ends = {f"{s.place}.min_gpus": min(k, low), f"{s.place}.max_gpus": max(k, high)}
        cells = {place: str(k) for place, end in ends.items() if end not in (low, high)}
        more = {} if own is None else {f"{s.place}.sizes": "|".join(map(str, sorted({*own, k})))}
        changes.append(cells | more)
    if changes:
        yield ChangeList("size", changes)


def _search_types(s: JobContext) -> Iterator[ChangeSearch]:
    """Search one more GPU type of some pool."""
    p = s.problem
    own = int(s.problem.jobs.gpu_types[s.j])
    if own < 0:
        return
    may = p.type_sets[own]
    have = [name for name, yes in zip(p.gpu_types, may.tolist(), strict=True) if yes]
    more = [
        p.gpu_types[t] for t in np.unique(p.pools.gpu_type[p.pools.gpus > 0]).tolist() if not may[t]
    ]
    if more:
        yield ChangeList(
            "type", [{f"{s.place}.gpu_types": "|".join([*have, name])} for name in more]
        )


def _search_dollars(
    kind: str, place: str, limit: float, s: JobContext, whose: Bools
) -> Iterator[ChangeSearch]:
    """Search a budget of some jobs, (J,), raised by cents, up to the cost of all GPUs."""
    whole = float((s.problem.pools.gpus * s.problem.dearest_prices).sum())
    if limit < whole:
        cents = math.ceil((whole - limit) * 100) + 1
        begin = Decimal(repr(limit)).quantize(Decimal("0.01"), ROUND_FLOOR)
        spent = s.decision.witness.cost
        extra = s.option_table.cost[s.options] - spent[s.j]
        least = float(extra[extra > 0].min(initial=math.inf))

        def needed(cost: Floats) -> int:
            return math.ceil((float(cost[whose].sum()) - float(begin)) * 100 - 1e-6)

        yield ChangeScale(
            kind,
            lambda n: {place: format_decimal(begin + Decimal(n) / 100)},
            cents,
            needed(spent) + math.ceil(least * 100 - 1e-6) if math.isfinite(least) else 1,
            needed=needed,
        )


def _search_quotas(s: JobContext) -> Iterator[ChangeSearch]:
    """Search the limits of its tenant and of those above it, and its own on spot GPUs."""
    p = s.problem
    quotas = quota_table(p)
    q = int(p.jobs.tenant[s.j])
    total = int(p.pools.gpus.sum())
    extra = s.option_table.gpus[s.options] - s.gpus
    least = int(extra[extra > 0].min(initial=total))
    i = s.decision.round.instance
    taken = s.decision.proposal.choice[s.decision.proposal.choice >= 0]
    used = i.usage(taken, i.held[taken])
    for k in i.quotas_of(q).tolist():
        if quotas.is_common[k]:
            # more GPUs that other tenants lend
            first = len(p.tenants)
            for n in [n for n in quotas.named_by(k).tolist() if not quotas.members(n)[q]][:NAMES]:
                place = f"{quotas.place[n]}.lend_gpus"
                limit = float(p.quotas.lend_gpus[n - first])
                most = float(p.quotas.guaranteed_gpus[n - first])
                yield from _search_more("quota", place, limit, most, 1)
            continue
        place, limit = quotas.place[k], float(quotas.max_gpus[k])
        guess = used[k] + least - limit
        if quotas.is_by_hours[k]:
            yield from _search_gpu_hours(s, k, place, limit, total, guess)
        else:
            yield from _search_more("quota", f"{place}.max_gpus", limit, total, guess)
        budget = float(quotas.budget_per_hour[k])
        whose = quotas.members(k)[p.jobs.tenant]
        yield from _search_dollars("quota", f"{place}.budget_per_hour", budget, s, whose)
    owner = f"tenants.{p.tenants.tenant[q]}"
    for place, rows, row, most in (
        (f"{owner}.max_jobs", p.tenants.max_jobs, q, max(total, len(p.jobs))),
        (f"{owner}.max_spot_gpus", p.tenants.max_spot_gpus, q, max(total, len(p.jobs))),
        (f"{s.place}.max_spot_gpus", p.jobs.max_spot_gpus, s.j, int(p.jobs.max_gpus[s.j])),
    ):
        yield from _search_more("quota", place, float(rows[row]), most, 1)


def _search_gpu_hours(
    s: JobContext, k: int, place: str, limit: float, total: int, guess: float
) -> Iterator[ChangeSearch]:
    """Search GPU-hours of the month raised by those of one GPU in this round."""
    hours = s.problem.interval_s / HOUR
    used = float(s.problem.tenants.gpu_hours_used[k])
    if total > limit:
        yield ChangeScale(
            "quota",
            lambda n: {f"{place}.gpu_hours_per_month": round_up(used + (limit + n) * hours)},
            int(total - limit),
            max(1, int(guess)),
        )


def _search_more(
    kind: str, place: str, limit: float, most: float, guess: float
) -> Iterator[ChangeSearch]:
    """Search a limit in GPUs raised one by one."""
    if math.isfinite(limit) and most > limit:
        yield ChangeScale(
            kind, lambda n: {place: str(int(limit) + n)}, int(most - limit), max(1, int(guess))
        )


def _search_capacity(s: JobContext) -> Iterator[ChangeSearch]:
    """Search more GPUs in pools where it has or could have an option, the best surplus first."""
    p = s.problem
    j = s.j
    known = (RateTable.of(p).largest[p.jobs.model[j]] > 0) & p.allowed_types[j][p.pools.gpu_type]
    listed = set(p.nodes.pool.tolist())
    plan = s.decision.allocation
    on = plan.pool >= 0
    free = p.pools.gpus - np.bincount(plan.pool[on], plan.held[on], len(p.pools)).astype(np.int64)
    surplus = np.full(len(p.pools), -math.inf)
    np.maximum.at(
        surplus, s.option_table.pool[s.options], (s.option_table.value - s.price)[s.options]
    )
    for pool in np.argsort(-surplus, kind="stable").tolist():
        if not known[pool] or pool in listed:
            continue
        total = int(p.pools.gpus[pool])
        here = s.option_table.pool[s.options] == pool
        sizes = s.option_table.gpus[s.options][here]
        least = (
            int(sizes.min())
            if len(sizes)
            else max(int(p.jobs.min_gpus[j]) - total, 0) + int(free[pool])
        )
        yield from _search_more(
            "capacity",
            f"pools.{p.pools.pool[pool]}.gpus",
            total,
            total + 8 * int(p.jobs.max_gpus[j]) + int(p.jobs.min_gpus[j]),
            least - int(free[pool]),
        )


def _search_headroom(s: JobContext) -> Iterator[ChangeSearch]:
    """Search fewer GPUs kept for interactive jobs."""
    if s.problem.jobs.interactive[s.j]:
        return
    now = wanted_headroom(s.problem)
    for p in s.problem.interactive.pool.tolist():
        place = f"interactive.{s.problem.pools.pool[p]}"
        kept = int(now[p])
        by_sessions = {f"{place}.sessions_per_hour": "", f"{place}.session_s": ""}
        given = bool(s.problem.interactive.headroom_gpus[s.problem.interactive.pool == p][0] >= 0)
        if kept > 0:
            more = {} if given else by_sessions
            yield _search_less("headroom", f"{place}.headroom_gpus", kept, more)


def _search_deadline(s: JobContext) -> Iterator[ChangeSearch]:
    """Search another deadline of the job, if the objective uses deadlines."""
    due = float(s.problem.jobs.deadline_s[s.j])
    if math.isnan(due) or not any(
        o.counts_deadlines for o in parse_objectives(s.problem.objective)
    ):
        return
    place = f"{s.place}.deadline_s"
    guess = math.ceil(s.problem.interval_s)
    yield ChangeScale("deadline", lambda n: {place: str(math.floor(due) + n)}, LATEST_S, guess)
    sooner = math.ceil(due - s.problem.now_s) - 1
    if sooner > 0:
        yield ChangeScale("deadline", lambda n: {place: str(math.ceil(due) - n)}, sooner, guess)


def _search_guarantees(s: JobContext) -> Iterator[ChangeSearch]:
    """Search fewer GPUs guaranteed to other tenants."""
    quotas = quota_table(s.problem)
    own = int(s.problem.jobs.tenant[s.j])
    promised = np.flatnonzero(quotas.guaranteed_gpus > 0).tolist()
    for k in [k for k in promised if not quotas.members(k)[own]][:NAMES]:
        place, gpus = f"{quotas.place[k]}.guaranteed_gpus", int(quotas.guaranteed_gpus[k])
        yield _search_less("guarantee", place, gpus, {})


def _search_less(kind: str, place: str, now: int, more: Values) -> ChangeSearch:
    return ChangeScale(kind, lambda n: {place: str(now - n), **more}, now)
