"""The interface of policies: a Task in, a Proposal out.

A new policy is one function and one line in `_BuiltIn`. There are policies of the package, those
that were registered, and those of plugins.

A round leaves a memory for the next one: prices by the names of their rows, and look-ahead plans.
Successive rounds replace few jobs and change few values, so the last prices are almost the next
ones, and finding those takes a fraction of the time. The plan needs no memory: running jobs are in
the snapshot, and "change nothing" is always among the starts. A look ahead starts from the previous
plans, shifted by the intervals that have passed.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from allocator.domain.allocation import PlacedPlan
from allocator.options.colocation.secondary_jobs import PairOffer
from allocator.options.instance_building import CompiledRound
from allocator.plugins import Registry
from allocator.solvers import registry
from allocator.solvers.base import SolveLimits, Solver
from formulations.bounds.lagrangian import Dual, minimise_dual
from formulations.colocation.prices import CLOSE, solve_paired_dual
from formulations.model.choices import Choices
from formulations.model.linear import AT_MOST_ONE, Floats, Ints, LinearModel

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True)
class LookAheadPlans:
    """Plans of a look ahead, by names.

    Attributes
    ----------
    at_s, interval_s : float
        Start of the first interval, and length of each, seconds.
    prices : mapping
        (kind, label) of a coupling row -> price in every interval.
    jobs : mapping
        job_id -> the pool, "" = none, and the GPUs that it holds in every interval.
    """

    at_s: float
    interval_s: float
    prices: Mapping[tuple[str, str], tuple[float, ...]]
    jobs: Mapping[str, tuple[tuple[str, int], ...]]

    @classmethod
    def of(cls, round_: CompiledRound, rows: Ints, plan: Ints, prices: Floats) -> LookAheadPlans:
        """Build the memory from a plan (J, H) and the prices (H, R) of coupling rows.

        The plan has columns of the round. Coupling rows are the model's rows `rows` (R,).
        """
        i = round_.instance
        problem = round_.problem
        names = {row: name for name, row in _list_rows(round_.model)}
        of_rows = zip(rows.tolist(), prices.T.tolist(), strict=True)
        priced = {names[row]: tuple(of_row) for row, of_row in of_rows if any(of_row)}
        pool = np.array([*problem.pools.pool, ""], object)[np.append(i.pool, -1)[plan]]
        gpus = np.append(i.gpus, 0)[plan]
        jobs = {
            problem.jobs.job_id[j]: tuple(zip(pool[j].tolist(), gpus[j].tolist(), strict=True))
            for j in np.flatnonzero((plan >= 0).any(axis=1)).tolist()
        }
        return cls(problem.now_s, problem.interval_s, priced, jobs)

    def restart_from(
        self, round_: CompiledRound, rows: Ints, intervals: int
    ) -> tuple[Ints, Floats]:
        """Return plan and prices in columns (J, H) and coupling rows (H, R) of another round.

        Intervals that have passed are left out, and the last one continues. New jobs and rows have
        neither.
        """
        problem, model = round_.problem, round_.model
        elapsed = max(0, round((problem.now_s - self.at_s) / self.interval_s))
        pool = {name: p for p, name in enumerate(problem.pools.pool)}
        planned = [
            (pool.get(name, -1), gpus)
            for job_id in problem.jobs.job_id
            for steps in [self.jobs.get(job_id, (("", 0),))]
            for name, gpus in (*steps[elapsed:], *steps[-1:] * intervals)[:intervals]
        ]
        place, gpus = np.array(planned, np.int64).reshape(-1, 2).T
        whose = np.repeat(np.arange(len(problem.jobs)), intervals)
        plan = np.where(place < 0, -1, round_.columns_at(whose, np.maximum(place, 0), gpus))
        prices = np.zeros((intervals, model.m))
        for name, row in _list_rows(model):
            if of_row := self.prices.get(name):
                prices[:, row] = (*of_row[elapsed:], *of_row[-1:] * intervals)[:intervals]
        return plan.reshape(-1, intervals), prices[:, rows]


@dataclass(frozen=True)
class Memory:
    """Prices of the last round.

    Attributes
    ----------
    objective : str
        Unit of the prices.
    prices : mapping
        (kind, label) of a coupling row -> price.
    plans : LookAheadPlans or None
        None if the policy makes none.
    """

    objective: str
    prices: Mapping[tuple[str, str], float]
    plans: LookAheadPlans | None = None

    @classmethod
    def of(
        cls, objective: str, model: LinearModel, prices: Floats, plans: LookAheadPlans | None = None
    ) -> Memory:
        """Build the memory of a round with row prices (m,)."""
        return cls(objective, {name: float(prices[row]) for name, row in _list_rows(model)}, plans)

    def row_prices(self, model: LinearModel) -> tuple[Floats, int]:
        """Return the remembered prices of another round's rows, (m,), and the number of known rows.

        A new row has the price 0.
        """
        prices, known = np.zeros(model.m), 0
        for name, row in _list_rows(model):
            prices[row] = self.prices.get(name, 0.0)
            known += name in self.prices
        return prices, known


def _list_rows(model: LinearModel) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield the names of coupling rows, (kind, label), and the rows."""
    for f in model.families:
        if f.kind != AT_MOST_ONE:
            for row, label in enumerate(f.labels, f.first):
                yield (f.kind, label), row


