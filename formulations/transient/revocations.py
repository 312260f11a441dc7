"""Servers that may be revoked: how long they live, what jobs on them lose, when to checkpoint.

Symbols: tau is the useful seconds between checkpoints, delta the seconds of a checkpoint, R the
seconds until a lost worker is replaced. h is the hazard, piecewise constant in the age a of a
server, and L its hard lifetime. h_eff = 1 / (mean life), which is h without a lifetime.

Probability to live longer than a:

    S(a) = exp(-integral of h over [0, a]) for a < L, 0 from L on

Revocations per second of n synchronous workers, each of which stops the job:

    lambda = n h

Useful share of a synchronous job, exact for constant h, and its first order:

    phi = lambda tau exp(-lambda R) / (exp(lambda (tau + delta)) - 1)
        ~ 1 - delta/tau - lambda (R + tau/2)

Useful share of an asynchronous job, which loses the shares of its lost workers:

    phi = tau/(tau + delta) / (1 + h_eff R)

The best interval solves the first equation exactly; the second is its first order (Young 1974):

    exp(-lambda (tau + delta)) = 1 - lambda tau
    tau ~ sqrt(2 delta / lambda)

The exponential terms are those of Daly (2006), section 3: a stretch tau + delta must pass without a
loss, and so must R. Several losses may overlap while the job is stopped. Such a pause has the mean
(exp(lambda R) - 1) / lambda, the busy period of M/G/infinity, which depends on R only by its mean.
With a hard lifetime, servers that start together are lost together (lifetimes.py). Times are in
seconds; hazards are per server and hour, as in pools.csv.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from formulations.model.linear import Floats

Values = Floats | float
"""One number, or an array of them."""
HOUR_S = 3600.0
STEPS = 512  # of the grid on which the renewal equation is solved
FAR = 16  # mean lives after which the start of a place no longer matters
POINTS = 80  # of the curve of mean hazards, besides the ages at which pieces begin
# its ends: shares of the age at which the second piece begins, and of that of the last piece
SHORTEST, LONGEST = 1e-2, 1e4
NEWTON = 60  # most Newton steps; about six are taken


def as_floats(*values: Values) -> list[Floats]:
    """Return values as arrays."""
    return [np.asarray(value, np.float64) for value in values]


@dataclass(frozen=True)
class Hazard:
    """Revocations per server-hour by age of the server.

    Attributes
    ----------
    per_hour, start_h : (B,)
        The hazard is per_hour[i] at ages start_h[i] <= a < start_h[i + 1], hours; start_h[0] = 0.
    lifetime_h : float
        Age at which a server ends in any case, hours.
    """

    per_hour: Floats
    start_h: Floats
    lifetime_h: float = math.inf

    @classmethod
    def constant(cls, per_hour: float, lifetime_h: float = math.inf) -> Hazard:
        """Return the same hazard at every age."""
        return cls(np.array([per_hour], np.float64), np.zeros(1), lifetime_h)

    @property
    def ageless(self) -> bool:
        """Whether age makes no difference."""
        return math.isinf(self.lifetime_h) and bool((self.per_hour == self.per_hour[0]).all())


def cumulative(hazard: Hazard, age_h: Values) -> Floats:
    """Return the integral of the hazard over [0, age], shape of age_h, without the lifetime."""
    age = np.asarray(age_h, np.float64)
    full = np.concatenate([[0.0], np.cumsum(hazard.per_hour[:-1] * np.diff(hazard.start_h))])
    at = np.searchsorted(hazard.start_h, age, side="right") - 1
    return np.asarray(full[at] + hazard.per_hour[at] * (age - hazard.start_h[at]))


def mean_life_h(hazard: Hazard) -> float:
    """Return the expected hours until a server is lost by revocation or lifetime, inf = never."""
    return _moments(hazard)[0]


def _moments(hazard: Hazard) -> tuple[float, float]:
    """Return mean and mean square of the life in hours: integrals of S and of 2 a S."""
    start = hazard.start_h
    rate = hazard.per_hour
    hours = np.maximum(0.0, np.minimum(np.append(start[1:], math.inf), hazard.lifetime_h) - start)
    alive = np.exp(-cumulative(hazard, start))
    # 0 x inf occurs only in branches that are not used
    with np.errstate(all="ignore"):
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
    """Return the expected losses in `hours` of one place whose lost servers are replaced at once.

    The first server is new. The result is h x hours where age makes no difference. Otherwise it
    solves the renewal equation m = F + m * dF on a grid. The error is of second order in hours /
    STEPS; the end of the lifetime is an atom of F and is exact. Beyond FAR mean lives the result is
    the limit t/mu + (s2 - mu^2) / (2 mu^2), where mu and s2 are mean and variance of the life.
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
        # m[k] is still 0 here; the last line solves for it
        before = (m[:k] + m[1 : k + 1]) / 2
        known = f[k] + before[::-1] @ df[:k] + (atom * (1.0 + m[k - end]) if k >= end else 0.0)
        m[k] = known / (1.0 - df[0] / 2)
    return float(np.interp(hours, step * np.arange(count + 1), m))


