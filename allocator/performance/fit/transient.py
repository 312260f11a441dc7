"""What measurements of servers say: checkpoint and step times by regression, hazards from
lifetimes, start-up by phase.

    line        y = a + b x by least squares. Checkpoints: x size in MB; steps: x model FLOPs / GPU
                FLOPS
    hazard      d_i / e_i: revocations seen at ages of piece i over the server-hours lived there,
                the maximum-likelihood
                estimate of a piecewise constant hazard with right censoring; standard error
                    sqrt(d_i) / e_i
    grouped     only counts by age are known: h_i = -log(1 - d_i / n_i) / width, n_i alive when the
                piece begins
    cap         v(n) = ((n v1)^-p + C^-p)^(-1/p): the soft corner of
                formulations/transient/parameter_servers.py, least
                squares over C. The
                sharp one is the kind `capped` of models.csv (allocator fit)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Bools, Floats
from formulations.transient.parameter_servers import bottleneck, capped
from formulations.transient.revocations import Hazard

# ResNet-15, ResNet-32 and two Shake-Shake models on P100 and K80 within 6 % (docs/transient.md)
SHARPNESS = 8.0
CAPS = 1000  # caps tried


@dataclass(frozen=True)
class LineFit:
    """y = intercept + slope x from `samples` points with low <= x <= high.

    errors: standard errors of both. r2: share of the variance explained. residual: standard
    deviation of y around the line. error, held_out: mean |prediction - y| / |y| in the sample, and
    with each point predicted from the others.
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
        """Predicted y, shape of x; see `holds` for where that is more than a guess."""
        return np.asarray(self.intercept + self.slope * np.asarray(x, dtype=np.float64))

    def holds(self, x: Floats | float) -> Bools:
        """Whether x lies in the range of the measurements."""
        x = np.asarray(x, dtype=np.float64)
        return np.asarray((x >= self.low) & (x <= self.high))


