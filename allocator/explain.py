"""Why one job got what it got, the price it would have to beat, what would admit it, and who would lose.

Every "would" below is verified by deciding the changed round again, never guessed from prices alone.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.decision import decide, settle
from allocator.domain.problem import Problem, State
from allocator.domain.result import Result
from allocator.errors import AllocatorError, Infeasible, NoPlanInTime, UsageError
from allocator.options.menu import blocked
from allocator.options.round import Round, compile_round
from allocator.policies.optimise import mip
from allocator.reasons import Prices, reasons
from allocator.solvers import registry as solvers
from allocator.solvers.base import Limits
from formulations.choices import choices
from formulations.lagrangian import minimise

SHOWN = 8               # options and losers listed at most


@dataclass(frozen=True)
class Explanation:
    """Everything known about one job's decision.

    got: the job's entry of the plan. options: its best options with value, price and surplus (value - price), best
    first. offered, needed: value per GPU-hour of the best better option, and the price of its GPUs; None if it has all
    it can use. changes: verified changes of the input that would admit it (or give it more). losers: who would give way
    and what it would cost if it had to be served.
    """

    job_id: str
    got: dict[str, Any]
    options: tuple[dict[str, Any], ...]
    offered: float | None
    needed: float | None
    changes: tuple[str, ...]
    losers: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return dataclasses.asdict(self)

    def lines(self) -> list[str]:
        """The explanation in sentences."""
        got = self.got
        what = f"{got['gpus']} x {got['pool']}" if got["pool"] else "nothing"
        out = [f'job "{self.job_id}" (tenant {got["tenant"]}): {got["action"]}, gets {what}']
        if got["reason"]:
            out.append(f"reason: {got['reason']}: {got['detail']}")
        if self.offered is not None and self.needed is not None:
            out.append(f"value per GPU-hour: offers {self.offered:.4g}, the GPUs go at {self.needed:.4g}")
        if self.options:
            out.append("its options, best surplus first (surplus = value - price of all it uses):")
            out += [f"  {o['gpus']:>5} x {o['pool']:<16} value {o['value']:.6g}  price {o['price']:.6g}  "
                    f"surplus {o['surplus']:+.3g}{'  (holds it now)' if o['keep'] else ''}" for o in self.options]
        out += ["what would change it (each verified by deciding again):", *(f"  {c}" for c in self.changes)]
        out += ["who would lose if it had to be served:", *(f"  {x}" for x in self.losers)]
        return out


def explain(problem: Problem, job_id: str, *, limits: Limits | None = None, solver: str = "auto") -> Explanation:
    """Explain one job of a problem under the policy `mip`; limits hold for each decision made on the way.

    Raises UsageError for an unknown job, and what `decide` raises.
    """
    limits = limits or Limits()
    jobs = problem.jobs
    if job_id not in jobs.job_id:
        near = difflib.get_close_matches(job_id, jobs.job_id, 1)
        raise UsageError(f'no job "{job_id}" in the snapshot' + (f', did you mean "{near[0]}"?' if near else ""))
    j = jobs.job_id.index(job_id)
    result = decide(problem, solver=solver, limits=limits)
    round_ = compile_round(problem, prunes=False)
    prices = Prices.of(round_, minimise(choices(round_.model)).prices)
    chosen = _chosen(round_, result)
    told = reasons(round_, chosen, prices)
    got = result.to_dict()["jobs"][j]
    wants = told.code[j] is not None
    offered = float(told.offered[j]) if wants and math.isfinite(told.offered[j]) else None
    needed = float(told.needed[j]) if wants and math.isfinite(told.needed[j]) else None
    changes = tuple(_changes(problem, j, got, offered, needed, limits, solver)) if wants else ()
    losers = tuple(_losers(round_, result, j, limits, solver)) if wants else ()
    return Explanation(job_id, got, _options(round_, j, prices), offered, needed,
                       changes or ("nothing: it has all it can use" if not wants else "no single change was found",),
                       losers or ("nobody",))


def _chosen(round_: Round, result: Result) -> Any:
    m, place = round_.menu, {name: p for p, name in enumerate(round_.problem.pools.pool)}
    pool = np.array([place.get(p, -1) for p in result.jobs["pool"]])
    gpus = np.array(result.jobs["gpus"])
    same = np.flatnonzero((m.pool == pool[m.job]) & (m.gpus == gpus[m.job]))
    chosen = np.full(len(pool), -1)
    chosen[m.job[same]] = same
    return chosen


def _options(round_: Round, j: int, prices: Prices) -> tuple[dict[str, Any], ...]:
    m = round_.menu
    price = prices.charge(round_)
    mine = np.arange(m.start[j], m.start[j + 1])
    order = mine[np.argsort(-(m.value - price)[mine], kind="stable")][:SHOWN]
    return tuple({"pool": round_.problem.pools.pool[m.pool[o]], "gpus": int(m.gpus[o]), "value": float(m.value[o]),
                  "price": float(price[o]), "surplus": float(m.value[o] - price[o]),
                  "cost_per_hour": float(m.cost[o]), "keep": bool(m.keep[o])} for o in order)


def _changes(problem: Problem, j: int, got: dict[str, Any], offered: float | None, needed: float | None,
             limits: Limits, solver: str) -> Iterator[str]:
    """Sentences for the changes that a new decision confirms."""
    for text, changed in _candidates(problem, j, offered, needed):
        try:
            now = decide(changed, solver=solver, limits=limits).to_dict()["jobs"][j]
        except AllocatorError:
            continue
        if now["gpus"] and (now["value"] > got["value"] + 1e-9 or not got["gpus"]):
            yield f"{text}: it would get {now['gpus']} x {now['pool']}"


def _candidates(problem: Problem, j: int, offered: float | None,
                needed: float | None) -> Iterator[tuple[str, Problem]]:
    """(description, changed problem), nearest change of each kind first."""
    jobs, tenant = problem.jobs, int(problem.jobs.tenant[j])

    def with_job(**columns: Any) -> Problem:
        arrays = {}
        for name, value in columns.items():
            arrays[name] = getattr(jobs, name).copy()
            arrays[name][j] = value
        return dataclasses.replace(problem, jobs=dataclasses.replace(jobs, **arrays))

    if blocked(problem)[j]:
        after = (*jobs.after[:j], (), *jobs.after[j + 1:])
        free = dataclasses.replace(with_job(state=State.QUEUED).jobs, after=after)
        yield "if it were released", dataclasses.replace(problem, jobs=free)
        return
    if offered and needed and needed > offered:
        weight = float(jobs.weight[j]) * needed / offered * 1.02
        yield f"weight {weight:.3g} instead of {jobs.weight[j]:g}", with_job(weight=weight)
    if jobs.min_gpus[j] > 1:
        size = int(jobs.min_gpus[j]) // 2
        yield f"min_gpus {size} instead of {jobs.min_gpus[j]}", with_job(min_gpus=size, sizes=-1)
        yield f"min_gpus 1 instead of {jobs.min_gpus[j]}", with_job(min_gpus=1, sizes=-1)
    if jobs.gpu_types[j] >= 0:
        yield "any GPU type", with_job(gpu_types=-1)
    for more in (1.1, 1.5, 2.0):
        if math.isfinite(problem.budget_per_hour):
            dollars = problem.budget_per_hour * more
            yield f"budget_per_hour {dollars:.2f} instead of {problem.budget_per_hour:.2f}", \
                dataclasses.replace(problem, budget_per_hour=dollars)
    for name in ("max_gpus", "budget_per_hour"):
        limit = getattr(problem.tenants, name)
        if math.isfinite(limit[tenant]):
            raised = limit.copy()
            raised[tenant] = 2 * limit[tenant] + 1
            who = problem.tenants.tenant[tenant]
            yield f'{name} {raised[tenant]:g} of tenant "{who}" instead of {limit[tenant]:g}', \
                dataclasses.replace(problem, tenants=dataclasses.replace(problem.tenants, **{name: raised}))


def _losers(round_: Round, result: Result, j: int, limits: Limits, solver: str) -> Iterator[str]:
    """Who gives way when job j must get more than it got: the round decided again with that as a rule."""
    i = round_.instance
    mine = np.arange(i.start[j], i.start[j + 1])
    better = mine[i.value[mine] > float(result.jobs["value"][j]) + 1e-12]
    if not len(better):
        yield "it has no option that is worth more"
        return
    engine = solvers.get("highs" if solver == "auto" else solver)
    again = round_.insisting(j, better)
    try:
        decision, _ = settle(again, mip, engine, limits, time.monotonic() + min(limits.time_s, 60.0))
    except (Infeasible, NoPlanInTime):
        yield "it cannot get more while every rule holds"
        return
    new = again.allocation(decision.choice)
    before = np.array(result.jobs["gpus"])
    smaller = np.flatnonzero((new.gpus < before) & (np.arange(len(before)) != j))
    for k in smaller[:SHOWN]:
        yield f'"{round_.problem.jobs.job_id[k]}": {before[k]} -> {new.gpus[k]} GPUs'
    if len(smaller) > SHOWN:
        yield f"and {len(smaller) - SHOWN} more"
    loss = result.objective_value - float(again.instance.value[decision.choice[decision.choice >= 0]].sum())
    name = round_.problem.jobs.job_id[j]
    yield f'the plan as a whole: {loss:.6g} of value less, with {new.gpus[j]} GPUs for "{name}"'
