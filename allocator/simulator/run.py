"""Run a whole simulation: the controller's loop over a simulated cluster, and its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from allocator.domain.problem import Problem
from allocator.domain.workload import Workload
from allocator.engine.decision import decide_round, override_settings
from allocator.engine.placement.place import place_or_wait, place_plan
from allocator.loop.rounds import RoundOutcome, run_rounds
from allocator.policies import base as policies
from allocator.policies.base import AnyPolicy
from allocator.problem import Problem as UserProblem
from allocator.simulator.cluster import TraceDrivenCluster
from allocator.simulator.options import SimulationOptions
from allocator.simulator.results.metrics import jobs_table, metrics
from allocator.simulator.results.records import (
    ColumnTable,
    Recorder,
    node_states_table,
    places_table,
    spans_table,
)
from allocator.solvers.base import SolveLimits

if TYPE_CHECKING:
    import pandas as pd

PLACE = {"repair": place_plan, "wait": place_or_wait}
OnRound = Callable[["SimulationState", RoundOutcome], None]


@dataclass
class SimulationState:
    """The state of a simulation between two rounds, as a checkpoint holds it."""

    policy: AnyPolicy
    cluster: TraceDrivenCluster
    recorder: Recorder
    rounds: int = 0

    @property
    def share(self) -> float:
        """The share of the jobs that are done."""
        world = self.cluster.world
        return (world.arrived - len(world.active)) / max(1, len(world.remaining))


@dataclass(frozen=True, repr=False)
class Simulation:
    """The results of a simulation.

    Attributes
    ----------
    policy : str
        The policy.
    metrics : dict
        Numbers of the whole run, as results.json has them.
    tables : mapping
        The columns of the data frames below, by the name of the frame.
    unfinished : tuple of str
        Jobs that were submitted and never finished: nothing could run them, or time was up.

    Examples
    --------
    >>> import allocator
    >>> done = allocator.simulate(allocator.read_workload("data/workloads/demo"), policy="srtf")
    >>> done.to_frame()[["job_id", "started_s"]].head(2)
            job_id  started_s
    0      gnmt-01        0.0
    1  resnet50-02      300.0
    """

    policy: str
    metrics: dict[str, Any]
    tables: Mapping[str, ColumnTable]
    unfinished: tuple[str, ...]

    def __repr__(self) -> str:
        """Summarise the simulation on one line."""
        return (
            f"Simulation({self.policy!r}, jobs={self.metrics['jobs']},"
            f" finished={self.metrics['finished']}, rounds={self.metrics['rounds']})"
        )

    def _frame(self, name: str) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(dict(self.tables[name]))

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """A row per job."""
        return self._frame("jobs")

    @cached_property
    def timeline(self) -> pd.DataFrame:
        """A row per round and pool."""
        return self._frame("timeline")

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """A row per round."""
        return self._frame("rounds")

    @cached_property
    def spans(self) -> pd.DataFrame:
        """A row per span in which a job held GPUs."""
        return self._frame("spans")

    @cached_property
    def places(self) -> pd.DataFrame:
        """A row per span in which a job ran on a node; empty where no pool has nodes."""
        return self._frame("places").astype({"gpu": "Int64"})

    @cached_property
    def node_states(self) -> pd.DataFrame:
        """A row per span of a node's state; empty where no pool has nodes."""
        return self._frame("node_states")

    @cached_property
    def fragmentation(self) -> pd.DataFrame:
        """A row per round and pool with nodes."""
        return self._frame("fragmentation")

    def to_frame(self) -> pd.DataFrame:
        """Return the jobs as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row per job.

        Examples
        --------
        >>> import allocator
        >>> workload = allocator.read_workload("data/workloads/demo")
        >>> len(allocator.simulate(workload, policy="srtf").to_frame())
        24
        """
        return self.jobs


