"""The cluster adapters by name: those of the package, registered ones, and those of plugins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from allocator.clusters.adapter import ClusterAdapter
from allocator.plugins import Registry

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

MakeAdapter = Callable[[], ClusterAdapter]


def _kubernetes() -> ClusterAdapter:
    from allocator.clusters.kubernetes.adapter import KubernetesCluster

    return KubernetesCluster()


def _ray() -> ClusterAdapter:
    from allocator.clusters.ray.adapter import RayAdapter

    return RayAdapter()


def _slurm() -> ClusterAdapter:
    from allocator.clusters.slurm.adapter import SlurmAdapter

    return SlurmAdapter()


CLUSTERS: Mapping[str, MakeAdapter] = {
    "kubernetes": _kubernetes,
    "ray": _ray,
    "slurm": _slurm,
}


def _load(point: EntryPoint) -> MakeAdapter:
    return _callable(point.load())


def _callable(part: object) -> MakeAdapter:
    if not callable(part):
        raise TypeError(f"a cluster adapter is a class or a function without arguments: {part!r}")
    return part


REGISTRY = Registry("cluster", "allocator.clusters", CLUSTERS, _load)


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
    >>> from allocator.clusters.adapter import Capabilities
    >>> class Mine:
    ...     capabilities = Capabilities(pins_nodes=True)
    >>> register_cluster("mine", Mine)
    >>> get_cluster("mine").capabilities.pins_nodes
    True
    """
    REGISTRY.add(name, _callable(adapter))
