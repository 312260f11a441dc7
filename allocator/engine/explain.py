"""Explain one job: why it got what it got, the price to beat, what would help, and who would lose.

Every "would" in an explanation is verified by deciding the changed round again. Prices alone never
count as a proof.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.domain.plan import Plan
from allocator.domain.problem import Floats, Problem, join_names
from allocator.domain.snapshot import Snapshot
from allocator.engine.advice import VerifiedChange
from allocator.engine.advice.limits import JobContext, list_searches
from allocator.engine.advice.search import Advice, find_changes
from allocator.engine.advice.start import StartEstimate, describe_start
from allocator.engine.advice.summary import summary
from allocator.engine.advice.trials import SolveCommand, Trials
from allocator.engine.decided import Decision
from allocator.engine.decision import run_policy
from allocator.engine.expected import forecast
from allocator.engine.expected_words import describe_expected
from allocator.engine.reasons import price_to_beat
from allocator.errors import Infeasible, NoPlanInTime
from allocator.options.configure import job_number
from allocator.options.instance_building import CompiledRound
from allocator.performance.lost_time import choose_modes
from allocator.performance.pipelines import due
from allocator.performance.sizes import describe_expected_work
from allocator.policies.base import name_of
from allocator.policies.fallback import marginal
from allocator.policies.hard_rules import usage_cost
from allocator.policies.mip import mip
from allocator.solvers import registry as solvers

SHOWN = 8  # options and losers listed at most
FEWEST, MOST = 3, 60  # limits of the default number of decisions of a search
# A search decides again and again, until its decisions together had about this many options.
EFFORT = 20_000
UNSOLVED = 1.3  # factor of EFFORT if the policy calls no solver
# With more options, the plan that serves the job is not solved to the gap.
MOST_SOLVED = 1000


@dataclass(frozen=True, repr=False)
class Explanation:
    """State why one job got what it got, and what would change that.

    Attributes
    ----------
    job_id : str
        The job.
    got : dict
        Its entry of the plan.
    due_s, due_for : float and str, optional
        Time when it should be done, and the job whose deadline that is: itself or a successor.
    expected : str, optional
        Its expected remaining work and where this comes from, if its size is unknown.
    options : tuple of dict
        Its best options with value, price and surplus (value - price), best first.
    offered, needed : float, optional
        Value per GPU-hour of the best better option, and the price of its GPUs. None if the job
        has all it can use.
    changes : tuple of VerifiedChange
        Changes of the input that would give it more, each verified by deciding again.
    untried : tuple of str
        Kinds of changes for which no decision was left.
    losers : tuple of str
        Jobs that would lose if the job had to be served, and the loss of the whole plan.
    is_late : bool
        A trial was cut off by the time limit and proves nothing.
    start : StartEstimate, optional
        When a job that got nothing can be expected to start.
    summary : str
        The explanation in plain words.
    now_s : float
        Time of the round.

    Examples
    --------
    >>> import allocator
    >>> explanation = allocator.explain(allocator.Problem.read("data/snapshots/demo"), "pretrain")
    >>> explanation
    Explanation('pretrain', action='pause', reason='outranked', changes=1)
    >>> len(explanation.lines()) > 5
    True
    """

    job_id: str
    got: dict[str, Any]
    due_s: float | None
    due_for: str | None
    expected: str | None
    options: tuple[dict[str, Any], ...]
    offered: float | None
    needed: float | None
    changes: tuple[VerifiedChange, ...]
    untried: tuple[str, ...]
    losers: tuple[str, ...]
    is_late: bool
    start: StartEstimate | None
    summary: str
    now_s: float

    def __repr__(self) -> str:
        """Summarise the explanation on one line."""
        action = self.got["action"]
        reason = self.got["reason"]
        return (
            f"Explanation({self.job_id!r}, action={action!r}, reason={reason!r},"
            f" changes={len(self.changes)})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON.

        Returns
        -------
        dict
            The attributes.
        """
        return dataclasses.asdict(self) | {"changes": [c.to_dict() for c in self.changes]}

    @property
    def is_served(self) -> bool:
        """Whether the job has all it can use."""
        return self.got["reason"] is None

    def lines(self) -> list[str]:
        """Return the explanation in sentences.

        Returns
        -------
        list of str
            One line each.
        """
        got = self.got
        what = f"{got['gpus']} x {got['pool']}" if got["pool"] else "nothing"
        if got["shared_with"]:
            what += f" next to {got['shared_with']}"
        out = [
            self.summary,
            f'job "{self.job_id}" (tenant {got["tenant"]}): {got["action"]}, gets {what}',
        ]
        if got["reason"]:
            out.append(f"reason: {got['reason']}: {got['detail']}")
        if self.due_s is not None:
            share = f', its share of the time until the deadline of "{self.due_for}"'
            out.append(f"due at {self.due_s:.15g} s{share if self.due_for != self.job_id else ''}")
        if self.expected is not None:
            out.append(self.expected)
        out.append(f"expected: {'; '.join(describe_expected(got, self.now_s))}")
        if self.offered is not None and self.needed is not None:
            out.append(
                f"value per GPU-hour: offers {self.offered:.4g}, the GPUs go at {self.needed:.4g}"
            )
        if self.options:
            out.append("its options, best surplus first (surplus = value - price of all it uses):")
            out += [
                f"  {o['gpus']:>5} x {o['pool']:<16} value {o['value']:.6g}  price {o['price']:.6g}"
                f"  surplus {o['surplus']:+.3g}{'  (holds it now)' if o['keep'] else ''}"
                + "".join(f"  ({how})" for how in (o["variant"], o["mode"]) if how)
                + (f"  (next to {o['beside']})" if o["beside"] else "")
                for o in self.options
            ]
        out += [
            "what would change it (each verified by deciding again):",
            *(f"  {c}" for c in self._describe_changes()),
        ]
        out += [
            "who would lose if it had to be served:",
            *(f"  {x}" for x in self.losers or ("nobody",)),
        ]
        return out

    def _describe_changes(self) -> Iterator[str]:
        yield from map(str, self.changes)
        if self.is_served:
            yield "nothing: it has all it can use"
        elif not self.changes:
            yield "no single change was found" + (" by the decisions made" if self.untried else "")
        if self.untried:
            yield f"not tried to the end: {', '.join(self.untried)}; --tries N makes more decisions"
        if self.is_late:
            yield "some decisions were cut off by the time limit and are not counted"