def mean_hazard(hazard: Hazard, hours: Values) -> Floats:
    """Return the losses of one place per hour, in the mean over its first `hours`, shape of hours.

    It is `losses` / hours, from a curve of POINTS of them, and for inf the limit 1 / (mean life).
    The hazard has no lifetime.
    """
    t = np.asarray(hours, np.float64)
    if hazard.ageless:
        return np.full(t.shape, hazard.per_hour[0])
    ages, mean, last = _mean_hazards(
        tuple(hazard.per_hour.tolist()), tuple(hazard.start_h.tolist())
    )
    with np.errstate(divide="ignore"):
        beyond = last + (mean[-1] - last) * ages[-1] / np.maximum(t, ages[-1])
        inside = np.interp(np.log(t), np.log(ages), mean)
    return np.where(t > ages[-1], beyond, inside)


@lru_cache(maxsize=256)
def _mean_hazards(
    per_hour: tuple[float, ...], start_h: tuple[float, ...]
) -> tuple[Floats, Floats, float]:
    """Return K ages in hours (K,), the mean hazard until then (K,), and that of the long run."""
    hazard = Hazard(np.array(per_hour), np.array(start_h))
    life = mean_life_h(hazard)
    longest = min(FAR * life, LONGEST * start_h[-1])
    ages = np.geomspace(SHORTEST * start_h[1], max(longest, 2.0 * start_h[-1]), POINTS)
    ages = np.union1d(ages, start_h[1:])
    mean = np.array([losses(hazard, t) / t for t in ages.tolist()])
    return ages, mean, 1.0 / life


def hazard_at(hazard: Hazard, age_h: Values) -> Floats:
    """Return the revocations per hour of a server of this age, shape of age_h."""
    at = np.searchsorted(hazard.start_h, np.asarray(age_h, np.float64), side="right") - 1
    return np.asarray(hazard.per_hour[at])


def with_burst(hazard: Hazard, factor: float, until_h: float) -> Hazard:
    """Return the hazard times `factor` before the age until_h."""
    if factor == 1.0 or until_h <= 0.0:
        return hazard
    start = np.union1d(hazard.start_h, [until_h])
    early = np.where(start < until_h, factor, 1.0)
    return Hazard(early * hazard_at(hazard, start), start, hazard.lifetime_h)


def age_at(hazard: Hazard, exposure: Values) -> Floats:
    """Return the age in hours at which the integral of the hazard is `exposure`, inf = never.

    With exponential exposures of mean 1 these are lives, but for the lifetime.
    """
    e = np.asarray(exposure, np.float64)
    full = np.concatenate([[0.0], np.cumsum(hazard.per_hour[:-1] * np.diff(hazard.start_h))])
    at = np.searchsorted(full, e, side="right") - 1
    rate = hazard.per_hour[at]
    with np.errstate(divide="ignore"):
        return np.asarray(hazard.start_h[at] + (e - full[at]) / rate)


