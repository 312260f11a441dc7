"""Fit models of revocable servers: times by regression, hazards from lifetimes, start-up by phase.

- line: y = a + b x by least squares. For checkpoints x is the size in MB; for steps it is the FLOPs
  of the model divided by the FLOPS of the GPU.
- hazard: d_i / e_i, the revocations at ages of piece i over the server-hours lived there. This is
  the maximum-likelihood estimate of a piecewise constant hazard with right censoring; its standard
  error is sqrt(d_i) / e_i.
- hazard from counts: h_i = -log(1 - d_i / n_i) / width, where n_i servers live when the piece
  begins. It needs only the number of revocations by age.
- cap: v(n) = ((n v1)^-p + C^-p)^(-1/p), the soft corner of
  formulations/transient/parameter_servers.py, by least squares over v1 and C. The sharp corner is
  the kind "capped" of models.csv (`allocator fit`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from allocator.domain.problem import Bools, Floats
from formulations.transient.parameter_servers import bottleneck, capped
from formulations.transient.revocations import Hazard

# speeds of four models on P100 and K80 are within 6 % (docs/spot-and-rental.md)
SHARPNESS = 8.0
CAPS = 1000  # number of caps that are tried


@dataclass(frozen=True)
class LineFit:
    """Hold y = intercept + slope x, fitted to `samples` points with low <= x <= high.

    Attributes
    ----------
    errors : tuple of float
        Standard errors of intercept and slope.
    r2 : float
        Share of the variance that the line explains.
    residual : float
        Standard deviation of y around the line.
    error : float
        Mean of |prediction - y| / |y| over the points.
    held_out : float
        The same, with each point predicted from the others.
    """

    intercept: float
    slope: float
    errors: tuple[float, float]
    r2: float
    residual: float
    error: float
    held_out: float
    low: float
    high: float
    samples: int

    def at(self, x: Floats | float) -> Floats:
        """Return the predicted y, of the shape of x; outside of `holds` it is extrapolated."""
        return np.asarray(self.intercept + self.slope * np.asarray(x, np.float64))

    def holds(self, x: Floats | float) -> Bools:
        """Return whether x lies in the range of the measurements."""
        x = np.asarray(x, np.float64)
        return np.asarray((x >= self.low) & (x <= self.high))


def fit_line(x: Floats | Sequence[float], y: Floats | Sequence[float]) -> LineFit:
    """Return the line through three or more measurements, (S,) each.

    Raises ValueError with fewer points, with values that are not finite, or with all points at one
    x.
    """
    x = np.asarray(x, np.float64)
    y = np.asarray(y, np.float64)
    if len(x) < 3 or not (np.isfinite(x).all() and np.isfinite(y).all()) or np.ptp(x) == 0:
        raise ValueError("a line needs three points or more that are finite and not all at one x")
    A = np.column_stack([np.ones(len(x)), x])
    inverse = np.linalg.inv(A.T @ A)
    beta = np.linalg.lstsq(A, y, rcond=None)[0]
    rest = y - A @ beta
    left = 1.0 - np.einsum("si,ij,sj->s", A, inverse, A)  # 1 - leverage
    variance = float(rest @ rest) / (len(x) - 2)
    spread = float(((y - y.mean()) ** 2).sum())
    size = np.where(y == 0, np.nan, np.abs(y))
    with np.errstate(all="ignore"):
        alone = float(np.mean(np.abs(rest / left) / size))
    return LineFit(
        float(beta[0]),
        float(beta[1]),
        (math.sqrt(variance * inverse[0, 0]), math.sqrt(variance * inverse[1, 1])),
        1.0 - float(rest @ rest) / spread if spread > 0 else 1.0,
        math.sqrt(variance),
        float(np.mean(np.abs(rest) / size)),
        alone,
        float(x.min()),
        float(x.max()),
        len(x),
    )


@dataclass(frozen=True)
class HazardFit:
    """Hold a fitted hazard with B pieces.

    Attributes
    ----------
    hazard : Hazard
        The hazard.
    seen : (B,)
        Revocations in each piece.
    hours : (B,)
        Server-hours lived in each piece.
    errors : (B,)
        Standard errors of the hazard, per hour.
    """

    hazard: Hazard
    seen: Floats
    hours: Floats
    errors: Floats


def fit_hazard(
    hours: Floats | Sequence[float],
    revoked: Bools | Sequence[bool],
    edges_h: Sequence[float] = (0.0,),
) -> HazardFit:
    """Fit a hazard to the lifetimes of servers.

    Parameters
    ----------
    hours : (S,)
        Lifetimes in hours.
    revoked : (S,)
        False: the server was still alive when it was last observed (censored).
    edges_h : sequence of float
        Ages at which pieces begin, in hours; the first is 0.

    Raises
    ------
    ValueError
        If no server lived in some piece.
    """
    age = np.asarray(hours, np.float64)
    lost = np.asarray(revoked, bool)
    start = np.asarray(edges_h, np.float64)
    if not len(start) or start[0] != 0 or (np.diff(start) <= 0).any():
        raise ValueError("ages must ascend from 0")
    if not len(age) or not np.isfinite(age).all() or (age < 0).any():
        raise ValueError("lifetimes must be finite, at least 0, and at least one")
    seen, lived = _count(age, lost, start)
    for i in np.flatnonzero(lived <= 0).tolist():
        raise ValueError(f"no server lived beyond {start[i]:g} h: no hazard can be fitted there")
    return HazardFit(Hazard(seen / lived, start), seen, lived, np.sqrt(seen) / lived)


def fit_hazard_of_places(
    hours: Floats | Sequence[float],
    revoked: Bools | Sequence[bool],
    place: Sequence[tuple[str, ...]],
    edges_h: Sequence[float] = (0.0,),
) -> dict[tuple[str, ...], HazardFit]:
    """Fit a hazard to the servers of each place.

    A place with few servers leans to all servers together: to its d revocations in e server-hours
    of a piece, one revocation in 1/h hours is added, where h is the hazard of the piece over all
    places. So a place where nothing was revoked yet has a hazard as well. With one place nothing
    changes.

    Parameters
    ----------
    hours, revoked, edges_h
        As of `fit_hazard`.
    place : (S,)
        Of each server, such as (region, type).

    Examples
    --------
    >>> places = [("a",), ("a",), ("b",), ("b",)]
    >>> fits = fit_hazard_of_places([10, 10, 10, 10], [1, 1, 0, 0], places)
    >>> {name: fit.hazard.per_hour.tolist() for name, fit in fits.items()}
    {('a',): [0.075], ('b',): [0.025]}
    """
    age = np.asarray(hours, np.float64)
    lost = np.asarray(revoked, bool)
    every = fit_hazard(age, lost, edges_h)
    mean = every.hazard.per_hour
    extra = np.where(mean > 0, 1.0, 0.0)
    wait = 1.0 / np.where(mean > 0, mean, 1.0)
    out = {}
    for name in dict.fromkeys(place):
        here = np.array([p == name for p in place])
        seen, lived = _count(age[here], lost[here], every.hazard.start_h)
        hazard = replace(every.hazard, per_hour=(seen + extra) / (lived + wait))
        out[name] = HazardFit(hazard, seen, lived, np.sqrt(seen + extra) / (lived + wait))
    return out


def _count(age: Floats, lost: Bools, start_h: Floats) -> tuple[Floats, Floats]:
    """Return the servers lost in each piece, and the hours that all lived there, (B,) each."""
    end = np.append(start_h[1:], math.inf)
    lived = np.clip(np.minimum(age[:, None], end) - start_h, 0.0, None).sum(axis=0)
    piece = np.searchsorted(end, age[lost], side="right")
    return np.bincount(piece, minlength=len(end)).astype(np.float64), lived


@dataclass(frozen=True)
class PhaseFit:
    """Hold the seconds that a phase took in some starts: mean, deviation, and quantiles.

    The quantiles are those of 5, 50 and 95 %.
    """

    name: str
    samples: int
    mean: float
    sd: float
    quantiles: tuple[float, float, float]


def fit_phases(seconds: Mapping[str, Floats]) -> tuple[PhaseFit, ...]:
    """Return the statistics of every phase of starting or replacing a server.

    `seconds` has (S,) seconds by phase. The sum of all phases is added as the phase "total".
    """
    total = np.sum(list(seconds.values()), axis=0)
    return tuple(
        PhaseFit(
            name,
            len(s),
            float(s.mean()),
            float(s.std(ddof=1)) if len(s) > 1 else 0.0,
            (float(np.quantile(s, 0.05)), float(np.quantile(s, 0.5)), float(np.quantile(s, 0.95))),
        )
        for name, s in {**seconds, "total": total}.items()
    )


@dataclass(frozen=True)
class CapFit:
    """Hold v(n) = capped(n single, cap, sharpness); `cap` is inf if no cap was found.

    `error` is the root mean square of the relative error.
    """

    single: float
    cap: float
    sharpness: float
    error: float

    def at(self, n: Floats | float) -> Floats:
        """Return the speed of n workers."""
        return capped(self.single * np.asarray(n, np.float64), self.cap, self.sharpness)


def fit_cap(workers: Floats | Sequence[float], speed: Floats | Sequence[float]) -> CapFit:
    """Fit a cap to the measured speeds (S,) of n workers, by relative least squares over v1 and C.

    Several speeds of the same number of workers count as one, their geometric mean. C / v1 is
    searched on a grid; the best v1 for each is a ratio of sums. The cap is accepted if it at least
    halves the error of the fit without one, and some measured speed is clearly below n v1
    (formulations/transient/parameter_servers.bottleneck).
    """
    n = np.asarray(workers, np.float64)
    v = np.asarray(speed, np.float64)
    if not ((n > 0).all() and (v > 0).all()) or np.unique(n).size < 2:
        raise ValueError("a cap needs speeds above 0 of two numbers of workers or more")
    n, place = np.unique(n, return_inverse=True)
    place = place.reshape(-1)
    v = np.exp(np.bincount(place, np.log(v)) / np.bincount(place))
    free = _scaled(n, v, math.inf)
    best = min(
        (_scaled(n, v, float(c)) for c in np.geomspace(n.min() / 2, 4 * n.max(), CAPS)),
        key=lambda c: c.error,
    )
    bound = bottleneck(n * best.single, v).any()
    return best if bound and best.error <= free.error / 2 else free


def _scaled(n: Floats, v: Floats, ratio: float) -> CapFit:
    shape = capped(n, ratio, SHARPNESS) / v
    single = float(shape.sum() / (shape @ shape))
    error = float(np.sqrt(np.mean((single * shape - 1.0) ** 2)))
    return CapFit(single, ratio * single, SHARPNESS, error)
