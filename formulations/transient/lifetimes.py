"""The useful share of time of servers that may be revoked and have a hard lifetime.

Servers that start together reach their lifetime L together: that is one loss, not n. Time is
divided into lifetimes m = 0, 1, .., with q = exp(-h L). Symbols are those of
formulations/transient/revocations.py.

Losses per second of single servers in lifetime m:

    n h (1 + q + .. + q^m)

Probability that the servers that are still in step end together at the end of lifetime m:

    1 - (1 - q^(m+1))^n

Useful seconds of a lifetime that ends for all servers, with s = tau + delta and x = exp(-lambda s):

    tau (sum_k x^k + exp(-lambda R) sum_k lambda (L - R - k s) x^k)

Here k = 1, 2, .. with k s <= L in the first sum and k s <= L - R in the second. This is exact: the
useful time between two losses is tau times the number of stretches that fit, and losses at a
constant rate lambda begin such a piece at every moment alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from formulations.columns import Columns
from formulations.model.linear import Bools, Floats
from formulations.transient.revocations import (
    HOUR_S,
    Values,
    as_floats,
    best_interval_s,
    loss_rate,
    synchronous_seconds,
    synchronous_share,
)

RARE = 1e-12  # fewer revocations per lifetime count as none
# A shorter checkpoint or stretch counts as 0, because a lifetime has too many of them to count.
INSTANT_S = 1e-9


def _without_tiny(seconds: Floats) -> Floats:
    return np.where(seconds < INSTANT_S, 0.0, seconds)


def useful_fraction(
    n: Values,
    hazard_per_hour: Values,
    *,
    checkpoint_s: Values = 0.0,
    checkpoint_every_s: Values = math.nan,
    replace_s: Values = 0.0,
    lifetime_s: Values = math.inf,
    synchronous: Bools | bool = True,
    work_s: Values = math.inf,
) -> Floats:
    """Return phi in [0, 1], the useful work per second of n revocable workers.

    It is a share of what they do if none is ever lost. It is a long-run mean. Without a lifetime it
    is exact for a constant hazard. With a lifetime it is exact for asynchronous jobs, and for
    synchronous jobs it is work_s / lifetime_seconds. A synchronous loss stops all workers and sets
    them back to the last checkpoint; an asynchronous one stops only the lost worker.

    Parameters
    ----------
    n
        Workers (GPUs). All arguments broadcast, and the result has their common shape.
    hazard_per_hour
        Revocations of one worker per hour (revocations_per_gpu_hour).
    checkpoint_s, checkpoint_every_s
        Seconds, as in jobs.csv. For nan, synchronous jobs use the best interval, and asynchronous
        ones save no checkpoints, because the parameter server is not revocable and holds the state.
    replace_s
        Seconds from a loss until the new worker works (start of the server and of the program).
    lifetime_s
        Hard lifetime of a server, seconds; all n start together.
    synchronous
        Whether the job is synchronous.
    work_s
        Useful seconds that the job still needs, inf = without end. They matter only with a
        lifetime.
    """
    n, hazard, delta, every, pause, life, together, work = np.broadcast_arrays(
        *as_floats(
            n,
            hazard_per_hour,
            checkpoint_s,
            checkpoint_every_s,
            replace_s,
            lifetime_s,
            np.asarray(synchronous, np.float64),
            work_s,
        )
    )
    delta = _without_tiny(delta)
    given = ~np.isnan(every)
    steps = together != 0
    lost = loss_rate(hazard, life)
    rate = np.where(np.isinf(life), n * lost, event_rate(n, hazard, life, work))
    tau = np.where(given, _without_tiny(every), best_interval_s(rate, delta))
    share = np.array(synchronous_share(rate, delta, tau, pause))
    at = np.isfinite(life) & steps
    if at.any():
        share[at] = _share_with_lifetime(
            work[at], n[at], hazard[at], life[at], delta[at], tau[at], pause[at]
        )
    saving = synchronous_share(0.0, delta, np.where(given, every, np.inf), 0.0)
    return np.where(steps, share, saving / (1.0 + lost * pause))


def _share_with_lifetime(
    work: Floats, n: Floats, hazard: Floats, life: Floats, delta: Floats, tau: Floats, pause: Floats
) -> Floats:
    """Return phi of synchronous workers with a hard lifetime, (k,).

    Where the work never ends, it is the limit.
    """
    ends = np.isfinite(work)
    work = np.where(ends, np.maximum(work, 1e-9), 1.0)
    with np.errstate(divide="ignore"):
        out = work / lifetime_seconds(work, n, hazard, life, delta, tau, pause)
    per_life = _Lifetimes(n, hazard, life, delta, tau, pause, np.zeros(len(n))).period(np.inf)
    return np.clip(np.where(ends, out, per_life.progress / per_life.seconds), 0.0, 1.0)


def event_rate(
    n: Values,
    per_hour: Values,
    lifetime_s: Values,
    work_s: Values,
    other: Values = 0.0,
) -> Floats:
    """Return the losses per second that stop n synchronous workers in the middle of work_s seconds.

    The workers start together. Those that reach the lifetime together count as one loss. `other`
    has the losses per second of further workers.
    """
    n, work, life = as_floats(n, work_s, lifetime_s)
    with np.errstate(invalid="ignore"):
        middle = np.where(np.isinf(work), np.inf, np.floor(np.floor(work / life) / 2.0))
        random, joint = _losses_of_period(
            n, np.asarray(per_hour, np.float64) / HOUR_S, life, middle
        )
    return np.asarray(other + random + np.where(work >= life, joint / life, 0.0))


def _losses_of_period(n: Floats, rate: Floats, life: Floats, m: Values) -> tuple[Floats, Floats]:
    """Return the rate of losses in lifetime m, and the probability that it has a joint end.

    The rate is that of losses of one server at a time, per second. A joint end is that of servers
    that started together. q = exp(-rate L) is the probability to reach the lifetime. A place still
    follows the common start at the end of lifetime m with probability q^(m+1), and all such places
    end together. A server that was replaced alone ends alone L later, if it lives so long. Together
    these are n rate (1 + q + .. + q^m) losses per second.
    """
    with np.errstate(all="ignore"):
        x = np.where(rate * life > RARE, rate * life, 0.0)
        reached = np.where(x > 0, np.exp(-x * (m + 1.0)), 1.0)
        grown = np.where(x > 0, np.expm1(-x * (m + 1.0)) / np.expm1(-x), 1.0)
        joint = np.where(
            reached < 1.0, -np.expm1(n * np.log1p(-np.minimum(reached, 1.0 - 1e-16))), 1.0
        )
    return np.asarray(n * rate * grown), np.asarray(joint)


@dataclass(frozen=True)
class _Period:
    """What happens in one lifetime, arrays (k,).

    Attributes
    ----------
    progress, seconds : (k,)
        Useful seconds, and the seconds that they take.
    rate : (k,)
        Losses per second.
    most : (k,)
        Most useful seconds with which the job ends in this lifetime.
    steady : (k,)
        True if all later lifetimes are like this one.
    """

    progress: Floats
    seconds: Floats
    rate: Floats
    most: Floats
    steady: Bools


@dataclass(frozen=True)
class _Lifetimes(Columns):
    """Synchronous servers with a hard lifetime, arrays (k,) in seconds.

    `per_hour` has the revocations of one server per hour.
    """

    n: Floats
    per_hour: Floats
    life: Floats
    delta: Floats
    tau: Floats
    pause: Floats
    other: Floats

    def period(self, m: float) -> _Period:
        """Return what happens in lifetime m."""
        life = self.life
        tau = self.tau
        stretch = self.tau + self.delta
        h = self.per_hour / HOUR_S
        alone = (self.n <= 1) & (
            np.asarray(self.other) == 0
        )  # every loss is followed by a whole new lifetime
        random, joint = _losses_of_period(self.n, h, life, m)
        rate = np.where(alone, h, self.other + random)
        share = synchronous_share(rate, self.delta, tau, self.pause)
        lossless = synchronous_share(0.0, self.delta, tau, 0.0)
        first = self._stretches(rate, life)
        later = self._restarts(rate, life - self.pause)
        fits = stretch + self.pause <= life
        with np.errstate(all="ignore"):
            whole = first + np.exp(-rate * self.pause) * later
            mean_life = np.where(h > 0, -np.expm1(-h * life) / h, life)
            progress = np.where(
                alone, first, joint * whole + np.where(fits, (1.0 - joint) * share * life, 0.0)
            )
            seconds = np.where(alone, mean_life, life) + np.where(alone, 1.0, joint) * self.pause
            count = np.where(stretch > 0, np.floor(life / stretch * (1 + 1e-12)), 0.0)
            done = np.where(count > 0, count * np.where(count > 0, tau, 0.0), 0.0)
            best = np.where(stretch > 0, done + np.minimum(tau, life - count * stretch), life)
            most = share * life + np.exp(-rate * life) * (best - lossless * life)
        steady = alone | (h <= 0) | (joint < 1e-9)
        return _Period(progress, seconds, rate, most, np.asarray(steady, np.bool_))

    def _stretches(self, rate: Floats, span: Floats) -> Floats:
        """Return useful seconds before the first loss within `span`: tau sum_k exp(-rate k s)."""
        s = self.tau + self.delta
        with np.errstate(all="ignore"):
            count = np.where((s > 0) & np.isfinite(s), np.floor(span / s * (1 + 1e-12)), 0.0)
            y = rate * s
            several = np.where(y > 1e-9, -np.expm1(-y * count) / np.expm1(y), count)
            free = np.where(rate > 0, -np.expm1(-rate * span) / rate, span)
            return np.where(s > 0, np.where(count > 0, self.tau * several, 0.0), free)

    def _restarts(self, rate: Floats, span: Floats) -> Floats:
        """Return the useful seconds after losses at a constant rate, without their pause.

        They are tau sum_k rate (span - k s) x^k with x = exp(-rate s).
        """
        s = self.tau + self.delta
        span = np.maximum(span, 0.0)
        with np.errstate(all="ignore"):
            count = np.where((s > 0) & np.isfinite(s), np.floor(span / s * (1 + 1e-12)), 0.0)
            y = rate * s
            x = np.exp(-y)
            last = np.exp(-y * count)
            zeroth = np.where(y > 1e-6, -np.expm1(-y * count) / np.expm1(y), count)
            first = np.where(
                y > 1e-6, (zeroth - count * last * x) / -np.expm1(-y), count * (count + 1.0) / 2.0
            )
            several = rate * (span * zeroth - s * first)
            free = span - np.where(rate > 0, -np.expm1(-rate * span) / rate, span)
            return np.where(
                s > 0, np.where(count > 0, self.tau * np.maximum(several, 0.0), 0.0), free
            )


def lifetime_seconds(
    work_s: Values,
    n: Values,
    per_hour: Values,
    lifetime_s: Values,
    checkpoint_s: Values,
    every_s: Values,
    replace_s: Values,
    other: Values = 0.0,
) -> Floats:
    """Return the expected seconds of work_s useful seconds on n synchronous servers.

    The servers start together and live at most lifetime_s. The result is computed lifetime by
    lifetime and is inf where the job never ends. Servers that are still in step reach the lifetime
    together, which is one loss. All arguments broadcast.

    It is exact without random revocations. Otherwise it is within 2 % if a stretch between
    checkpoints and a replacement take at most an eighth of the lifetime
    (tests/market/test_lifetimes.py). For longer ones it is an estimate: whether a stretch fits
    between two losses then depends on when single servers were replaced, and that changes slowly.

    Parameters
    ----------
    per_hour
        Revocations of one server per hour.
    checkpoint_s, every_s, replace_s
        Seconds of a checkpoint, useful seconds between checkpoints, seconds of a replacement.
    other
        Losses per second of further servers.
    """
    arrays = np.broadcast_arrays(
        *as_floats(work_s, n, per_hour, lifetime_s, checkpoint_s, every_s, replace_s, other)
    )
    arrays = (*arrays[:4], *map(_without_tiny, arrays[4:6]), *arrays[6:])
    left = arrays[0].astype(np.float64).reshape(-1)
    own = _Lifetimes(*(a.reshape(-1) for a in arrays[1:]))
    least = 1e-12 * left
    out = np.zeros(len(left))
    # busy has the rows of `out` that are not done; left, least and own have only these rows
    busy = np.arange(len(left))
    m = 0.0
    block = 1.0
    while len(busy):
        p = own.period(m + (block - 1.0) / 2.0)
        ends = synchronous_seconds(left, p.rate, own.delta, own.tau, own.pause)
        last = (ends <= own.life * (1 + 1e-12)) | (left <= p.most * (1 + 1e-12))
        again = synchronous_seconds(left, p.rate + 1.0 / own.life, own.delta, own.tau, own.pause)
        stuck = ~last & ~(p.progress > least)  # nan is no progress
        short = left <= np.minimum(own.tau, own.life)
        with np.errstate(all="ignore"):
            count = np.ceil((left - p.most) / p.progress - 1e-9)
        count = np.clip(count, 1.0, np.where(p.steady, np.inf, block))
        out[busy] += np.where(last, ends, np.where(stuck, np.where(short, again, np.inf), 0.0))
        goes = np.flatnonzero(~last & ~stuck)
        busy = busy[goes]
        least = least[goes]
        own = own.take(goes)
        left = np.maximum(left[goes] - count[goes] * p.progress[goes], 0.0)
        out[busy] += count[goes] * p.seconds[goes]
        m, block = m + block, max(1.0, (m + block) // 8)
    return out.reshape(arrays[0].shape)
