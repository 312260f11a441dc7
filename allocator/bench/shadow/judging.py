"""Judge one look: what the cluster does, what would have been decided, and what lies between.

Everything follows from the packed snapshot and the policy, so that a recorded look can be judged
again. What the cluster does is that everything stays as it is: its own scheduler has had its turn.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from allocator.audit import audit
from allocator.controller.guarded_decision import decide_safely, format_plan
from allocator.controller.options import ControllerOptions
from allocator.domain.problem import Bools, Ints, State
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide_round
from allocator.options.instance_building import CompiledRound
from allocator.performance.table import RateTable
from allocator.queue.snapshot import unpack_snapshot
from allocator.solvers.base import SolveLimits

FILLS = "greedy-naive"  # keeps what runs, and gives the rest to waiting jobs, oldest first
SAME = 1e-9  # relative: values that differ by less are equal


def judge(content: bytes, policy: str) -> tuple[dict[str, Any], str]:
    """Return the figures of a round, and its plan as plan.json.

    Parameters
    ----------
    content : bytes
        What was seen, packed.
    policy : str
        Who decides, with the effort of a controller.

    Returns
    -------
    tuple of dict and str
        `value` and `bound` of the plan, `cluster_value` of what runs, in the objective of the
        round; `cost_per_hour`, `cluster_cost_per_hour` in US dollars; `gpus`, of which the cluster
        has `used` in use and waiting jobs could have used `usable`, at `usable_per_hour` US dollars
        (None: no pool has a price); `passed_over`, the jobs that wait although one of lower value
        has GPUs that would do; numbers of jobs, `rigid` ones, and ones at an `assumed` speed.

    Raises
    ------
    InvalidInput, Infeasible, RoundFailed
        If it cannot be decided.
    """
    problem = validate(unpack_snapshot(content))
    jobs, pools = problem.jobs, problem.pools
    options = ControllerOptions(policy=policy)
    limits = SolveLimits(
        options.limit_s(problem.interval_s), options.gap, options.threads, options.seed
    )
    decision = decide_safely(problem, None, policy=policy, solver=options.solver, limits=limits)
    filled = decide_round(problem, policy=FILLS, limits=limits)
    round_ = filled.round
    stays = replace(round_.allocation(round_.unchanged_choice()), places=problem.placements)
    present = audit(round_.problem, stays, round_.repairs, round_.offer)
    waits = (jobs.state == State.QUEUED) | (jobs.state == State.PAUSED)

    def by_pool(gpus: Ints, pool: Ints) -> Ints:
        here = pool >= 0
        return np.bincount(pool[here], gpus[here], len(pools)).astype(np.int64)

    used = by_pool(stays.held, stays.pool)
    taken = by_pool(np.where(waits, filled.allocation.held, 0), filled.allocation.pool)
    usable = np.minimum(taken, np.maximum(pools.gpus - used, 0))
    price = pools.price_per_gpu_hour
    unrated = RateTable.of(problem).unrated[jobs.model]
    figures = {
        "policy": policy,
        "objective": problem.objective,
        "jobs": len(jobs),
        "waiting": int(waits.sum()),
        "rigid": int((unrated | (jobs.min_gpus == jobs.max_gpus)).sum()),
        "assumed": int(unrated.sum()),
        "gpus": int(pools.gpus.sum()),
        "used": int(used.sum()),
        "usable": int(usable.sum()),
        "usable_per_hour": float(usable @ price) if price.any() else None,
        "passed_over": [jobs.job_id[j] for j in _find_passed_over(round_, waits).tolist()],
        "value": decision.value,
        "bound": decision.proof[0],
        "cluster_value": present.objective_value,
        "cost_per_hour": float(decision.witness.cost.sum()),
        "cluster_cost_per_hour": float(present.cost.sum()),
        "broken": list(present.faults),
    }
    return figures, format_plan(problem, decision, policy, options.seed)


def _find_passed_over(round_: CompiledRound, waits: Bools) -> Ints:
    """Return the waiting jobs worth more than a running one on no more GPUs than it has there."""
    i = round_.instance
    runs = round_.unchanged_choice()
    runs = runs[runs >= 0]
    holdings, number = np.unique(
        np.stack([i.pool[runs], i.gpus[runs]]), axis=1, return_inverse=True
    )
    least = np.full(holdings.shape[1], np.inf)
    np.minimum.at(least, number.reshape(-1), i.value[runs])
    more = np.zeros(len(i.job), dtype=bool)
    for (pool, gpus), value in zip(holdings.T.tolist(), least.tolist(), strict=True):
        more |= (i.pool == pool) & (i.gpus <= gpus) & (i.value > value + SAME * abs(value))
    return np.unique(i.job[more & waits[i.job] & (i.primary < 0)])
