"""The horizon as one time-indexed mixed-integer programme, an independent check for small sizes.

x_oh   option o is held in interval h
y_oh   option o is started in interval h
r_oh   option o is started in interval h by a job that held another option (a longer pause)
b_oh   seconds of interval h in which option o is held
u_jh   work of job j in interval h
z_jh   job j finishes in interval h
t_jh   seconds of interval h until job j finishes, 0 if it does not finish in it
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from formulations.horizon.intervals import Horizon
from formulations.model.linear import Floats, Ints, LinearModel, RowFamily
from formulations.model.ragged import ragged

INF = np.inf


def build_monolithic_model(x: Horizon) -> LinearModel:
    """Build the model; its value is the gain over holding nothing.

    Its columns are x, y, r, b (n H each, option by option), then u, z, t (J H each).

    Raises
    ------
    ValueError
        A pause is longer than the interval, or a start takes longer than a change.
    """
    extra = x.switch_s - x.startup_s
    if (np.maximum(x.switch_s, x.startup_s) > x.interval_s).any() or (extra < 0).any():
        raise ValueError("the monolithic form needs startup_s <= switch_s <= interval_s")
    n, J, H, D = x.n, x.J, x.H, x.interval_s
    o, h = np.repeat(np.arange(n), H), np.tile(np.arange(H), n)
    j = np.repeat(x.job, H)
    k, c = np.arange(n * H), np.arange(J * H)
    X, Y, S, B = (i * n * H + k for i in range(4))
    U, Z, T = (4 * n * H + i * J * H + c for i in range(3))
    own, cj = j * H + h, np.repeat(np.arange(J), H)
    later = h > 0
    pairs = [(a, b) for a in range(H) for b in range(a + 1)]
    upto, part = (np.array(side) for side in zip(*pairs, strict=True))
    tri = np.repeat(np.arange(J) * H, len(pairs))
    upto, part = tri + np.tile(upto, J), tri + np.tile(part, J)
    before = upto > part
    held = (x.current[j] == o) & ~later
    holds = (x.current[j] >= 0) & ~later
    rate = np.repeat(x.rate, H)
    m = _Rows()
    m.add(
        "one",
        J * H,
        [(own, X, 1.0), (upto[before], Z[part[before]], 1.0)],
        np.where(x.mandatory[cj], 1.0, -INF),
        1.0,
    )
    a = x.matrix.tocoo()
    row, option = np.repeat(a.row, H), np.repeat(a.col, H)
    at = np.tile(np.arange(H), a.nnz)
    low = np.full((H, x.R), -INF)
    low[0] = x.low
    m.add(
        "interval",
        H * x.R,
        [(at * x.R + option, row * H + at, np.repeat(a.data, H))],
        low.ravel(),
        x.high.ravel(),
    )
    m.add(
        "start",
        n * H,
        [(k, X, 1.0), (k, Y, -1.0), (k[later], X[later] - 1, -1.0)],
        -INF,
        held.astype(float),
    )
    # every option of the job in the previous interval, for every option now
    who, earlier_option = ragged(x.start[j], x.start[j + 1])
    back = h[who] > 0
    m.add(
        "change",
        n * H,
        [(k, Y, 1.0), (k, S, -1.0), (who[back], earlier_option[back] * H + h[who[back]] - 1, 1.0)],
        -INF,
        np.where(holds, 0.0, 1.0),
    )
    m.add("busy", n * H, [(k, B, 1.0), (k, X, -D)], -INF, 0.0)
    m.add("full", n * H, [(k, B, 1.0), (k, X, -D), (k, Z[own], D)], 0.0, INF)
    m.add(
        "work",
        J * H,
        [
            (c, U, 1.0),
            (own, B, -rate),
            (own, Y, rate * np.repeat(x.startup_s, H)),
            (own, S, rate * np.repeat(extra, H)),
        ],
        -INF,
        0.0,
    )
    m.add("all", J, [(cj, U, 1.0)], -INF, x.remaining)
    m.add(
        "done",
        J * H,
        [(upto, U[part], 1.0), (upto, Z[part], -np.repeat(x.remaining, len(pairs)))],
        0.0,
        INF,
    )
    m.add("once", J, [(cj, Z, 1.0)], -INF, 1.0)
    m.add("holding", J * H, [(c, Z, 1.0), (own, X, -1.0)], -INF, 0.0)
    m.add("when", J * H, [(own, B, 1.0), (c, T, -1.0), (c, Z, D)], -INF, D)
    N = 4 * n * H + 3 * J * H
    value, upper, integer = np.zeros(N), np.ones(N), np.zeros(N, dtype=bool)
    value[B] = x.held.ravel()
    value[U] = x.credit.ravel()
    value[Z] = x.reward.ravel()
    value[T] = x.slope.ravel()
    upper[B], upper[U], upper[T] = D, x.remaining[cj], D
    integer[X], integer[Z] = True, True
    return m.model(value, upper, integer)


def plans(x: Horizon, values: Floats) -> Ints:
    """Return the plan of every job, (J, H), in a solution of the monolithic model."""
    on = values[: x.n * x.H].reshape(x.n, x.H) > 0.5
    plan = np.full((x.J, x.H), -1)
    o, h = np.nonzero(on)
    plan[x.job[o], h] = o
    return plan


class _Rows:
    """Collects rows, family by family."""

    def __init__(self) -> None:
        self._m = 0
        self._row: list[Ints] = []
        self._column: list[Ints] = []
        self._coef: list[Floats] = []
        self._low: list[Floats] = []
        self._high: list[Floats] = []
        self._families: list[RowFamily] = []

    def add(
        self,
        kind: str,
        rows: int,
        entries: list[tuple[Ints, Ints, Floats | float]],
        low: Floats | float,
        high: Floats | float,
    ) -> None:
        for row, column, coef in entries:
            self._row.append(self._m + row)
            self._column.append(column)
            self._coef.append(np.broadcast_to(np.asarray(coef, dtype=np.float64), row.shape))
        self._low.append(np.broadcast_to(np.asarray(low, dtype=np.float64), (rows,)))
        self._high.append(np.broadcast_to(np.asarray(high, dtype=np.float64), (rows,)))
        self._families.append(RowFamily(kind, self._m, [str(i) for i in range(rows)]))
        self._m += rows

    def model(
        self, value: Floats, upper: Floats, integer: np.ndarray[tuple[int], np.dtype[np.bool_]]
    ) -> LinearModel:
        a = sparse.csc_matrix(
            (np.concatenate(self._coef), (np.concatenate(self._row), np.concatenate(self._column))),
            shape=(self._m, len(value)),
        )
        return LinearModel(
            value,
            np.zeros(len(value)),
            upper,
            integer,
            a.indptr.astype(np.int64),
            a.indices.astype(np.int64),
            a.data,
            np.concatenate(self._low),
            np.concatenate(self._high),
            tuple(self._families),
        )
