"""When each job is expected to start and to be done: a forecast after one decision, no promise.

    running   done  = pause + remaining work / planned speed
    waiting   start = by list scheduling (formulations/lookahead/list_schedule.py), when the GPUs,
              dollars and quotas are free that it needs, after those that wait before it
              done  = start + pause + remaining work / speed of its option
    saved     remaining work / speed as requested, less the seconds that it runs from now or from
              its start

A job waits before another if it offers more of the price of what it would use. Its option in a pool
is the largest one at which a GPU does as much, relative to the best option of the job there, as
the GPUs of running jobs do on average. Of several pools it takes the one in which it is done first.
The speed as requested is that at requested_gpus on the slowest GPU type that it may use.

A job with a reservation of its own starts when that begins. One that smaller, later jobs pass over
starts when it is due (policies/reserving.py).

Nothing else is assumed: running jobs keep what the plan gives them, nobody is submitted, and GPUs
come when they are announced, or when a reservation of others ends, but none go. How far that is
from what happens is measured (expected_factors.csv), and every number comes with a range of 90 %.

The ranges come from factors. What happened, divided by what this model says, was collected over
simulations of the default under several families and loads (expected_factors.csv). Each row has the
5 %, 50 % and 95 % quantiles for what lies so many rounds ahead; between rows the logarithms are
interpolated.

The middle corrects what the model cannot know: among many jobs it sees no GPUs that later ends
leave to others, and it takes the mean of unknown sizes. Predicted sizes, and those that losses say,
have the factors of known ones, with a range that is wider by the error of the prediction.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

from allocator.domain.allocation import Allocation
from allocator.domain.problem import Bools, Floats, Ints, Problem, State
from allocator.engine.decided import Decision
from allocator.engine.reasons import price_to_beat
from allocator.options.instance_building import CompiledRound
from allocator.options.kept.headroom import headroom_in_force
from allocator.options.kept.reservations import find_moments
from allocator.options.node_needs import UP
from allocator.options.option_table import find_blocked_jobs
from allocator.performance.sizes import COVERED
from allocator.performance.table import RateTable
from allocator.policies.hard_rules import BUDGET, QUOTA, kinds_of, usage_cost
from allocator.policies.reserving import find_due_starts
from allocator.valuation import requested_rate
from formulations.lookahead.list_schedule import Uses, list_schedule
from formulations.model import linear
from formulations.model.linear import Block

DIGITS = 1  # of seconds in a plan
LIMITS = (linear.CAPACITY, linear.REQUESTED, *kinds_of(BUDGET, QUOTA))
HELD = "it is held"
AFTER = "it waits for other jobs"
ASSUMED = "its speed is assumed, not measured"
NO_OPTION = "no option of it has a value"
NEVER = "what it needs is never free as far as the plan goes"
NO_SPEED = "it has no speed where it runs"


@dataclass(frozen=True)
class Forecast:
    """What is expected of each job, (J,); seconds from now, nan = not known.

    `start_s` and `run_s` are what the model says; the estimates (3, J) are what follows from it by
    what was measured: the low end of a range of 90 %, the middle, and the high end.

    Attributes
    ----------
    position : (J,)
        Place among those that wait and can start, from 1; 0 = none.
    option : (J,)
        Option of the option table that it runs with, -1 = none.
    start_s, run_s : (J,)
        Its start by the model, if it waits, and the seconds that it runs from then, or from now.
    start, done : (3, J)
        Its start, if it waits, and its end.
    saved : (3, J)
        Seconds of running time that it saves against running as requested; below 0: it loses them.
    note : (J,)
        Why nothing is said of a job, "" where something is.
    """

    position: Ints
    option: Ints
    start_s: Floats
    run_s: Floats
    start: Floats
    done: Floats
    saved: Floats
    note: list[str]


def forecast(plan: Decision, trusts_assumed: bool = False) -> Forecast:
    """Return what is expected of each job after a decision.

    Nothing is said of a job whose speed is assumed, unless `trusts_assumed`.
    """
    m, jobs, option = plan.round.option_table, plan.round.problem.jobs, plan.chosen
    run, start = np.full((2, len(jobs)), np.nan)
    position = np.zeros(len(jobs), np.int64)
    on = np.flatnonzero(plan.allocation.pool >= 0)
    with np.errstate(divide="ignore"):
        run[on] = m.pause_s[option[on]] + jobs.remaining_work[on] / plan.witness.rate[on]
    run[np.isinf(run)] = np.nan
    if len(on) < len(jobs):
        _schedule_waiting(plan, position, option, start, run)
    note = _explain_silence(plan, option, run, trusts_assumed)
    silent = np.array([text != "" for text in note], bool)
    start[silent] = run[silent] = np.nan
    return _with_ranges(plan, position, option, start, run, note)


def _schedule_waiting(
    plan: Decision, position: Ints, option: Ints, start: Floats, run: Floats
) -> None:
    """Write what is expected of the jobs that got nothing, as GPUs of others become free."""
    round_, m, jobs = plan.round, plan.round.option_table, plan.round.problem.jobs
    ends = np.flatnonzero(np.isfinite(run))
    order = _waiting_order(plan)
    for kept in (False, True):
        waiting, first = _candidates(plan, order)
        more, at_s = _find_returns(round_, kept)
        begin, which = list_schedule(
            _free(plan),
            _uses(round_, option[ends], more),
            np.append(run[ends], at_s),
            _uses(round_, waiting),
            m.pause_s[waiting] + jobs.remaining_work[m.job[waiting]] / m.rate[waiting],
            first,
            round_.problem.interval_s,
        )
        late = np.isinf(begin)
        if kept or not (len(round_.problem.asked) and late.any()):
            break
        # who waits for the end of a reservation of others comes last
        order = order[np.argsort(late, kind="stable")]
    promised, is_due = _promised_starts(plan, order)
    earlier = (first[:-1] < first[1:]) & (is_due | (promised < begin))
    which = np.where(earlier, first[:-1], which)
    begin = np.where(earlier, promised, begin)
    taken = np.append(waiting, -1)[which]
    able = np.isfinite(begin)
    who, taken = order[able], taken[able]
    start[who], option[who], position[who] = begin[able], taken, np.arange(1, len(who) + 1)
    run[who] = m.pause_s[taken] + jobs.remaining_work[who] / m.rate[taken]


def _with_ranges(
    plan: Decision, position: Ints, option: Ints, start: Floats, run: Floats, note: list[str]
) -> Forecast:
    problem = plan.round.problem
    waits = position > 0
    of = Situation.of(problem, plan.allocation, waits)
    first = np.maximum(problem.interval_s, spread(of.start, of, start))
    now = spread(of.done, of, run)
    done = np.where(waits, np.maximum(spread(LATER, of, start + run), first), now)
    runs = np.where(waits, spread(RUN, of, run), now)
    # nan for a job without a speed
    rate = requested_rate(problem, lambda: plan.round.option_table.offer)
    rate = np.where((rate > 0) & np.isfinite(rate), rate, np.nan)
    requested_s = problem.jobs.remaining_work / rate
    # where the size is not known, both times are wrong by one factor, and the speed by another
    speeds = np.where(of.learned, spread(of.done, of.with_known_sizes, run), runs)
    rest = np.where(of.learned, runs / run, 1.0)
    corners = rest[:, None] * (requested_s - speeds)
    middle = rest[1] * (requested_s - speeds[1])
    saved = np.stack([corners.min(axis=(0, 1)), middle, corners.max(axis=(0, 1))])
    return Forecast(position, option, start, run, first, done, saved, note)


def _waiting_order(plan: Decision) -> Ints:
    """Return the jobs that got nothing and can start, (n,), the first to start first.

    Jobs with a reservation come first. Of jobs that offer as much of the price of what they would
    use, the first to be submitted comes first.
    """
    round_ = plan.round
    problem = plan.round.problem
    price = usage_cost(round_, plan.prices)
    _, offers, needs = price_to_beat(round_, plan.chosen, price)
    with np.errstate(divide="ignore", invalid="ignore"):
        over = np.where(needs > 0, offers / needs, np.inf)
    waits = (plan.allocation.pool < 0) & ~find_blocked_jobs(problem) & np.isfinite(offers)
    over[[r.job for r in problem.kept]] = np.inf
    first = np.lexsort((problem.jobs.submitted_s, -over))
    return first[waits[first]]


def _candidates(plan: Decision, order: Ints) -> tuple[Ints, Ints]:
    """Return an option of each waiting job in each of its pools, and where each job begins.

    Those of job order[i] are first[i] .. first[i+1].
    """
    m = plan.round.option_table
    P = len(plan.round.problem.pools)
    place = np.full(len(plan.round.problem.jobs), -1)
    place[order] = np.arange(len(order))
    each = m.rate / m.gpus
    pair = m.job * P + m.pool
    best = np.zeros(len(place) * P)
    np.maximum.at(best, pair, each)
    use = each / best[pair]
    chosen = plan.chosen
    chosen = chosen[chosen >= 0]
    gpus = m.gpus[chosen]
    usual = float((use[chosen] * gpus).sum() / gpus.sum()) if len(chosen) else 1.0
    able = np.flatnonzero((place[m.job] >= 0) & (m.value > 0) & (m.primary < 0))
    score = np.where(use[able] >= usual * (1.0 - 1e-9), m.gpus[able], use[able] - 1.0)
    key = place[m.job[able]] * P + m.pool[able]
    by_key = np.lexsort((-score, key))
    option = able[by_key][np.flatnonzero(np.diff(key[by_key], prepend=-1))]
    return option, np.searchsorted(place[m.job[option]], np.arange(len(order) + 1))


def _free(plan: Decision) -> Floats:
    """Return what the plan leaves of the rows of `_uses`, (R,), without GPUs that are kept."""
    round_ = plan.round
    limit = np.concatenate([block.upper for block in _limits(round_)])
    kept = headroom_in_force(round_.problem, round_.fixed)
    limit[: len(kept)] -= kept
    used = _uses(round_, plan.chosen[plan.chosen >= 0])
    return limit - np.bincount(used.row, used.amount, len(limit))


def _promised_starts(plan: Decision, order: Ints) -> tuple[Floats, Bools]:
    """Return when jobs (n,) start whatever is free, in seconds, inf = none, and who is due then."""
    problem = plan.round.problem
    r, out = problem.asked, find_due_starts(plan.round, plan.proposal.choice)
    for kept in problem.kept:
        out[kept.job] = kept.after_s
    is_due = np.isfinite(out)
    for name, at_s in zip(r.job_id, r.at_s.tolist(), strict=True):
        if name:
            j = problem.jobs.job_id.index(name)
            out[j] = min(out[j], at_s - problem.now_s)
    return np.maximum(out[order], problem.interval_s), is_due[order]


def _find_returns(round_: CompiledRound, ends: bool) -> tuple[list[Floats], Floats]:
    """Return the GPUs that nodes bring back, as rows and amounts, and the seconds until then, (r,).

    With `ends`, also what reservations of others leave when they end.
    """
    problem, asked, nodes = round_.problem, round_.problem.asked, round_.problem.nodes
    back = nodes.state != UP
    returns = [*zip(nodes.pool[back], nodes.gpus[back], nodes.returns_s[back], strict=True)]
    row = sum(len(block.upper) for block in _limits(round_) if block.kind == linear.CAPACITY)
    for x in find_moments(problem, round_.option_table) if ends else ():
        for others in x.list_others() if len(x.rows) else ():
            kept = x.rows[(x.whose == 0) | ~others[x.whose]]
            returns += [(row, asked.gpus[n], asked.until_s[n]) for n in kept]
            row += 1
    *more, at_s = np.array([entry for entry in returns if entry[2] < np.inf]).reshape(-1, 3).T
    return more, at_s - problem.now_s


def _uses(
    round_: CompiledRound, option: Ints, more: Sequence[Sequence[float] | Floats] = ((), ())
) -> Uses:
    """Return what options (n,) use of the limits on GPUs and dollars, and more things.

    `more` has the row of each of these, (r,), and what it uses of it, (r,).
    """
    uses, first = [], 0
    others, amount = np.array(more, np.int64)
    for block in _limits(round_):
        for row in np.atleast_2d(block.row)[:, option]:
            used = np.append(np.where(row < 0, -1, first + row), others)
            uses.append((used, np.append(block.coef[option], amount)))
            others = np.full(len(others), -1)
        first += len(block.upper)
    return Uses.of(uses)


def _limits(round_: CompiledRound) -> list[Block]:
    """Return the rows of GPUs of pools, then those of dollars and of quotas."""
    return [block for block in round_.rows if block.kind in LIMITS]


def _explain_silence(plan: Decision, option: Ints, run: Floats, trusts_assumed: bool) -> list[str]:
    """Return why nothing can be said of each job, (J,), "" where something can."""
    problem = plan.round.problem
    m = plan.round.option_table
    blocked: Bools = find_blocked_jobs(problem) & (plan.allocation.pool < 0)
    has_option = np.bincount(m.job, m.value > 0, len(problem.jobs)) > 0
    is_assumed = np.zeros(len(problem.jobs), bool)
    with_option = np.flatnonzero((option >= 0) & (not trusts_assumed))
    o = option[with_option]
    is_assumed[with_option] = RateTable.of(problem).is_assumed(
        problem.jobs.model[m.job[o]], problem.pools.gpu_type[m.pool[o]], m.gpus[o]
    )
    cases = [
        blocked & (problem.jobs.state == State.HELD),
        blocked,
        is_assumed,
        np.isfinite(run),
        plan.allocation.pool >= 0,
        ~has_option,
    ]
    return list(np.select(cases, [HELD, AFTER, ASSUMED, "", NO_SPEED, NO_OPTION], NEVER).tolist())


def tell_columns(expected: Forecast, now_s: float) -> dict[str, Sequence[object]]:
    """Return a forecast as the columns EXPECTED_FIELDS of a plan, with times from `now_s` on."""
    columns: dict[str, Sequence[object]] = {
        "position": [n or None for n in expected.position.tolist()],
        "expected_note": [text or None for text in expected.note],
    }
    for name, estimate, begin in (
        ("expected_start", expected.start, now_s),
        ("expected_done", expected.done, now_s),
        ("time_saved", expected.saved, 0.0),
    ):
        low, middle, high = estimate
        for end, seconds in (("", middle), ("_low", low), ("_high", high)):
            rounded = np.round(begin + seconds, DIGITS)
            cells = rounded.astype(object)
            cells[~np.isfinite(rounded)] = None
            columns[f"{name}{end}_s"] = cells.tolist()
    return columns


FEW = "few"
SOME = "some"
MANY = "many"
"""Start of a waiting job, where up to 2, up to 7 or more jobs wait."""
DONE = "done"
CROWDED = "crowded"
LATER = "later"
RUN = "run"
"""End of a job with GPUs, where all jobs as requested fit the cluster or not; end of a waiting job;
how long that runs."""
KNOWN = "known"
LEARNED = "learned"
GUESSED = "guessed"
"""What is known of sizes: all; what other jobs of the model teach; nothing."""
FACTORS = Path(__file__).with_name("expected_factors.csv")


@cache
def read_factors() -> Mapping[tuple[str, str], Floats]:
    """Return a table (K, 4) for each time and each knowledge of sizes.

    A row has the rounds ahead, and the low, the middle and the high factor.
    """
    tables: dict[tuple[str, str], list[list[float]]] = {}
    with FACTORS.open(newline="", encoding="utf-8") as file:
        for time, sizes, *numbers in islice(csv.reader(file), 1, None):
            tables.setdefault((time, sizes), []).append(list(map(float, numbers)))
    return {key: np.array(rows) for key, rows in tables.items()}


@dataclass(frozen=True)
class Situation:
    """What the ranges of a round depend on.

    Attributes
    ----------
    learned : (J,)
        Whether other jobs of the model, or nothing, say how much is left.
    guessed : (J,)
        Whether nothing but a job's own work so far says how much is left.
    left_error : (J,)
        Standard deviation of the logarithm of the work left, as predictions and losses have it.
    start, done : str
        FEW, SOME or MANY; DONE or CROWDED.
    interval_s : float
        Seconds of a round.
    """

    learned: Bools
    guessed: Bools
    left_error: Floats
    start: str
    done: str
    interval_s: float

    @property
    def with_known_sizes(self) -> Situation:
        """The same situation if sizes were known."""
        no = np.zeros(len(self.guessed), bool)
        return replace(self, learned=no, guessed=no, left_error=np.zeros(len(no)))

    @classmethod
    def of(cls, problem: Problem, plan: Allocation, waits: Bools) -> Situation:
        """Return the situation after a plan in which these jobs (J,) wait for GPUs."""
        guessed = problem.guessed
        no = np.zeros(len(waits), bool)
        wanted = problem.jobs.requested_gpus[waits | (plan.pool >= 0)]
        return cls(
            no if guessed is None else np.isnan(problem.jobs.loss_work),
            no if guessed is None else guessed,
            np.zeros(len(waits)) if problem.left_error is None else problem.left_error,
            (FEW, SOME, MANY)[int(np.searchsorted([3, 8], waits.sum(), side="right"))],
            CROWDED if wanted.sum() > problem.pools.gpus.sum() else DONE,
            problem.interval_s,
        )


def spread(what: str, of: Situation, seconds: Floats) -> Floats:
    """Return low end, middle and high end, (3, J), of what takes so long (J,) by the model."""
    rounds = seconds / of.interval_s
    factors = _factors(read_factors()[what, KNOWN], rounds)
    for information, here in ((LEARNED, of.learned), (GUESSED, of.guessed)):
        if here.any():
            factors = np.where(here, _factors(read_factors()[what, information], rounds), factors)
    wider = np.exp(COVERED * np.outer([-1.0, 0.0, 1.0], of.left_error))
    return seconds * factors * wider


def _factors(table: Floats, rounds: Floats) -> Floats:
    knots, *columns = np.log(table.T)
    at = np.log(np.maximum(rounds, table[0, 0]))
    return np.exp([np.interp(at, knots, column) for column in columns])
