"""The solvers by name: those of the package, those that were registered, and those of plugins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from allocator.errors import UsageError
from allocator.plugins import Registry
from allocator.solvers.base import Solver
from allocator.solvers.isolation.isolated import Isolated
from formulations.model.linear import LinearModel

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True)
class SolverEntry:
    """State where a solver is found.

    Parameters
    ----------
    module : str
        Module with a function `solve` (base.Backend), imported in a worker process only.
    distribution : str
        Installed package that it needs.
    """

    module: str
    distribution: str


SOLVERS = {
    "highs": SolverEntry("allocator.solvers.highs", "highspy"),
    "cpsat": SolverEntry("allocator.solvers.cpsat", "ortools"),
    "pulp": SolverEntry("allocator.solvers.pulp_reference", "pulp"),
}


def _load(point: EntryPoint) -> SolverEntry:
    """Take a module, or its function `solve`; nothing is imported here. Raises ValueError."""
    if point.attr not in (None, "", "solve"):
        raise ValueError("a solver is a module with a function named solve")
    return SolverEntry(point.module, "" if point.dist is None else point.dist.name)


REGISTRY = Registry("solver", "allocator.solvers", SOLVERS, _load, ("auto",))


def register_solver(name: str, module: str, distribution: str) -> None:
    """Make a solver known by a name in this process.

    Parameters
    ----------
    name : str
        Name for `solver=` and `--solver`.
    module : str
        Module with a function `solve`, which a worker process imports.
    distribution : str
        Installed package that the solver needs; its version is stated in plans.

    Raises
    ------
    UsageError
        If the package has a solver of that name.

    Examples
    --------
    >>> import allocator
    >>> allocator.register_solver("highs-again", "allocator.solvers.highs", "highspy")
    >>> problem = allocator.Problem.read("data/snapshots/demo")
    >>> allocator.solve(problem, solver="highs-again").solver
    'highs-again'
    """
    REGISTRY.add(name, SolverEntry(module, distribution))


def get(name: str) -> Solver:
    """Return the solver of a name, in worker processes.

    Raises UsageError. The name "auto" is resolved by `choose`, not here.
    """
    entry = REGISTRY.get(name)
    if available(name) is None:
        raise UsageError(f'solver "{name}" needs {entry.distribution}, which is not installed')
    return Isolated(name, entry.module)


def find(name: str) -> Solver | None:
    """Return the solver of a name, or None for "auto", which is chosen later; raises UsageError."""
    return None if name == "auto" else get(name)


def available(name: str) -> str | None:
    """Return the installed version of the library that a solver needs, None if it is not installed.

    The library is not imported.
    """
    return _installed_version(REGISTRY.get(name).distribution)


@cache
def _installed_version(distribution: str) -> str | None:
    import importlib.metadata

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def choose(model: LinearModel) -> tuple[str, str]:
    """Return the solver for "auto" and the reason."""
    return "highs", f"branch and cut on {model.n} columns"
