"""Ways to keep workers in step, read a second time: sums over all cases, in plain numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Row = dict[str, Any]


def read(text: str) -> tuple[str, float]:
    """Kind and number of "backup:2"."""
    kind, _, number = text.partition(":")
    return kind, float(number or kind == "asynchronous")


def listed(j: Row) -> list[str]:
    """The modes that a job may run in."""
    return list(j["modes"]) or ["bulk" if j["synchronous"] else "asynchronous"]


def slowest(up: list[list[float]]) -> float:
    """Mean largest of the smallest of exponentials of mean 1. up: for each gradient, the chances of
    0, 1, 2 .. workers on it. The integral of (1 - product of (1 - sum p_a s^a)) / s is one of a
    polynomial, whose coefficients are multiplied out."""
    late = np.ones(1)
    for chances in up:
        late = np.convolve(late, [1.0, *(-p for p in chances[1:])])
    return -math.fsum(q / i for i, q in enumerate(late.tolist()) if i)


def pace(text: str, n: int, c: float, away: int = 0) -> float:
    """Work of n workers, `away` of which are not there, as a share of that of even ones."""
    kind, x = read(text)
    if kind == "asynchronous":
        return x * (n - away) / n
    if kind == "replicated":
        if n % x or away:
            return 0.0
        alone = [*[0.0] * int(x), 1.0]
        return 1 / x / (1 - c + c * slowest([alone] * (n // int(x))))
    k = int(x)
    if n <= k or away > k:
        return 0.0
    # of those who are there the n - k fastest count: gaps between order statistics
    there = n - away
    return (n - k) / n / (1 - c + c * sum(1 / (there - i) for i in range(n - k)))


def long_run(text: str, n: int, c: float, per_s: float, away_s: float) -> tuple[float, float]:
    """Mean pace, 0 while too few are there, and stops a second in which the job works."""
    kind, x = read(text)
    down = per_s * away_s / (1 + per_s * away_s)
    if kind == "backup":
        chance = [math.comb(n, m) * down**m * (1 - down) ** (n - m) for m in range(int(x) + 1)]
        mean = math.fsum(p * pace(text, n, c, m) for m, p in enumerate(chance))
        return mean, chance[-1] * (n - x) * per_s / sum(chance)
    r, groups = int(x), n // int(x)
    lives = [math.comb(r, a) * (1 - down) ** a * down ** (r - a) for a in range(r + 1)]
    some = 1 - lives[0]
    step = 1 - c + c * slowest([[0.0, *(p / some for p in lives[1:])]] * groups)
    return some**groups / r / step, groups * lives[1] * per_s / some


def best(j: Row, p: Row, k: int, share: Callable[[str], float]) -> tuple[str, float]:
    """The mode of an option, with its pace. share(mode) -> phi, what is left of its pace."""
    found, most = ("", 0.0), -1.0
    for text in listed(j):
        speed = pace(text, k, p["straggler_cv"])
        if speed and speed * share(text) > most:
            found, most = (text, speed), speed * share(text)
    return found
