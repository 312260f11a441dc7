"""Why a job does not get what it could use: one code and the numbers behind it for every job.

The first code that applies counts. A "better option" has more value than what the job got. The
cause is the smallest set of limits whose lifting gives the job more when the round is decided again
(causes.py).

    held                  the job is on hold, or waits for a job that is not done
    no_matching_gpu_type  no pool has a GPU type that it may use with a known rate; 0 is no rate
    exceeds_cluster       every size that it may have is larger than every such pool
    exceeds_quota         every better option alone breaks a limit of its tenant
    protected             the GPUs are held by jobs that may not be moved, or the GPUs that it may
                          not leave are gone
    not_evaluated         a better option fits into the plan, and the policy did not take it; or the
                          policy gives it no more whatever limit is lifted; or only a plan that is
                          better by less than the asked gap does; or its value is below rounding
    budget                the cause is budget_per_hour alone
    quota                 the cause is the limits of its tenant alone
    capacity              the cause is the GPUs alone; the job offers the price, but no whole size
                          fits the free GPUs
    fragmented            a better option fits into the GPUs that are left, but no nodes hold it
    outranked             the job offers less than the price of what it needs, or others together
                          make better use of it: the cause is the GPUs alone, or several limits
                          together, which are named if they are certain

`not_evaluated` is listed last in docs/reference/rules.md (R41), as the code of lowest precedence,
but it excludes the four before it: if nothing restricts a job, no limit is the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np

from allocator.domain.findings import join_words
from allocator.domain.problem import Bools, Floats, Ints, State
from allocator.engine.causes import (
    REASONS_GAP,
    Causes,
    CauseSearch,
    PriceSearch,
    find_causes,
    is_more,
)
from allocator.engine.decided import Decision
from allocator.engine.placement.fragments import Fragments, name_shape
from allocator.options.instance_building import CompiledRound
from allocator.options.node_needs import NONE
from allocator.options.option_table import OptionTable, find_blocked_jobs
from allocator.options.quotas import quota_table
from allocator.performance.table import RateTable
from allocator.policies.hard_rules import (
    BUDGET,
    CHANGES,
    GPUS,
    PAIRS,
    QUOTA,
    RULES,
    find_broken_rows,
    find_fitting,
    kinds_of,
    usage_cost,
)
from allocator.valuation.values import gpu_prices
from formulations.model import linear
from formulations.model.linear import Block

# A job that offers exactly the price pays it; prices are exact to about this share of a value.
PAYS = -1e-5
QUOTAS = kinds_of(QUOTA)


def find_reasons(
    decision: Decision,
    searches: Callable[[], Iterable[CauseSearch]] = tuple,
    seconds: float = np.inf,
    fragments: Fragments | None = None,
    whose: Bools | None = None,
) -> tuple[list[str | None], list[str | None]]:
    """Return reason code and sentence of all jobs, (J,) each, None without a reason.

    Parameters
    ----------
    searches : callable
        Returns what finds the jobs that get more without some limits. What the first does not know
        is asked of the next, and at last found from prices.
    seconds : float
        Approximate limit of the time for that.
    fragments : Fragments, optional
        The holes that the plan leaves, if pools have nodes.
    whose : (J,), optional
        The only jobs that are given a reason.

    Notes
    -----
    Only options with GPUs of their own are compared, no secondary jobs.
    """
    round_, chosen = decision.round, decision.chosen
    problem = round_.problem
    m = round_.option_table
    better = is_better(round_, chosen)
    wants = _has_option(m, better, len(chosen)) | (chosen < 0)
    if whose is not None:
        wants &= whose
    if not wants.any():
        return [None] * len(chosen), [None] * len(chosen)
    price = usage_cost(round_, decision.prices)
    flags, pays_price, fitting = _flag_codes(round_, chosen, better, m.value - price)
    blocked = _best_options(m.job, np.where(fitting, m.value, -np.inf), len(chosen))
    if fragments is None:
        blocked[:] = -1
    else:
        some = np.flatnonzero(fitting)
        avoids = [round_.forbidden.get(o, NONE) for o in some.tolist()]
        fitting[some] = fragments.find_placeable(
            m.job[some], m.pool[some], m.gpus[some], m.nodes[some], avoids
        )
    fits = _has_option(m, fitting, len(chosen))
    blocked[fits] = -1
    early = np.any(list(flags.values()), axis=0)
    best, offered, needed = price_to_beat(round_, chosen, price)
    value = np.append(m.value, 0.0)
    counts = value[best] - value[chosen] > REASONS_GAP * abs(decision.value)
    unknown = wants & ~early & ~fits & (blocked < 0) & (best >= 0)
    asked = unknown & counts
    causes = find_causes(problem, asked, *searches(), PriceSearch(decision, seconds))
    alone = np.array([limits[0] if len(limits) == 1 else "" for limits in causes.limits], object)
    helpless = asked & causes.is_sure & np.array([not limits for limits in causes.limits], bool)
    cases = flags | {
        "not_evaluated": ((best >= 0) & fits) | helpless | (unknown & ~counts),
        "budget": alone == BUDGET,
        "quota": alone == QUOTA,
        "capacity": (alone == GPUS) & pays_price,
        "fragmented": blocked >= 0,
    }
    names = (None, *cases, "outranked")
    number_of_code = np.select([*cases.values()], range(1, len(cases) + 1), len(cases) + 1)
    codes = [names[n] for n in np.where(wants, number_of_code, 0).tolist()]
    sentences = _write_sentences(round_, chosen, best, offered, needed, causes, fits, codes)
    for j in np.flatnonzero(unknown & ~counts).tolist():
        sentences[j] = IGNORED
    if fragments is not None:
        for j in (j for j, name in enumerate(codes) if name == "fragmented"):
            o = blocked[j]
            sentences[j] = fragments.describe(j, int(m.pool[o]), int(m.gpus[o]), int(m.nodes[o]))
    return codes, sentences


def is_better(round_: CompiledRound, chosen: Ints) -> Bools:
    """Find options with GPUs of their own and more value than what their job got, (n,).

    chosen (J,) is what each job got.
    """
    m = round_.option_table
    got = np.append(m.value, 0.0)[chosen]
    return is_more(m.value, got[m.job]) & (m.primary < 0)


def price_to_beat(
    round_: CompiledRound, chosen: Ints, price: Floats
) -> tuple[Ints, Floats, Floats]:
    """Find the better option of each job with the largest value less price (n,) of what it uses.

    Returns
    -------
    best : (J,)
        Index into the option table, -1 without one.
    offered, needed : (J,)
        Its value per GPU-hour and the price that it has to beat, for what it uses beyond the chosen
        option; nan without one.
    """
    m = round_.option_table
    best = _best_options(
        m.job, np.where(is_better(round_, chosen), m.value - price, -np.inf), len(chosen)
    )
    offered, needed = (_per_gpu_hour(round_, best, chosen, x) for x in (m.value, price))
    return best, offered, needed


def _per_gpu_hour(round_: CompiledRound, best: Ints, chosen: Ints, amount: Floats) -> Floats:
    """Return how much more `amount` (n,) the best option has than the chosen one, per GPU-hour.

    The result has the shape (J,) and is nan without a best option. The divisor is the additional
    GPU-hours, or those of the option if it takes no more.
    """
    gpus = np.append(round_.option_table.gpus, 0)
    hours = round_.problem.interval_s / 3600
    extra = gpus[best] - gpus[chosen]
    more = np.append(amount, 0.0)[best] - np.append(amount, 0.0)[chosen]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(best >= 0, more / (np.where(extra > 0, extra, gpus[best]) * hours), np.nan)


def _best_options(job: Ints, score: Floats, J: int) -> Ints:
    """Return the index of the highest score of each job, (J,), -1 where it has none."""
    top = np.full(J, -np.inf)
    np.maximum.at(top, job, score)
    at = np.flatnonzero((score > -np.inf) & (score >= top[job]))
    best = np.full(J, -1)
    best[job[at]] = at
    return best


def _flag_codes(
    round_: CompiledRound, chosen: Ints, better: Bools, surplus: Floats
) -> tuple[dict[str, Bools], Bools, Bools]:
    """Find the jobs for each code that does not depend on prices, in order of precedence.

    Also return the jobs that offer the price of a better option, and the better options that fit
    into the plan, (n,). All others are (J,).
    """
    problem = round_.problem
    m = round_.option_table
    jobs = problem.jobs
    pools = problem.pools
    J = len(jobs)

    def has(mask: Bools) -> Bools:
        return _has_option(m, mask, J)

    fits_capacity = find_fitting(round_, chosen, kinds_of(GPUS))
    granted = find_fitting(round_, chosen, [*kinds_of("", QUOTA, BUDGET, CHANGES), *PAIRS])
    alone = find_fitting(round_, np.full(J, -1), kinds_of(QUOTA))
    some = has(better)
    firm = round_.fixed
    fixed = np.bincount(jobs.pool[firm], jobs.held[firm], minlength=len(pools))
    movable = m.gpus <= pools.gpus[m.pool] - fixed[m.pool]
    gain = surplus - np.append(surplus, 0.0)[chosen][m.job]
    lost = round_.repairs.released | ((jobs.state == State.RUNNING) & ~jobs.preemptible)
    matching = _has_matching_type(round_)
    offered = has(np.ones(len(m), bool))
    codes = {
        "held": find_blocked_jobs(problem),
        "no_matching_gpu_type": ~offered & ~matching,
        "exceeds_cluster": ~offered & matching,
        "exceeds_quota": some & ~has(better & alone),
        "protected": (some & ~has(better & movable)) | ((chosen < 0) & lost),
    }
    pays_price = has(better & (gain > PAYS * np.abs(m.value)) & ~fits_capacity)
    return codes, pays_price, better & fits_capacity & granted


def _has_option(m: OptionTable, mask: Bools, J: int) -> Bools:
    """Find the jobs of which an option is in the mask (n,), (J,)."""
    return np.bincount(m.job, mask, J) > 0


def _has_matching_type(round_: CompiledRound) -> Bools:
    """Find jobs with a pool of a type that they may use and a known rate at any size, (J,)."""
    problem = round_.problem
    known = np.zeros((len(problem.models), len(problem.gpu_types)), bool)
    known[
        problem.rates.model[problem.rates.rate > 0], problem.rates.gpu_type[problem.rates.rate > 0]
    ] = True
    known[problem.curves.model, problem.curves.gpu_type] = True
    known[RateTable.of(problem).unrated] = True
    there = np.zeros(len(problem.gpu_types), bool)
    there[problem.pools.gpu_type] = True
    matching: Bools = np.any(problem.allowed_types & known[problem.jobs.model] & there, axis=1)
    return matching


SENTENCES = {
    "no_matching_gpu_type": 'no pool has a GPU type it may use with a rate for model "{model}"',
    "exceeds_cluster": (
        "no pool can hold a size between {low} and {high} GPUs with a known rate and enough memory"
    ),
    "exceeds_quota": "even {want} alone is above {limits}",
    "protected": "{want} is held by jobs that may not be moved",
    "budget": (
        "without the limit on dollars it would get {then} for {cost:.2f} $/h, {left:.2f} $/h are "
        "left; {value}"
    ),
    "quota": "without {limits} it would get {then}; {value}",
    "capacity": "{want} would pay its price, but no whole size fits the GPUs left; {value}",
    "fragmented": "{want}",
    "not_evaluated": "{want} would fit, but this policy does not look for it; {value}",
}
NOTHING = "it would do no work in this round, or cost more than its value"
ZERO = (
    'the speed of model "{model}" is 0 in rates.csv at every size on the GPU types it may use: it'
    " would never end there"
)
HELPLESS = "this policy does not give it more, whatever limit is lifted"
IGNORED = "what it would do is worth too little beside other jobs to be told from rounding"
LEFT_OUT = "a plan that is better by less than the asked gap gives it"
PRICES = "value per GPU-hour: {:.4g} offered, {:.4g} needed".format
OTHERS = "others together make more of what {want} needs"
LACKS = "; it lacks "
TOGETHER = " together"


def _write_sentences(
    round_: CompiledRound,
    chosen: Ints,
    best: Ints,
    offered: Floats,
    needed: Floats,
    causes: Causes,
    fits: Bools,
    codes: Sequence[str | None],
) -> list[str | None]:
    """Return the numbers behind each code in words, (J,), None without a code.

    Parameters
    ----------
    chosen, best : (J,)
        Options of the plan, and the better options of the sentences, -1 = none.
    offered, needed : (J,)
        What the better option offers, and what it needs.
    fits : (J,)
        Whether a better option fits into the plan.
    """
    problem, m = round_.problem, round_.option_table
    jobs = problem.jobs
    present = set(jobs.job_id)
    value, price = offered.tolist(), needed.tolist()
    # the option that each job gets without its cause, and the dollars per hour that the plan leaves
    gets = np.arange(len(jobs)), causes.pool, causes.gpus
    missed = m.at(*gets) if "quota" in codes else best
    left = max(0.0, problem.budget_per_hour - np.append(m.cost, 0.0)[chosen].sum())

    @cache
    def broken_quotas(is_alone: bool) -> list[tuple[Block, Bools]]:
        plan = np.full_like(chosen, -1) if is_alone else chosen
        return list(find_broken_rows(round_, plan, QUOTAS))

    def name_limits(j: int, o: int, is_alone: bool) -> str:
        """Describe the limits of which job j lacks option o, which it may exceed by itself.

        They are those of its tenant, unless only another quota has too little left.
        """
        own = round_.instance.tenants[jobs.tenant[j]]
        names = {
            (layer, block.labels[block.layers[layer, o]]): block.kind
            for block, broken in broken_quotas(is_alone)
            for layer in np.flatnonzero(broken[:, o] if o >= 0 else ()).tolist()
        }
        first = min(names, key=lambda at: (at[1] != own, at[0]), default=(0, own))
        kind, owner = names.get(first), first[1]
        if kind == linear.LENDING:
            return f"what tenants lend of {owner}"
        limits = "the limits"
        if is_alone and kind is not None:
            limits = RULES[kind].words.removesuffix(" of tenant")
        quotas = quota_table(problem)
        if kind == linear.QUOTA and quotas.is_by_hours[quotas.label.index(owner)]:
            limits = "the monthly limit of GPU-hours"
        return f'{limits} of tenant "{owner}"'

    def write(j: int, code: str) -> str:
        o = int(best[j])
        want = ""
        if o >= 0:
            want = name_shape(int(m.gpus[o]), problem.pools.pool[m.pool[o]], int(m.nodes[o]))
        if code == "held":
            waits = [a for a in jobs.after[j] if a in present]
            on_hold = not waits or jobs.state[j] == State.HELD
            return "on hold" if on_hold else f"waits for {', '.join(waits)}"
        if code == "protected" and (o < 0 or round_.repairs.released[j]):
            return "non-preemptible, but the GPUs it held are gone"
        if code == "no_matching_gpu_type":
            model = problem.models[jobs.model[j]]
            speeds = problem.rates.rate[problem.rates.model == jobs.model[j]]
            return (ZERO if (speeds == 0).any() else SENTENCES[code]).format(model=model)
        offer = PRICES(value[j], price[j])
        if code == "outranked":
            offer = OTHERS.format(want=want) if value[j] > price[j] else offer
            return f"{want}: {offer}{_describe_lacks(causes.limits[j])}" if o >= 0 else NOTHING
        then = f"{causes.gpus[j]} x {problem.pools.pool[causes.pool[j]]}"
        if code == "not_evaluated" and not fits[j]:
            return f"{LEFT_OUT} {then}" if causes.gpus[j] else f"{want}: {HELPLESS}"
        words: dict[str, object] = {"want": want, "value": offer, "then": then}
        if code == "exceeds_cluster":
            words |= {"low": jobs.min_gpus[j], "high": jobs.max_gpus[j]}
        elif code == "exceeds_quota":
            words["limits"] = name_limits(j, o, is_alone=True)
        elif code in ("budget", "quota"):
            pool, gpus = causes.pool[[j]], causes.gpus[[j]]
            words |= {
                "cost": float((gpus * gpu_prices(problem, np.array([j]), pool, gpus))[0]),
                "left": left,
            }
            if code == "quota":
                words["limits"] = name_limits(j, int(missed[j]), is_alone=False)
        return SENTENCES[code].format_map(words)

    return [None if code is None else write(j, code) for j, code in enumerate(codes)]


def _describe_lacks(limits: tuple[str, ...]) -> str:
    """Describe what an outranked job lacks, as the end of its sentence."""
    return f"{LACKS}{join_words(limits)}{TOGETHER if len(limits) > 1 else ''}" if limits else ""


def parse_lacks(detail: str) -> tuple[str, ...]:
    """Return the limits that the sentence of an outranked job ends with; empty without any.

    Another sentence may follow it.

    Examples
    --------
    >>> parse_lacks("1 offered, 2 needed; it lacks GPUs and quota; assumed speed, not measured")
    ('GPUs', 'quota')
    """
    lacks = detail.partition(LACKS)[2].partition("; ")[0]
    named = lacks.removesuffix(TOGETHER).replace(" and ", ", ")
    return tuple(named.split(", ")) if named else ()
