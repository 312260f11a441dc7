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
    from scipy import sparse
    from scipy.optimize import linprog

    J, n, R = len(w.work), len(w.job), len(w.high)
    if not J or not n:
        return 0.0
    ends = _grid(w.due, max(1, min(MOST_INTERVALS, MOST_COLUMNS // n)))
    T = len(ends)
    length = np.diff(ends, prepend=0.0)
    last = np.searchsorted(ends, w.due)  # interval in which a job is due, merged
    there = (np.arange(T) <= last[w.job][:, None]).ravel()  # columns x: option and interval
    k = int(there.sum())
    limited = np.isfinite(w.high)[w.row]
    of_job = w.job, np.arange(n)
    in_row = w.row[limited], w.option[limited]
    every, each = np.ones((1, T)), sparse.identity(T)
    parts = (
        sparse.kron(sparse.coo_matrix((-w.rate, of_job), (J, n)), every),  # work <= done
        sparse.kron(sparse.coo_matrix((np.ones(n), of_job), (J, n)), each),  # one at a time
        sparse.kron(sparse.coo_matrix((w.amount[limited], in_row), (R, n)), each),
    )
    x = sparse.vstack(parts).tocsc()[:, there]
    b = np.concatenate(
        [
            np.zeros(J),
            np.tile(length, J),
            np.where(np.isfinite(w.high), w.high, 0.0).repeat(T) * np.tile(length, R),
        ]
    )
    done = np.arange(J)
    y = sparse.coo_matrix((w.work, (done, done)), (len(b), J))
    matrix = sparse.hstack([x, y]).tocsr()
    used = np.diff(matrix.indptr) > 0
    solution = linprog(
        np.append(np.zeros(k), -w.weight),
        A_ub=matrix[used],
        b_ub=b[used],
        bounds=np.column_stack([np.zeros(k + J), np.append(np.full(k, np.inf), np.ones(J))]),
        method="highs",
    )
    return (
        float(w.weight.sum())
        if solution.status != 0
        else min(float(w.weight.sum()), -float(solution.fun))
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
