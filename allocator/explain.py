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

from allocator.advice import Change
from allocator.decision import decide, settle
from allocator.domain.problem import Problem, State
from allocator.domain.result import Result
from allocator.errors import AllocatorError, Infeasible, NoPlanInTime, UsageError
from allocator.options.headroom import wanted
from allocator.options.menu import blocked, menu
from allocator.options.round import Round, compile_round
from allocator.performance.pipelines import due
from allocator.performance.table import RateTable
from allocator.policies.optimise import mip
from allocator.reasons import Prices, price_to_beat
from allocator.solvers import registry as solvers
from allocator.solvers.base import Limits
from formulations.choices import choices
from formulations.pairing import best_prices

SHOWN = 8               # options and losers listed at most
TRIED = 6               # amounts tried for one limit


@dataclass(frozen=True)
class Explanation:
    """Everything known about one job's decision.

    got: the job's entry of the plan. due_s: when it should be done, None = at no certain time; due_for: the job whose
    deadline that is, itself or one that comes after it.
    options: its best options with value, price and surplus (value - price), best
    first. offered, needed: value per GPU-hour of the best better option, and the price of its GPUs; None if it has all
    it can use. changes: verified changes of the input that would admit it (or give it more). losers: who would give way
    and what it would cost if it had to be served; empty where it has all it can use.
    """

    job_id: str
    got: dict[str, Any]
    due_s: float | None
    due_for: str | None
    options: tuple[dict[str, Any], ...]
    offered: float | None
    needed: float | None
    changes: tuple[Change, ...]
    losers: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return dataclasses.asdict(self) | {"changes": [c.to_dict() for c in self.changes]}

    @property
    def is_served(self) -> bool:
        """Whether the job has all it can use."""
        return self.got["reason"] is None

    def lines(self) -> list[str]:
        """The explanation in sentences."""
        got = self.got
        what = f"{got['gpus']} x {got['pool']}" if got["pool"] else "nothing"
        if got["shared_with"]:
            what += f" beside {got['shared_with']}"
        out = [f'job "{self.job_id}" (tenant {got["tenant"]}): {got["action"]}, gets {what}']
        if got["reason"]:
            out.append(f"reason: {got['reason']}: {got['detail']}")
        if self.due_s is not None:
            share = f', its share of the time until the deadline of "{self.due_for}"'
            out.append(f"due at {self.due_s:.15g} s{share if self.due_for != self.job_id else ''}")
        if self.offered is not None and self.needed is not None:
            out.append(f"value per GPU-hour: offers {self.offered:.4g}, the GPUs go at {self.needed:.4g}")
        if self.options:
            out.append("its options, best surplus first (surplus = value - price of all it uses):")
            out += [f"  {o['gpus']:>5} x {o['pool']:<16} value {o['value']:.6g}  price {o['price']:.6g}  "
                    f"surplus {o['surplus']:+.3g}{'  (holds it now)' if o['keep'] else ''}"
                    + (f"  (beside {o['beside']})" if o["beside"] else "") for o in self.options]
        changes = [str(c) for c in self.changes] or [
            "nothing: it has all it can use" if self.is_served else "no single change was found"]
        out += ["what would change it (each verified by deciding again):", *(f"  {c}" for c in changes)]
        out += ["who would lose if it had to be served:", *(f"  {x}" for x in self.losers or ("nobody",))]
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
    problem, jobs = round_.problem, round_.problem.jobs
    prices = Prices.of(round_, best_prices(choices(round_.model)).prices)
    chosen = _chosen(round_, result)
    _, offers, needs = price_to_beat(round_, chosen, prices.charge(round_))
    got = result.to_dict()["jobs"][j]
    wants = got["reason"] is not None
    offered = float(offers[j]) if wants and math.isfinite(offers[j]) else None
    needed = float(needs[j]) if wants and math.isfinite(needs[j]) else None
    if not wants:
        return Explanation(job_id, got, *_due(problem, j), _options(round_, j, prices), None, None, (), ())
    served = _served(round_, result, j, limits, solver)
    changes = tuple(_changes(problem, j, got, served, limits, solver))
    return Explanation(job_id, got, *_due(problem, j), _options(round_, j, prices), offered, needed,
                       changes, tuple(_losers(round_, result, j, served)))


