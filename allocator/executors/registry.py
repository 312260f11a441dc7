"""The executors by name: those of the package, registered ones, and those of plugins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path

from allocator.errors import UsageError
from allocator.loop.executor import Executor
from allocator.plugins import Registry

DRY_RUN = "dry-run"


@dataclass(frozen=True)
class ExecutorSite:
    """The site for which an executor is made.

    Parameters
    ----------
    folder : Path
        Folder for the state that the executor keeps.
    gpus : mapping of str to int
        GPUs of each pool of the queue.
    nodes : mapping of str to (str, int)
        Pool and GPUs of each node, whatever its state.
    grace_s : float
        Seconds for a checkpoint between the request to stop and the kill.
    devices : str, optional
        GPU indices of each pool or node, as the user wrote them.

    Examples
    --------
    >>> ExecutorSite(Path("state"), {"a100": 8}, grace_s=60.0).gpus
    {'a100': 8}
    """

    folder: Path
    gpus: Mapping[str, int]
    grace_s: float = 60.0
    devices: str | None = None
    nodes: Mapping[str, tuple[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class ExecutorEntry:
    """How an executor is made, and what its users may choose.

    Parameters
    ----------
    make : callable
        Function from an `ExecutorSite` to an `Executor`.
    takes_devices : bool
        The user may choose GPU indices.

    Examples
    --------
    >>> from allocator.executors.files import FilesExecutor
    >>> ExecutorEntry(lambda site: FilesExecutor(site.folder)).takes_devices
    False
    """

    make: Callable[[ExecutorSite], Executor]
    takes_devices: bool = False


def _in_folder(module: str, name: str, site: ExecutorSite) -> Executor:
    """Make a built-in executor whose state is a folder."""
    kind = getattr(import_module(f"allocator.executors.{module}"), name)
    executor: Executor = kind(site.folder, site.grace_s)
    return executor


def _local(site: ExecutorSite) -> Executor:
    from allocator.executors.local import LocalExecutor, device_map, device_numbers

    pool_of = {node: pool for node, (pool, _) in site.nodes.items()}
    numbers: dict[str, int] = {}
    for name, gpus in site.gpus.items():
        nodes = {node: n for node, (pool, n) in site.nodes.items() if pool == name}
        twice = (numbers.keys() | site.gpus.keys() - {name}) & nodes.keys()
        if twice:
            raise UsageError(f'"{min(twice)}" is the name of a pool and of a node of another pool')
        numbers |= nodes or {name: gpus}
    devices = device_numbers(numbers) if site.devices is None else device_map(site.devices, numbers)
    return LocalExecutor(site.folder, devices, site.grace_s, pool_of)


EXECUTORS: Mapping[str, ExecutorEntry] = {
    "files": ExecutorEntry(partial(_in_folder, "files", "FilesExecutor")),
    "kubernetes": ExecutorEntry(partial(_in_folder, "kubernetes.executor", "KubernetesExecutor")),
    "local": ExecutorEntry(_local, takes_devices=True),
    "ray": ExecutorEntry(partial(_in_folder, "ray.executor", "RayExecutor")),
    "slurm": ExecutorEntry(partial(_in_folder, "slurm.executor", "SlurmExecutor")),
}


def _entry(part: object) -> ExecutorEntry:
    """Turn a function, a class or an entry into an entry. Raises TypeError."""
    if isinstance(part, ExecutorEntry):
        return part
    if not callable(part):
        raise TypeError(
            f"an executor is a function of a ExecutorSite or an ExecutorEntry, not {part!r}"
        )
    return ExecutorEntry(part)


REGISTRY = Registry(
    "executor", "allocator.executors", EXECUTORS, lambda point: _entry(point.load()), (DRY_RUN,)
)


def make_executor(name: str, site: ExecutorSite) -> Executor:
    """Make the executor of a name.

    Raises
    ------
    UsageError
        For an unknown name, if devices are given and the executor takes none, or if the queue has
        nodes and the executor does not put jobs on the nodes of an order.
    """
    entry = REGISTRY.get(name)
    if site.devices is not None and not entry.takes_devices:
        raise UsageError(f'--devices is of the executor "local", not of "{name}"')
    executor = entry.make(site)
    if site.nodes and not executor.capabilities.pins_nodes:
        raise UsageError(
            f'the queue has nodes ("{min(site.nodes)}"), and executor "{name}" does not put jobs on'
            " the nodes that a plan names: its capability pins_nodes is false. Use another"
            " executor, or remove the nodes with `allocator queue node remove`"
        )
    return executor


def register_executor(
    name: str, executor: Callable[[ExecutorSite], Executor] | ExecutorEntry
) -> None:
    """Make an executor known by a name in this process.

    Parameters
    ----------
    name : str
        Name for `--executor`.
    executor : callable or ExecutorEntry
        Function or class that makes the executor of a `ExecutorSite`.

    Raises
    ------
    UsageError
        If the package has an executor of that name.

    Examples
    --------
    >>> import allocator
    >>> from allocator.executors.files import FilesExecutor
    >>> allocator.register_executor("mine", lambda site: FilesExecutor(site.folder))
    """
    REGISTRY.add(name, _entry(executor))