def explain(
    snapshot: Snapshot,
    job_id: str,
    command: SolveCommand,
    *,
    tries: int | None = None,
    seconds: float = math.inf,
) -> Explanation:
    """Explain what one job gets, and search for changes that would give it more.

    Parameters
    ----------
    snapshot : Snapshot
        The round, of a folder or of a queue.
    job_id : str
        The job.
    command : SolveCommand
        How the user decides. Its limits hold for each decision of the search.
    tries : int, optional
        Largest number of decisions of the search. The default is smaller for rounds with more
        options, where each decision takes longer.
    seconds : float
        Seconds after which the search makes no further decision.

    Raises
    ------
    UsageError
        The job is unknown. Deciding the round may raise other errors.
    """
    problem = command.problem(snapshot, {})
    decision = command.decide(problem)
    return explain_decided(
        snapshot, problem, job_id, command, decision, tries=tries, seconds=seconds
    )


def explain_decided(
    snapshot: Snapshot,
    problem: Problem,
    job_id: str,
    command: SolveCommand,
    decision: Decision,
    *,
    tries: int | None = None,
    seconds: float = math.inf,
    trusts_assumed: bool = False,
    result: Plan | None = None,
) -> Explanation:
    """Explain one job after the problem of its snapshot was decided by a command.

    The other parameters are those of `explain`. With `trusts_assumed` the start of a job whose
    speed is assumed is estimated, too, without a range. `result` is the plan of the decision with
    the reason of the job.
    """
    round_ = decision.round
    j = job_number(problem, job_id)
    result = result or command.plan(problem, decision, np.arange(len(problem.jobs)) == j)
    price = usage_cost(round_, decision.prices)
    _, offers, needs = price_to_beat(round_, decision.chosen, price)
    got = {name: column[j] for name, column in result.jobs.items()}
    ends_s, whose = due(round_.problem)
    due_s, due_for = None, None
    if whose[j] >= 0:
        due_s, due_for = float(ends_s[j]), round_.problem.jobs.job_id[whose[j]]
    start = None
    if not got["pool"]:
        start = describe_start(problem, round_.option_table, forecast(decision), j)
        if start is None and trusts_assumed:
            start = describe_start(problem, round_.option_table, forecast(decision, True), j)
            start = start and dataclasses.replace(start, range_s=(math.nan, math.nan))
    offered = needed = None
    advice, losers, is_late = Advice((), ()), tuple[str, ...](), False
    if got["reason"] is not None:
        offered, needed = (float(x[j]) if math.isfinite(x[j]) else None for x in (offers, needs))
        served = _serve_by_rule(decision, j, command)
        now, factor = float(decision.witness.value[j]), 0.0
        if served is not None and served.value > now:
            # in a large round the gap is larger than the loss, so prices are more accurate
            is_large = len(round_.option_table) > MOST_SOLVED
            more = max(0.0, served.loss) / (served.value - now)
            factor = math.inf if is_large else 1 + more
        searches = list_searches(JobContext(decision, j, got["reason"], price, factor), command)
        trials = Trials(snapshot, command, j, decision, seconds)
        most = default_tries(decision) if tries is None else tries
        advice, is_late = find_changes(trials, job_id, searches, most), trials.late > 0
        losers = tuple(_describe_losers(decision, j, served))
    return Explanation(
        job_id,
        got,
        due_s,
        due_for,
        describe_expected_work(round_.problem, j),
        _describe_options(round_, j, price),
        offered,
        needed,
        advice.changes,
        advice.untried,
        losers,
        is_late,
        start,
        summary(got, name_of(command.policy), problem.budget_per_hour, advice.changes, start),
        problem.now_s,
    )


