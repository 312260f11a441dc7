"""How the workers of a job are kept in step: how fast that makes them, and what stops them.

The step time of one worker is X = 1 - c + c E, in units of its mean, where E is exponential with
mean 1 and c in [0, 1] is the coefficient of variation. n workers of which all are at work do, as a
share of the work that they would do if all took the mean time,

    bulk             1 / (1 - c + c H_n)                               all wait for the slowest
    backup, k spare  (n - k)/n / (1 - c + c (H_n - H_k))               the k slowest are dropped
    replicated, r    1/r / (1 - c + c H_(n/r) / r)                     each gradient r times
    asynchronous, e  e                                                 share e of it counts

where H_n = 1 + 1/2 + .. + 1/n. At c = 1 these step times are E[max X], E[X_(n-k)], E[max min_r X]
and E[X]. With a of n servers at work, H_n - H_k becomes H_a - H_(a - n + k). With s in [0, 1] and
a_i replicas of gradient i at work, the mean largest of the smallest is

    integral of (1 - product over i of (1 - s^(a_i))) / s

A server is away for R seconds after a revocation, which come at the rate h. It is at work with
probability u = 1 / (1 + h R), independently of the others. A job with spare workers stops only if
too few are at work: of n servers fewer than n - k, or of r replicas none. In the long run

    backup           stops a second      P(k away) (n - k) h
    replicated       stops a second      (n/r) r u (1 - u)^(r - 1) h (1 - (1 - u)^r)^(n/r - 1)

References
----------
X: Lee et al., "Speeding up distributed machine learning using codes", IEEE Transactions on
Information Theory 64 (2018). Modes: Ambati et al., IC2E 2019; backup workers: Chen et al. 2016.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from formulations.model.linear import Bools, Floats
from formulations.transient.parameter_servers import binomial

MODES = ("bulk", "backup", "replicated", "asynchronous")
POINTS = 64  # of the quadrature, which is exact for up to 127 servers


@dataclass(frozen=True)
class Mode:
    """A way to keep workers in step.

    Attributes
    ----------
    kind : str
        One of MODES.
    number : float
        k of backup, r of replicated, e of asynchronous; 0 of bulk.
    """

    kind: str
    number: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in MODES:
            raise ValueError(f'mode "{self.kind}" is not known: {", ".join(MODES)}')

    @property
    def has_spares(self) -> bool:
        """Whether the job may go on while servers are away, with all its state."""
        return self.kind in ("backup", "replicated")

    def admits(self, n: int) -> bool:
        """Return whether n workers can be kept in step in this way."""
        if self.kind == "backup":
            return n > self.number
        return self.kind != "replicated" or n % int(self.number) == 0


BULK = Mode("bulk")
ASYNCHRONOUS = Mode("asynchronous", 1.0)


@lru_cache(maxsize=1 << 14)
def pace(mode: Mode, n: int, variation: float) -> float:
    """Return the work of n workers, all at work, as a share of what n even workers do."""
    if mode.kind == "asynchronous":
        return mode.number
    k = int(mode.number)
    slow = harmonic(n // k) / k if mode.kind == "replicated" else harmonic(n) - harmonic(k)
    return _useful_share(mode, n) / (1.0 - variation + variation * slow)


def _useful_share(mode: Mode, n: int) -> float:
    """Return the share of the gradients of n workers that counts."""
    if mode.kind == "backup":
        return (n - mode.number) / n
    return 1.0 if mode.kind == "bulk" else 1.0 / int(mode.number)


def harmonic(n: int) -> float:
    """Return H_n = 1 + 1/2 + .. + 1/n; H_0 = 0."""
    return math.fsum(1.0 / i for i in range(1, n + 1))


def pace_at_work(mode: Mode, variation: float, at_work: Bools) -> float:
    """Return the share of `pace` that is left while only some servers (n,) are at work.

    It is 0 where the job stands still.
    """
    n = len(at_work)
    here = int(at_work.sum())
    if here == n:
        return 1.0
    if mode.kind == "asynchronous":
        return here / n
    if mode.kind == "bulk":
        return 0.0
    if mode.kind == "backup":
        needed = n - int(mode.number)
        if here < needed:
            return 0.0
        slow = harmonic(here) - harmonic(here - needed)
    else:
        replicas = at_work.reshape(-1, int(mode.number)).sum(axis=1)
        if not replicas.all():
            return 0.0
        s, weight = _quadrature()
        slow = float(weight @ ((1.0 - np.prod(1.0 - s[:, None] ** replicas, axis=1)) / s))
    step = 1.0 - variation + variation * slow
    return _useful_share(mode, n) / step / pace(mode, n, variation)


def enough_up_s(mode: Mode, up_s: Floats) -> float:
    """Return when enough of the servers (n,) are up for the job to work; up_s are their times."""
    if mode.kind == "asynchronous":
        return float(up_s.min())
    if mode.kind == "backup":
        return float(np.sort(up_s)[len(up_s) - 1 - int(mode.number)])
    if mode.kind == "replicated":
        return float(up_s.reshape(-1, int(mode.number)).min(axis=1).max())
    return float(up_s.max())


@lru_cache(maxsize=1 << 14)
def long_run(
    mode: Mode, n: int, variation: float, per_s: float, away_s: float
) -> tuple[float, float]:
    """Return what revocations leave of the pace of a mode with spare workers.

    Parameters
    ----------
    per_s, away_s : float
        Revocations of one server a second, and seconds until its replacement works.

    Returns
    -------
    share : float
        Mean share of `pace`, where the job counts as 0 while it stands still. It is exact for
        backup workers; for replicas the mean step time stands for the mean speed, which is lower.
    stops_per_s : float
        Stops in a second in which the job works.
    """
    up = 1.0 / (1.0 + per_s * away_s)
    if mode.kind == "backup":
        k = int(mode.number)
        chance = binomial(n, 1.0 - up)[: k + 1]
        at_work = [np.arange(n) >= m for m in range(k + 1)]
        speed = [pace_at_work(mode, variation, here) for here in at_work]
        works = float(chance.sum())
        return float(chance @ np.array(speed)), float(chance[k]) * (n - k) * per_s / works
    r = int(mode.number)
    chance = binomial(r, up)
    delivered = 1.0 - float(chance[0])  # of the replicas of a gradient, one at least is at work
    s, weight = _quadrature()
    late = (s[:, None] ** np.arange(1, r + 1)) @ (chance[1:] / delivered)
    slow = float(weight @ ((1.0 - (1.0 - late) ** (n // r)) / s))
    step = 1.0 - variation + variation * slow
    share = delivered ** (n // r) * _useful_share(mode, n) / step / pace(mode, n, variation)
    return share, n // r * float(chance[1]) * per_s / delivered


@lru_cache(maxsize=1)
def _quadrature() -> tuple[Floats, Floats]:
    """Return points and weights on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(POINTS)
    return (x + 1.0) / 2.0, w / 2.0
