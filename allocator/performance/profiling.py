"""Which few configurations to measure next, to learn how fast a new job runs.

First the corners of what is possible: smallest and largest size, each with its smallest and largest batch, from which
the forms of docs/speed-models.md can be fitted. Then what could change the choice most: the knowledge gradient of
independent beliefs (Frazier, Powell and Dayanik 2008): with y_i ~ N(m_i, s_i^2) the logarithm of what is to be small,
and b the best so far,

    gain of i = E max(0, y_b - y_i) = s f(d / s),   f(z) = phi(z) - z Phi(-z),   d = m_i - m_b

(for b itself, d is the distance of the runner-up). What a measurement teaches about its neighbours: `learned`.
"""

from __future__ import annotations

import math

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints

LEAST = 1e-4              # gains below are none
SPREAD, REACH, NOISE = 0.3, 1.5, 0.03     # of what a fitted model gets wrong: size, doublings, one measurement


def corners(group: Ints, gpus: Ints, batch: Ints) -> list[int]:
    """The up to four extreme configurations of each group (GPU type) among (n,), the smaller size first."""
    out: list[int] = []
    for g in np.unique(group).tolist():
        mine = group == g
        for size in (gpus[mine].min(), gpus[mine].max()):
            rows = np.flatnonzero(mine & (gpus == size))
            out += [int(rows[np.argmin(batch[rows])]), int(rows[np.argmax(batch[rows])])]
    return list(dict.fromkeys(out))


def gain(mean: Floats, deviation: Floats) -> Floats:
    """(n,) how much smaller the least y is expected to get, in logarithms, by measuring each i."""
    if len(mean) < 2:
        return np.zeros(len(mean))
    best, second = np.argsort(mean, kind="stable")[:2]
    distance = mean - mean[best]
    distance[best] = mean[second] - mean[best]
    s = np.maximum(deviation, 1e-12)
    z = distance / s
    density = np.exp(-0.5 * np.minimum(z, 38.0) ** 2) / math.sqrt(2.0 * math.pi)
    tail = np.array([0.5 * math.erfc(v / math.sqrt(2.0)) for v in z.tolist()])
    return np.asarray(np.maximum(0.0, s * (density - z * tail)), dtype=np.float64)


def learned(believed: Floats, x: Floats, tried: Ints, measured: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation (n,) of the logarithm of the speed after some were measured.

    believed (n,): log speed of the model; x (n, d): features, a unit = a doubling; tried (t,), measured (t,): log
    speeds. What the model gets wrong is a Gaussian process over x (as feedback.py, in several directions).
    """
    distance = np.abs(x[:, None, :] - x[None, :, :]).sum(axis=2)
    cover = SPREAD**2 * np.exp(-distance / REACH)
    inner = cover[np.ix_(tried, tried)] + NOISE**2 * np.eye(len(tried))
    weight = np.linalg.solve(inner, cover[tried])
    mean = believed + weight.T @ (measured - believed[tried])
    variance = SPREAD**2 - np.einsum("tn,tn->n", cover[tried], weight)
    return mean, np.sqrt(np.maximum(variance, 0.0))


def plan(group: Ints, gpus: Ints, batch: Ints, mean: Floats, deviation: Floats, measured: Bools,
         most: int = 8) -> list[tuple[int, str, float]]:
    """The next configurations (index, "corner" or "decision", gain), at most `most`, none that is measured already.

    mean, deviation (n,): of the logarithm of what is to be small.
    """
    gains = gain(mean, np.where(measured, 0.0, deviation))
    first = [i for i in corners(group, gpus, batch) if not measured[i]]
    then = [i for i in np.argsort(-gains, kind="stable").tolist()
            if not measured[i] and gains[i] > LEAST and i not in first]
    chosen = [(i, "corner") for i in first] + [(i, "decision") for i in then]
    return [(i, why, float(gains[i])) for i, why in chosen[:most]]
