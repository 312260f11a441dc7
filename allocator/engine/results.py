"""The full Plan of a decided round: prices, reasons and tables (rules R36 to R42)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from allocator.audit import Audit
from allocator.domain.allocation import Allocation
from allocator.domain.plan import (
    DECIDED_FIELDS,
    EXPECTED_FIELDS,
    REASON_FIELDS,
    BudgetPlan,
    Columns,
    NodePlan,
    Plan,
    PoolPlan,
    TenantPlan,
)
from allocator.domain.problem import (
    Bools,
    Floats,
    Ints,
    Placements,
    Problem,
    State,
    join_names,
    other_jobs,
)
from allocator.engine.causes import CauseSearch
from allocator.engine.decided import Decision
from allocator.engine.expected import forecast, tell_columns
from allocator.engine.placement.fragments import Fragments
from allocator.engine.reasons import find_reasons
from allocator.options.instance_building import CompiledRound
from allocator.options.kept.reservations import describe_reservation, find_moments, seconds_left
from allocator.performance.batched import KINDS
from allocator.performance.lost_time import choose_modes
from allocator.performance.speed import believed_speeds
from allocator.performance.table import RateTable
from allocator.policies.base import Proposal
from formulations.model.linear import BUDGET, CAPACITY

ASSUMED = "assumed speed, not measured"
# a proven relative gap up to this is called optimal (docs/reference/rules.md, R37)
OPTIMAL = 1e-6


def build_result(
    problem: Problem,
    decision: Decision,
    *,
    policy: str,
    seed: int,
    seconds: Mapping[str, float] = {},
    searches: Callable[[], Iterable[CauseSearch]] = tuple,
    left_s: float = math.inf,
    whose: Bools | None = None,
) -> Plan:
    """Build the Plan with all that plan.json contains.

    The columns of its jobs are made when they are first read.

    Parameters
    ----------
    problem : Problem
        The round, as the plan names it.
    seconds : mapping of str to float
        Wall seconds by phase, with "total".
    searches : callable
        Returns what decides again without some limits. Without any, reasons come from prices.
    left_s : float
        Approximate limit of the seconds for these decisions.
    whose : (J,), optional
        The only jobs that are given a reason.
    """
    round_ = decision.round
    proposal, witness, allocation = decision.proposal, decision.witness, decision.allocation
    bound, by, gap = decision.proof
    price_of_pools, price_of_dollar = (
        decision.prices[round_.model.rows_of(kind)] for kind in (CAPACITY, BUDGET)
    )

    def explain_actions() -> dict[str, Sequence[object]]:
        fragments = None if proposal.placed is None else Fragments(problem, allocation)
        codes, sentences = find_reasons(decision, searches, left_s, fragments, whose)
        details = _describe_details(problem, round_, allocation, sentences)
        return {"reason": codes, "detail": details}

    notes = [*round_.problem.warnings, *round_.repairs.messages]
    if proposal.detail:
        prefix = f"fallback {proposal.fallback}: " if proposal.fallback else ""
        notes.append(prefix + proposal.detail)
    return Plan(
        snapshot=problem.name,
        digest=problem.digest,
        now_s=problem.now_s,
        interval_s=problem.interval_s,
        policy=policy,
        objective=problem.objective,
        solver=proposal.solver,
        solver_version=proposal.solver_version,
        solver_choice=proposal.solver_choice or None,
        seed=seed,
        status="optimal" if gap <= OPTIMAL else "feasible",
        termination=proposal.termination,
        fallback=proposal.fallback,
        objective_value=witness.objective_value,
        bound=bound,
        gap=gap,
        bound_by=by,
        seconds={k: round(v, 6) for k, v in seconds.items()},
        jobs=Columns(
            {
                DECIDED_FIELDS: lambda: _jobs(
                    problem,
                    witness,
                    allocation,
                    np.append(round_.instance.keep, False)[proposal.choice],
                ),
                REASON_FIELDS: explain_actions,
                EXPECTED_FIELDS: lambda: tell_columns(forecast(decision), problem.now_s),
            }
        ),
        pools=_pools(problem, allocation, price_of_pools),
        tenants=_tenants(problem, witness, allocation),
        warnings=tuple(notes),
        budget=BudgetPlan(
            problem.budget_per_hour if math.isfinite(problem.budget_per_hour) else None,
            float(witness.cost.sum()),
            float(price_of_dollar.sum()),
        ),
        placement=_placement(proposal, witness),
    )


def job_actions(problem: Problem, pool: Ints, gpus: Ints, kept: Bools) -> list[str]:
    """Return the action of every job: start, keep, grow, shrink, move, pause or wait.

    kept (J,) is True for a job that stays on its own GPUs. A job that joins or leaves another one
    may move to as many other GPUs of its pool. The actions are those of docs/reference/rules.md,
    R40.
    """
    jobs = problem.jobs
    running: Bools = jobs.state == State.RUNNING
    something = pool >= 0
    moved = (pool != jobs.pool) | ((gpus == jobs.gpus) & ~kept)
    cases = [
        running & ~something,
        running & moved,
        running & (gpus == jobs.gpus),
        running & (gpus > jobs.gpus),
        running,
        something,
    ]
    return list(
        np.select(cases, ["pause", "move", "keep", "grow", "shrink", "start"], "wait").tolist()
    )


def _jobs(
    problem: Problem, witness: Audit, allocation: Allocation, kept: Bools
) -> dict[str, Sequence[object]]:
    jobs = problem.jobs
    pools = np.array([*problem.pools.pool, None], object)
    batch, passes = (
        [n if n > 0 else None for n in numbers.tolist()]
        if (numbers > 0).any()
        else [None] * len(jobs)
        for numbers in batches(problem, allocation)
    )
    return {
        "job_id": list(jobs.job_id),
        "tenant": np.array(problem.tenants.tenant, object)[jobs.tenant].tolist(),
        "pool": pools[allocation.pool].tolist(),
        "gpus": allocation.gpus.tolist(),
        "batch_size": batch,
        "shared_with": _shared_with(problem, allocation),
        "nodes": node_lists(problem, allocation.places),
        "previous_pool": pools[jobs.pool].tolist(),
        "previous_gpus": jobs.gpus.tolist(),
        "action": job_actions(problem, allocation.pool, allocation.gpus, kept),
        "work_per_s": witness.rate.tolist(),
        "value": witness.value.tolist(),
        "cost_per_hour": witness.cost.tolist(),
        "accumulation": passes,
        "variant": variants(problem, allocation),
        "mode": modes(problem, allocation),
    }


def _shared_with(problem: Problem, allocation: Allocation) -> list[str | None]:
    """Return the names of the jobs on the GPUs of each job, (J,), None = none."""
    if (allocation.secondary < 0).all():
        return [None] * len(problem.jobs)
    others = other_jobs(allocation.secondary)
    return [join_names(problem.jobs.job_id[j] for j in them) or None for them in others]


def node_lists(problem: Problem, places: Placements) -> list[list[dict[str, object]] | None]:
    """Return the nodes of each job as plan.json has them, (J,), None without nodes."""
    out: list[list[dict[str, object]] | None] = [None] * len(problem.jobs)
    rows = (places.job, places.node, places.gpus, places.gpu)
    for j, n, k, g in zip(*(column.tolist() for column in rows), strict=True):
        entry: dict[str, object] = {"node": problem.nodes.node[n], "gpus": k}
        if g >= 0:
            entry |= {"gpu": g, "fraction": float(problem.jobs.gpu_fraction[j])}
        out[j] = [*(out[j] or []), entry]
    return out


def _describe_details(
    problem: Problem,
    round_: CompiledRound,
    allocation: Allocation,
    sentences: Sequence[str | None],
) -> list[str | None]:
    """Add to each sentence (J,) that a speed is assumed, that GPUs are kept, or that nodes leave.

    The first concerns jobs that have or want GPUs at an assumed speed, the second those that wait,
    if they may not be stopped, GPUs are kept from now on, or they would hold GPUs when a
    reservation is in force, the third those that wait and could not be on a node.
    """
    jobs = problem.jobs
    kinds = problem.pools.gpu_type
    pool = allocation.pool
    gpus = allocation.gpus
    table = RateTable.of(problem)
    guessed = table.unrated[jobs.model]
    on = np.flatnonzero(guessed & (pool >= 0))
    guessed[on] = table.is_assumed(jobs.model[on], kinds[pool[on]], gpus[on])
    more: list[list[str]] = [[ASSUMED] if mark else [] for mark in guessed.tolist()]
    for r in problem.kept:
        place = f'{r.gpus} GPUs of pool "{problem.pools.pool[r.pool]}" are kept'
        age_s = problem.now_s - jobs.submitted_s[r.job]
        when = f"after {r.after_s:g} s" if r.after_s else f"now: submitted {age_s:g} s ago"
        for j in np.flatnonzero((pool < 0) & ~(jobs.preemptible & (r.after_s > 0))).tolist():
            whom = "it" if j == r.job else f'job "{jobs.job_id[r.job]}"'
            if sentences[j]:
                more[j].append(f"{place} for {whom} {when}")
    for x in find_moments(problem, round_.option_table):
        asking = np.unique(round_.option_table.job[x.there])
        for j in asking[pool[asking] < 0].tolist():
            descriptions = [describe_reservation(problem, n, j) for n in x.rows.tolist()]
            more[j] += [text for text in descriptions if sentences[j] and text not in more[j]]
    after_s = seconds_left(problem)
    leaving: dict[int, frozenset[int]] = {}
    for o, nodes in round_.forbidden.items():
        j = int(round_.option_table.job[o])
        if pool[j] < 0 and sentences[j]:
            leaving[j] = nodes.union(leaving.get(j, ()))
    for j, nodes in leaving.items():
        n = min(nodes, key=after_s.item)
        others = f", {len(nodes) - 1} more later" if len(nodes) > 1 else ""
        name = problem.nodes.node[n]
        more[j].append(f'node "{name}" leaves after {after_s[n]:g} s{others}: too early for it')
    return [
        "; ".join([*([text] if text else []), *others]) or None
        for text, others in zip(sentences, more, strict=True)
    ]


def batches(problem: Problem, allocation: Allocation) -> tuple[Ints, Ints]:
    """Return the global batch and the passes per step that each job's speed requires, (J,) each.

    They come from its row of rates.csv, or are the best of a curve that knows batches. -1 or 0
    stands for unknown.
    """
    row = allocation.row
    batch, passes = (
        np.where(row >= 0, np.append(column, -1)[row], -1)
        for column in (problem.rates.batch_size, problem.rates.accumulation)
    )
    curved = np.flatnonzero((row < 0) & (allocation.pool >= 0))
    if len(curved) and not KINDS.keys().isdisjoint(problem.curves.kind):
        speed = believed_speeds(
            problem,
            problem.jobs.model[curved],
            problem.pools.gpu_type[allocation.pool[curved]],
            allocation.gpus[curved],
        )
        batch[curved], passes[curved] = speed.batch, speed.accumulation
    return batch, passes


def variants(problem: Problem, allocation: Allocation) -> list[str | None]:
    """Return the variant in the row of rates.csv of each job's speed, (J,), None without one."""
    names = problem.rates.variant
    if not any(names):
        return [None] * len(problem.jobs)
    return [names[row] or None if row >= 0 else None for row in allocation.row.tolist()]


