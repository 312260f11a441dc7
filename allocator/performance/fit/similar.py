"""Guess speeds that were never measured from similar ones, by ridge regression on logarithms.

    log rate = m_model + g_type + (a + a_model) log2 k

The penalty keeps effects small unless the rows contradict that. So the guess for a model on a type
it never ran on is its speed elsewhere, times the relative speed of that type for other models. With
the same exponent for all models this is the rule of Sia (Jayaram Subramanya et al., SOSP 2023,
section 3.2). `ridge` itself works with any features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Floats, Ints
from allocator.performance.fit.observations import Observations

STRENGTH = 1e-3  # penalty of an effect, relative to one row


@dataclass(frozen=True)
class Ridge:
    """Hold a linear model y = x beta + noise.

    Attributes
    ----------
    beta : (p,)
        Weights.
    spread : (p, p)
        Covariance of beta.
    noise : float
        Standard deviation of one y.
    """

    beta: Floats
    spread: Floats
    noise: float

    def predict(self, x: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of y at features x (n, p), (n,) each."""
        return x @ self.beta, np.sqrt(np.einsum("np,pq,nq->n", x, self.spread, x) + self.noise**2)


def ridge(x: Floats, y: Floats, penalty: Floats) -> Ridge:
    """Return the ridge regression of y (n,) on x (n, p) (Hoerl and Kennard 1970).

    `penalty` (p,) is the factor of each squared weight. The variance of the noise is the sum of
    squares divided by n less the effective number of parameters, the trace of x (x'x + P)^-1 x'.
    """
    inner = x.T @ x + np.diag(np.maximum(penalty, 1e-12))
    inverse = np.linalg.pinv(inner)
    beta = inverse @ x.T @ y
    left = max(1.0, len(y) - float(np.trace(inverse @ (x.T @ x))))
    noise = float(np.sqrt(np.sum((y - x @ beta) ** 2) / left))
    return Ridge(beta, np.asarray(noise**2 * inverse, np.float64), noise)


def features(model: Ints, gpu_type: Ints, gpus: Ints, models: int, gpu_types: int) -> Floats:
    """Return the features of each row, (n, 2 models + gpu_types + 1).

    They are indicators of model and type, log2 k, and log2 k for the model of the row.
    """
    size = np.log2(np.maximum(gpus, 1).astype(np.float64))[:, None]
    is_model = np.eye(models)[model]
    is_type = np.eye(gpu_types)[gpu_type]
    return np.concatenate([is_model, is_type, size, is_model * size], axis=1)


@dataclass(frozen=True)
class GuessedCurve:
    """Hold a row of models.csv of kind "power" for a model and type without a common measurement.

    `parameters` include `error`, the relative standard error.
    """

    model: str
    gpu_type: str
    parameters: dict[str, float]


def guess_curves(seen: Observations) -> list[GuessedCurve]:
    """Return curves of all unmeasured pairs of a model and a GPU type that both have measurements.

    The result is [] with fewer than three measured pairs. The error of a curve is that of
    predicting measured pairs from the others, and at least the deviation of the ridge regression.
    It is at least 1 if no pair can be predicted from the others.
    """
    groups = [rows.take(rows.fastest()) for _, _, rows in seen.groups()]
    if len(groups) < 3:
        return []
    m, t, k, y = (
        np.concatenate(parts)
        for parts in zip(
            *((g.model, g.gpu_type, g.gpus, np.log(g.useful)) for g in groups), strict=True
        )
    )
    owner = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    shape = len(seen.models), len(seen.gpu_types)
    x = features(m, t, k, *shape)
    penalty = np.concatenate([np.full(sum(shape) + 1, STRENGTH), np.full(shape[0], 30 * STRENGTH)])
    wrong = []
    for g in range(len(groups)):
        rest = owner != g
        if m[owner == g][0] in m[rest] and t[owner == g][0] in t[rest]:
            mean, _ = ridge(x[rest], y[rest], penalty).predict(x[~rest])
            wrong.append(float(np.mean(mean - y[~rest])))
    error = float(np.sqrt(np.mean(np.square(wrong)))) if wrong else 1.0
    weights = ridge(x, y, penalty)
    there = set(zip(m.tolist(), t.tolist(), strict=True))
    out = []
    for a in sorted(set(m.tolist())):
        for b in sorted(set(t.tolist())):
            if (a, b) in there:
                continue
            ends = features(np.array([a, a]), np.array([b, b]), np.array([1, 2]), *shape)
            mean, deviation = weights.predict(ends)
            exponent = float(np.clip(mean[1] - mean[0], 0.0, np.log(4.0))) / float(np.log(2.0))
            most = int(k[m == a].max())
            out.append(
                GuessedCurve(
                    seen.models[a],
                    seen.gpu_types[b],
                    {
                        "rate_1": float(np.exp(np.clip(mean[0], -60.0, 60.0))),
                        "exponent": exponent,
                        "min_gpus": 1.0,
                        "max_gpus": float(most),
                        "error": max(error, float(deviation[0])),
                    },
                )
            )
    return out