@dataclass(frozen=True)
class Task:
    """Hold what a policy is given: one round to decide, the limits and the solver.

    Attributes
    ----------
    round : CompiledRound
        The compiled round: `round.problem` (jobs and pools as arrays), `round.instance` (options,
        capacities and rules as arrays) and `round.model` (the linear model, a column for each
        option).
    limits : SolveLimits
        Limits of the whole decision; `remaining` gives the time that is left.
    solver : Solver, optional
        The solver to call. None: `engine` chooses one by size and structure.
    deadline : float
        Latest end of the decision, on the clock `time.monotonic`.
    prices : ndarray of float, shape (rows,), optional
        Row prices to start the dual from.
    plans : LookAheadPlans, optional
        Plans of the look ahead of the previous round.
    known_bound : float
        No plan has a higher value.
    bound_with_other_pairs : float
        No plan with a pair of jobs that the round leaves out has a higher value.
    known_dual : Dual, optional
        The Lagrangian dual, which is then not computed.

    Examples
    --------
    >>> import allocator, numpy as np
    >>> def wait(task: allocator.Task) -> allocator.Proposal:
    ...     return allocator.Proposal(np.full(len(task.round.problem.jobs), -1))
    >>> allocator.solve(allocator.Problem.read("data/snapshots/demo"), policy=wait).jobs["gpus"][:3]
    [0, 0, 0]
    """

    round: CompiledRound
    limits: SolveLimits
    solver: Solver | None
    deadline: float
    prices: Floats | None = None
    plans: LookAheadPlans | None = None
    known_bound: float = math.inf
    bound_with_other_pairs: float = -math.inf
    known_dual: Dual | None = None

    @property
    def choices(self) -> Choices:
        """The round's model as one choice per job under coupling rows."""
        return self.round.choices

    @cached_property
    def dual(self) -> Dual:
        """The Lagrangian dual: a bound and prices without a solver.

        Computing it takes at most half of the time that is left.
        """
        if self.known_dual is not None:
            return self.known_dual
        until = self.share_of_time(0.5)
        solve = solve_paired_dual if self.round.model.has_pairs else minimise_dual
        return solve(self.choices, self.prices, until, close=self.dual_tolerance)

    @property
    def dual_tolerance(self) -> float:
        """Relative distance of the dual to the best one that is close enough for the asked gap."""
        return min(CLOSE, 0.1 * max(self.limits.gap, 1e-6))

    @property
    def bound(self) -> float:
        """Upper bound on the value of every plan, from the dual alone."""
        return min(self.known_bound, max(self.dual.bound, self.bound_with_other_pairs))

    @property
    def has_dual(self) -> bool:
        """Whether the dual has been computed already, so that it costs nothing to use it."""
        return self.known_dual is not None or "dual" in vars(self)

    def share_of_time(self, share: float) -> float:
        """Return when a share of the time that is left will have passed.

        Parameters
        ----------
        share
            From 0 to 1.

        Returns
        -------
        float
            A time of time.monotonic.
        """
        now = time.monotonic()
        return now + share * max(0.0, self.deadline - now)

    @property
    def end_of_rounding(self) -> float:
        """Latest end of a rounding (time.monotonic).

        It has a second even if no time is left, because any plan is better than none.
        """
        return max(self.share_of_time(0.5), time.monotonic() + 1.0)

    def remaining(self) -> SolveLimits:
        """Return the limits with the time that is left now.

        Returns
        -------
        SolveLimits
            Limits with which several searches in turn keep one time limit together.
        """
        return dataclasses.replace(self.limits, time_s=max(0.0, self.deadline - time.monotonic()))

    def engine(self) -> tuple[Solver, str]:
        """Choose the solver to call.

        Returns
        -------
        tuple of Solver and str
            The solver, and why it was chosen; empty: it was given.
        """
        if self.solver is not None:
            return self.solver, ""
        name, why = registry.choose(self.round.model)
        return registry.get(name), f"auto: {name}, {why}"


