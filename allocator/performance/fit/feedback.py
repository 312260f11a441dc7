"""Correct believed speeds by observed ones.

The learned quantity is x = log(observed rate / believed rate), for each model, GPU type and size.
It is 0 if the profile is right.

- One size: mean and variance of the samples with exponential forgetting (West 1979). Weights halve
  every HALF_LIFE_S, so that the estimate follows speeds that drift.
- Outliers: a sample further than REJECT deviations from the mean is not used. If STRAYS samples in
  a row lie on the same side of the mean, the speed has changed, and the estimate starts again from
  these samples.
- Between sizes: x is a Gaussian process over log2(GPUs) with mean 0 and covariance
  OFFSET^2 + SPREAD^2 exp(-|log2 k - log2 k'| / REACH) (Rasmussen and Williams 2006, chapter 2 and
  section 4.2.1). A profile is wrong at all sizes together more than from size to size: sizes that
  were not observed are corrected as well, those near an observed one with the least deviation.

A correction is proven at a size if it is larger than LEAST and than TRUST deviations. Once it is
proven at one size, it counts at all sizes of the model and GPU type: otherwise the sizes without
proof would seem faster or slower than the others by the whole error.

A GPU type on which nothing was observed counts as faster than its profile by the doubt, the root
mean square of the corrections on the other types. So where a profile was wrong, the other types are
tried once for what that teaches (optimism under uncertainty: Lai and Robbins,
"Asymptotically efficient adaptive allocation rules", 1985), and where profiles are right nothing
is. All functions are pure: nothing is stored here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from allocator.domain.problem import Floats

HALF_LIFE_S = 6 * 3600.0
REJECT = 4.0
STRAYS = 3
# least deviation of one sample: measured work comes in steps and checkpoints
NOISE = 0.05
FIRST = 0.3  # deviation of the first sample
OFFSET = 0.5  # deviation of x at all sizes together: profiles are wrong by a factor of 1.6
SPREAD = 0.2  # deviation of x from size to size
DEVIATION = math.hypot(OFFSET, SPREAD)  # of x before any observation
REACH = 1.5  # doublings of the size over which that fades by 1/e
TRUST = 2.0
LEAST = 0.02
MOST = math.log(100.0)  # a larger sample is not plausible as a speed
MOST_WEIGHT = 50.0
T = TypeVar("T")  # what names a GPU type
K = TypeVar("K")  # what names an estimate


@dataclass(frozen=True)
class Estimate:
    """Hold what is known of x at one size.

    Attributes
    ----------
    mean, variance : float
        Of x.
    weight : float
        Number of samples, where old ones count less.
    at_s : float
        Time of the latest sample, seconds.
    strays : tuple of float
        Latest samples that were rejected in a row, all on one side of the mean.
    """

    mean: float = 0.0
    variance: float = FIRST**2
    weight: float = 0.0
    at_s: float = 0.0
    strays: tuple[float, ...] = ()

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Estimate:
        """Return the estimate of `to_dict`, or an empty one if a value is missing or invalid."""
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
        """Return plain values for JSON."""
        return {
            "mean": self.mean,
            "variance": self.variance,
            "weight": self.weight,
            "at_s": self.at_s,
            "strays": list(self.strays),
        }


def decay_weight(estimate: Estimate, at_s: float) -> float:
    """Return the weight at a later time; the weight does not grow if the clock goes back."""
    return float(estimate.weight * 0.5 ** (max(0.0, at_s - estimate.at_s) / HALF_LIFE_S))


def update(estimate: Estimate, x: float, at_s: float, most: float = MOST) -> Estimate:
    """Return the estimate after one more sample.

    Parameters
    ----------
    x : float
        log(observed rate / believed rate). A sample larger than `most` in size is ignored.
    at_s : float
        Time of the sample, seconds.
    """
    if not abs(x) <= most:
        return estimate
    weight = decay_weight(estimate, at_s)
    at_s = max(at_s, estimate.at_s)
    if weight < 0.5:  # too little is known to judge the sample
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


def update_all(
    estimates: dict[K, Estimate],
    keys: Iterable[K],
    x: Floats,
    at_s: float,
    most: float = MOST,
    prior: Mapping[K, float] = MappingProxyType({}),
) -> None:
    """Update estimates by one sample each: the median of the x (n,) of their key, less a prior."""
    samples: dict[K, list[float]] = {}
    for key, value in zip(keys, x.tolist(), strict=True):
        samples.setdefault(key, []).append(value)
    for key, seen in samples.items():
        before = estimates.get(key, Estimate())
        middle = float(np.median(seen)) - prior.get(key, 0.0)
        estimates[key] = update(before, middle, at_s, most)


def correct_model(
    seen: Mapping[T, Mapping[int, Estimate]], offered: Mapping[T, Sequence[int]], now_s: float
) -> dict[tuple[T, int], float]:
    """Return the corrections x of a model by GPU type and size, of all sizes that have one.

    Parameters
    ----------
    seen : mapping
        The estimates by type and size.
    offered : mapping
        All sizes of every type, in GPUs.
    now_s : float
        Time in seconds.
    """
    out: dict[tuple[T, int], float] = {}
    errors: dict[T, float] = {}
    for kind, estimates in seen.items():
        known = {k: e for k, e in estimates.items() if e.weight > 0}
        if known:
            x = correct_sizes(known, offered[kind], now_s)
            out |= {(kind, k): x[k] for k in x}
            errors[kind] = sum(x.get(k, 0.0) for k in known) / len(known)
    doubt = math.sqrt(sum(e * e for e in errors.values()) / max(1, len(errors)))
    if doubt > LEAST:
        out |= {(kind, k): doubt for kind in offered if kind not in errors for k in offered[kind]}
    return out


def correct_sizes(
    seen: Mapping[int, Estimate], sizes: Sequence[int], now_s: float
) -> dict[int, float]:
    """Return the correction x of every size that has one, by size.

    None has one unless it is proven at one size. The arguments are those of `posterior`.
    """
    corrections = posterior(seen, sizes, now_s)
    if not any(is_significant(mean, deviation) for mean, deviation in corrections.values()):
        return {}
    return {k: mean for k, (mean, _) in corrections.items() if abs(mean) > LEAST}


def posterior(
    seen: Mapping[int, Estimate], sizes: Sequence[int], now_s: float
) -> dict[int, tuple[float, float]]:
    """Return mean and standard deviation of x at each of the sizes, by size.

    `seen` has the estimates of one model on one GPU type, by size. Sizes are in GPUs.
    """
    known = [(k, e, decay_weight(e, now_s)) for k, e in sorted(seen.items())]
    known = [(k, e, w) for k, e, w in known if w > 1e-3]
    if not known:
        return dict.fromkeys(sizes, (0.0, DEVIATION))
    at = np.log2(np.array([k for k, _, _ in known], np.float64))
    x = np.array([e.mean for _, e, _ in known])
    noise = np.array([max(NOISE**2, e.variance) / w for _, e, w in known])
    wanted = np.log2(np.array(list(sizes), np.float64))
    inner = _covariance(at, at) + np.diag(noise)
    cross = _covariance(wanted, at)
    solved = np.linalg.solve(inner, cross.T)  # (K, S)
    mean = solved.T @ x
    variance = np.maximum(0.0, DEVIATION**2 - (cross * solved.T).sum(axis=1))
    return {
        k: (float(m), math.sqrt(float(v))) for k, m, v in zip(sizes, mean, variance, strict=True)
    }


def is_significant(mean: float, deviation: float) -> bool:
    """Return whether a correction is larger than LEAST and than TRUST standard deviations."""
    return abs(mean) > max(LEAST, TRUST * deviation)


def _covariance(
    a: np.ndarray[Any, np.dtype[np.float64]], b: np.ndarray[Any, np.dtype[np.float64]]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    distance = np.abs(a[:, None] - b[None, :])
    return np.asarray(OFFSET**2 + SPREAD**2 * np.exp(-distance / REACH))
