"""The cluster adapters by name: those of the package, registered ones, and those of plugins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module

from allocator.clusters.adapter import ClusterAdapter
from allocator.plugins import Registry

MakeAdapter = Callable[[], ClusterAdapter]


def _make_built_in(module: str, adapter: str) -> ClusterAdapter:
    made: ClusterAdapter = getattr(import_module(module), adapter)()
    return made


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