@dataclass(frozen=True)
class Proposal:
    """State what a policy proposes.

    Parameters
    ----------
    choice : ndarray of int, shape (jobs,)
        Column of the round's model for each job, -1: nothing. It keeps every hard rule.
    bound : float
        No plan has a higher value, proven by `bound_by`; inf: the policy proves nothing.
    bound_by : str
        Source of the proof of the bound.
    termination : str
        "gap", "time_limit" or "heuristic".
    solver, solver_version : str, optional
        Solver that was used.
    solver_choice : str
        Why the solver was chosen.
    fallback : str, optional
        Source of the plan, if it was not the policy.
    detail : str
        Any message for the user.
    log : str
        Log of the solver.
    plans : LookAheadPlans, optional
        Plans that a look ahead leaves for the next one.
    task : Task, optional
        The task to whose columns `choice` refers, if it is not the given one.
    placed : PlacedPlan, optional
        Where the jobs are, if pools have nodes. The engine places every plan; a policy does not.

    Examples
    --------
    >>> import allocator, numpy as np
    >>> allocator.Proposal(np.array([4, -1])).termination
    'heuristic'
    """

    choice: Ints
    bound: float = math.inf
    bound_by: str = ""
    termination: str = "heuristic"
    solver: str | None = None
    solver_version: str | None = None
    solver_choice: str = ""
    fallback: str | None = None
    detail: str = ""
    log: str = ""
    plans: LookAheadPlans | None = None
    task: Task | None = None
    placed: PlacedPlan | None = None


Policy = Callable[[Task], Proposal]


def relative_gap(bound: float, value: float) -> float:
    """Return (B - V) / max(|V|, 1e-9), the gap of docs/reference/rules.md, R36."""
    return (bound - value) / max(abs(value), 1e-9)


@dataclass(frozen=True)
class PolicyEntry:
    """A policy: the function that decides, and which options and pairs its rounds contain.

    Parameters
    ----------
    decide : Policy
        Function from a `Task` to a `Proposal`.
    prunes : bool
        It maximises the objective, so that dominated options may be removed before it decides. Any
        other policy knows sizes and no shapes: it gets spread shapes only where jobs hold them.
    shares : PairOffer
        Which pairs of jobs it considers where pools let jobs share GPUs. Most policies leave
        running pairs together at most.
    reserves : bool
        Large jobs get reservations in its rounds (R67), as in those of policies that prune.

    Examples
    --------
    >>> import allocator
    >>> from allocator.policies.rules.static import static
    >>> entry = allocator.PolicyEntry(static, prunes=False)
    >>> allocator.solve(allocator.Problem.read("data/snapshots/demo"), policy=entry).policy
    'static'
    """

    decide: Policy
    prunes: bool
    shares: PairOffer = PairOffer.RUNNING
    reserves: bool = False


