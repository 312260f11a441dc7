"""Servers that may be taken back: how long they live, what a job on them loses, how often it should
save.

    S(a)   = exp(-integral of h over [0, a]) for a < L, 0 from L on     h piecewise constant in age,
        L hard lifetime
    lambda = n h                revocations per second of n synchronous workers; each stops the job
    phi    = lambda tau exp(-lambda R) / (exp(lambda (tau + delta)) - 1)         synchronous, exact
        for constant h
             ~ 1 - delta/tau - lambda (R + tau/2)                                its first order
    phi    = tau/(tau + delta) / (1 + h_eff R)                                   asynchronous:
        shares of lost workers
    tau*   solves exp(-lambda (tau + delta)) = 1 - lambda tau                    exact best interval
             ~ sqrt(2 delta / lambda)                                            its first order
                 (Young 1974)

tau: useful seconds between checkpoints, delta: seconds a checkpoint takes, R: seconds until a lost
worker is replaced, h_eff = 1 / (mean life), h without a lifetime. The exponential terms are those
of Daly (2006), section 3: a stretch tau + delta must pass without a loss, and so must R (several
losses may overlap while the job stands: such a pause has the mean (exp(lambda R) - 1) / lambda, the
busy period of M/G/infinity, which needs no more of R than its mean). With a hard lifetime, servers
that start together are lost together: lifetimes.py. Times are seconds, hazards are per server
and hour, as in pools.csv.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from formulations.model.linear import Floats

HOUR_S = 3600.0
STEPS = 512  # of the grid on which the renewal equation is solved
FAR = 16  # mean lives after which places have forgotten when they began
NEWTON = 60  # steps at most; about six are taken


@dataclass(frozen=True)
class Hazard:
    """Revocations per server-hour: per_hour[i] at ages start_h[i] <= a < start_h[i + 1], start_h[0]
    = 0. A server that lives so long ends at lifetime_h in any case. per_hour, start_h (B,)."""

    per_hour: Floats
    start_h: Floats
    lifetime_h: float = math.inf

    @classmethod
    def constant(cls, per_hour: float, lifetime_h: float = math.inf) -> Hazard:
        """The same hazard at every age."""
        return cls(np.array([per_hour], dtype=np.float64), np.zeros(1), lifetime_h)

    @property
    def ageless(self) -> bool:
        """Whether age makes no difference."""
        return math.isinf(self.lifetime_h) and bool((self.per_hour == self.per_hour[0]).all())


def cumulative(hazard: Hazard, age_h: Floats | float) -> Floats:
    """Integral of the hazard over [0, age], shape of age_h; the lifetime is not looked at."""
    age = np.asarray(age_h, dtype=np.float64)
    full = np.concatenate([[0.0], np.cumsum(hazard.per_hour[:-1] * np.diff(hazard.start_h))])
    at = np.searchsorted(hazard.start_h, age, side="right") - 1
    return np.asarray(full[at] + hazard.per_hour[at] * (age - hazard.start_h[at]))


def survival(hazard: Hazard, age_h: Floats | float) -> Floats:
    """Probability to live longer than age_h, shape of age_h; 0 from the lifetime on."""
    age = np.asarray(age_h, dtype=np.float64)
    return np.where(age < hazard.lifetime_h, np.exp(-cumulative(hazard, age)), 0.0)


def revoked_within(hazard: Hazard, hours: Floats | float) -> Floats:
    """Probability to be revoked within so many hours and before the lifetime, whose end is no
    revocation.
    """
    return np.asarray(
        -np.expm1(
            -cumulative(hazard, np.minimum(np.asarray(hours, dtype=np.float64), hazard.lifetime_h))
        )
    )


def mean_life_h(hazard: Hazard) -> float:
    """Expected hours until a server is lost by revocation or lifetime; inf if it never is."""
    return _moments(hazard)[0]


def _moments(hazard: Hazard) -> tuple[float, float]:
    """Mean and mean square of the life in hours: integrals of S and of 2 a S, piece by piece."""
    start, rate = hazard.start_h, hazard.per_hour
    hours = np.maximum(0.0, np.minimum(np.append(start[1:], math.inf), hazard.lifetime_h) - start)
    alive = np.exp(-cumulative(hazard, start))
    # 0 x inf: of a branch that is not taken
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        x = rate * hours
        first = np.where(rate > 0, -np.expm1(-x) / rate, hours)
        whole = np.where(np.isinf(x), 1.0, -np.expm1(-x) - x * np.exp(-x)) / rate**2
        # the difference cancels where x is small
        second = np.where(x < 1e-3, hours**2 * (1 / 2 - x / 3), whole)
        square = 2.0 * alive * (start * first + second)
    there = hours > 0
    return float(np.where(there, alive * first, 0.0).sum()), float(
        np.where(there, square, 0.0).sum()
    )


def losses(hazard: Hazard, hours: float) -> float:
    """Expected losses in `hours` of one place whose server is new at first and replaced at once
    whenever it is lost.

    h x hours where age makes no difference; else the renewal equation m = F + m * dF on a grid
    (error of second order in hours / STEPS; the end of the lifetime is an atom of F and taken
    exactly). Beyond FAR mean lives its limit t/mu + (s2 - mu^2) / (2 mu^2), mu and s2 mean and
    variance of the life.
    """
    if hours <= 0 or hazard.ageless:
        return max(0.0, hours) * float(hazard.per_hour[0])
    life = hazard.lifetime_h
    mean, square = _moments(hazard)
    if hours > FAR * mean:
        return hours / mean + square / (2.0 * mean * mean) - 1.0
    step = hours / STEPS if hours < life else life / math.ceil(STEPS * min(1.0, life / hours))
    count = math.ceil(hours / step - 1e-9)
    f = -np.expm1(-cumulative(hazard, np.minimum(step * np.arange(count + 1), life)))
    df = np.diff(f)
    end, atom = (round(life / step), 1.0 - float(f.max())) if hours >= life else (count + 1, 0.0)
    m = np.zeros(count + 1)
    for k in range(1, count + 1):
        # m[k] is still 0 here: it is solved for below
        before = (m[:k] + m[1 : k + 1]) / 2
        known = f[k] + before[::-1] @ df[:k] + (atom * (1.0 + m[k - end]) if k >= end else 0.0)
        m[k] = known / (1.0 - df[0] / 2)
    return float(np.interp(hours, step * np.arange(count + 1), m))


def loss_rate(per_hour: Floats | float, lifetime_s: Floats | float = math.inf) -> Floats:
    """Losses per second of one place in the long run: 1 / (mean life) for a constant hazard and
    a hard lifetime.
    """
    rate, life = (
        np.asarray(per_hour, dtype=np.float64) / HOUR_S,
        np.asarray(lifetime_s, dtype=np.float64),
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        both = rate / -np.expm1(-rate * life)
        return np.where(np.isinf(life), rate, np.where(rate * life > 1e-12, both, 1.0 / life))


def young_s(rate: Floats | float, checkpoint_s: Floats | float) -> Floats:
    """Interval of checkpoints to first order, sqrt(2 delta / rate); rate: losses per second that
    stop the job.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.sqrt(
            2.0 * np.asarray(checkpoint_s, dtype=np.float64) / np.asarray(rate, dtype=np.float64)
        )
    return np.where(np.asarray(rate) > 0, found, np.inf)