def fit_line(x: Floats | Sequence[float], y: Floats | Sequence[float]) -> LineFit:
    """The line through measurements (S,) of at least three points; raises ValueError where none
    can be drawn.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
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
    with np.errstate(divide="ignore", invalid="ignore"):
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
    """A fitted hazard. seen (B,): revocations per piece; hours (B,): server-hours lived in it;
    errors (B,): standard errors of the hazard per hour."""

    hazard: Hazard
    seen: Floats
    hours: Floats
    errors: Floats


def fit_hazard(
    hours: Floats | Sequence[float],
    revoked: Bools | Sequence[bool],
    edges_h: Sequence[float] = (0.0,),
    lifetime_h: float = math.inf,
) -> HazardFit:
    """Hazard from lifetimes (S,) in hours; revoked False: it was still alive when it was last seen
    (censored).

    edges_h: ages at which pieces begin, the first 0. Raises ValueError where a piece has no
    server-hours.
    """
    age, lost = np.asarray(hours, dtype=np.float64), np.asarray(revoked, dtype=bool)
    start = _edges(edges_h)
    if not len(age) or not np.isfinite(age).all() or (age < 0).any():
        raise ValueError("lifetimes must be finite, at least 0, and at least one")
    end = np.append(start[1:], math.inf)
    lived = np.clip(np.minimum(age[:, None], end) - start, 0.0, None).sum(axis=0)
    piece = np.clip(np.searchsorted(start, age[lost], side="right") - 1, 0, None)
    seen = np.bincount(piece, minlength=len(start)).astype(np.float64)
    _lived(start, lived)
    return HazardFit(Hazard(seen / lived, start, lifetime_h), seen, lived, np.sqrt(seen) / lived)


def fit_hazard_counts(
    edges_h: Sequence[float], revoked: Sequence[int], servers: int, lifetime_h: float = math.inf
) -> HazardFit:
    """Hazard from how many of `servers` were revoked at ages edges_h[i] .. edges_h[i + 1]; one edge
    more than counts.

    Maximum likelihood for grouped data: it gives back the observed shares exactly. hours: from
    piece midpoints.
    """
    edges, seen = _edges(edges_h), np.asarray(revoked, dtype=np.float64)
    alive = servers - np.concatenate([[0.0], np.cumsum(seen)])
    if len(edges) != len(seen) + 1 or (seen < 0).any() or alive[-1] < 0:
        raise ValueError(
            f"{len(edges)} edges, {len(seen)} counts that sum to {seen.sum():g} of {servers}"
            " servers"
        )
    width, q = np.diff(edges), np.where(alive[:-1] > 0, seen / np.maximum(alive[:-1], 1.0), 0.0)
    if (q >= 1).any():
        raise ValueError("no server survives a piece: its hazard has no upper end")
    errors = np.sqrt(q / np.maximum(alive[:-1], 1.0) / (1.0 - q)) / width
    return HazardFit(
        Hazard(-np.log1p(-q) / width, edges[:-1], lifetime_h),
        seen,
        width * (alive[1:] + seen / 2),
        errors,
    )


def _edges(edges_h: Sequence[float]) -> Floats:
    edges = np.asarray(edges_h, dtype=np.float64)
    if not len(edges) or edges[0] != 0 or (np.diff(edges) <= 0).any():
        raise ValueError("ages must ascend from 0")
    return edges


def _lived(start: Floats, lived: Floats) -> None:
    for i in np.flatnonzero(lived <= 0).tolist():
        raise ValueError(f"no server lived beyond {start[i]:g} h: no hazard can be fitted there")


@dataclass(frozen=True)
class PhaseFit:
    """Seconds that a phase took in n starts: mean, standard deviation, and 5, 50 and 95 %
    quantiles.
    """

    name: str
    samples: int
    mean: float
    sd: float
    quantiles: tuple[float, float, float]


def fit_phases(seconds: Mapping[str, Floats]) -> tuple[PhaseFit, ...]:
    """Every phase of starting (or replacing) a server, each (S,) seconds, and their sum as the
    phase "total".
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
    """v(n) = capped(n single, cap, sharpness); cap inf: none is seen. error: root mean square,
    relative.
    """

    single: float
    cap: float
    sharpness: float
    error: float

    def at(self, n: Floats | float) -> Floats:
        """Speed of n workers."""
        return capped(self.single * np.asarray(n, dtype=np.float64), self.cap, self.sharpness)


def fit_cap(
    workers: Floats | Sequence[float], speed: Floats | Sequence[float], sharpness: float = SHARPNESS
) -> CapFit:
    """The cap behind measured speeds (S,) of n workers: least relative squares over v1 and C.

    Speeds of the same number of workers count as one, their geometric mean. For each C / v1 of a
    grid the best v1 is a ratio of sums. A cap is believed where it at least halves the error
    without one and some measured speed is clearly below n v1
    (formulations/transient/parameter_servers.bottleneck).
    """
    n, v = np.asarray(workers, dtype=np.float64), np.asarray(speed, dtype=np.float64)
    if not ((n > 0).all() and (v > 0).all()) or np.unique(n).size < 2:
        raise ValueError("a cap needs speeds above 0 of two numbers of workers or more")
    n, place = np.unique(n, return_inverse=True)
    place = place.reshape(-1)
    v = np.exp(np.bincount(place, np.log(v)) / np.bincount(place))
    free = _scaled(n, v, math.inf, sharpness)
    best = min(
        (_scaled(n, v, float(c), sharpness) for c in np.geomspace(n.min() / 2, 4 * n.max(), CAPS)),
        key=lambda c: c.error,
    )
    bound = bottleneck(n * best.single, v).any()
    return best if bound and best.error <= free.error / 2 else free


def _scaled(n: Floats, v: Floats, ratio: float, p: float) -> CapFit:
    shape = capped(n, ratio, p) / v
    single = float(shape.sum() / (shape @ shape))
    return CapFit(single, ratio * single, p, float(np.sqrt(np.mean((single * shape - 1.0) ** 2))))
