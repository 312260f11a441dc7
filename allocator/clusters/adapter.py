"""The seam between the allocator and a cluster that others run: look at it, and write commands.

A cluster adapter has two halves. This one observes the cluster as it is, and writes a plan as
commands or patches that a person reads before they are run; it changes nothing. The other half,
which carries plans out by itself, is an executor (allocator/loop/executor.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Protocol

from allocator.errors import AllocatorError
from allocator.objects import Record
from allocator.plugins import Registry


class ClusterUnreachable(AllocatorError):
    """Report a cluster that does not answer, or whose answer makes no sense.

    Nothing is known then, and nothing may be concluded from it.

    Examples
    --------
    >>> ClusterUnreachable("squeue: no answer within 20 s").exit_code
    1
    """


class Refused(AllocatorError):
    """Report a request that a cluster answered with an error.

    Parameters
    ----------
    status : int
        Status of HTTP.
    message : str
        What the cluster said.

    Examples
    --------
    >>> Refused(409, "the object has been modified").status
    409
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Capabilities:
    """What an executor can do.

    Parameters
    ----------
    reports_progress : bool
        Its jobs are known to report their progress, so that silence means that a job is stuck.
    pins_nodes : bool
        A job runs on the nodes that the plan names.
    resizes_in_place : bool
        A running job can get another size without a stop and a start.
    shares_with_several : bool
        A job can run on the GPUs of several jobs, and on idle ones.

    Examples
    --------
    >>> Capabilities(pins_nodes=True).reports_progress
    False
    """

    reports_progress: bool = False
    pins_nodes: bool = False
    resizes_in_place: bool = False
    shares_with_several: bool = False


@dataclass(frozen=True)
class ObserveRequest:
    """State what to look at.

    Parameters
    ----------
    settings : mapping of str to object
        Settings of the adapter, as its TOML file has them.
    answers : Path, optional
        Folder of recorded answers, which are read in place of the cluster.

    Examples
    --------
    >>> ObserveRequest().answers is None
    True
    """

    settings: Record = field(default_factory=dict)
    answers: Path | None = None


@dataclass(frozen=True)
class ClusterView:
    """Hold a cluster as it was observed.

    Parameters
    ----------
    tables : mapping of str to sequence of mapping
        Rows of the tables of a snapshot by file name, "jobs.csv" and so on: values by column. An
        absent value is an empty cell.
    config : mapping of str to object
        Settings of the round, as config.toml has them.
    notes : tuple of str
        What the snapshot could not represent, and what was done instead.
    details : mapping of str to object
        What `commands` needs to know about jobs and nodes, as plain JSON: names, owners, versions.

    Examples
    --------
    >>> ClusterView({"pools.csv": [{"pool": "a", "gpu_type": "A100", "gpus": 8}]}).notes
    ()
    """

    tables: Mapping[str, Sequence[Record]]
    config: Record = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    details: Record = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedJob:
    """State what a plan gives one job of a cluster.

    Parameters
    ----------
    job_id : str
        The job in the snapshot.
    action : str
        "start", "keep", "grow", "shrink", "move", "pause" or "wait", as in plan.json.
    pool : str, optional
        Pool of its GPUs; None: it gets nothing.
    gpus : int
        GPUs that it gets.
    nodes : mapping of str to int
        GPUs by node; empty where the pool has no nodes.
    previous_pool : str, optional
        Pool of the GPUs that it held.
    previous_gpus : int
        GPUs that it held.
    reason, detail : str, optional
        Why it gets less than it could use, as in plan.json.

    Examples
    --------
    >>> PlannedJob("7", "start", "a100", 4, {"n1": 4}).previous_gpus
    0
    """

    job_id: str
    action: str
    pool: str | None = None
    gpus: int = 0
    nodes: Mapping[str, int] = field(default_factory=dict)
    previous_pool: str | None = None
    previous_gpus: int = 0
    reason: str | None = None
    detail: str | None = None


class ClusterAdapter(Protocol):
    """Observe a cluster, and write plans in its own words.

    Neither method changes the cluster.
    """

    def observe(self, request: ObserveRequest) -> ClusterView:
        """Look at the cluster.

        Raises
        ------
        UsageError
            For settings that make no sense.
        ClusterUnreachable
            If the cluster does not answer.
        """

    def commands(self, jobs: Sequence[PlannedJob], details: Record) -> Mapping[str, str]:
        """Return the files that carry a plan out, by name, in the order in which to use them.

        Parameters
        ----------
        jobs : sequence of PlannedJob
            What the plan gives every job of the snapshot.
        details : mapping of str to object
            The details of the view from which the snapshot was made.
        """


MakeAdapter = Callable[[], ClusterAdapter]


def _make_built_in(module: str, adapter: str) -> ClusterAdapter:
    cluster: ClusterAdapter = getattr(import_module(module), adapter)()
    return cluster


CLUSTERS: Mapping[str, MakeAdapter] = {
    name: partial(_make_built_in, f"allocator.clusters.{name}.adapter", adapter)
    for name, adapter in {
        "kubernetes": "KubernetesCluster",
        "ray": "RayAdapter",
        "slurm": "SlurmAdapter",
    }.items()
}


def _callable(part: object) -> MakeAdapter:
    if not callable(part):
        raise TypeError(f"a cluster adapter is a class or a function without arguments: {part!r}")
    return part


REGISTRY = Registry(
    "cluster", "allocator.clusters", CLUSTERS, lambda point: _callable(point.load())
)


def get_cluster(name: str) -> ClusterAdapter:
    """Return the adapter of a name. Raises UsageError for an unknown one."""
    return REGISTRY.get(name)()


def register_cluster(name: str, adapter: MakeAdapter) -> None:
    """Make a cluster adapter known by a name in this process.

    Parameters
    ----------
    name : str
        Name for `allocator observe NAME` and `allocator plan --as NAME`.
    adapter : callable
        Class or function without arguments that makes a `ClusterAdapter`.

    Raises
    ------
    UsageError
        If the package has an adapter of that name.

    Examples
    --------
    >>> from allocator.clusters.ray.adapter import RayAdapter
    >>> register_cluster("mine", RayAdapter)
    >>> type(get_cluster("mine")).__name__
    'RayAdapter'
    """
    REGISTRY.add(name, _callable(adapter))