def loss_rate(per_hour: Values, lifetime_s: Values = math.inf) -> Floats:
    """Return the losses per second of one place in the long run.

    That is 1 / (mean life) for a constant hazard and a hard lifetime.
    """
    rate = np.asarray(per_hour, np.float64) / HOUR_S
    life = np.asarray(lifetime_s, np.float64)
    with np.errstate(all="ignore"):
        both = rate / -np.expm1(-rate * life)
        return np.where(np.isinf(life), rate, np.where(rate * life > 1e-12, both, 1.0 / life))


def best_interval_s(rate: Values, checkpoint_s: Values) -> Floats:
    """Return the exact interval of checkpoints that makes phi largest, seconds.

    x = rate x tau solves log(1 - x) + x + rate x delta = 0. Newton's method starts right of the
    root, where the function is concave and falling, so it never overshoots. The result is inf where
    nothing is ever lost, and 0 where checkpoints are free.
    """
    rate = np.asarray(rate, np.float64)
    d = rate * np.asarray(checkpoint_s, np.float64)
    x = np.minimum(np.sqrt(2.0 * d), -np.expm1(-1.0 - d))
    for _ in range(NEWTON):
        with np.errstate(all="ignore"):
            # the series of log(1 - x) + x, because the difference cancels where x is small
            series = -x * x * (1 / 2 + x * (1 / 3 + x * (1 / 4 + x / 5)))
            value = np.where(x < 1e-3, series, np.log1p(-x) + x) + d
            step = np.where((x > 0) & (x < 1), value * (1.0 - x) / x, 0.0)
        x = np.maximum(0.0, x + step)
        if bool((np.abs(step) <= 1e-13 * x).all()):
            break
    with np.errstate(all="ignore"):
        return np.where(rate > 0, x / rate, np.inf)


def synchronous_share(
    rate: Values,
    checkpoint_s: Values,
    every_s: Values,
    replace_s: Values,
) -> Floats:
    """Return the useful seconds per second of a job that every loss stops.

    After a loss, all work since the last checkpoint is done again.

    Parameters
    ----------
    rate
        Losses per second of all workers together.
    checkpoint_s, replace_s
        Seconds of a checkpoint, and of a replacement.
    every_s
        Useful seconds between checkpoints, inf = no checkpoints.
    """
    rate, delta, tau, pause = as_floats(rate, checkpoint_s, every_s, replace_s)
    with np.errstate(all="ignore"):
        lossless = np.where(np.isinf(tau), 1.0, np.where(tau + delta > 0, tau / (tau + delta), 1.0))
        x = rate * tau
        d = rate * delta
        share = np.where(
            np.isinf(x),
            0.0,
            np.where(x + d > 0, x / np.expm1(x + d), np.where(tau > 0, lossless, 1.0)),
        )
        return np.where(rate > 0, share * np.exp(-rate * pause), lossless)


def synchronous_seconds(
    work_s: Values,
    rate: Values,
    checkpoint_s: Values,
    every_s: Values,
    replace_s: Values,
) -> Floats:
    """Return the expected seconds of work_s useful seconds, with losses at a constant rate.

    The result is exact, and inf if the job never ends. m = ceil(work / tau) - 1 whole stretches end
    with a checkpoint, and the last stretch of r = work - m tau seconds ends with the job:

        exp(rate R) / rate x (m (exp(rate (tau + delta)) - 1) + exp(rate r) - 1)

    The parameters are those of `synchronous_share`.
    """
    work, rate, delta, tau, pause = as_floats(work_s, rate, checkpoint_s, every_s, replace_s)
    with np.errstate(all="ignore"):
        # with checkpoints at every moment, only pauses cost time
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
