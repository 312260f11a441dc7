"""Decide one round within a hard deadline, with every fault turned into an error message.

So nothing that a decision does can harm the controller. A decision depends on the snapshot, the
policy and its effort, and the prices of the round before. All of them are in the journal, so that
`replay` finds the same plan.
"""

from __future__ import annotations

import json
import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType
from typing import NoReturn

import numpy as np

from allocator.controller.options import GRACE_S
from allocator.domain.allocation import Allocation
from allocator.domain.problem import Bools, Problem, State
from allocator.engine.decided import Decision
from allocator.engine.decision import decide_round
from allocator.engine.results import batches, build_result, modes, variants
from allocator.errors import AllocatorError, NoPlanInTime
from allocator.io.plans import to_json
from allocator.loop.executor import SETTINGS
from allocator.loop.gpu_places import find_groups, find_unmoved_in_groups
from allocator.objects import Json, Record
from allocator.policies.base import LookAheadPlans, Memory
from allocator.queue.database.rows import named_rows
from allocator.queue.holdings import format_places, name_primaries
from allocator.queue.round_journal import Want
from allocator.solvers.base import SolveLimits
from allocator.valuation.values import way_memory_gb

DecideRound = Callable[..., Decision]


class DecisionHung(BaseException):
    """The decision went on long after its time limit.

    It is no subclass of Exception, so that no `except Exception` can swallow it.
    """


class Stopped(BaseException):
    """The controller was asked to stop while it decided; nothing of the round is kept."""


class RoundFailed(NoPlanInTime):
    """A round has no plan, for whatever reason; running jobs go on."""


def decide_safely(
    problem: Problem,
    memory: Memory | None,
    *,
    policy: str,
    solver: str,
    limits: SolveLimits,
    decide: DecideRound = decide_round,
) -> Decision:
    """Return an audited decision with its bound. Raises only Infeasible and RoundFailed."""
    try:
        with raise_after(limits.time_s + GRACE_S):
            decision = decide(problem, policy=policy, solver=solver, limits=limits, memory=memory)
            _ = decision.proof  # computes the bound if the policy did not need it
            return decision
    except DecisionHung:
        raise RoundFailed(
            f"policy {policy} did not end within {limits.time_s + GRACE_S:g} s and was stopped"
        ) from None
    except AllocatorError as error:
        if error.exit_code in (4, 5):
            raise
        raise RoundFailed(f"{type(error).__name__}: {error}") from error
    except (KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:
        raise RoundFailed(f"internal error: {type(error).__name__}: {error}") from error


@contextmanager
def raise_after(seconds: float) -> Iterator[None]:
    """Raise DecisionHung in the body after so many wall seconds, and every second again.

    This works in the main thread only, where signals arrive. In other threads a hung controller
    loses its lease. Code that never returns to Python is not interrupted either; solvers run in
    processes of their own and are killed at their deadline.
    """
    if math.isinf(seconds) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: FrameType | None) -> NoReturn:
        raise DecisionHung

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def compute_wants(problem: Problem, plan: Allocation) -> tuple[dict[str, Want], int]:
    """Return what a plan wants of jobs, by job_id, and how many jobs it changes.

    A job that runs on GPUs of other jobs, and shall have as many GPUs of the same pool without one
    of them, has to move, unless that job does (loop/gpu_places.py). A job that keeps its GPUs and
    whose nodes are unknown keeps unknown nodes.
    """
    jobs = problem.jobs
    keeps_pool_and_size = (plan.pool == jobs.pool) & (plan.gpus == jobs.gpus)
    stays = keeps_pool_and_size
    if (plan.primary >= 0).any() or (jobs.primary >= 0).any():
        stays = _find_unmoved_jobs(problem, plan, keeps_pool_and_size)
    has_to_move = keeps_pool_and_size & ~stays
    before = format_places(problem, problem.placements)
    nodes = format_places(problem, plan.places)
    for j in np.flatnonzero(stays & (jobs.state == State.RUNNING)).tolist():
        nodes[j] = nodes[j] if before[j] else ""
    has_other_nodes = np.array(before, dtype=object) != np.array(nodes, dtype=object)
    # of each GPU, that jobs pay for
    on, memory_gb = np.flatnonzero(plan.pool >= 0), np.zeros(len(jobs))
    memory_gb[on] = way_memory_gb(problem, on, plan.pool[on], plan.gpus[on])
    columns = (
        np.array([*problem.pools.pool, ""], dtype=object)[plan.pool].tolist(),
        plan.gpus.tolist(),
        name_primaries(jobs.job_id, plan.secondary),
        has_to_move.tolist(),
        nodes,
        _environments(problem, plan),
        memory_gb.tolist(),
    )
    wants = dict(zip(jobs.job_id, named_rows(Want, zip(*columns, strict=True)), strict=True))
    for j in np.flatnonzero(plan.pool < 0).tolist():
        del wants[jobs.job_id[j]]
    return wants, int((~stays | has_other_nodes).sum())


