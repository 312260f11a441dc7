"""Closed-form fits of speed models that depend on the size alone, for G groups at once.

The arguments k (GPUs), rate and weight are (G, S); weight 0 means that the entry is absent. Each
fit minimises the squares of relative errors. Where the points leave the shape open, the usual
overhead and exponent are assumed (USUAL_C and USUAL_EXPONENT, docs/speed-models.md). They enter as
one weak observation, which hardly changes a fit that the points determine.

- overhead: k / rate = a + b (k - 1), linear in a and b >= 0; c = b / a. Amdahl's law has this form
  with p = 1 - c.
- iteration: 1 / rate = alpha / k + beta k + c, linear, all at least 0.
- power: log rate = log rate_1 + a log k, linear.
- capped: the first m sizes run at k rate_1, the others at the cap. Both are means of logarithms;
  every m is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from allocator.domain.problem import Floats
from allocator.performance.fit.squares import non_negative

USUAL_C = 0.05
USUAL_EXPONENT = 0.93
WEAK = 0.02
Fit = Callable[[Floats, Floats, Floats], dict[str, Floats]]


def overhead(k: Floats, rate: Floats, weight: Floats) -> dict[str, Floats]:
    y = k / rate
    scale = _mean(1.0 / y, weight)[:, None, None]
    rows = np.stack([weight / y, weight * (k - 1.0) / y], axis=2)
    shape = WEAK * scale * np.array([[-USUAL_C, 1.0]])
    x = non_negative(np.concatenate([rows, shape], axis=1), np.pad(weight, ((0, 0), (0, 1))))
    slow = np.maximum(x[:, 0], 1e-9 * x[:, 1])
    return {"rate_1": 1.0 / np.maximum(slow, 1e-300), "c": x[:, 1] / np.maximum(slow, 1e-300)}


def iteration(k: Floats, rate: Floats, weight: Floats) -> dict[str, Floats]:
    scale = _mean(rate / k, weight)[:, None, None]
    rows = np.stack([rate / k, rate * k, rate], axis=2) * weight[:, :, None]
    shape = WEAK * scale * np.array([[-USUAL_C, 0.0, 1.0], [0.0, 1.0, 0.0]])
    x = non_negative(np.concatenate([rows, shape], axis=1), np.pad(weight, ((0, 0), (0, 2))))
    return {
        "compute": np.maximum(x[:, 0], 1e-12 / scale[:, 0, 0]),
        "sync": x[:, 1],
        "constant": x[:, 2],
    }


def power(k: Floats, rate: Floats, weight: Floats) -> dict[str, Floats]:
    x = np.log(k)
    y = np.log(rate)
    w = weight**2
    total = w.sum(axis=1)
    mx = (w * x).sum(axis=1) / total
    my = (w * y).sum(axis=1) / total
    dx = x - mx[:, None]
    slope = ((w * dx * (y - my[:, None])).sum(axis=1) + WEAK**2 * USUAL_EXPONENT) / (
        (w * dx**2).sum(axis=1) + WEAK**2
    )
    slope = np.clip(slope, 0.0, 4.0)
    return {"rate_1": np.exp(my - slope * mx), "exponent": slope}


def capped(k: Floats, rate: Floats, weight: Floats) -> dict[str, Floats]:
    each = np.log(rate / k)
    level = np.log(rate)
    w = weight**2
    order = np.argsort(np.where(w > 0, k, np.inf), axis=1)
    k, each, level, w = (np.take_along_axis(v, order, axis=1) for v in (k, each, level, w))
    best = np.full(len(k), np.inf)
    out = {"rate_1": np.zeros(len(k)), "cap": np.zeros(len(k))}
    for m in range(1, k.shape[1] + 1):
        first = np.where(np.arange(k.shape[1]) < m, w, 0.0)
        rest = np.where(np.arange(k.shape[1]) < m, 0.0, w)
        rate_1 = np.exp((first * each).sum(axis=1) / np.maximum(first.sum(axis=1), 1e-300))
        most = rate_1 * np.max(np.where(w > 0, k, 0.0), axis=1) * 2.0  # no bottleneck seen
        cap = np.where(
            rest.sum(axis=1) > 0,
            np.exp((rest * level).sum(axis=1) / np.maximum(rest.sum(axis=1), 1e-300)),
            most,
        )
        wrong = (w * (np.log(np.minimum(k * rate_1[:, None], cap[:, None])) - level) ** 2).sum(
            axis=1
        )
        better = wrong < best * (1.0 - 1e-9)
        best = np.where(better, wrong, best)
        out = {
            "rate_1": np.where(better, rate_1, out["rate_1"]),
            "cap": np.where(better, cap, out["cap"]),
        }
    return out


FORMS: Mapping[str, Fit] = {
    "overhead": overhead,
    "power": power,
    "capped": capped,
    "iteration": iteration,
}


def _mean(values: Floats, weight: Floats) -> Floats:
    return np.asarray((values * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-300))