def best_interval_s(rate: Floats | float, checkpoint_s: Floats | float) -> Floats:
    """The interval that makes phi largest, exactly: x = rate x tau solves log(1 - x) + x + rate x
    delta = 0.

    Newton from the right of the root, where the function is concave and falling, so it never
    overshoots. inf where nothing is ever lost, 0 where checkpoints are free.
    """
    rate = np.asarray(rate, dtype=np.float64)
    d = rate * np.asarray(checkpoint_s, dtype=np.float64)
    x = np.minimum(np.sqrt(2.0 * d), -np.expm1(-1.0 - d))
    for _ in range(NEWTON):
        with np.errstate(divide="ignore", invalid="ignore"):
            # of log(1 - x) + x, which cancels
            series = -x * x * (1 / 2 + x * (1 / 3 + x * (1 / 4 + x / 5)))
            value = np.where(x < 1e-3, series, np.log1p(-x) + x) + d
            step = np.where((x > 0) & (x < 1), value * (1.0 - x) / x, 0.0)
        x = np.maximum(0.0, x + step)
        if bool((np.abs(step) <= 1e-13 * x).all()):
            break
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rate > 0, x / rate, np.inf)


def synchronous_share(
    rate: Floats | float,
    checkpoint_s: Floats | float,
    every_s: Floats | float,
    replace_s: Floats | float,
) -> Floats:
    """Useful seconds per second when every loss stops all and what was done since the last
    checkpoint is done again.

    rate: losses per second of all workers together. every_s: useful seconds between checkpoints
    (inf: none ever).
    """
    rate, delta, tau, pause = (
        np.asarray(a, dtype=np.float64) for a in (rate, checkpoint_s, every_s, replace_s)
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        lossless = np.where(np.isinf(tau), 1.0, np.where(tau + delta > 0, tau / (tau + delta), 1.0))
        x, d = rate * tau, rate * delta
        share = np.where(
            np.isinf(x),
            0.0,
            np.where(x + d > 0, x / np.expm1(x + d), np.where(tau > 0, lossless, 1.0)),
        )
        return np.where(rate > 0, share * np.exp(-rate * pause), lossless)


def synchronous_seconds(
    work_s: Floats | float,
    rate: Floats | float,
    checkpoint_s: Floats | float,
    every_s: Floats | float,
    replace_s: Floats | float,
) -> Floats:
    """Expected seconds to do work_s useful seconds with synchronous losses at a constant rate per
    second; exact.

    m = ceil(work / tau) - 1 whole stretches end with a checkpoint, the last one ends with the job:
    exp(rate R) / rate x (m (exp(rate (tau + delta)) - 1) + exp(rate r) - 1), r = work - m tau. inf
    if it never ends.
    """
    work, rate, delta, tau, pause = (
        np.asarray(a, dtype=np.float64) for a in (work_s, rate, checkpoint_s, every_s, replace_s)
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # checkpoints at every moment: only pauses cost
        free = tau <= 0
        m = np.where(
            np.isinf(tau) | free,
            0.0,
            np.maximum(0.0, np.ceil(work / np.where(free, 1.0, tau) - 1e-12) - 1),
        )
        last = work - m * np.where(m > 0, tau, 0.0)
        lossy = (
            np.exp(rate * pause)
            / rate
            * (
                np.where(m > 0, m * np.expm1(rate * (tau + delta)), 0.0)
                + np.where(free, rate * work, np.expm1(rate * last))
            )
        )
        return np.where(rate > 0, lossy, work + m * delta)