def simulate(
    workload: Workload | UserProblem,
    *,
    policy: AnyPolicy = "mip",
    options: SimulationOptions | None = None,
    on_round: OnRound | None = None,
) -> Simulation:
    """Simulate a workload under a policy, to the end.

    The result is deterministic for a seed, unless a time limit ends searches or measured latency
    counts.

    Parameters
    ----------
    workload : Workload or Problem
        Jobs by time of submission; of a problem, `Problem.to_workload`.
    policy : str, Policy or PolicyEntry
        The policy, as of `allocator.solve`.
    options : SimulationOptions, optional
        Seed, effort, and what the simulated cluster does by chance.
    on_round : callable, optional
        Called with the state and the round after every round, for progress and checkpoints.

    Returns
    -------
    Simulation
        Metrics, and a frame for jobs, rounds, pools and times.

    Raises
    ------
    TypeError
        If it is neither a Workload nor a Problem.
    UsageError
        For names and values that make no sense.

    Examples
    --------
    >>> import allocator
    >>> workload = allocator.read_workload("data/workloads/demo")
    >>> allocator.simulate(workload, policy="greedy")
    Simulation('greedy', jobs=24, finished=24, rounds=27)
    """
    if isinstance(workload, UserProblem):
        workload = workload.to_workload()
    if not isinstance(workload, Workload):
        raise TypeError(
            f"a workload is a Workload or a Problem, not {workload!r}; read_workload(FOLDER) reads"
            " one"
        )
    return continue_simulation(
        initial_state(workload, policy, options or SimulationOptions()), on_round
    )


def initial_state(
    workload: Workload, policy: AnyPolicy, options: SimulationOptions
) -> SimulationState:
    """Return the state before the first round."""
    policies.policy(policy)
    problem = override_settings(
        workload.problem, options.objective, options.budget, options.horizon
    )
    given: dict[str, Any] = {
        "interval_s": options.interval_s,
        "ageing_s": options.ageing_s,
        "sizes": options.sizes,
        "size_error": options.misjudged_sizes or None,
    }
    given = {name: value for name, value in given.items() if value is not None}
    problem = _with_long_run_budget(dataclasses.replace(problem, **given), options)
    return SimulationState(
        policy,
        TraceDrivenCluster(dataclasses.replace(workload, problem=problem), options),
        Recorder(),
    )


def _with_long_run_budget(problem: Problem, options: SimulationOptions) -> Problem:
    """Return the problem with the long-run budget of the options."""
    asked = {
        "average_per_hour": options.budget_average,
        "amount": options.budget_amount,
        "until_s": None if options.budget_amount is None else options.until_s,
    }
    given = dict(problem.settings.get("longrun", {}))
    if options.budget_average is not None or options.budget_amount is not None:
        given = {k: v for k, v in given.items() if k not in asked} | {
            k: v for k, v in asked.items() if v is not None
        }
    if options.budget_window_s is not None:
        given["window_s"] = options.budget_window_s
    return dataclasses.replace(problem, settings={**problem.settings, "longrun": given})


def continue_simulation(state: SimulationState, on_round: OnRound | None = None) -> Simulation:
    """Run a simulation from its state to the end."""
    world = state.cluster.world
    o = world.options
    limits = SolveLimits(o.time_limit_s, o.gap, o.threads, o.seed)
    decide = partial(
        decide_round,
        policy=state.policy,
        solver=o.solver,
        limits=limits,
        place=PLACE[o.placement],
    )
    for turn in run_rounds(state.cluster, decide, state.rounds):
        state.recorder.note(turn, world)
        state.rounds = turn.number + 1
        if on_round is not None:
            on_round(state, turn)
    tables = {
        "jobs": jobs_table(world),
        "spans": spans_table(world),
        "places": places_table(world),
        "node_states": node_states_table(world),
        **state.recorder.tables(),
    }
    names = world.problem.jobs.job_id
    results = metrics(world, tables)
    kept = state.cluster.report()
    if kept:
        results["longrun"] = kept
    return Simulation(
        policies.name_of(state.policy),
        results,
        tables,
        tuple(names[j] for j in world.active.tolist()),
    )