def default_tries(decision: Decision) -> int:
    """Return the default number of decisions of a search: about a second for all of them."""
    effort = EFFORT if decision.proposal.solver else UNSOLVED * EFFORT
    return max(FEWEST, min(MOST, int(effort) // max(len(decision.round.option_table), 1)))


@dataclass(frozen=True)
class ServedPlan:
    """The best plan in which the job gets more: what it gets, and what the whole plan loses."""

    gpus: Any
    value: float
    loss: float


def _describe_options(round_: CompiledRound, j: int, price: Floats) -> tuple[dict[str, Any], ...]:
    m = round_.option_table
    problem = round_.problem
    options = np.arange(m.start[j], m.start[j + 1])
    order = options[np.argsort(-(m.value - price)[options], kind="stable")][:SHOWN]
    modes = choose_modes(problem, m.job[order], m.pool[order], m.gpus[order]).names()
    return tuple(
        {
            "pool": problem.pools.pool[m.pool[o]],
            "gpus": int(m.gpus[o]),
            "value": float(m.value[o]),
            "price": float(price[o]),
            "surplus": float(m.value[o] - price[o]),
            "cost_per_hour": float(m.cost[o]),
            "keep": bool(m.keep[o]),
            "beside": join_names(problem.jobs.job_id[h] for h in m.primaries_of(int(o))) or None,
            "variant": problem.rates.variant[m.row[o]] or None if m.row[o] >= 0 else None,
            "mode": mode if problem.jobs.modes[j] >= 0 else None,
        }
        for o, mode in zip(order, modes, strict=True)
    )


def _serve_by_rule(decision: Decision, j: int, command: SolveCommand) -> ServedPlan | None:
    """Decide the round again with the rule "job j gets more".

    The result is None if the rules allow no such plan, or none was found. Large rounds are not
    solved to the gap: the plan of prices and moves is good enough.
    """
    i = decision.round.instance
    columns = np.arange(i.start[j], i.start[j + 1])
    better = columns[i.value[columns] > float(decision.witness.value[j]) + 1e-12]
    if not len(better):
        return None
    again = decision.round.with_forced_job(j, better)
    limits = command.limits
    policy = mip if len(decision.round.option_table) <= MOST_SOLVED else marginal
    try:
        task, proposal = run_policy(
            again,
            policy,
            solvers.find(command.solver),
            limits,
            time.monotonic() + min(limits.time_s, 60.0),
        )
    except (Infeasible, NoPlanInTime):
        return None
    if proposal.choice[j] < 0:
        return None  # no nodes hold what it would get
    value = task.round.instance.value[np.maximum(proposal.choice, 0)] * (proposal.choice >= 0)
    gpus = task.round.allocation(proposal.choice).gpus
    return ServedPlan(gpus, float(value[j]), decision.value - float(value.sum()))


def _describe_losers(decision: Decision, j: int, served: ServedPlan | None) -> Iterator[str]:
    """Describe the jobs that lose in the plan that serves job j."""
    if served is None:
        yield "no plan was found in which it gets more while every rule holds"
        return
    before = decision.allocation.gpus
    job_id = decision.round.problem.jobs.job_id
    smaller = np.flatnonzero((served.gpus < before) & (np.arange(len(before)) != j))
    for k in smaller[:SHOWN]:
        yield f'"{job_id[k]}": {before[k]} -> {served.gpus[k]} GPUs'
    if len(smaller) > SHOWN:
        yield f"and {len(smaller) - SHOWN} more"
    plural = "s" if served.gpus[j] != 1 else ""
    yield (
        f"the plan as a whole: {served.loss:.6g} of value less, "
        f'with {served.gpus[j]} GPU{plural} for "{job_id[j]}"'
    )