def _find_unmoved_jobs(problem: Problem, plan: Allocation, keeps_pool_and_size: Bools) -> Bools:
    """Return the jobs that a plan leaves on the same GPUs, (J,)."""
    jobs = problem.jobs
    all_jobs = np.arange(len(jobs))
    now = jobs.secondary
    holder = np.where(jobs.primary < 0, all_jobs, jobs.primary)
    groups = find_groups(all_jobs, jobs.gpus, now) | find_groups(
        all_jobs, plan.gpus, plan.secondary
    )
    return find_unmoved_in_groups(
        all_jobs, keeps_pool_and_size, plan.primary, holder, plan.secondary, now, groups
    )


def _environments(problem: Problem, plan: Allocation) -> list[str]:
    """Return the variables that tell each job how to run, as the queue stores them, (J,)."""
    batch, passes = batches(problem, plan)
    jobs_per_gpu = np.where((plan.primary >= 0) | (plan.secondary >= 0), 2, 1)
    columns = (
        batch.tolist(),
        passes.tolist(),
        variants(problem, plan),
        modes(problem, plan),
        jobs_per_gpu.tolist(),
    )
    return list(map(_format_environment, *columns))


@lru_cache(maxsize=1 << 12)
def _format_environment(
    batch: int, passes: int, variant: str | None, mode: str | None, jobs_per_gpu: int
) -> str:
    """Return the variables of one job; many jobs of a round have the same ones."""
    texts = (
        str(batch) if batch > 0 else "",
        str(passes) if passes > 0 else "",
        variant or "",
        mode or "",
        str(jobs_per_gpu) if jobs_per_gpu > 1 else "",
    )
    settings = {name: text for name, text in zip(SETTINGS, texts, strict=True) if text}
    return json.dumps(settings, sort_keys=True) if settings else ""


def format_plan(problem: Problem, decision: Decision, policy: str, seed: int) -> str:
    """Return plan.json without timings; the same decision gives the same bytes."""
    return to_json(build_result(problem, decision, policy=policy, seed=seed))


def memory_to_json(memory: Memory | None) -> Json | None:
    """Return a memory as JSON values; floats are read back exactly."""
    if memory is None:
        return None
    out: Json = {
        "objective": memory.objective,
        "prices": [[*key, price] for key, price in memory.prices.items() if price],
    }
    if memory.plans is not None:
        p = memory.plans
        out["plans"] = {
            "at_s": p.at_s,
            "interval_s": p.interval_s,
            "jobs": p.jobs,
            "prices": [[*key, *v] for key, v in p.prices.items()],
        }
    return out


def memory_from_json(value: Record | None) -> Memory | None:
    """Return the memory of `memory_to_json`."""
    if value is None:
        return None
    plans = None
    if (p := value.get("plans")) is not None:
        plans = LookAheadPlans(
            p["at_s"],
            p["interval_s"],
            {(kind, label): tuple(v) for kind, label, *v in p["prices"]},
            {name: tuple(map(tuple, steps)) for name, steps in p["jobs"].items()},
        )
    return Memory(
        value["objective"], {(kind, label): price for kind, label, price in value["prices"]}, plans
    )
