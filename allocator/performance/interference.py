"""How much two models slow each other down on the same GPUs: measured or fitted slowdowns.

Measured (sharing.csv): a row holds in both orders. Of several rows of one (pair, GPU type, size)
the largest slowdown of each model counts. Between two measured sizes the slowdown is linear in the
number of GPUs. Beyond the measured range it is that of the nearest size. It is unknown (nan) if the
pair has no row on that type.

Fitted: slowdown of a next to b = 1 + alpha_a beta_b on one GPU type. alpha says how sensitive a
model is, beta how much it slows the other job down. The fit has rank one, by least squares in
ln(slowdown - 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Problem, Sharing
from allocator.domain.schema.columns import MOST_GPUS

SPAN = MOST_GPUS + 1
LEAST = 0.01  # slowdowns of less than 1 % are fitted as 1 %


class MeasuredSlowdowns:
    """Slowdowns by the rows of sharing.csv."""

    def __init__(self, sharing: Sharing, models: int, gpu_types: int) -> None:
        both = np.concatenate([sharing.model_a, sharing.model_b])
        # only models with a row have a number; the last entry stands for none
        self._code = np.full(models + 1, -1)
        self._code[np.unique(both)] = np.arange(len(np.unique(both)))
        self._models = len(np.unique(both))
        self._types = gpu_types
        key = self._key(
            both,
            np.concatenate([sharing.model_b, sharing.model_a]),
            np.tile(sharing.gpu_type, 2),
            np.tile(sharing.gpus, 2),
        )
        self._keys, place = np.unique(key, return_inverse=True)
        # of the first model of the key next to the second
        self._slowdown = np.ones(len(self._keys))
        np.maximum.at(
            self._slowdown, place, np.concatenate([sharing.slowdown_a, sharing.slowdown_b])
        )

    @classmethod
    def of(cls, problem: Problem) -> MeasuredSlowdowns:
        """Return the slowdowns of a Problem."""
        return cls(problem.sharing, len(problem.models), len(problem.gpu_types))

    def _key(self, a: Ints, b: Ints, gpu_type: Ints, gpus: Ints) -> Ints:
        pair = self._code[a] * self._models + self._code[b]
        return np.asarray((pair * self._types + gpu_type) * SPAN + gpus, np.int64)

    def known(self, models: int) -> Bools:
        """Return the models with a row, (models,)."""
        return self._code[:models] >= 0

    def slowdown(
        self, model_a: Ints, model_b: Ints, gpu_type: Ints, gpus: Ints
    ) -> tuple[Floats, Floats]:
        """Return the slowdowns of a next to b and of b next to a; the arguments broadcast."""
        return self._of(model_a, model_b, gpu_type, gpus), self._of(
            model_b, model_a, gpu_type, gpus
        )

    def _of(self, a: Ints, b: Ints, gpu_type: Ints, gpus: Ints) -> Floats:
        wanted = self._key(a, b, gpu_type, gpus)
        if not len(self._keys):
            return np.full(wanted.shape, np.nan)
        # the first size that is not smaller, if it belongs to the pair
        above = np.searchsorted(self._keys, wanted)
        after = np.minimum(above, len(self._keys) - 1)
        before = np.maximum(above - 1, 0)
        over = (self._keys[after] // SPAN == wanted // SPAN) & (self._keys[after] >= wanted)
        under = (self._keys[before] // SPAN == wanted // SPAN) & (self._keys[before] < wanted)
        low = np.where(under, before, after)
        high = np.where(over, after, before)
        k1 = self._keys[low] % SPAN
        k2 = self._keys[high] % SPAN
        share = np.where(k2 > k1, (wanted % SPAN - k1) / np.maximum(k2 - k1, 1), 1.0)
        out = self._slowdown[low] + (self._slowdown[high] - self._slowdown[low]) * np.minimum(
            share, 1.0
        )
        there = (over | under) & (self._code[a] >= 0) & (self._code[b] >= 0)
        return np.where(there, out, np.nan)


@dataclass(frozen=True)
class FittedSlowdowns:
    """Slowdowns 1 + alpha_a beta_b, where no measured one exists; arrays (T, M).

    Attributes
    ----------
    alpha, beta : (T, M)
        Factors; nan = never measured on the type.
    tied_alpha, tied_beta : (T, M)
        Numbers of linked groups. Only models that measurements link have alpha and beta with a
        common unit.
    error : (T,)
        Root mean square of the relative error of slowdowns, each predicted without its own row; nan
        where there is no row to judge by.
    """

    measured: MeasuredSlowdowns
    alpha: Floats
    beta: Floats
    tied_alpha: Ints
    tied_beta: Ints
    error: Floats

    def slowdown(
        self, model_a: Ints, model_b: Ints, gpu_type: Ints, gpus: Ints
    ) -> tuple[Floats, Floats]:
        """Return measured slowdowns, else fitted ones where measurements link both models."""
        of_a, of_b = self.measured.slowdown(model_a, model_b, gpu_type, gpus)
        return (
            np.where(np.isnan(of_a), self._of(model_a, model_b, gpu_type), of_a),
            np.where(np.isnan(of_b), self._of(model_b, model_a, gpu_type), of_b),
        )

    def _of(self, a: Ints, b: Ints, t: Ints) -> Floats:
        linked = (self.tied_alpha[t, a] >= 0) & (self.tied_alpha[t, a] == self.tied_beta[t, b])
        return np.where(linked, 1.0 + self.alpha[t, a] * self.beta[t, b], np.nan)


def fit(problem: Problem) -> FittedSlowdowns:
    """Fit rank-one slowdowns for every GPU type to the rows of sharing.csv, all sizes alike."""
    s = problem.sharing
    M = len(problem.models)
    T = len(problem.gpu_types)
    alpha = np.full((T, M), np.nan)
    beta = np.full((T, M), np.nan)
    error = np.full(T, np.nan)
    ties = np.full((2, T, M), -1)
    for t in np.unique(s.gpu_type).tolist():
        of_type = s.gpu_type == t
        victim = np.concatenate([s.model_a[of_type], s.model_b[of_type]])
        source = np.concatenate([s.model_b[of_type], s.model_a[of_type]])
        slow = np.concatenate([s.slowdown_a[of_type], s.slowdown_b[of_type]])
        alpha[t], beta[t], error[t] = _rank_one(victim, source, slow, M)
        ties[0, t], ties[1, t] = _find_components(victim, source, M)
    return FittedSlowdowns(MeasuredSlowdowns.of(problem), alpha, beta, ties[0], ties[1], error)


def _rank_one(
    victim: Ints, source: Ints, slow: Floats, models: int
) -> tuple[Floats, Floats, float]:
    """Return alpha (models,), beta (models,), and the error by leaving each row out."""
    from scipy import linalg

    rows = np.unique(victim, return_inverse=True)
    columns = np.unique(source, return_inverse=True)
    n = len(slow)
    p = len(rows[0])
    x = np.zeros((n, p + len(columns[0])))
    x[np.arange(n), rows[1]] = 1.0
    x[np.arange(n), p + columns[1]] = 1.0
    y = np.log(np.maximum(slow - 1.0, LEAST))
    inverse = linalg.pinv(x)
    solution = inverse @ y
    leverage = np.einsum("ij,ji->i", x, inverse)
    alpha = np.full(models, np.nan)
    beta = np.full(models, np.nan)
    alpha[rows[0]], beta[columns[0]] = np.exp(solution[:p]), np.exp(solution[p:])
    # a row that alone determines a parameter cannot judge it
    judged = leverage < 1.0 - 1e-9
    without = y[judged] - (y - x @ solution)[judged] / (1.0 - leverage[judged])
    off = (1.0 + np.exp(without)) / slow[judged] - 1.0
    return alpha, beta, float(np.sqrt(np.mean(off**2))) if judged.any() else float("nan")


def _find_components(victim: Ints, source: Ints, models: int) -> tuple[Ints, Ints]:
    """Return the connected component of each alpha and each beta, (models,) each.

    The component is -1 if the model was never measured. The graph has an edge for each measurement
    of a model v next to a model s.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = coo_array(
        (np.ones(len(victim)), (victim, models + source)), shape=(2 * models, 2 * models)
    )
    part = np.asarray(connected_components(edges, directed=False)[1], np.int64)
    seen = np.zeros(2 * models, bool)
    seen[victim], seen[models + source] = True, True
    part = np.where(seen, part, -1)
    return part[:models], part[models:]
