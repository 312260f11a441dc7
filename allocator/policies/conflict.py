"""Rules that contradict each other: which ones, and the smallest relaxation that resolves it."""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np

from allocator.domain.problem import Problem
from allocator.errors import Infeasible, NoPlanInTime, Relaxation
from allocator.options.colocation.secondary_jobs import PairOffer
from allocator.options.instance_building import CompiledRound, compile_round
from allocator.options.quotas import quota_table
from allocator.policies.hard_rules import RULES
from allocator.policies.reserves import find_yielding
from allocator.solvers import registry
from allocator.solvers.base import SolveLimits, Solver, Termination
from formulations.model import linear
from formulations.model.linear import Ints, LinearModel
from formulations.model.relaxed_rules import build_elastic_model, without_rows

PROTECTED = "non-preemptible job"
SECONDS = 10.0  # time limit of the analysis if the round has none
# largest number of rules that are tried one by one to narrow the conflict down
PROBES = 60


class ReservesGiveWay(Infeasible):
    """Report that a plan exists if GPUs that are not lent give way.

    Attributes
    ----------
    problem : Problem
        The same round, in which as many of them as rules need are given out.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(("GPUs that tenants do not lend",), ())
        self.problem = problem


def raise_if_infeasible(round_: CompiledRound, limits: SolveLimits) -> None:
    """Raise Infeasible with conflict and smallest relaxation, if the rules cannot all hold.

    Raises ReservesGiveWay if they can without GPUs that are not lent, and NoPlanInTime if the
    analysis finds no answer in its time.
    """
    solver = registry.get("highs")
    until = time.monotonic() + min(max(limits.time_s, 0.5), SECONDS)
    problem = round_.problem
    if quota_table(problem).is_common.any():
        yielding = find_yielding(compile_round(problem, False, PairOffer.RUNNING), until)
        if yielding is not None:
            raise ReservesGiveWay(yielding)
        lends_all = np.full(len(problem.quotas), np.inf)
        quotas = dataclasses.replace(problem.quotas, lend_gpus=lends_all)
        problem = dataclasses.replace(problem, quotas=quotas)
    # relaxed rules may need others
    round_ = compile_round(problem, prunes=False, shares=PairOffer.RUNNING)
    soft = build_elastic_model(round_.model)
    answer = solver.solve(
        soft.model, SolveLimits(until - time.monotonic(), 1e-6, limits.threads, limits.seed)
    )
    if answer.values is None:
        raise NoPlanInTime(
            "no plan keeps all hard rules, and what would have to give way was not found in time"
        )
    slack = soft.slack(answer.values)
    relaxed_rows = np.flatnonzero(slack > 1e-6)
    if not len(relaxed_rows):
        return
    relaxations = [_relaxation(round_, int(soft.rows[i]), float(slack[i])) for i in relaxed_rows]
    raise Infeasible(_find_conflict(round_, solver, soft.rows[relaxed_rows], until), relaxations)


def _relaxation(round_: CompiledRound, row: int, slack: float) -> Relaxation:
    model = round_.model
    kind, label = _row_name(model, row)
    if kind == linear.CHURN:
        limit = round_.repairs.max_changes
        return Relaxation(RULES[kind].words, "", limit, limit + math.ceil(slack - 1e-6))
    if kind == linear.AT_MOST_ONE:
        return Relaxation(f"preemptible (0 = false, 1 = true) of {PROTECTED}", label, 0, 1)
    if kind == linear.GUARANTEE:
        wanted = float(model.lower[row])
        return Relaxation(RULES[kind].words, label, wanted, wanted - slack)
    allowed = float(model.upper[row])
    if kind in (linear.HEADROOM, linear.IDLE):
        listed = round_.problem.pools
        kept = float(listed.gpus[listed.pool.index(label)]) - allowed
        return Relaxation(RULES[kind].words, label, kept, kept - slack)
    return Relaxation(RULES[kind].words, label, allowed, allowed + slack)


def _row_name(model: LinearModel, row: int) -> tuple[str, str]:
    family = next(f for f in model.families if f.first <= row < f.stop)
    return family.kind, family.labels[row - family.first]


def _find_conflict(
    round_: CompiledRound, solver: Solver, relaxed_rows: Ints, until: float
) -> list[str]:
    """Return rules that contradict those in `relaxed_rows`.

    A deletion filter goes over the other coupling rows and jobs that must run: a rule without which
    the rest is still infeasible is dropped. No rule of the remaining set can be left out.
    """
    model = round_.model
    candidates = [
        r
        for f in model.families
        if f.kind in RULES and RULES[f.kind].words
        for r in range(f.first, f.stop)
    ]
    pinned = [int(j) for j in np.flatnonzero(round_.instance.mandatory)]
    off: list[int] = []
    others = [r for r in candidates if r not in set(relaxed_rows.tolist())]
    for r in others[:PROBES]:
        if time.monotonic() < until and _is_infeasible(
            solver, without_rows(model, np.array([*off, r])), until
        ):
            off.append(r)
    if pinned and _is_infeasible(solver, without_rows(model, np.array(off + pinned)), until):
        off += pinned
    left = [r for r in candidates if r not in set(off)]
    named = [_row_name(model, r) for r in left]
    names = [RULES[kind].words + (label and f' "{label}"') for kind, label in named]
    kept = [j for j in pinned if j not in set(off)]
    if kept:
        shown = ", ".join(f'"{round_.problem.jobs.job_id[j]}"' for j in kept[:5])
        names.append(
            f"{len(kept)} non-preemptible jobs ({shown}{', ...' if len(kept) > 5 else ''})"
        )
    return names


def _is_infeasible(solver: Solver, model: LinearModel, until: float) -> bool:
    seconds = min(2.0, max(0.05, until - time.monotonic()))
    return solver.solve(model, SolveLimits(seconds, math.inf)).termination is Termination.INFEASIBLE
