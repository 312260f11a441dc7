"""An upper bound on the deadlines that can be kept: a linear programme over intervals between them.

    max  sum_j w_j y_j
    s.t. sum_{i: ends <= d_j} sum_o r_o x_joi  >=  R_j y_j    every job j: its work by its deadline
         sum_o x_joi                           <=  L_i        at most one option at a time
         sum_jo a_ro x_joi                     <=  b_r L_i    every row r (pools, budgets, quotas)
         0 <= y_j <= 1,  x >= 0

x_joi is the number of seconds that option o of job j runs in interval i of length L_i. Pauses,
whole jobs and whole options are left out, so no plan keeps more (weighted) deadlines. The value is
an upper bound for the plan of `joint_promises.py`. With more deadlines than intervals, neighbouring
deadlines are merged. Each then counts as due at the end of its interval, which only raises the
bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formulations.model.linear import Floats, Ints

MOST_COLUMNS = 40_000  # options x intervals
MOST_INTERVALS = 24


@dataclass(frozen=True)
class DatedJobs:
    """Jobs with deadlines.

    Attributes
    ----------
    weight, work, due : (J,)
        w, R, and d > 0 in seconds from now.
    job, rate : (n,)
        Job and work per second of each option.
    row, option, amount : (m,)
        Use of rows by options.
    high : (R,)
        Limits b.
    """

    weight: Floats
    work: Floats
    due: Floats
    job: Ints
    rate: Floats
    row: Ints
    option: Ints
    amount: Floats
    high: Floats


def bound_kept_deadlines(w: DatedJobs) -> float:
    """Return the value of the programme; no plan keeps deadlines of more weight.

    It is 0 without jobs or options.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    J = len(w.work)
    n = len(w.job)
    if not J or not n:
        return 0.0
    ends = _grid(w.due, max(1, min(MOST_INTERVALS, MOST_COLUMNS // n)))
    length = np.diff(ends, prepend=0.0)
    # interval in which a job is due, merged
    last = np.searchsorted(ends, w.due)
    # columns x: option and interval
    o, i = np.nonzero(np.arange(len(ends))[None, :] <= last[w.job][:, None])
    k = len(o)
    limited = np.isfinite(w.high[w.row])
    by_option = np.argsort(w.option[limited], kind="stable")
    row, option, amount = (a[limited][by_option] for a in (w.row, w.option, w.amount))
    begin = np.searchsorted(option, np.arange(n + 1))
    uses = np.repeat(np.arange(k), np.diff(begin)[o])
    place = np.arange(len(uses)) - np.repeat(
        np.cumsum(np.diff(begin)[o]) - np.diff(begin)[o], np.diff(begin)[o]
    )
    entry = begin[o[uses]] + place
    T = len(ends)
    R = len(w.high)
    blocks = (
        # work <= done
        (w.job[o], np.arange(k), -w.rate[o]),
        (np.arange(J), k + np.arange(J), w.work),
        # one option at a time
        (J + w.job[o] * T + i, np.arange(k), np.ones(k)),
        # rows
        (J + J * T + row[entry] * T + i[uses], uses, amount[entry]),
    )
    r, c, v = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    b = np.concatenate(
        [
            np.zeros(J),
            np.tile(length, J),
            np.where(np.isfinite(w.high), w.high, 0.0).repeat(T) * np.tile(length, R),
        ]
    )
    matrix = coo_matrix((v, (r, c)), shape=(len(b), k + J)).tocsr()
    used = np.diff(matrix.indptr) > 0
    found = linprog(
        np.append(np.zeros(k), -w.weight),
        A_ub=matrix[used],
        b_ub=b[used],
        bounds=np.column_stack([np.zeros(k + J), np.append(np.full(k, np.inf), np.ones(J))]),
        method="highs",
    )
    return (
        float(w.weight.sum())
        if found.status != 0
        else min(float(w.weight.sum()), -float(found.fun))
    )


def _grid(due: Floats, count: int) -> Floats:
    """Return the ends of at most `count` intervals, (T,).

    They are deadlines, evenly spread, and the last deadline is among them.
    """
    ends = np.unique(due)
    pick = (
        np.unique(
            np.ceil(np.linspace(0, len(ends), min(count, len(ends)) + 1)[1:]).astype(np.int64)
        )
        - 1
    )
    return ends[pick]
