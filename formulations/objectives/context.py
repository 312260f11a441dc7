"""What an objective may look at: options with their speeds, and facts about jobs, pools and time.

Shapes: (n,) options, job by job; (J,) jobs; (P,) pools.

A change loses its pause a_o once, and its gain comes back in every round. If pauses are spread,
the work of the interval counts the part of the pause that falls to one interval, a'_o:

    T_o    = max(D, min(max(age_j / (restarts_j + 2), q), a_o + R_j / r_o))
    q      = a quarter of the youngest age where sizes are learned, 0 where they are known
    a'_o   = a_o D / T_o
    done_o = r_o max(0, D - a'_o)        with a_o in place of a'_o if pauses are not spread

T_o is the time for which the option will probably be held. The job's past gives the estimate: its
age divided by the number of stretches that there would be, at most up to the end of the job. Sia
discounts restarts in this way (Jayaram Subramanya et al., "Sia", SOSP 2023, section 3.4). Without
this, a running job never changes where a pause is as long as an interval.

Where sizes are learned, long jobs are stopped or shrink for short ones that are soon done, and then
they grow back. So an option that is slower than what the job holds counts two pauses, 2 a'_o. Jobs
lose GPUs when others arrive, so nothing disturbs them while nothing arrives, and q grows with the
time since the last arrival. Without q a job that was stopped often stays small in an empty cluster.
Half of the youngest age uses more GPU-hours than a quarter, and is hardly faster.

Spreading is about work only. Where a_o + R_j / r_o <= D, T_o is D and a'_o is a_o; elsewhere a'_o +
R_j / r_o >= D. So min(D, a'_o + R_j / r_o) is b_o: a job ends in the interval, holds its GPUs and
costs dollars as with the real pause.

In one interval of D seconds an option loses a seconds, does `done` work, and uses b seconds and
`dollars`:

a       = 0 if the option is what the running job holds;
          restart_s + startup_s if a running job changes; startup_s otherwise
done    = r max(0, D - a)
b       = min(D, a + R / r), the seconds in which the GPUs are held
dollars = m b / 3600, where b is at least min_billing_s unless the job holds the option
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import TypeVar

import numpy as np

from formulations.model.linear import Bools, Floats, Ints

HOUR = 3600.0  # seconds


def pause_s(keep: Bools, running: Bools, restart_s: Floats, startup_s: Floats) -> Floats:
    """Return the seconds that an option loses before work goes on."""
    return np.where(keep, 0.0, startup_s + np.where(running, restart_s, 0.0))


def work_done(rate: Floats, pause: Floats, interval_s: float) -> Floats:
    """Return the work of one interval, not limited by what remains."""
    return rate * np.maximum(0.0, interval_s - pause)


def busy_s(pause: Floats, rate: Floats, remaining_work: Floats, interval_s: float) -> Floats:
    """Return the seconds of the interval for which an option holds its GPUs."""
    return np.minimum(interval_s, pause + remaining_work / rate)


def dollars(keep: Bools, cost_per_hour: Floats, busy: Floats, min_billing_s: Floats) -> Floats:
    """Return what an option adds to the bill of the interval."""
    return cost_per_hour * np.where(keep, busy, np.maximum(busy, min_billing_s)) / HOUR


T = TypeVar("T")


@dataclass(frozen=True)
class Offer:
    """Options without their values.

    Parameters
    ----------
    job, pool, gpus : (n,)
        Indices of job and pool; number of GPUs.
    rate : (n,)
        Work per second, before losses.
    pause_s : (n,)
        Seconds lost before work goes on.
    keep : (n,)
        Whether the option is what the job holds.
    """

    job: Ints
    pool: Ints
    gpus: Ints
    rate: Floats
    pause_s: Floats
    keep: Bools


@dataclass(frozen=True)
class Facts:
    """What a round says about its jobs and pools, whatever the options.

    The functions are called only by objectives that need them.

    Parameters
    ----------
    interval_s : float
        D, the length of the round in seconds.
    spread_pauses : bool
        Whether `Context.done` counts pauses spread over the time for which options will be held.
    weight, remaining_work, total_work : (J,)
        W_j, aged; R_j; the work of the whole job.
    age_s : (J,)
        Seconds since submission, at least 0.
    sizes_known : bool
        Whether remaining_work is given or predicted, and not learned from other jobs.
    guessed : (J,)
        Whether nothing but a job's own work so far says how much is left, and losses say nothing of
        any job.
    attained_gpu_s, restarts : (J,)
        GPU-seconds held so far; starts after the first and changes.
    restart_s, checkpoint_every_s : (J,)
        Seconds of a restart; seconds between checkpoints, nan if not given.
    dollar_price : (J,)
        mu_j, value of one dollar.
    pool_gpus, startup_s, min_billing_s, availability : (P,)
        GPUs; seconds of a start; shortest bill in seconds; share of time in which GPUs are
        available.
    on_demand, reserved, spot : (P,)
        Whether the pool is of that market.
    price : callable
        Dollars (n,) that an hour of a GPU of the options of an offer adds to the bill.
    fair_share : callable
        Share (J,) of all GPUs that is a job's by the weights of jobs and tenants, if the jobs of a
        mask (J,) take part; 0 for the others.
    useful_share : callable
        Share (n,) of the speeds of an offer that revocations and checkpoints leave.
    requested_rate : callable
        Work per second (J,) at `requested_gpus` on the slowest allowed GPU type. Its argument is a
        function that returns all exclusive options.
    due_in_s : callable
        Seconds (J,) until each job is due, nan if it never is.
    """

    interval_s: float
    spread_pauses: bool
    weight: Floats
    remaining_work: Floats
    total_work: Floats
    sizes_known: bool
    guessed: Bools
    age_s: Floats
    attained_gpu_s: Floats
    restarts: Ints
    restart_s: Floats
    checkpoint_every_s: Floats
    dollar_price: Floats
    pool_gpus: Ints
    startup_s: Floats
    min_billing_s: Floats
    availability: Floats
    on_demand: Bools
    reserved: Bools
    spot: Bools
    price: Callable[[Offer], Floats]
    fair_share: Callable[[Bools], Floats]
    useful_share: Callable[[Offer], Floats]
    requested_rate: Callable[[Callable[[], Offer]], Floats]
    due_in_s: Callable[[], Floats]


@dataclass(frozen=True)
class Context:
    """Options to be valued, with everything that an objective may look at.

    Parameters
    ----------
    facts, offer
        The round and the options (n,).
    exclusive : callable, optional
        Returns the context of all exclusive options, in which a job holds its own GPUs; None if
        `offer` has them. Facts about whole jobs come from these (`measure_whole_jobs`).
    pays_for_gpus : bool or (n,)
        Whether GPUs of the offer are paid for.
    has_losses : bool
        Whether speeds are what revocations and checkpoints leave.
    """

    facts: Facts
    offer: Offer
    exclusive: Callable[[], Context] | None = None
    pays_for_gpus: Floats | Bools | bool = True
    has_losses: bool = False

    @cached_property
    def everything(self) -> Context:
        """The context of all exclusive options."""
        return self if self.exclusive is None else self.exclusive()

    @cached_property
    def with_losses(self) -> Context:
        """The same options, at the speeds that revocations and checkpoints leave."""
        exclusive = None if self.exclusive is None else lambda: self.everything.with_losses
        return replace(self, exclusive=exclusive, has_losses=True)

    def for_offer(self, offer: Offer, pays_for_gpus: Floats | Bools | bool = True) -> Context:
        """Return the context of other options; this one has all exclusive options of the round."""
        return Context(self.facts, offer, lambda: self, pays_for_gpus)

    def weighed(self, weight: Floats) -> Context:
        """Return the context with other weights (J,), which change no speed."""
        exclusive = None if self.exclusive is None else lambda: self.everything.weighed(weight)
        context = replace(self, facts=replace(self.facts, weight=weight), exclusive=exclusive)
        context.__dict__["rate"] = self.rate
        return context

    @property
    def job(self) -> Ints:
        """Job of each option, (n,)."""
        return self.offer.job

    @property
    def pool(self) -> Ints:
        """Pool of each option, (n,)."""
        return self.offer.pool

    @cached_property
    def weight(self) -> Floats:
        """W_j of each option, (n,)."""
        return self.facts.weight[self.job]

    @cached_property
    def remaining(self) -> Floats:
        """R_j of each option, (n,)."""
        return self.facts.remaining_work[self.job]

    @cached_property
    def rate(self) -> Floats:
        """r_o, work per second, (n,)."""
        rate = self.offer.rate
        return rate * self.facts.useful_share(self.offer) if self.has_losses else rate

    @property
    def done(self) -> Floats:
        """Work of the interval, (n,), not limited by what remains; pauses as the facts say."""
        return self.lasting_work if self.facts.spread_pauses else self.work_now

    @cached_property
    def work_now(self) -> Floats:
        """Work of the interval with the real pause, (n,), not limited by what remains."""
        return work_done(self.rate, self.offer.pause_s, self.facts.interval_s)

    @cached_property
    def lasting_work(self) -> Floats:
        """Work of the interval with the pause spread over the time T_o, (n,)."""
        span = self.facts.interval_s
        pause_s = self.offer.pause_s * (span / self.held_s)
        if not self.facts.sizes_known:
            pause_s *= 1.0 + (self.offer.rate < held_rate(self)[self.job])
        return work_done(self.rate, pause_s, span)

    @property
    def held_s(self) -> Floats:
        """T_o, the seconds for which the option will be held, (n,)."""
        to_the_end = self.offer.pause_s + self.remaining / self.rate
        f = self.facts
        quiet_s = 0.0 if f.sizes_known else 0.25 * f.age_s.min(initial=np.inf)
        past = np.maximum(f.age_s / (f.restarts + 2.0), quiet_s)[self.job]
        return np.maximum(f.interval_s, np.minimum(past, to_the_end))

    @cached_property
    def requested_work(self) -> Floats:
        """The work (J,) of an interval at `requested_gpus` on the slowest allowed type.

        All exclusive options are built only if a job has no rate at `requested_gpus`.
        """
        return self.facts.requested_rate(lambda: self.everything.offer) * self.facts.interval_s

    @cached_property
    def busy_s(self) -> Floats:
        """b_o, the seconds of the interval in which the GPUs are held, (n,)."""
        return busy_s(self.offer.pause_s, self.rate, self.remaining, self.facts.interval_s)

    @cached_property
    def dollar_price(self) -> Floats:
        """mu_j of each option, (n,)."""
        return self.facts.dollar_price[self.job]

    @cached_property
    def cost_per_hour(self) -> Floats:
        """m_o, the dollars per hour that the option adds to the bill, (n,)."""
        return self.offer.gpus * self.facts.price(self.offer) * self.pays_for_gpus

    @cached_property
    def dollars(self) -> Floats:
        """Dollars that the option adds to the bill of the interval, (n,)."""
        return dollars(
            self.offer.keep,
            self.cost_per_hour,
            self.busy_s,
            self.facts.min_billing_s[self.pool],
        )


def measure_whole_jobs(measure: Callable[[Context], T]) -> Callable[[Context], T]:
    """Make a measure of whole jobs use the exclusive options, computed once for each context."""
    key = f"{measure.__module__}.{measure.__qualname__}"

    @wraps(measure)
    def measure_exclusive(c: Context) -> T:
        measures: dict[str, T] = c.everything.__dict__
        if key not in measures:
            measures[key] = measure(c.everything)
        return measures[key]

    return measure_exclusive


def least_by_job(jobs: int, job: Ints, amount: Floats | Ints) -> Floats:
    """Return the smallest amount (n,) of each job, shape (J,), inf where it has none."""
    out = np.full(jobs, np.inf)
    np.minimum.at(out, job, amount)
    return out


def largest_by_job(least: Floats, job: Ints, amount: Floats) -> Floats:
    """Return the largest of `least` (J,) and the amounts (n,) of each job, shape (J,)."""
    out = least.copy()
    np.maximum.at(out, job, amount)
    return out


@measure_whole_jobs
def fastest(c: Context) -> Floats:
    """Return the work per second (J,) at each job's fastest option, 0 without options."""
    return largest_by_job(np.zeros(len(c.facts.weight)), c.job, c.rate)


@measure_whole_jobs
def held_rate(c: Context) -> Floats:
    """Return the work per second (J,) of the option each job holds, 0 if it cannot keep one.

    Losses of servers that may be taken back are not subtracted.
    """
    return largest_by_job(np.zeros(len(c.facts.weight)), c.job, c.offer.rate * c.offer.keep)


@measure_whole_jobs
def due_in_s(c: Context) -> Floats:
    """Return the seconds (J,) until each job is due, nan if it never is."""
    return c.facts.due_in_s()
