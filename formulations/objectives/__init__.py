"""Objectives: the value of an option of a job to the plan, one definition in one file each.

A module of this package that is named like an objective defines it as `OBJECTIVE`: its formula, its
letters, its source, its constants and its arithmetic over arrays. Options, the audit, the horizon
and explanations all use that definition. To add one, write its file and put its name on the list
`BUILT_IN`; to add one from outside the package, call `register`.

A module is imported when its objective is first asked for, so that a list of names costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from formulations.model.linear import Floats
    from formulations.objectives.context import Context

BUILT_IN = (
    "progress",
    "throughput",
    "response",
    "cost",
    "completion",
    "tardiness",
    "utility",
    "fairness",
    "maxmin",
    "makespan",
    "flow",
)


@dataclass(frozen=True)
class Objective:
    """An objective: the value of options, and what the rest of the program has to know about it.

    Parameters
    ----------
    name : str
        Name in `objective = "..."`. Letters, digits and underscores.
    value : callable
        Values (n,) of the options of a `Context`, before the price of money. Waiting has value 0.
    counts_losses : bool
        Whether its speeds are what revocations and checkpoints leave.
    counts_dollars : bool
        Whether it counts dollars itself, whatever the price of money.
    counts_deadlines : bool
        Whether deadlines change its values.
    linear : callable, optional
        Values (J,) of a unit of work and of an hour by which a job ends earlier. Given if values
        are linear in work and time, which the look ahead needs.
    largest_term : callable, optional
        An upper bound (J,) of the terms whose difference is a value. Given if these may be so much
        larger than their difference that rounding shows.
    """

    name: str
    value: Callable[[Context], Floats]
    counts_losses: bool = True
    counts_dollars: bool = False
    counts_deadlines: bool = False
    linear: Callable[[Context], tuple[Floats, Floats]] | None = None
    largest_term: Callable[[Context], Floats] | None = None


_loaded: dict[str, Objective] = {}


def register(objective: Objective) -> None:
    """Make an objective known by its name.

    Raises
    ------
    ValueError
        If another objective has that name.
    """
    if not objective.name.isidentifier():
        raise ValueError(f"{objective.name!r} is no name of an objective")
    known = _loaded.get(objective.name)
    if objective.name in BUILT_IN or known not in (None, objective):
        raise ValueError(f"there is an objective {objective.name!r} already")
    _loaded[objective.name] = objective


def objective_names() -> tuple[str, ...]:
    """Return the names of all known objectives, those of the package first."""
    return (*BUILT_IN, *(name for name in _loaded if name not in BUILT_IN))


def get_objective(name: str) -> Objective:
    """Return the objective of that name.

    Raises
    ------
    KeyError
        If no objective has that name.
    """
    if name not in _loaded and name in BUILT_IN:
        _loaded[name] = import_module(f"{__name__}.{name}").OBJECTIVE
    return _loaded[name]
