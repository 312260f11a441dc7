"""The solvers by name, as data. A new one is a module with a function `solve` (base.Backend) and
one line here.
"""

from __future__ import annotations

import difflib
import importlib.metadata
from dataclasses import dataclass

from allocator.errors import UsageError
from allocator.solvers.base import Solver
from allocator.solvers.isolation.isolated import Isolated
from formulations.model.linear import AT_MOST_ONE, LinearModel


@dataclass(frozen=True)
class SolverEntry:
    """A back end: the module that holds it and the distribution it needs."""

    module: str
    distribution: str


BRANCH_AND_CUT_JOBS = 300  # up to here HiGHS on the whole model is as quick, and proves more


SOLVERS = {
    "highs": SolverEntry("allocator.solvers.highs", "highspy"),
    "decomposition": SolverEntry("allocator.solvers.decomposition.solve", "highspy"),
    "cpsat": SolverEntry("allocator.solvers.cpsat", "ortools"),
    "pulp": SolverEntry("allocator.solvers.pulp_reference", "pulp"),
}


def names() -> tuple[str, ...]:
    """All solvers that may be asked for; "auto" chooses one of them."""
    return ("auto", *SOLVERS)


def get(name: str) -> Solver:
    """The solver of that name, in worker processes. Raises UsageError; "auto" is resolved by
    `choose`.
    """
    entry = _entry(name)
    if available(name) is None:
        raise UsageError(f'solver "{name}" needs {entry.distribution}, which is not installed')
    return Isolated(name, entry.module)


def find(name: str) -> Solver | None:
    """`get`, or None for "auto": whoever needs a solver chooses it then. Raises UsageError."""
    return None if name == "auto" else get(name)


def prewarm(name: str) -> None:
    """Start a worker for a solver in the background. Raises UsageError on unknown names."""
    Isolated(name, _entry(name).module).prewarm()


def available(name: str) -> str | None:
    """The installed version of the library a solver needs, None if there is none; found without
    importing it.
    """
    try:
        return importlib.metadata.version(_entry(name).distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def choose(model: LinearModel) -> tuple[str, str]:
    """(solver, why) for "auto", by size and structure; measured in docs/solvers.md."""
    jobs = sum(len(f.labels) for f in model.families if f.kind == AT_MOST_ONE)
    if jobs > BRANCH_AND_CUT_JOBS:
        return "decomposition", f"prices and columns for {jobs} jobs"
    return "highs", f"branch and cut on {model.n} columns"


def _entry(name: str) -> SolverEntry:
    if name in SOLVERS:
        return SOLVERS[name]
    near = difflib.get_close_matches(name, names(), 1)
    meant = f'; did you mean "{near[0]}"?' if near else ""
    raise UsageError(f'unknown solver "{name}"{meant} (known: {", ".join(names())})')
