"""Objective `flow`: completion times with a short tail, and pauses that may pay off later.

It is `completion` with other weights and other work done:

    W_j (1 + d_j / (0.8 T)) in place of W_j
    T      = D + mean over the jobs with options of total_work_j / (fastest r_o of j)
    d_j    = max(0, age_j - (total_work_j - R_j) / (fastest r_o of j))
    done_o = r_o D max(0, 1 - a_o / T_o)
    T_o    = max(D, min(age_j / (restarts_j + 2), a_o + R_j / r_o))

1 + d / (0.8 T) is the slope of F + d^2 / (1.6 T), of completion times F and squared delays (norms
of flow time between the mean and the longest: Bansal and Pruhs, "Server scheduling in the L_p
norm", STOC 2003), at the delay d that a job has for certain: its age beyond what its work so far
takes alone. Delay, not age: a long job that has run ever since is old and has lost nothing, and
hurrying it takes GPUs from those who wait. T, what the jobs take alone on average, is the queue's
own scale: delay counts for more where jobs wait for many times what they take alone. It bounds how
long a job is passed over: one that needs q times the cluster time R / C of newcomers of its weight
comes before them in Smith's order once it is delayed by 0.8 T (q - 1).

A pause is spread over the time T_o for which a change will last as far as the job's past says: its
age over the stretches that there would be, at most to the end of the job. Sia discounts restarts in
this way (Jayaram Subramanya et al., "Sia", SOSP 2023, section 3.4). In rounds shorter than a pause
`completion` never changes a running job.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Floats
from formulations.objectives import Objective, completion, response
from formulations.objectives.context import Context, fastest, measure_whole_jobs

TAIL = 0.8  # a delay of TAIL x T doubles a weight; measured in docs/default.md


def value(c: Context) -> Floats:
    """Return the values (n,) of options."""
    weighed = by_delay(c)
    return response.hours_saved(weighed, completion.work_price(weighed), lasting_work(c))


def linear(c: Context) -> tuple[Floats, Floats]:
    """Return the values (J,) of a unit of work and of an hour; pauses are exact in a plan."""
    return completion.linear(by_delay(c))


def by_delay(c: Context) -> Context:
    """Return the context with weights W_j (1 + d_j / (0.8 T))."""
    return c.weighed(c.facts.weight * (1.0 + delay_s(c) / (TAIL * alone_s(c))))


@measure_whole_jobs
def alone_s(c: Context) -> float:
    """Return T: an interval, and the seconds of a job alone at its fastest, on average."""
    speed = fastest(c)
    able = np.flatnonzero(speed > 0)
    mean = float((c.facts.total_work[able] / speed[able]).mean()) if len(able) else 0.0
    return c.facts.interval_s + mean


@measure_whole_jobs
def delay_s(c: Context) -> Floats:
    """Return d_j (J,): age beyond the seconds that the work so far takes alone at its fastest."""
    f, speed = c.facts, fastest(c)
    done = np.divide(
        f.total_work - f.remaining_work, speed, out=np.zeros(len(speed)), where=speed > 0
    )
    return np.asarray(np.maximum(0.0, f.age_s - done), dtype=np.float64)


def stretch_s(c: Context) -> Floats:
    """Return the seconds (J,) that an allocation of each job lasts, as far as its past says."""
    return np.asarray(c.facts.age_s / (c.facts.restarts + 2.0), dtype=np.float64)


def lasting_work(c: Context) -> Floats:
    """Return done_o, shape (n,): the pause is spread over the time that the option will be held."""
    f, pause = c.facts, c.offer.pause_s
    held = np.minimum(stretch_s(c)[c.job], pause + c.remaining / c.rate)
    held = np.maximum(f.interval_s, held)
    return np.asarray(c.rate * f.interval_s * np.maximum(0.0, 1.0 - pause / held))


OBJECTIVE = Objective("flow", value, linear=linear)