@dataclass(frozen=True)
class Served:
    """The best plan in which the job gets more than it got: what it gets, and what the plan as a whole loses."""

    gpus: Any
    value: float
    loss: float


def _due(problem: Problem, j: int) -> tuple[float | None, str | None]:
    due_s, whose = due(problem)
    return (None, None) if whose[j] < 0 else (float(due_s[j]), problem.jobs.job_id[whose[j]])


def _chosen(round_: Round, result: Result) -> Any:
    m, place = round_.menu, {name: p for p, name in enumerate(round_.problem.pools.pool)}
    pool = np.array([place.get(p, -1) for p in result.jobs["pool"]])
    gpus = np.array(result.jobs["gpus"])
    number = {name: j for j, name in enumerate(result.jobs["job_id"])}
    mate = np.array([number.get(name, -1) for name in result.jobs["shared_with"]])
    same = np.flatnonzero((m.pool == pool[m.job]) & (m.gpus == gpus[m.job]) & (
        (m.host < 0) | (m.host == mate[m.job])))
    same = same[np.lexsort((m.keep[same], m.host[same] >= 0))]            # a guest's option counts, else what it holds
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
                  "cost_per_hour": float(m.cost[o]), "keep": bool(m.keep[o]),
                  "beside": round_.problem.jobs.job_id[m.host[o]] if m.host[o] >= 0 else None} for o in order)


def _changes(problem: Problem, j: int, got: dict[str, Any], served: Served | None, limits: Limits,
             solver: str) -> Iterator[Change]:
    """The nearest change of each kind that a new decision confirms."""
    done = set()
    for candidate, changed in _candidates(problem, j, got, served):
        if candidate.kind in done:
            continue
        try:
            now = decide(changed, solver=solver, limits=limits).to_dict()["jobs"][j]
        except AllocatorError:
            continue
        if now["gpus"] and (now["value"] > got["value"] + 1e-9 or not got["gpus"]):
            done.add(candidate.kind)
            yield dataclasses.replace(
                candidate, gpus=now["gpus"], pool=now["pool"], shared_with=now["shared_with"])


