"""How observed speeds correct believed ones.

What is learned is x = log(observed rate / believed rate) by (model, GPU type, GPUs): 0, the profile
is right.

    at one size       exponentially forgetting mean and variance of the samples (West 1979, with
                      weights that halve
                      every HALF_LIFE_S), so that speeds that drift are followed
    outliers          a sample further than REJECT deviations from the mean is not believed, unless
                      STRAYS in a row lie
                      on the same side: then the world has changed and the estimate starts anew from
                          them
    between sizes     x is a Gaussian process over log2(GPUs) with mean 0 and covariance
                      SPREAD^2 exp(-|log2 k - log2 k'| / REACH) (Rasmussen and Williams 2006, ch. 2;
                          their 4.2.1): sizes
                      near an observed one are corrected with it, those far from all fall back to
                          the profile, and the
                      deviation widens from that of the samples to SPREAD

A correction counts when it is larger than LEAST and than TRUST deviations. Pure functions; nothing
is stored here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

HALF_LIFE_S = 6 * 3600.0
REJECT = 4.0
STRAYS = 3
# least deviation of one sample: measured work comes in steps and checkpoints
NOISE = 0.05
FIRST = 0.3  # deviation of a sample where nothing is known yet
SPREAD = 0.5  # how wrong profiles are before anything was seen: a factor of 1.6
REACH = 1.5  # doublings of the size over which a correction fades by 1/e
TRUST = 2.0
LEAST = 0.02
MOST = math.log(100.0)  # a sample further off is no speed at all
MOST_WEIGHT = 50.0


@dataclass(frozen=True)
class Estimate:
    """What is remembered of one size. mean, variance: of x. weight: samples, old ones counting
    less. at_s: of the latest. strays: samples in a row that were not believed, all on one side of
    the mean."""

    mean: float = 0.0
    variance: float = FIRST**2
    weight: float = 0.0
    at_s: float = 0.0
    strays: tuple[float, ...] = ()

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Estimate:
        """The estimate of to_dict; what is missing or makes no sense is as if nothing was seen."""
        try:
            mean, variance, weight, at_s = (
                float(state[n]) for n in ("mean", "variance", "weight", "at_s")
            )
            strays = tuple(map(float, state.get("strays", ())))
        except (KeyError, TypeError, ValueError):
            return cls()
        if (
            not all(map(math.isfinite, (mean, variance, weight, at_s, *strays)))
            or variance < 0
            or weight < 0
        ):
            return cls()
        return cls(mean, variance, weight, at_s, strays)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "mean": self.mean,
            "variance": self.variance,
            "weight": self.weight,
            "at_s": self.at_s,
            "strays": list(self.strays),
        }


def decay_weight(estimate: Estimate, at_s: float) -> float:
    """The weight at a later time; clocks that go back do not make it grow."""
    return float(estimate.weight * 0.5 ** (max(0.0, at_s - estimate.at_s) / HALF_LIFE_S))


def update(estimate: Estimate, x: float, at_s: float, most: float = MOST) -> Estimate:
    """The estimate after a sample x = log(observed / believed) at at_s (seconds); beyond `most`
    it says nothing.
    """
    if not abs(x) <= most:
        return estimate
    weight = decay_weight(estimate, at_s)
    at_s = max(at_s, estimate.at_s)
    if weight < 0.5:  # nothing to compare with
        return Estimate(x, FIRST**2, 1.0, at_s)
    deviation = math.sqrt(max(NOISE**2, estimate.variance))
    if abs(x - estimate.mean) > REJECT * deviation:
        same = [s for s in estimate.strays if (s > estimate.mean) == (x > estimate.mean)]
        strays = (*same, x)
        if len(strays) < STRAYS:
            return Estimate(estimate.mean, estimate.variance, weight, at_s, strays)
        middle = float(np.median(strays))
        spread = float(np.var(strays))
        return Estimate(middle, max(NOISE**2, spread), float(len(strays)), at_s)
    total = min(weight + 1.0, MOST_WEIGHT)
    share = 1.0 / total
    mean = estimate.mean + share * (x - estimate.mean)
    variance = (1.0 - share) * (estimate.variance + share * (x - estimate.mean) ** 2)
    return Estimate(mean, variance, total, at_s)


def posterior(
    seen: Mapping[int, Estimate], sizes: Sequence[int], now_s: float
) -> dict[int, tuple[float, float]]:
    """(mean, standard deviation) of x at each of the sizes (GPUs), from estimates of one model
    on one GPU type.
    """
    known = [(k, e, decay_weight(e, now_s)) for k, e in sorted(seen.items())]
    known = [(k, e, w) for k, e, w in known if w > 1e-3]
    if not known:
        return dict.fromkeys(sizes, (0.0, SPREAD))
    at = np.log2(np.array([k for k, _, _ in known], dtype=np.float64))
    x = np.array([e.mean for _, e, _ in known])
    noise = np.array([max(NOISE**2, e.variance) / w for _, e, w in known])
    wanted = np.log2(np.array(list(sizes), dtype=np.float64))
    inner = _covariance(at, at) + np.diag(noise)
    cross = _covariance(wanted, at)
    solved = np.linalg.solve(inner, cross.T)  # (K, S)
    mean = solved.T @ x
    variance = np.maximum(0.0, SPREAD**2 - (cross * solved.T).sum(axis=1))
    return {
        k: (float(m), math.sqrt(float(v))) for k, m, v in zip(sizes, mean, variance, strict=True)
    }


def is_significant(mean: float, deviation: float) -> bool:
    """Whether a correction is large and sure enough to be made."""
    return abs(mean) > max(LEAST, TRUST * deviation)


def _covariance(
    a: np.ndarray[Any, np.dtype[np.float64]], b: np.ndarray[Any, np.dtype[np.float64]]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(SPREAD**2 * np.exp(-np.abs(a[:, None] - b[None, :]) / REACH))