def modes(problem: Problem, allocation: Allocation) -> list[str | None]:
    """Return how the workers of each job are kept in step, (J,), None where it lists no modes."""
    out: list[str | None] = [None] * len(problem.jobs)
    j = np.flatnonzero((problem.jobs.modes >= 0) & (allocation.pool >= 0))
    chosen = choose_modes(problem, j, allocation.pool[j], allocation.gpus[j])
    for i, name in zip(j.tolist(), chosen.names(), strict=True):
        out[i] = name
    return out


def _pools(problem: Problem, allocation: Allocation, prices: Floats) -> tuple[PoolPlan, ...]:
    used = np.zeros(len(problem.pools) + 1, np.int64)  # the last is of no pool
    np.add.at(used, allocation.pool, allocation.held)
    # several shares are in one GPU
    places = allocation.places
    shares = np.stack([places.node, places.gpu], axis=1)[places.gpu >= 0]
    np.subtract.at(used, problem.nodes.pool[shares[:, 0]], 1)
    np.add.at(used, problem.nodes.pool[np.unique(shares, axis=0)[:, 0]], 1)
    return tuple(
        PoolPlan(name, int(g), int(u), float(v))
        for name, g, u, v in zip(problem.pools.pool, problem.pools.gpus, used, prices, strict=False)
    )


def _tenants(problem: Problem, witness: Audit, allocation: Allocation) -> tuple[TenantPlan, ...]:
    tenants = problem.tenants
    gpus, cost = np.zeros(len(tenants) + 1, np.int64), np.zeros(len(tenants) + 1)
    for line in tenants.ancestors[:, problem.jobs.tenant]:  # -1, the last number, is of none
        np.add.at(gpus, line, allocation.held)
        np.add.at(cost, line, witness.cost)
    return tuple(
        TenantPlan(name, int(g), int(u), int(m) if math.isfinite(m) else None, float(c))
        for name, g, u, m, c in zip(
            tenants.tenant, gpus, tenants.guaranteed_gpus, tenants.max_gpus, cost, strict=False
        )
    )


def _placement(proposal: Proposal, witness: Audit) -> NodePlan | None:
    placed = proposal.placed
    value = witness.objective_value
    if placed is None:
        return None
    differs = placed.moved + placed.reduced > 0  # else only the last bits may differ
    lost = max(0.0, placed.value_before - value) if differs else 0.0
    gap = lost / max(abs(value), 1e-9)
    return NodePlan(placed.value_before, lost, gap, placed.moved, placed.reduced)
