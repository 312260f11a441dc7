"""Objectives: the value of an option of a job to the plan, one definition in one file each.

A module of this package that is named like an objective defines it as `OBJECTIVE`: its formula, its
letters, its source, its constants and its arithmetic over arrays. Options, the audit, the horizon
and explanations all use that definition. To add one, write its file and put its name on the list
`BUILT_IN`; docs/extending.md says how to add one from outside the package.

A module is imported when its objective is first asked for, so that a list of names costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
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

    Examples
    --------
    >>> import numpy as np
    >>> served = Objective("served", lambda c: np.where(c.done > 0, c.weight, 0.0))
    >>> served.counts_dollars
    False
    """

    name: str
    value: Callable[[Context], Floats]
    counts_losses: bool = True
    counts_dollars: bool = False
    counts_deadlines: bool = False
    linear: Callable[[Context], tuple[Floats, Floats]] | None = None
    largest_term: Callable[[Context], Floats] | None = None


@cache
def get_objective(name: str) -> Objective:
    """Return an objective of the package.

    Raises
    ------
    KeyError
        If the package has none of that name.
    """
    if name not in BUILT_IN:
        raise KeyError(name)
    objective: Objective = import_module(f"{__name__}.{name}").OBJECTIVE
    return objective