def _candidates(problem: Problem, j: int, got: dict[str, Any],
                served: Served | None) -> Iterator[tuple[Change, Problem]]:
    """(change without what the job would get, changed problem), the nearest change of each kind first."""
    jobs, q = problem.jobs, int(problem.jobs.tenant[j])
    here = f"jobs.{jobs.job_id[j]}"

    def change(kind: str, place: str, value: str, before: str) -> Change:
        return Change(kind, jobs.job_id[j], {place: value}, {place: before}, 0, "")

    def with_job(**columns: Any) -> Problem:
        arrays = {}
        for name, value in columns.items():
            arrays[name] = getattr(jobs, name).copy()
            arrays[name][j] = value
        return dataclasses.replace(problem, jobs=dataclasses.replace(jobs, **arrays))

    if blocked(problem)[j]:
        after = (*jobs.after[:j], (), *jobs.after[j + 1:])
        free = dataclasses.replace(with_job(state=State.QUEUED).jobs, after=after)
        yield change("release", f"{here}.state", "queued", "held"), dataclasses.replace(problem, jobs=free)
        return
    if served is not None and served.value > got["value"]:
        # the plan that serves it loses `loss`; a weight that lifts its own gain by as much makes up for that
        weight = float(jobs.weight[j]) * (1 + 1.001 * served.loss / (served.value - got["value"]) + 1e-6)
        yield change("weight", f"{here}.weight", f"{weight:.4g}", f"{jobs.weight[j]:g}"), with_job(weight=weight)
    if jobs.min_gpus[j] > 1:
        for size in (int(jobs.min_gpus[j]) // 2, 1):
            yield change("size", f"{here}.min_gpus", str(size), str(jobs.min_gpus[j])), \
                with_job(min_gpus=size, sizes=-1)
    if jobs.gpu_types[j] >= 0:
        types = [name for name, may in zip(problem.gpu_types, problem.type_sets[jobs.gpu_types[j]], strict=True) if may]
        yield change("type", f"{here}.gpu_types", "", "|".join(types)), with_job(gpu_types=-1)
    m = menu(problem, RateTable.of(problem))
    mine = slice(int(m.start[j]), int(m.start[j + 1]))
    for dollars in _steps(m.cost[mine]):
        if math.isfinite(problem.budget_per_hour):
            budget = problem.budget_per_hour + dollars
            yield change("budget", "budget_per_hour", f"{budget:.2f}", f"{problem.budget_per_hour:.2f}"), \
                dataclasses.replace(problem, budget_per_hour=budget)
    if not jobs.interactive[j]:
        yield from _less_headroom(problem, jobs.job_id[j], m.gpus[mine])
    for name, more in (("max_gpus", m.gpus[mine]), ("budget_per_hour", m.cost[mine])):
        limit = getattr(problem.tenants, name)
        for extra in _steps(more):
            if math.isfinite(limit[q]):
                raised = limit.copy()
                raised[q] += extra
                yield change("quota", f"tenants.{problem.tenants.tenant[q]}.{name}", f"{raised[q]:g}",
                             f"{limit[q]:g}"), \
                    dataclasses.replace(problem, tenants=dataclasses.replace(problem.tenants, **{name: raised}))


def _less_headroom(problem: Problem, job_id: str, more: Any) -> Iterator[tuple[Change, Problem]]:
    """Pools that keep fewer GPUs for interactive jobs."""
    rows, now = problem.interactive, wanted(problem)
    for extra in _steps(more):
        for r, p in enumerate(rows.pool.tolist()):
            left, gpus = max(0, int(now[p] - extra)), rows.headroom_gpus.copy()
            if left < now[p]:
                gpus[r] = left
                place = f"interactive.{problem.pools.pool[p]}.headroom_gpus"
                yield Change("headroom", job_id, {place: str(left)}, {place: str(now[p])}, 0, ""), dataclasses.replace(
                    problem, interactive=dataclasses.replace(rows, headroom_gpus=gpus))


def _steps(amounts: Any) -> list[float]:
    """What to add to a limit: the least that an option uses, then twice that, and so on."""
    used = amounts[amounts > 0]
    return [float(used.min()) * 2**i for i in range(TRIED)] if len(used) else []


def _served(round_: Round, result: Result, j: int, limits: Limits, solver: str) -> Served | None:
    """The round decided again with "job j gets more" as a rule; None where the rules leave no such plan."""
    i = round_.instance
    mine = np.arange(i.start[j], i.start[j + 1])
    better = mine[i.value[mine] > float(result.jobs["value"][j]) + 1e-12]
    if not len(better):
        return None
    engine = solvers.named(solver)
    again = round_.insisting(j, better)
    try:
        _, decision = settle(again, mip, engine, limits, time.monotonic() + min(limits.time_s, 60.0))
    except (Infeasible, NoPlanInTime):
        return None
    value = again.instance.value[np.maximum(decision.choice, 0)] * (decision.choice >= 0)
    return Served(again.allocation(decision.choice).gpus, float(value[j]), result.objective_value - float(value.sum()))


def _losers(round_: Round, result: Result, j: int, served: Served | None) -> Iterator[str]:
    """Who gives way in the plan that serves job j."""
    if served is None:
        yield "it cannot get more while every rule holds"
        return
    before = np.array(result.jobs["gpus"])
    smaller = np.flatnonzero((served.gpus < before) & (np.arange(len(before)) != j))
    for k in smaller[:SHOWN]:
        yield f'"{round_.problem.jobs.job_id[k]}": {before[k]} -> {served.gpus[k]} GPUs'
    if len(smaller) > SHOWN:
        yield f"and {len(smaller) - SHOWN} more"
    name = round_.problem.jobs.job_id[j]
    yield f'the plan as a whole: {served.loss:.6g} of value less, with {served.gpus[j]} GPUs for "{name}"'
