"""The problem of one scheduling round as users build it: from records, data frames or files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.domain.changes import changed
from allocator.domain.findings import quote, suggest_setting
from allocator.domain.problem import NO_CHANGES, NO_PLACEMENTS, Problem as CheckedProblem, State
from allocator.domain.records import (
    Colocation,
    FinishedJob,
    InteractiveReserve,
    Job,
    Node,
    Pause,
    Placement,
    Pool,
    PoolChange,
    Quota,
    Rate,
    Received,
    Reservation,
    SpeedModel,
    Tenant,
)
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.columns import CONFIG, CONFIG_TABLES
from allocator.domain.snapshot import Snapshot, snapshot_of_records
from allocator.domain.workload import Workload
from allocator.errors import UsageError
from allocator.io.snapshots import read_snapshot, write_snapshot

if TYPE_CHECKING:
    import pandas as pd


class Problem:
    """Hold one checked, immutable scheduling round: jobs, pools, speeds, tenants and settings.

    `build` makes it from records, `from_frames` from data frames, `read` from files. All three
    apply the same rules and raise `InvalidInput` with every fault at once.

    Parameters
    ----------
    snapshot : Snapshot
        Tables and settings, checked here.

    Attributes
    ----------
    snapshot : Snapshot
        Tables and settings as they were given.
    checked : allocator.domain.problem.Problem
        The same as arrays.

    Examples
    --------
    >>> problem = Problem.build(
    ...     jobs=[Job("bert-1", "bert", remaining_work=90_000, max_gpus=4)],
    ...     pools=[Pool("a100", "A100", 8)],
    ...     rates=[Rate("bert", "A100", 1, 3.0), Rate("bert", "A100", 4, 11.0)],
    ... )
    >>> problem
    Problem('problem', jobs=1, pools=1, gpus=8, objective='progress')
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.checked: CheckedProblem = validate(snapshot)

    @classmethod
    def build(
        cls,
        *,
        jobs: Iterable[Job],
        pools: Iterable[Pool],
        rates: Iterable[Rate] = (),
        models: Iterable[SpeedModel] = (),
        tenants: Iterable[Tenant] = (),
        quotas: Iterable[Quota] = (),
        prices: Iterable[PoolChange] = (),
        nodes: Iterable[Node] = (),
        placements: Iterable[Placement] = (),
        received: Iterable[Received] = (),
        sharing: Iterable[Colocation] = (),
        pauses: Iterable[Pause] = (),
        interactive: Iterable[InteractiveReserve] = (),
        reservations: Iterable[Reservation] = (),
        finished: Iterable[FinishedJob] = (),
        name: str = "problem",
        **settings: Any,
    ) -> Problem:
        """Build a problem from records.

        Parameters
        ----------
        jobs, pools : iterable of Job, iterable of Pool
            Jobs to decide about, and the GPUs there are.
        rates, models : iterable of Rate, iterable of SpeedModel
            Measured speeds, and speeds by formula.
        tenants : iterable of Tenant
            Quotas, guarantees and budgets.
        quotas : iterable of Quota
            Quotas and guarantees by GPU type or pool.
        prices : iterable of PoolChange
            Prices and GPUs that change over time.
        nodes, placements : iterable of Node, iterable of Placement
            Machines, and where running jobs are.
        received : iterable of Received
            How long jobs have held GPUs of a type.
        sharing, pauses, interactive : iterables of Colocation, Pause, InteractiveReserve
            Slowdowns of two jobs on the same GPUs, pauses by size, GPUs kept for interactive jobs.
        reservations : iterable of Reservation
            GPUs kept from a time on.
        finished : iterable of FinishedJob
            Jobs that are done, from which unknown sizes of others are learned.
        name : str
            Name of the problem, which the plan repeats.
        **settings
            Settings of config.toml: `now_s`, `interval_s`, `budget_per_hour`, `restart_s`,
            `max_changes`, `objective` ...; a table is a mapping, `horizon={"rounds": 8}`.

        Returns
        -------
        Problem
            The checked problem.

        Raises
        ------
        InvalidInput
            With every fault. Record i of the jobs is line i + 2 of jobs.csv, as in a file.
        UsageError
            For an unknown setting, or a record in the wrong list.

        Examples
        --------
        >>> import allocator
        >>> problem = allocator.Problem.build(
        ...     jobs=[allocator.Job("a", "bert", remaining_work=500, max_gpus=2, min_gpus=4)],
        ...     pools=[allocator.Pool("a100", "A100", 8)],
        ...     rates=[allocator.Rate("bert", "A100", 4, 11.0)],
        ... )
        Traceback (most recent call last):
            ...
        allocator.errors.InvalidInput: jobs.csv:2: max_gpus 2 is below min_gpus 4 (job "a")
        """
        known = [*(column.name for column in CONFIG), *CONFIG_TABLES]
        for key in settings:
            if key not in known:
                raise UsageError(
                    f"Problem.build: no setting {quote(key)}{suggest_setting(key, known)}"
                )
        records = {
            "jobs": jobs,
            "pools": pools,
            "rates": rates,
            "models": models,
            "prices": prices,
            "tenants": tenants,
            "quotas": quotas,
            "nodes": nodes,
            "placements": placements,
            "received": received,
            "sharing": sharing,
            "pauses": pauses,
            "interactive": interactive,
            "reservations": reservations,
            "finished": finished,
        }
        given = {key: value for key, value in settings.items() if value is not None}
        return cls(snapshot_of_records(name, given, records))

    @classmethod
    def from_frames(
        cls,
        *,
        name: str = "frames",
        config: Mapping[str, Any] | None = None,
        **frames: pd.DataFrame,
    ) -> Problem:
        """Build a problem from pandas data frames with the columns of the files.

        Parameters
        ----------
        name : str
            Name of the problem, which the plan repeats.
        config : mapping of str to object, optional
            Settings of config.toml.
        **frames : pandas.DataFrame
            Tables named like the files: jobs, pools, rates, tenants ... Missing values are empty
            cells.

        Returns
        -------
        Problem
            The checked problem.

        Raises
        ------
        InvalidInput
            With every fault. Row i of a frame is line i + 2 of its file.
        UsageError
            For an unknown table, or two columns of one name.

        Examples
        --------
        >>> import pandas as pd
        >>> problem = Problem.from_frames(
        ...     jobs=pd.DataFrame({"job_id": ["a"], "model": ["bert"], "submitted_s": [0],
        ...                        "remaining_work": [500], "max_gpus": [2]}),
        ...     pools=pd.DataFrame({"pool": ["a100"], "gpu_type": ["A100"], "gpus": [8]}),
        ...     rates=pd.DataFrame({"model": ["bert"], "gpu_type": ["A100"], "gpus": [1],
        ...                         "work_per_s": [3.0]}),
        ... )
        >>> problem
        Problem('frames', jobs=1, pools=1, gpus=8, objective='progress')
        """
        return cls(Snapshot.from_frames(name=name, config=config, **frames))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Problem:
        """Read the problem in a snapshot folder.

        Parameters
        ----------
        path : str or path
            Folder with jobs.csv, pools.csv, rates.csv and the optional files.

        Returns
        -------
        Problem
            The checked problem.

        Raises
        ------
        InvalidInput
            With every fault, each with file and line; or if there is no such folder.

        Examples
        --------
        >>> Problem.read("data/snapshots/demo")
        Problem('demo', jobs=12, pools=2, gpus=16, objective='progress')
        """
        return cls(read_snapshot(path))

    def change(self, values: Mapping[str, Any]) -> Problem:
        """Return the problem with some values changed.

        Parameters
        ----------
        values : mapping of str to object
            New values by place: a setting ("budget_per_hour", "horizon.rounds"), or
            TABLE.NAME.COLUMN ("pools.a100.gpus", "jobs.bert-3.weight"). None is the default.

        Returns
        -------
        Problem
            Another problem; this one stays as it is.

        Raises
        ------
        UsageError
            For a place that does not exist.
        InvalidInput
            If the new values break a rule.

        Examples
        --------
        >>> Problem.read("data/snapshots/demo").change({"pools.a100.gpus": 12})
        Problem('demo', jobs=12, pools=2, gpus=20, objective='progress')
        """
        return Problem(changed(self.snapshot, values))

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the problem as a snapshot folder.

        Parameters
        ----------
        path : str or path
            Folder, made if need be.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        AllocatorError
            If the folder cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     copy = Problem.read(Problem.read("data/snapshots/demo").write(folder))
        >>> copy.checked.pools.pool
        ('a100', 'v100')
        """
        return write_snapshot(self.snapshot, path)

    def to_workload(self) -> Workload:
        """Return the workload in which every job of the problem starts anew.

        Every job is submitted at its `submitted_s` with its `remaining_work`, and holds nothing.
        Announced changes of the pools are the changes of the workload. A job of a model without
        any rate runs at requested_gpus, at an assumed speed, as in a plan of the problem.

        Returns
        -------
        Workload
            What `simulate` runs.

        Examples
        --------
        >>> import allocator
        >>> workload = Problem.read("data/snapshots/demo").to_workload()
        >>> allocator.simulate(workload, policy="greedy").metrics["finished"]
        12
        """
        problem = self.checked
        jobs = problem.jobs.take(np.argsort(problem.jobs.submitted_s, kind="stable"))
        nothing = np.zeros(len(jobs), dtype=np.int64)
        queued = dataclasses.replace(
            jobs,
            total_work=jobs.remaining_work,
            state=np.full_like(nothing, State.QUEUED),
            pool=nothing - 1,
            gpus=nothing,
            attained_gpu_s=np.zeros(len(jobs)),
            restarts=nothing,
            largest_gpus=nothing,
            primary=nothing - 1,
            loss_work=np.full(len(jobs), np.nan),
            loss_error=np.full(len(jobs), np.nan),
        )
        start = dataclasses.replace(
            problem,
            now_s=float(jobs.submitted_s.min(initial=problem.now_s)),
            jobs=queued,
            placements=NO_PLACEMENTS,
            received=np.zeros_like(problem.received),
            announced=NO_CHANGES,
        )
        return Workload(start, problem.announced)

    @property
    def name(self) -> str:
        """Name of the problem."""
        return self.checked.name

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the rules warn of, without refusing the problem."""
        return self.checked.warnings

    def __repr__(self) -> str:
        """Summarise the problem on one line."""
        p = self.checked
        return (
            f"Problem({p.name!r}, jobs={len(p.jobs)}, pools={len(p.pools)},"
            f" gpus={int(p.pools.gpus.sum())}, objective={p.objective!r})"
        )


def as_problem(problem: Problem | Snapshot) -> Problem:
    """Return the problem itself, or that of a snapshot.

    Parameters
    ----------
    problem : Problem or Snapshot
        A checked problem, or tables that are checked now.

    Returns
    -------
    Problem
        The checked problem.

    Raises
    ------
    TypeError
        For any other object.
    InvalidInput
        If the tables of a snapshot break rules.
    """
    if not isinstance(problem, Problem | Snapshot):
        raise TypeError(
            f"a problem is a Problem or a Snapshot, not {problem!r}; Problem.read(FOLDER) reads one"
        )
    return problem if isinstance(problem, Problem) else Problem(problem)
