"""The few configurations to measure next, to learn how fast a new job runs.

First come the corners: the smallest size with its smallest and largest batch, and the largest size
with its largest batch. Then come the configurations that could change the choice most for the cost
of the try: the knowledge gradient of independent beliefs (Frazier, Powell and Dayanik 2008). With
y_i ~ N(m_i, s_i^2) the logarithm of the quantity to minimise, and b the best so far,

    gain of i = E max(0, y_b - y_i) = s f(d / s),   f(z) = phi(z) - z Phi(-z),   d = m_i - m_b

For b itself, d is the distance of the runner-up. Tries are made as long as the gain is above the
price of the try in the same logarithms, the largest gain per price first.
"""

from __future__ import annotations

import math

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints

LEAST = 1e-4  # smaller gains count as 0
MOST = 8  # largest number of tries in a plan
# range in doublings of the error of a fitted model, and error of one measurement
REACH = 1.5
NOISE = 0.03


def find_corners(group: Ints, gpus: Ints, batch: Ints) -> list[int]:
    """Return up to three extreme configurations of each group (GPU type), small sizes first.

    group, gpus and batch are (n,). The largest size with its smallest batch would be the fourth
    corner. It is expensive, and hardly ever near the best.
    """
    out: list[int] = []
    for g in np.unique(group).tolist():
        of_group = group == g
        small, large = (
            np.flatnonzero(of_group & (gpus == k))
            for k in (gpus[of_group].min(), gpus[of_group].max())
        )
        out += [
            int(small[np.argmin(batch[small])]),
            int(small[np.argmax(batch[small])]),
            int(large[np.argmax(batch[large])]),
        ]
    return list(dict.fromkeys(out))


def expected_gain(mean: Floats, deviation: Floats) -> Floats:
    """Return the expected decrease of the least y, in logarithms, by measuring each i, (n,)."""
    if len(mean) < 2:
        return np.zeros(len(mean))
    best, second = np.argsort(mean, kind="stable")[:2]
    distance = mean - mean[best]
    distance[best] = mean[second] - mean[best]
    s = np.maximum(deviation, 1e-12)
    z = distance / s
    density = np.exp(-0.5 * np.minimum(z, 38.0) ** 2) / math.sqrt(2.0 * math.pi)
    tail = np.array([0.5 * math.erfc(v / math.sqrt(2.0)) for v in z.tolist()])
    return np.asarray(np.maximum(0.0, s * (density - z * tail)), np.float64)


def prediction_deviation(gpus: Ints, seen: Ints, spread: float) -> Floats:
    """Return the deviation of the log speed at sizes after the sizes seen (m,) were measured, (n,).

    It is that of a Gaussian process over doublings, with deviation `spread`
    where nothing was seen.
    """
    at = np.log2(gpus)[:, None]
    there = np.log2(seen)[:, None]
    cover = spread**2 * np.exp(-np.abs(there - at.T) / REACH)
    inner = spread**2 * np.exp(-np.abs(there - there.T) / REACH) + NOISE**2 * np.eye(len(seen))
    known = (cover * np.linalg.solve(inner, cover)).sum(axis=0)
    return np.asarray(np.sqrt(np.maximum(spread**2 - known, 0.0)), np.float64)


def select_trials(gains: Floats, price: Floats) -> list[int]:
    """Return the configurations whose gain is above the price of a try.

    The largest gain per price comes first. Both arrays are (n,), shares of the quantity to
    minimise.
    """
    order = np.argsort(-gains / np.maximum(price, LEAST), kind="stable")
    return [i for i in order.tolist() if gains[i] > max(float(price[i]), LEAST)]


def plan(
    group: Ints,
    gpus: Ints,
    batch: Ints,
    mean: Floats,
    deviation: Floats,
    measured: Bools,
    price: Floats,
) -> list[tuple[int, str, float]]:
    """Return the next configurations (index, "corner" or "decision", gain), at most MOST.

    Measured ones are left out.

    Parameters
    ----------
    mean, deviation : (n,)
        Of the logarithm of the quantity to minimise.
    price : (n,)
        What each try adds to it.
    """
    gains = expected_gain(mean, np.where(measured, 0.0, deviation))
    first = [i for i in find_corners(group, gpus, batch) if not measured[i]]
    then = [i for i in select_trials(gains, price) if not measured[i] and i not in first]
    chosen = [(i, "corner") for i in first] + [(i, "decision") for i in then]
    return [(i, why, float(gains[i])) for i, why in chosen[:MOST]]
