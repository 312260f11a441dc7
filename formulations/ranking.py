"""One value of every option from several objectives, the most important first: each next one may
cost those before it at most a small, stated part of what they could be worth. Formulas:
formulations/README.md, "Several objectives"."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from formulations.linear import Floats, Ints

# of the most that an objective could be worth is what all after it may cost it
GIVEN_UP = 0.01
HALVINGS = 200  # of the price of a GPU: more than a float has digits


def ranked(values: Sequence[Floats], factors: Sequence[float]) -> Floats:
    """(n,) v_1 + s_2 (v_2 + s_3 (v_3 + ...)) for values v_i (n,), in units of the first, and
    factors s_2, s_3, ...
    """
    value = np.asarray(values[-1], dtype=np.float64)
    for v, s in zip(reversed(values[:-1]), reversed(factors), strict=True):
        value = v + s * value
    return value


def factors(values: Sequence[Floats], start: Ints, gpus: Ints, total: int) -> list[float]:
    """The factors s_2, s_3, ... of `ranked` for values v_i (n,).

    start (J+1,): options of job j are start[j] .. start[j+1]; at most one each is chosen; gpus (n,)
    of them, no more than `total` in all. U(v) = most(v) + most(-v): two plans differ in v by no
    more. s_2 = GIVEN_UP U(v_1) / U(w) where w is the bracket, so a plan that is best in the sum
    misses the best v_1 by at most GIVEN_UP U(v_1), and of two plans equal in v_1 the one with more
    w is the better. The same for every further bracket.
    """

    def apart(v: Floats) -> float:
        return most(start, v, gpus, total) + most(start, -v, gpus, total)

    value, found = np.asarray(values[-1], dtype=np.float64), []
    for v in reversed(values[:-1]):
        reach, own = apart(value), apart(v)
        found.append(GIVEN_UP * own / reach if own > 0 and reach > 0 else 1.0)
        value = v + found[-1] * value
    return found[::-1]


def most(start: Ints, value: Floats, gpus: Ints, total: int) -> float:
    """No choice of at most one option a job, with no more than `total` GPUs, is worth more than
    this.

    The least of price x total + sum over the jobs of max(0, value - price x gpus) over prices >= 0
    of a GPU: convex in the price, found by halving.
    """
    some = np.flatnonzero(np.diff(start))
    if not len(some):
        return 0.0
    first = start[:-1][some]

    def bound(price: float) -> tuple[float, bool]:
        """Its value, and whether the choices at this price take more GPUs than there are."""
        gain = value - price * gpus
        best = np.maximum(0.0, np.maximum.reduceat(gain, first))
        taken = np.minimum.reduceat(
            np.where(gain >= np.repeat(best, np.diff(start)[some]), gpus, total + 1), first
        )
        return price * total + float(best.sum()), int(taken[best > 0].sum()) > total

    low, high = 0.0, float(np.max(value / np.maximum(gpus, 1), initial=0.0))
    least, over = bound(low)
    if not over:
        return least
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        found, over = bound(middle)
        least = min(least, found)
        low, high = (middle, high) if over else (low, middle)
    return least
