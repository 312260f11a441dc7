"""The values of the setting `objective`: one or several objectives, summed or ranked.

    completion              completion=1,cost=0.2              tardiness > completion=1,cost=0.2

The three examples are a name, a weighted sum of names, and several levels in ranked order. The most
important level comes first. A missing factor is 1. Names and their meaning:
formulations/objectives.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from allocator.domain.findings import did_you_mean, quote
from allocator.domain.schema.columns import LEAST_NUMBER, MOST_NUMBER
from allocator.errors import UsageError
from allocator.plugins import Registry
from formulations.objectives import BUILT_IN, Objective, get_objective

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Terms = tuple[tuple[str, float], ...]  # distinct names and their factors
PLAIN = re.compile(r"[0-9.eE+-]+")
# more levels would be smaller than the gap: each counts for a hundredth of the one before
MOST_LEVELS = 3


class _BuiltIn(Mapping[str, Objective]):
    """The objectives of the package; each is imported when it is first asked for."""

    def __getitem__(self, name: str) -> Objective:
        return get_objective(name)

    def __iter__(self) -> Iterator[str]:
        return iter(BUILT_IN)

    def __len__(self) -> int:
        return len(BUILT_IN)


def _load(point: EntryPoint) -> Objective:
    """Take an Objective. Raises TypeError, ValueError."""
    return _checked(point.name, point.load())


def _checked(name: str, part: object) -> Objective:
    if not isinstance(part, Objective):
        raise TypeError(f"an objective is an Objective, not {part!r}")
    if part.name != name or not name.isidentifier():
        raise ValueError(f"its name is {part.name!r}; letters, digits and underscores are allowed")
    return part


REGISTRY = Registry("objective", "allocator.objectives", _BuiltIn(), _load)


def register_objective(objective: Objective) -> None:
    """Make an objective known by its name in this process.

    Parameters
    ----------
    objective : Objective
        Its name, for `objective=` and `--objective`, and the values of options.

    Raises
    ------
    UsageError
        If the package has an objective of that name.

    Examples
    --------
    >>> import allocator, numpy as np
    >>> def value(c):
    ...     return np.where(c.done > 0, c.weight, 0.0)
    >>> allocator.register_objective(allocator.Objective("served", value))
    >>> problem = allocator.Problem.read("data/snapshots/demo")
    >>> allocator.solve(problem, objective="served").objective_value
    13.0
    """
    REGISTRY.add(objective.name, _checked(objective.name, objective))


@lru_cache(maxsize=256)
def parse_levels(text: str) -> tuple[Terms, ...]:
    """Return the weighted sums of an objective, the most important first.

    Raises ValueError with a description of the fault.
    """
    parts = text.split(">")
    if len(parts) > MOST_LEVELS:
        raise ValueError(f"{quote(text)} has more than {MOST_LEVELS} levels")
    return tuple(_terms(text, part) for part in parts)


def normalise(text: str) -> str:
    """Return the canonical text of an objective; raises ValueError as `parse_levels`."""
    return " > ".join(
        (
            terms[0][0]
            if len(terms) == 1 and terms[0][1] == 1.0
            else ",".join(f"{name}={factor!r}".removesuffix(".0") for name, factor in terms)
        )
        for terms in parse_levels(text)
    )


def names(text: str) -> tuple[str, ...]:
    """Return the names in an objective, in order."""
    return tuple(name for terms in parse_levels(text) for name, _ in terms)


def parse_objectives(text: str) -> tuple[Objective, ...]:
    """Return every objective in it, in order."""
    return tuple(REGISTRY.get(name) for name in names(text))


def parse_sums(text: str) -> tuple[tuple[tuple[Objective, float], ...], ...]:
    """Return the weighted sums of objectives, the most important first."""
    return tuple(
        tuple((REGISTRY.get(name), factor) for name, factor in terms)
        for terms in parse_levels(text)
    )


def _terms(text: str, part: str) -> Terms:
    factors: dict[str, float] = {}
    for item in part.split(","):
        name, equals, number = (word.strip() for word in item.partition("="))
        if name not in BUILT_IN:
            _check_known(name)
        if name in factors:
            raise ValueError(f"{quote(text)} names {name} twice in a sum")
        factors[name] = _factor(number, text) if equals else 1.0
    return tuple(factors.items())


def _check_known(name: str) -> None:
    """Raise ValueError where no objective has the name, or its package cannot be loaded."""
    known = REGISTRY.names()
    if name not in known:
        hint = did_you_mean(name, known) or f" (known: {', '.join(known)})"
        raise ValueError(f"{quote(name)} is not known{hint}")
    try:
        REGISTRY.get(name)
    except UsageError as error:
        raise ValueError(str(error)) from error


def _factor(number: str, text: str) -> float:
    try:
        factor = float(number) if PLAIN.fullmatch(number) else math.nan
    except ValueError:
        factor = math.nan
    if not LEAST_NUMBER <= factor <= MOST_NUMBER:
        raise ValueError(
            f"{quote(text)}: a factor must be a number above 0, and {quote(number)} is not"
        )
    return factor
