"""What `objective` may say: a name, a weighted sum of names, or several of these, the most
important first.

    completion              completion=1,cost=0.2              tardiness > completion=1,cost=0.2

A factor that is not written is 1. Names and their meaning: formulations/objectives.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from allocator.domain.findings import did_you_mean, quote
from allocator.domain.schema.columns import LEAST_NUMBER, MOST_NUMBER
from formulations.objectives import Objective, get_objective, objective_names

Terms = tuple[tuple[str, float], ...]  # names, each once, and their factors
PLAIN = re.compile(r"[0-9.eE+-]+")
# more would drown in the gap: each counts for a hundredth of the one before
MOST_LEVELS = 3


@lru_cache(maxsize=256)
def parse_levels(text: str) -> tuple[Terms, ...]:
    """The weighted sums of an objective, the most important first; raises ValueError that says
    what is wrong.
    """
    parts = text.split(">")
    if len(parts) > MOST_LEVELS:
        raise ValueError(f"{quote(text)} has more than {MOST_LEVELS} levels")
    return tuple(_terms(text, part) for part in parts)


def normalise(text: str) -> str:
    """The one way to write the same objective; raises ValueError as `parse_levels`."""
    return " > ".join(
        (
            terms[0][0]
            if len(terms) == 1 and terms[0][1] == 1.0
            else ",".join(f"{name}={factor!r}".removesuffix(".0") for name, factor in terms)
        )
        for terms in parse_levels(text)
    )


def names(text: str) -> tuple[str, ...]:
    """Every name in it, in order."""
    return tuple(name for terms in parse_levels(text) for name, _ in terms)


def objectives(text: str) -> tuple[Objective, ...]:
    """Return every objective in it, in order."""
    return tuple(get_objective(name) for name in names(text))


def sums(text: str) -> tuple[tuple[tuple[Objective, float], ...], ...]:
    """Return the weighted sums of objectives, the most important first."""
    return tuple(
        tuple((get_objective(name), factor) for name, factor in terms)
        for terms in parse_levels(text)
    )


def _terms(text: str, part: str) -> Terms:
    found: dict[str, float] = {}
    for item in part.split(","):
        name, equals, number = (word.strip() for word in item.partition("="))
        known = objective_names()
        if name not in known:
            hint = did_you_mean(name, known) or f" (known: {', '.join(known)})"
            raise ValueError(f"{quote(name)} is not known{hint}")
        if name in found:
            raise ValueError(f"{quote(text)} names {name} twice in a sum")
        found[name] = _factor(number, text) if equals else 1.0
    return tuple(found.items())


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
