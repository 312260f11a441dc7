"""Slurm's lists of names and numbers: n[1-3,7],gpu02 and 0-30:10,40."""

from __future__ import annotations

import itertools
import re

from allocator.clusters.adapter import ClusterUnreachable

BRACKET = re.compile(r"\[([^\]]*)\]")
MOST_NUMBERS = 1_000_000  # of one range; more is no list of nodes or tasks


def expand_names(text: str) -> list[str]:
    """Return the names of a list of names, in its order.

    Examples
    --------
    >>> expand_names("n[1-2,08-09],r[1-2]c3")
    ['n1', 'n2', 'n08', 'n09', 'r1c3', 'r2c3']
    """
    names: list[str] = []
    for part in _split(text):
        pieces = BRACKET.split(part)
        choices = [_numerals(piece) if place % 2 else [piece] for place, piece in enumerate(pieces)]
        names += ["".join(choice) for choice in itertools.product(*choices)]
    return names


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts = re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text)
    return [part.strip() for part in parts if part.strip()]


def _numerals(text: str) -> list[str]:
    """Return the numbers of the inside of a bracket, with their leading zeros."""
    found: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if dash:
            found += [f"{i:0{len(first)}d}" for i in _range(first, last, "1", text)]
        else:
            found.append(part)
    return found


def expand_numbers(text: str) -> list[int]:
    """Return the numbers of a list of array tasks.

    Examples
    --------
    >>> expand_numbers("1-3,10-30:10")
    [1, 2, 3, 10, 20, 30]
    """
    found: list[int] = []
    for part in text.split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        found += _range(first, last or first, step or "1", text)
    return found


def _range(first: str, last: str, step: str, text: str) -> range:
    if not (first.isdecimal() and last.isdecimal() and step.isdecimal() and int(step)):
        raise ClusterUnreachable(f'Slurm\'s list "{text}" cannot be read')
    if int(last) - int(first) > MOST_NUMBERS:
        raise ClusterUnreachable(f'Slurm\'s list "{text}" is too long')
    return range(int(first), int(last) + 1, int(step))
