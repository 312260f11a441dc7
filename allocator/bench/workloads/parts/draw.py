"""Draws that the generators share: durations by quantiles, elastic ranges, arrivals, offered load.

All on numpy arrays of all jobs at once; a Generator is always an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from allocator.bench.workloads.parts.measured import (
    CURVE_C,
    PHILLY_DURATION_S,
    QUANTILES,
    SHORTEST_S,
)
from allocator.domain.problem import Floats, Ints

Rng = np.random.Generator


def draw_keys(rng: Rng, share: Mapping[int, float], count: int) -> Ints:
    """`count` draws of the keys, in proportion to their shares."""
    weights = np.array(list(share.values()))
    return rng.choice(np.array(list(share), np.int64), count, p=weights / weights.sum())


def draw_in_strata(rng: Rng, share: Mapping[int, float], weight: Floats | Ints) -> Ints:
    """As `draw_keys`, one key per entry of `weight`, but the keys' total weights are in proportion
    to the shares, to within one entry."""
    weights = np.array(list(share.values()))
    ends = np.cumsum(weights / weights.sum())
    place = np.minimum(np.searchsorted(ends, _strata(rng, weight), side="right"), len(ends) - 1)
    return np.array(list(share), np.int64)[place]


def scores_in_strata(rng: Rng, weight: Floats | Ints) -> Floats:
    """Standard normal draws, each from a slice of its own as likely as its share of the weight,
    in random order.
    """
    return np.asarray(ndtri(np.clip(_strata(rng, weight), 1e-9, 1.0 - 1e-9)))


def _strata(rng: Rng, weight: Floats | Ints) -> Floats:
    """Uniform draws that together cover (0, 1): the unit interval is cut into pieces in random
    order.
    """
    order = rng.permutation(len(weight))
    out = np.empty(len(weight))
    out[order] = (np.cumsum(weight[order]) - rng.random(len(weight)) * weight[order]) / max(
        weight.sum(), 1
    )
    return out


def duration_s(gpus: Ints, normal: Floats, longest_s: float) -> Floats:
    """Durations with Philly's quantiles given the number of GPUs, shape (J,), seconds, at most
    longest_s.

    normal: standard normal draws, one per job; equal draws give equal durations, correlated ones a
    sweep. Between the measured quantiles ln(duration) is linear in the normal score, so each piece
    is a piece of a log-normal. Sizes that were not measured use the nearest measured one.
    """
    out = np.empty(len(gpus))
    measured = np.array(list(PHILLY_DURATION_S))
    nearest = measured[np.abs(np.log2(measured)[:, None] - np.log2(gpus)).argmin(axis=0)]
    score = np.array([-4.0, *ndtri(np.array(QUANTILES)), 4.0])
    for k, quantiles in PHILLY_DURATION_S.items():
        here = nearest == k
        log = np.log([SHORTEST_S, *quantiles])
        out[here] = np.exp(np.interp(normal[here], score, log))
    return np.minimum(out, longest_s)


def truncated_lognormal(rng: Rng, median: float, sigma: float, most: float, count: int) -> Floats:
    """Log-normal draws; those above `most` are `most`."""
    return np.minimum(median * np.exp(rng.normal(0.0, sigma, count)), most)


def log_uniform(rng: Rng, low: float, high: float, count: int) -> Floats:
    return np.exp(rng.uniform(np.log(low), np.log(high), count))


def curve_c(rng: Rng, count: int) -> Floats:
    """Overheads c of the speed curve t1 n / (1 + c (n - 1)), log-uniform over the measured
    range, four digits.
    """
    return round_digits(log_uniform(rng, *CURVE_C, count), 4)


def elastic_max(rng: Rng, requested: Ints, most: int) -> Ints:
    """max_gpus = 1, 2 or 4 times the request (three, three and four in ten), at most `most` but
    never below it.
    """
    wide = requested * rng.choice(np.array([1, 2, 4]), len(requested), p=[0.3, 0.3, 0.4])
    return np.asarray(np.maximum(np.minimum(wide, most), requested), np.int64)


def arrivals(rng: Rng, intensity: Floats, step_s: float, count: int) -> Floats:
    """`count` submission times in order, from a Poisson process given that so many happen.

    intensity: relative rate of consecutive slots of step_s seconds, from time 0; they all together
    are the window.
    """
    edges = np.arange(len(intensity) + 1) * step_s
    mass = np.concatenate([[0.0], np.cumsum(intensity)])
    return np.asarray(np.interp(np.sort(rng.uniform(0.0, mass[-1], count)), mass, edges))


def round_digits(x: Floats, count: int) -> Floats:
    """Rounded to so many significant digits, so that files stay short and bytes equal on machines
    whose logarithms differ in the last place."""
    return np.array([float(f"{v:.{count}g}") for v in x.tolist()])


def names(count: int, prefix: str = "job") -> list[str]:
    width = max(3, len(str(count)))
    return [f"{prefix}-{i:0{width}d}" for i in range(1, count + 1)]


def overhead_rate(rate_1: Floats, c: Floats, gpus: Ints) -> Floats:
    """rate_1 n / (1 + c (n - 1)), work per second."""
    return rate_1 * gpus / (1.0 + c * (gpus - 1.0))


def speed_ups(
    model: list[str], requested: Ints, gpu_type: str, curves: Mapping[str, Sequence[Any]]
) -> Floats:
    """Speed of each job at its request on a type / on a V100, shape (J,), from models.csv of
    kind overhead.
    """
    known = {
        (m, t): q
        for m, t, q in zip(curves["model"], curves["gpu_type"], curves["parameters"], strict=True)
    }
    place = {m: i for i, m in enumerate(dict.fromkeys(model))}
    which = np.array([place[m] for m in model])

    def rates(t: str) -> Floats:
        rate_1, c = np.array([(known[m, t]["rate_1"], known[m, t]["c"]) for m in place]).T
        return overhead_rate(rate_1[which], c[which], requested)

    return rates(gpu_type) / rates("V100")


def longest_s(days: int, longest_h: float | None) -> float:
    """Longest run at the request, seconds: as asked, else half of a window of so many days, a
    week at most.
    """
    return 3_600.0 * (min(12.0 * days, 168.0) if longest_h is None else longest_h)


def window_s(gpu_seconds: float, gpus: float, load: float) -> float:
    """Length of the window in which GPU-seconds demanded / GPU-seconds there are is exactly
    `load`.
    """
    return gpu_seconds / (gpus * load)


def cluster_gpus(gpu_seconds: float, window: float, load: float, node: int, fewest: int) -> int:
    """GPUs in whole nodes, `fewest` at least, on which so much demand in so long a window is
    about this load.
    """
    return max(fewest, node * round(gpu_seconds / (window * load) / node))
