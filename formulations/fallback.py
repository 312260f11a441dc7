"""What it costs to finish a job on GPUs that are not taken back: the cost to go behind the objective `cost`.

    C(R, R', h) = min over firm options f of   m_f (a_f + R / r_f) + L max(0, a_f + R' / r_f - h)

R: work left; R': work left if everything goes wrong; h: hours until the deadline (inf: none); m_f: dollars per hour;
a_f: hours of pause before f works; r_f: work per hour; L: dollars per hour of lateness. With C the worth of an option
is what it saves against waiting, one step ahead (a rollout in the sense of Bertsekas, Rollout, Policy Iteration, 2020,
ch. 2): work done cheaply now need not be bought later, and time lost may have to be bought back with faster GPUs.
"""

from __future__ import annotations

import numpy as np

from formulations.linear import Bools, Floats, Ints


def cost_to_go(query: Ints, work: Floats, worst: Floats, hours: Floats, cost_per_hour: Floats, per_hour: Floats,
               pause_h: Floats, late: Floats) -> Floats:
    """(n,) the least cost of n questions over their firm options; inf for a question without any.

    Pairs of a question and a firm option are parallel arrays (m,), question by question: query, cost_per_hour,
    per_hour (r_f), pause_h. work (R), worst (R'), hours (h), late (L) are (n,). Work left of 0 costs nothing.
    """
    work_, worst_ = work[query], worst[query]
    takes = np.where(work_ > 0, pause_h + work_ / per_hour, 0.0)
    slow = np.where(worst_ > 0, pause_h + worst_ / per_hour, 0.0)
    late_h = np.where(np.isinf(hours[query]), 0.0, np.maximum(0.0, slow - hours[query]))
    total = cost_per_hour * takes + late[query] * late_h
    least = np.full(len(work), np.inf)
    np.minimum.at(least, query, total)
    return least


def ahead(done: Floats, pace: Floats, interval_h: float) -> Floats:
    """Hours by which work done keeps up with the asked pace (work per hour), at most the interval."""
    return np.minimum(interval_h, done / pace)


def first_kind(start: Ints, *kinds: Bools) -> Bools:
    """(n,) for every job its options of the first of the kinds that it has any of, all if of none. start (J+1,)."""
    count, job = np.diff(start), np.repeat(np.arange(len(start) - 1), np.diff(start))
    left, out = np.ones(len(count), dtype=np.bool_), np.zeros(len(job), dtype=np.bool_)
    for kind in (*kinds, np.ones(len(job), dtype=np.bool_)):
        has = np.bincount(job[kind], minlength=len(count)) > 0
        out |= kind & (left & has)[job]
        left &= ~has
    return out