class _BuiltIn(Mapping[str, PolicyEntry]):
    """The policies of the package; each is imported when it is asked for."""

    modules = {  # noqa: RUF012
        "mip": "mip",
        "horizon": "horizon",
        "marginal": "fallback",
        "greedy": "rules.greedy",
        "greedy-naive": "rules.greedy",
        "static": "rules.static",
        "easy": "backfill",
        "conservative": "backfill",
        "slurm": "backfill",
        "equal": "rules.equal",
        "srtf": "rules.srtf",
        "las": "rules.las",
        "sjf": "rules.sharing",
        "bsbf": "rules.sharing",
        "ffs": "rules.sharing",
        "afs": "rules.afs",
        "ffdl": "rules.ffdl",
        "edf": "rules.edf",
        "elasticflow": "rules.elasticflow",
        "maxmin": "rules.gavel",
        "sia": "rules.sia",
        "rental": "rules.rental",
        "spot-first": "rules.spot_first",
        "spot-wait": "rules.spot_first",
    }
    pair_offers = {  # noqa: RUF012
        "mip": PairOffer.PROFITABLE,
        "marginal": PairOffer.PROFITABLE,
        "bsbf": PairOffer.ALL,
        "ffs": PairOffer.ALL,
    }

    def __getitem__(self, name: str) -> PolicyEntry:
        module = import_module(f"allocator.policies.{self.modules[name]}")
        return PolicyEntry(
            getattr(module, name.replace("-", "_")),
            prunes=name in ("mip", "marginal"),
            shares=self.pair_offers.get(name, PairOffer.RUNNING),
            reserves=name == "horizon",
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)


POLICIES = _BuiltIn()


AnyPolicy = str | Policy | PolicyEntry


def _entry(part: object) -> PolicyEntry:
    """Take a function or an entry. Raises TypeError."""
    if isinstance(part, PolicyEntry):
        return part
    if not callable(part):
        raise TypeError(f"a policy is a function or a PolicyEntry, not {part!r}")
    return PolicyEntry(part, prunes=False)


def _load(point: EntryPoint) -> PolicyEntry:
    return _entry(point.load())


# what other schedulers, and the papers, call a policy that orders or shares in this way
ELSEWHERE = {
    "fifo": "static",
    "fcfs": "static",
    "backfill": "easy",
    "slurm": "easy",
    "srpt": "srtf",
    "tiresias": "las",
    "gavel": "maxmin",
    "pollux": "sia",
}
REGISTRY = Registry("policy", "allocator.policies", POLICIES, _load, elsewhere=ELSEWHERE)


def policy(policy: AnyPolicy) -> PolicyEntry:
    """Return the policy of a name, or a policy given as a function or an entry.

    Raises
    ------
    UsageError
        For an unknown name, with all known ones, and for a plugin that cannot be loaded.
    """
    return REGISTRY.get(policy) if isinstance(policy, str) else _entry(policy)


def name_of(policy: AnyPolicy) -> str:
    """Return the name that a plan states for its policy."""
    if isinstance(policy, str):
        return policy
    decide = policy.decide if isinstance(policy, PolicyEntry) else policy
    return getattr(decide, "__name__", type(decide).__name__)


def register_policy(name: str, policy: Policy | PolicyEntry) -> None:
    """Make a policy known by a name in this process.

    Parameters
    ----------
    name : str
        Name for `policy=` and `--policy`.
    policy : Policy or PolicyEntry
        Function from a `Task` to a `Proposal`.

    Raises
    ------
    UsageError
        If the package has a policy of that name.

    Examples
    --------
    >>> import allocator
    >>> from allocator.policies.rules.static import static
    >>> allocator.register_policy("first-come", static)
    >>> allocator.solve(allocator.Problem.read("data/snapshots/demo"), policy="first-come").policy
    'first-come'
    """
    REGISTRY.add(name, _entry(policy))
