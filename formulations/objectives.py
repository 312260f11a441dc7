"""What an option is worth, as arrays. Formulas: formulations/README.md and contract section 3."""

from __future__ import annotations

import numpy as np

from formulations.linear import Bools, Floats

HOUR = 3600.0
# a delay of this many times what jobs take alone doubles a weight: docs/default.md
TAIL = 0.8


def pause_s(keep: Bools, running: Bools, restart_s: Floats, startup_s: Floats) -> Floats:
    """Seconds lost before work goes on: 0 to keep, restart + startup for a running job that
    changes, else startup.
    """
    return np.where(keep, 0.0, startup_s + np.where(running, restart_s, 0.0))


def work_done(rate: Floats, pause: Floats, interval_s: float) -> Floats:
    """Work of one interval: rate x max(0, interval - pause)."""
    return rate * np.maximum(0.0, interval_s - pause)


def progress(weight: Floats, done: Floats, remaining_work: Floats) -> Floats:
    """weight x min(1, done / remaining_work): the fraction of what is left that this round
    completes.
    """
    return weight * np.minimum(1.0, done / remaining_work)


def throughput(weight: Floats, done: Floats, remaining_work: Floats, base: Floats) -> Floats:
    """weight x min(done, remaining_work) / base, base = work of one interval as requested on the
    slowest type.
    """
    return weight * np.minimum(done, remaining_work) / base


def busy_s(pause: Floats, rate: Floats, remaining_work: Floats, interval_s: float) -> Floats:
    """Seconds of the interval that the GPUs are held: until the job is done, at most all of it."""
    return np.minimum(interval_s, pause + remaining_work / rate)


def dollars(keep: Bools, cost_per_hour: Floats, busy: Floats, min_billing_s: Floats) -> Floats:
    """What an option adds to the bill of this interval; what is newly got is billed for
    min_billing_s at least.
    """
    return cost_per_hour * np.where(keep, busy, np.maximum(busy, min_billing_s)) / HOUR


def work_worth(weight: Floats, money: Floats, cost_per_hour: Floats, rate: Floats) -> Floats:
    """(w + mu c) / s: weighted hours and money that a unit of work costs at this option, to the end
    of the job.

    The least over a job's options is V_j, what a unit of its work is worth; the option that attains
    it is the rental width (Li et al. 2024, systems of fixed width: minimise (w + mu k)/s(k)). mu =
    money, weighted hours per dollar; c = cost_per_hour; s = rate in work per second.
    """
    return (weight + money * cost_per_hour) / (rate * HOUR)


def queue_worth(weight: Floats, remaining_work: Floats, whole: Floats) -> Floats:
    """(J,) weighted hours that a unit of work costs where jobs are served one after the other by
    the whole cluster.

    whole (J,) > 0: work per second if all GPUs worked on jobs of this kind, each at its best size.
    Served in the order of R_j / (whole_j w_j) (Smith 1956), a unit of job j delays itself and all
    that are not before it by 1 / whole_j.
    """
    # ties do not hang on the last bit
    key = np.round(np.log(remaining_work / (whole * weight)), 9)
    order = np.argsort(key, kind="stable")
    behind = np.append(np.cumsum(weight[order][::-1])[::-1], 0.0)
    return np.asarray(behind[np.searchsorted(key[order], key)] / (whole * HOUR), dtype=np.float64)


def delayed(delay_s: Floats, alone_s: float) -> Floats:
    """(J,) 1 + d / (0.8 T): what the square of a job's delay makes of a second of its time, beside
    the mean.

    d: seconds for which the job has been there beyond what its work so far takes alone; nobody can
    give it these back. The slope of F + d^2 / (1.6 T), F the completion time: the more of d^2, the
    shorter the tail (norms of flow time: Bansal and Pruhs, STOC 2003). T: `alone_s`, what the jobs
    there take alone, on average: the queue's own scale.
    """
    return np.asarray(1.0 + delay_s / (TAIL * alone_s), dtype=np.float64)


def lasting_work(
    rate: Floats, pause: Floats, remaining_work: Floats, stays_s: Floats, interval_s: float
) -> Floats:
    """(n,) r D max(0, 1 - a / T): work of one interval if the pause is spread over the time T that
    an option is held.

    T = max(D, min(stays_s, a + R / r)): at most to the end of the job, and never less than the
    interval.
    """
    held = np.maximum(interval_s, np.minimum(stays_s, pause + remaining_work / rate))
    return np.asarray(rate * interval_s * np.maximum(0.0, 1.0 - pause / held), dtype=np.float64)


def response(
    weight: Floats, done: Floats, busy: Floats, worth: Floats, interval_s: float
) -> Floats:
    """V done + w (interval - busy): weighted hours that this interval saves, against waiting for
    its length.

    Waiting costs w interval now and V per unit of work later. An option that runs through costs w
    interval too and takes `done` off what is left; one that finishes ends the job's time early. The
    money it costs comes off later.
    """
    return worth * done + weight * (interval_s - busy) / HOUR
