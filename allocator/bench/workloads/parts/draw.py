"""Draws that the generators share: durations by quantiles, elastic ranges, arrivals, offered load.

Each function works on numpy arrays of all jobs, and takes the random generator as an argument.
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
    """Draw `count` keys in proportion to their shares."""
    weights = np.array(list(share.values()))
    return rng.choice(np.array(list(share), np.int64), count, p=weights / weights.sum())


def draw_in_strata(rng: Rng, share: Mapping[int, float], weight: Floats | Ints) -> Ints:
    """Draw one key per entry of `weight`, so that total weights are in proportion to the shares.

    They are exact to within one entry.
    """
    weights = np.array(list(share.values()))
    ends = np.cumsum(weights / weights.sum())
    place = np.minimum(np.searchsorted(ends, _strata(rng, weight), side="right"), len(ends) - 1)
    return np.array(list(share), np.int64)[place]


def scores_in_strata(rng: Rng, weight: Floats | Ints) -> Floats:
    """Draw standard normal values, one per entry, each from its own slice of the distribution.

    The probability of a slice is the share of the entry in the weight. Slices are in random order.
    """
    return np.asarray(ndtri(np.clip(_strata(rng, weight), 1e-9, 1.0 - 1e-9)))


def lognormal_in_strata(rng: Rng, median: float, sigma: float, count: int) -> Floats:
    """Draw log-normal values, each from its own slice of the distribution, all equally probable."""
    return median * np.exp(sigma * scores_in_strata(rng, np.ones(count)))


def _strata(rng: Rng, weight: Floats | Ints) -> Floats:
    """Draw uniform values that together cover (0, 1).

    The unit interval is cut into pieces in random order.
    """
    order = rng.permutation(len(weight))
    out = np.empty(len(weight))
    out[order] = (np.cumsum(weight[order]) - rng.random(len(weight)) * weight[order]) / max(
        weight.sum(), 1
    )
    return out


def duration_s(gpus: Ints, normal: Floats, longest_s: float) -> Floats:
    """Return durations in seconds with Philly's quantiles given the number of GPUs, shape (J,).

    Between the measured quantiles ln(duration) is linear in the normal score, so that each piece is
    a piece of a log-normal distribution. Sizes that were not measured use the nearest measured one.

    Parameters
    ----------
    gpus : (J,).
    normal : standard normal draws, one per job. Equal draws give equal durations; correlated draws
    give a sweep.
    longest_s : the largest duration.
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
    """Draw log-normal values; those above `most` become `most`."""
    return np.minimum(median * np.exp(rng.normal(0.0, sigma, count)), most)


def log_uniform(rng: Rng, low: float, high: float, count: int) -> Floats:
    return np.exp(rng.uniform(np.log(low), np.log(high), count))


def curve_c(rng: Rng, count: int) -> Floats:
    """Draw overheads c of the speed curve t1 n / (1 + c (n - 1)).

    They are log-uniform over the measured range, with four digits.
    """
    return round_digits(log_uniform(rng, *CURVE_C, count), 4)


def elastic_max(rng: Rng, requested: Ints, most: int) -> Ints:
    """Draw max_gpus: 1, 2 or 4 times the request with probability .3, .3 and .4.

    It is at most `most`, but never below the request.
    """
    wide = requested * rng.choice(np.array([1, 2, 4]), len(requested), p=[0.3, 0.3, 0.4])
    return np.asarray(np.maximum(np.minimum(wide, most), requested), np.int64)


def arrivals(rng: Rng, intensity: Floats, step_s: float, count: int) -> Floats:
    """Draw `count` submission times in order, from a Poisson process given that so many happen.

    `intensity` is the relative rate of consecutive slots of `step_s` seconds from time 0. All slots
    together are the window.
    """
    edges = np.arange(len(intensity) + 1) * step_s
    mass = np.concatenate([[0.0], np.cumsum(intensity)])
    return np.asarray(np.interp(np.sort(rng.uniform(0.0, mass[-1], count)), mass, edges))


def round_digits(x: Floats, count: int) -> Floats:
    """Round to `count` significant digits.

    This keeps files short. It also makes bytes equal on machines whose logarithms differ in the
    last digit.
    """
    return np.array([float(f"{v:.{count}g}") for v in x.tolist()])


def names(count: int, prefix: str = "job") -> list[str]:
    width = max(3, len(str(count)))
    return [f"{prefix}-{i:0{width}d}" for i in range(1, count + 1)]


def overhead_rate(rate_1: Floats, c: Floats, gpus: Ints) -> Floats:
    """Return rate_1 n / (1 + c (n - 1)), work per second."""
    return rate_1 * gpus / (1.0 + c * (gpus - 1.0))


def speed_ups(
    model: list[str], requested: Ints, gpu_type: str, curves: Mapping[str, Sequence[Any]]
) -> Floats:
    """Return the speed of each job at its request on a type over that on a V100, shape (J,).

    The curves are models.csv of kind overhead.
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
    """Return the longest run at the requested size in seconds.

    The default is half of a window of `days` days, at most a week.
    """
    return 3_600.0 * (min(12.0 * days, 168.0) if longest_h is None else longest_h)


def window_s(gpu_seconds: float, gpus: float, load: float) -> float:
    """Return the length of the window in which demand / available GPU-seconds is exactly `load`."""
    return gpu_seconds / (gpus * load)


def cluster_gpus(gpu_seconds: float, window: float, load: float, node: int, fewest: int) -> int:
    """Return GPUs in whole nodes, at least `fewest`, on which the demand is about this load."""
    return max(fewest, node * round(gpu_seconds / (window * load) / node))
