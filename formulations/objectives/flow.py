"""Objective `flow`: completion times with a short tail, and pauses that may pay off later.

It is `completion` with other weights, and with spread pauses:

    W_j (1 + d_j / (0.8 T)) in place of W_j
    T      = D + mean over the jobs with options of total_work_j / (fastest r_o of j)
    d_j    = max(0, age_j - (total_work_j - R_j) / (fastest r_o of j))
    done_o = r_o max(0, D - a'_o)        pauses are always spread: context.py

The delay d is the part of a job's age beyond the time that its work so far takes alone. 1 + d /
(0.8 T) is the slope of F + d^2 / (1.6 T), a sum of completion time F and squared delay (norms of
flow time between the mean and the longest: Bansal and Pruhs, "Server scheduling in the L_p norm",
STOC 2003). Delay counts, not age: a long job that has always run is old and has lost nothing, and
speeding it up takes GPUs from waiting jobs. T, the mean time that jobs take alone, is the scale of
the queue: delay counts more where jobs wait for many times what they take alone. This bounds how
long a job is passed over. A job that needs q times the cluster time R / C of new jobs of its weight
comes before them in Smith's order once it is delayed by 0.8 T (q - 1).

All this needs an estimate of what is left. Where sizes are learned from other jobs,

    d_j = 0,    B_j + 18 mean W_i in place of B_j
    ln(R_i / (C_i W_i)) >= ln(R_j / (C_j W_j)) - 0.1    for the jobs i that B_j counts
    E min(done_o, S) in place of min(done_o, R_j),    E (t_o - S / r_o)+ in place of D - b_o
    E min(x, S) = R_j (1 - e^(-x / R_j)),    t_o = max(0, D - a_o)
    2 W_j (k_o - r_o / max r / k of j in p) / G off for each hour that the GPUs are held

T and d_j rest on what is expected of whole jobs, and their errors cost more than the tail gains.
B_j counts only jobs that are there. Others come behind each of them while it runs, and those that
seem to be short may be long, so a number of jobs is added to what is behind each. Among few jobs
their order then counts little, and a long one goes on; among many, short ones still come first.
The longer a job without a known end has run, the longer it seems to last. If the smallest
difference decided, equal jobs would take turns: each round would serve those that have done least.
So jobs of nearly the same size count as equal. The job that waits would have to pay a pause a. By
its Gittins index, with a Pareto distribution of its rest R, it should go first only if the sizes
differ by more than the share sqrt(2 a / R), which is a tenth if R is 200 pauses.
R_j is only the mean of the work S that is left. S is taken to be exponential: of all distributions
with that mean it assumes least (Jaynes, "Information theory and statistical mechanics", 1957). So a
job that seems to be almost done may be not, and the value falls as an option does more than R_j:
such options get fewer GPUs and change less often. The last line is a price of lost efficiency: k_o
GPUs of pool p that do the work of fewer ones at the job's best speed per GPU there cost what the
others could do. All G GPUs of the cluster for an hour without effect cost two hours of one job.
Without it a job alone takes all that makes it faster, however little, and pauses twice: for these
GPUs, and when others need them. The most efficient size has no price, so no job waits beside free
GPUs for better ones. Where nothing but the job's own work so far says how much is
left (no other job of its model is known), and no losses say more of any job, the value is

    v_o = V_j D (least r of j) log(1 + 9 s_o) / log 10,    s_o = done_o / (D least r of j)

A value that is linear in work does not forgive wrong estimates: it gives all GPUs to the job that
seems to be shortest, and moves them when the estimate moves. So the slowest option has the linear
value, and each doubling of the speed adds less, as in `utility`. docs/results.md has what each of
these parts brings.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Floats
from formulations.objectives import Objective, completion, response, utility
from formulations.objectives.context import HOUR, Context, fastest, measure_whole_jobs

# measured in docs/results.md; the first two count where sizes are learned from other jobs
NEAR = 0.1  # two jobs whose sizes differ by a smaller share count as equally long
UNSEEN = 18.0  # jobs of mean weight that are counted behind each job besides those in the queue
TAIL = 0.8  # a delay of TAIL times the mean time that jobs take alone doubles a weight


def value(c: Context) -> Floats:
    """Return the values (n,) of options."""
    price = work_price(c)
    sized = hours_saved(by_delay(c), price)
    guessed = c.facts.guessed
    if not guessed.any():
        return sized
    least = (price * utility.slowest(c))[c.job] * c.facts.interval_s
    unsized = least * utility.diminished(c, c.lasting_work) / np.log1p(utility.STEEP)
    return np.where(guessed[c.job], unsized, sized)


def hours_saved(c: Context, work_price: Floats) -> Floats:
    """Return the hours (n,) that options save, the expected ones where sizes are learned."""
    if c.facts.sizes_known:
        return response.hours_saved(c, work_price, c.lasting_work)
    done = expected_minimum(c.lasting_work, c.remaining)
    early_s = (c.work_now - expected_minimum(c.work_now, c.remaining)) / c.rate
    gpus = c.offer.gpus
    best = np.maximum(completion.rate_per_gpu(c)[c.job, c.pool], c.rate / gpus)
    idle: Floats = (gpus - c.rate / best) * c.pays_for_gpus / c.facts.pool_gpus.sum()
    price = 2.0 * c.weight * idle
    saved_s = (c.weight + price) * early_s - price * c.facts.interval_s
    return work_price[c.job] * done + saved_s / HOUR


def expected_minimum(work: Floats, mean: Floats) -> Floats:
    """Return E min(work, S), shape (n,), of exponential S with these means."""
    return -mean * np.expm1(-work / mean)


def linear(c: Context) -> tuple[Floats, Floats]:
    """Return the values (J,) of a unit of work and of an hour; pauses are exact in a plan."""
    return work_price(c), by_delay(c).facts.weight


@measure_whole_jobs
def work_price(c: Context) -> Floats:
    """Return V_j (J,), inf for jobs without options."""
    doubt = (completion.EQUAL, 0.0) if c.facts.sizes_known else (NEAR, UNSEEN)
    return completion.work_price_among(by_delay(c), True, *doubt)


def by_delay(c: Context) -> Context:
    """Return the context with weights W_j (1 + d_j / (0.8 T)), with W_j where sizes are unknown."""
    if not c.facts.sizes_known:
        return c
    return c.weighed(c.facts.weight * (1.0 + delay_s(c) / (TAIL * alone_s(c))))


@measure_whole_jobs
def alone_s(c: Context) -> float:
    """Return T: an interval, plus the mean seconds that a job takes alone at its fastest option."""
    speed = fastest(c)
    able = np.flatnonzero(speed > 0)
    mean = float((c.facts.total_work[able] / speed[able]).mean()) if len(able) else 0.0
    return c.facts.interval_s + mean


@measure_whole_jobs
def delay_s(c: Context) -> Floats:
    """Return d_j (J,): age beyond the seconds that the work so far takes alone at its fastest."""
    f = c.facts
    speed = fastest(c)
    done_s = (f.total_work - f.remaining_work) / np.where(speed > 0, speed, np.inf)
    return np.maximum(0.0, f.age_s - done_s)


OBJECTIVE = Objective("flow", value, linear=linear)
