"""The dual of a round with colocated jobs: prices of pools and of the right to a secondary job.

Each option that may have a secondary job has its own row
(`formulations.model.single_round.colocation`). So there are hundreds or thousands of rows, and most
of them do not bind. The smooth dual (formulations/bounds/smoothing.py) needs memory for the square
of their number. Here a linear programme over the promising columns gives the prices; the prices of
the round without secondary jobs say which columns are promising. Columns that the programme lacks
are added until none is missing (Dantzig and Wolfe 1960). Prices q_r of rows outside the programme
follow from

    q_r = max(0, max_{g on h} v_g - a_g'p - u_g)

where q_r is the most that a secondary job g would pay for running with h, and u_g is what the group
of g pays in the programme. With these prices L (formulations/bounds/lagrangian.py) is a bound,
whatever columns the programme lacks. The loop ends when the bound is close to the value of the
programme.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from formulations.bounds.lagrangian import (
    Dual,
    evaluate,
    group_max,
    minimise_dual,
    project_prices,
    spread_prices,
)
from formulations.model.choices import Choices, choices
from formulations.model.linear import (
    AT_MOST_ONE,
    CAPACITY,
    COLOCATION,
    Bools,
    Floats,
    Ints,
    LinearModel,
)

# relative distance of bound and value of the programme that is close enough, by default
CLOSE = 5e-4
TURNS = 12
# columns per group, and pairs per group, of the first programme
NEAR = 3
MORE = 4000  # largest number of columns, and of pairs, that one turn adds
MANY = 8000  # number of columns above which the interior point method is quicker
EPS = 1e-9


@dataclass(frozen=True)
class PairColumns:
    """The columns of secondary jobs in a model.

    Attributes
    ----------
    secondary, primary : (k,)
        Columns of secondary jobs, and the columns of their primary jobs.
    row : (k,)
        Coupling row that ties the two.
    other_rows : (R',)
        All other coupling rows.
    groups : (J,)
        Model row of each group.
    uses_gpus : (k,)
        Whether the secondary job takes GPUs besides those of its primary jobs.
    """

    secondary: Ints
    primary: Ints
    row: Ints
    other_rows: Ints
    groups: Ints
    uses_gpus: Bools

    def sum_of_column(self, amount: Floats) -> Floats:
        """Return for each entry the sum of the amounts (k,) over all entries of its column."""
        return np.asarray(np.bincount(self.secondary, amount)[self.secondary], np.float64)

    @cached_property
    def takes_more(self) -> Bools:
        """Whether the column has several primary jobs, or uses GPUs of its own, (k,)."""
        return self.uses_gpus | (np.bincount(self.secondary)[self.secondary] > 1)

    @classmethod
    def of(cls, c: Choices) -> PairColumns:
        """Find the secondary jobs of a model by the family of their rows."""
        is_secondary = c.model.rows_of(COLOCATION)[c.rows]
        owner = np.repeat(np.arange(c.n), np.diff(c.matrix.indptr))
        entry = np.flatnonzero(is_secondary[c.matrix.indices])
        row = c.matrix.indices[entry]
        column = owner[entry]
        colocated = c.matrix.data[entry] > 0
        primary = np.full(c.R, -1)
        primary[row[~colocated]] = column[~colocated]
        return cls(
            column[colocated],
            primary[row[colocated]],
            row[colocated].astype(np.int64),
            np.flatnonzero(~is_secondary),
            np.flatnonzero(c.model.rows_of(AT_MOST_ONE)),
            np.isin(column[colocated], owner[c.model.rows_of(CAPACITY)[c.rows][c.matrix.indices]]),
        )


def solve_paired_dual(
    c: Choices,
    start: Floats | None = None,
    deadline: float | None = None,
    close: float = CLOSE,
) -> Dual:
    """Solve the dual of a round with secondary jobs.

    Parameters
    ----------
    start : (m,), optional
        Prices of a similar round.
    deadline : float, optional
        Latest end (time.monotonic).
    close : float
        Relative distance of the bound and the value of the programme that is close enough.

    Returns
    -------
    dual : Dual
        Its `values` are those of the last programme, 0 or 1 for most columns.
    """
    until = math.inf if deadline is None else deadline
    g = PairColumns.of(c)
    best = evaluate(c, np.zeros(c.model.m) if start is None else start)
    prices = prices_without_pairs(c, deadline) if start is None else best.prices
    inside = _select_promising(c, g, c.value - c.matrix @ prices[c.rows])
    x = np.zeros(c.n)
    for _ in range(TURNS):
        columns = np.flatnonzero(inside)
        left = until - time.monotonic()
        solution = by_scipy(c.model.take(columns), left) if left > 0 else None
        if solution is None:
            if left <= 0 or inside.all():
                break
            inside[:] = True  # lower bounds of rows may need any of the other columns
            continue
        x = np.zeros(c.n)
        x[columns] = solution[0]
        p, u = solution[1][c.rows], solution[1][g.groups]
        wants = _price_pair_rows(c, g, p, u)
        best = min(best, evaluate(c, spread_prices(c, p)), key=lambda dual: dual.bound)
        more = _find_missing(c, g, (c.value - c.matrix @ p) - u[c.group], wants, inside)
        gap = (best.bound - float(c.value @ x)) / max(abs(best.bound), 1e-300)
        if gap <= close or not len(more):
            break
        inside[more] = True
    return replace(best, values=x)


def _price_pair_rows(c: Choices, g: PairColumns, p: Floats, u: Floats) -> Floats:
    """Raise the prices (R,) of pair rows to what secondary jobs would pay at most.

    u (J,) is what groups pay. Return what each secondary job would pay, (k,).
    """
    known = np.maximum(p, 0.0)
    p[g.row] = 0.0
    wants: Floats = (c.value - c.matrix @ p)[g.secondary] - u[c.group[g.secondary]]
    wants -= g.sum_of_column(known[g.row]) - known[g.row]  # paid to the other primary jobs
    p[g.row] = known[g.row]
    np.maximum.at(p, g.row, wants)
    return wants


def with_pair_rows(c: Choices, prices: Floats, u: Floats) -> Dual:
    """Return the dual at prices (m,) of all rows but those of pairs that the prices lack.

    u (J,) is what groups pay.
    """
    p = project_prices(c, prices)
    _price_pair_rows(c, PairColumns.of(c), p, u)
    return evaluate(c, spread_prices(c, p))


def prices_without_pairs(c: Choices, deadline: float | None = None) -> Floats:
    """Return prices (m,) of the round without secondary jobs, 0 on rows that only they have."""
    if c.model.has_pairs:
        none = np.zeros(0, np.int64)
        c, _ = merge_pairs(c, PairColumns.of(c), none, none)
    return minimise_dual(c, deadline=deadline).prices


def merge_pairs(c: Choices, g: PairColumns, primary: Ints, secondary: Ints) -> tuple[Choices, Ints]:
    """Build the round in which these pairs are options of their primary jobs.

    Also return its columns. No other job can be a secondary job in it. Groups of secondary jobs own
    no column, so those that must run continue with their primary job.
    """
    own: Bools = np.ones(c.n, bool)
    own[g.secondary] = False
    own[np.isin(c.group, c.group[secondary])] = False
    value = c.value.copy()
    mandatory = c.mandatory.copy()
    columns_, first = np.unique(secondary, return_index=True)
    value[primary[first]] += c.value[columns_]
    # a primary job whose secondary job must run may not leave it behind, nor may one of several
    takes_more = g.takes_more[np.searchsorted(g.secondary, secondary)]
    bound = c.group[primary[mandatory[c.group[secondary]] | takes_more]]
    mandatory[c.group[secondary]] = False
    own[np.isin(c.group, bound)] = False
    own[primary] = True
    mandatory[bound] = True
    columns = np.flatnonzero(own)
    part = replace(c.model, value=value).take(columns)
    lower = part.lower.copy()
    upper = part.upper.copy()
    tied = np.setdiff1d(c.rows, c.rows[g.other_rows])
    lower[tied], upper[tied] = -np.inf, np.inf
    lower[g.groups] = np.where(mandatory, 1.0, -np.inf)
    # secondary jobs that keep their GPUs count as kept jobs; some have GPUs of their own
    use = c.matrix[columns_]
    kept = np.bincount(use.indices, use.data, c.R)[g.other_rows]
    lower[c.rows[g.other_rows]] -= kept
    upper[c.rows[g.other_rows]] -= kept
    return choices(replace(part, lower=lower, upper=upper)), columns


def _select_promising(c: Choices, g: PairColumns, reduced: Floats) -> Bools:
    """Find the promising columns at some prices, (n,).

    They are columns near the best of their group, and pairs near the best of both groups together
    with their primary jobs. Columns of groups that must have one, and columns in rows with a lower
    bound, are always among them.
    """
    own = np.ones(c.n, bool)
    own[g.secondary] = False
    u = np.maximum(group_max(c, np.where(own, reduced, -np.inf), 0.0), 0.0)
    loss = np.where(own, u[c.group] - reduced, np.inf)
    inside = loss <= _least(loss, NEAR * c.J)
    lost = u[c.group[g.primary]] - reduced[g.primary]
    short = u[c.group[g.secondary]] - reduced[g.secondary] + g.sum_of_column(lost)
    near = np.flatnonzero(short <= _least(short, NEAR * c.J))
    inside[g.secondary[near]] = True
    bound = np.isfinite(c.low)
    inside |= c.mandatory[c.group] | (np.asarray(c.matrix @ bound.astype(float)) != 0)
    colocated = inside[g.secondary]
    inside[g.primary[colocated]] = True
    return inside


def _find_missing(
    c: Choices, g: PairColumns, surplus: Floats, wants: Floats, inside: Bools
) -> Ints:
    """Return the columns outside the programme that it values too low, the worst first.

    They include secondary jobs of primary jobs with a surplus.
    """
    short = np.where(inside, 0.0, surplus)
    short[g.secondary] = 0.0
    # pairs whose secondary job is outside and would pay for running with the primary job
    colocated = np.flatnonzero(~inside[g.secondary] & (wants > 0))
    lacking = colocated[surplus[g.primary[colocated]] > EPS]
    worst = np.flatnonzero(short > EPS)
    worst = worst[np.argsort(-short[worst], kind="stable")[:MORE]]
    chosen = np.zeros(c.n, bool)
    chosen[worst] = True
    lacking = lacking[np.argsort(-surplus[g.primary[lacking]], kind="stable")[:MORE]]
    chosen[g.secondary[lacking]] = True
    chosen[g.primary[chosen[g.secondary]]] = True
    return np.flatnonzero(chosen & ~inside)


def _least(x: Floats, k: int) -> float:
    """Return the k-th smallest entry, inf where there are no more than k."""
    return float(np.partition(x, k - 1)[k - 1]) if 0 < k < len(x) else math.inf


def by_scipy(model: LinearModel, seconds: float) -> tuple[Floats, Floats] | None:
    """Solve a linear programme by HiGHS in SciPy, and return columns and prices of the rows.

    The solution is optimal and a vertex; None if there is no answer.
    """
    from scipy import optimize, sparse

    if not model.n:
        return np.zeros(0), np.zeros(model.m)
    a = sparse.csc_matrix((model.coef, model.index, model.start), shape=(model.m, model.n)).tocsr()
    up = np.flatnonzero(np.isfinite(model.upper))
    down = np.flatnonzero(np.isfinite(model.lower))
    solution = optimize.linprog(
        -model.value,
        A_ub=sparse.vstack([a[up], -a[down]]).tocsr(),
        b_ub=np.append(model.upper[up], -model.lower[down]),
        bounds=(0.0, 1.0),
        method="highs-ipm" if model.n > MANY else "highs-ds",
        options={"time_limit": seconds} if math.isfinite(seconds) else {},
    )
    if solution.status != 0:
        return None
    prices = np.zeros(model.m)
    rent = -np.asarray(solution.ineqlin.marginals)
    prices[up] += rent[: len(up)]
    prices[down] -= rent[len(up) :]
    return np.asarray(solution.x), prices
