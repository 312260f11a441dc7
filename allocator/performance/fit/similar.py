"""Speeds of what was never measured, from what is alike: ridge regression on logarithms.

    log rate = m_model + g_type + (a + a_model) log2 k        ridge: small effects unless the rows
        insist

so that a model gets on a type it never ran on what it does elsewhere times what that type does for
others; with the same exponent this is the rule of Sia (Jayaram Subramanya et al., SOSP 2023,
section 3.2). Works with any features: `ridge` knows nothing of models and types.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Floats, Ints
from allocator.performance.fit.observations import Observations

STRENGTH = 1e-3  # of the penalty of an effect, against one row


@dataclass(frozen=True)
class Ridge:
    """y = x beta + noise. beta (p,); spread (p, p): covariance of beta; noise: standard
    deviation of one y.
    """

    beta: Floats
    spread: Floats
    noise: float

    def predict(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation (n,) of y at features x (n, p)."""
        return x @ self.beta, np.sqrt(np.einsum("np,pq,nq->n", x, self.spread, x) + self.noise**2)


def ridge(x: Floats, y: Floats, penalty: Floats) -> Ridge:
    """Least squares of y (n,) on x (n, p) with penalty (p,) on the squares of the weights (Hoerl
    and Kennard 1970).

    The noise counts n less the effective number of parameters, trace of x (x'x + P)^-1 x'.
    """
    inner = x.T @ x + np.diag(np.maximum(penalty, 1e-12))
    inverse = np.linalg.pinv(inner)
    beta = inverse @ x.T @ y
    left = max(1.0, len(y) - float(np.trace(inverse @ (x.T @ x))))
    noise = float(np.sqrt(np.sum((y - x @ beta) ** 2) / left))
    return Ridge(beta, np.asarray(noise**2 * inverse, dtype=np.float64), noise)


def features(model: Ints, gpu_type: Ints, gpus: Ints, models: int, gpu_types: int) -> Floats:
    """(n, 2 models + gpu_types + 1): which model, which type, log2 k, and log2 k of that model."""
    size = np.log2(np.maximum(gpus, 1).astype(np.float64))[:, None]
    is_model, is_type = np.eye(models)[model], np.eye(gpu_types)[gpu_type]
    return np.concatenate([is_model, is_type, size, is_model * size], axis=1)


def predict_left_out(model: Ints, gpu_type: Ints, gpus: Ints, y: Floats) -> Floats:
    """(n,) each log speed y predicted from all the others, by effects instead of a form:

        y = u_(model, type) + v_(model, size) + w_(type, size)

    a model's own way to scale, whatever its form, is seen where it runs on other types, that of a
    type by other models. Ridge regression with the rows left out in closed form (Hastie, Tibshirani
    and Friedman 2009, eq. 7.64).
    """
    blocks, penalty = [], []
    for a, b, strength in (
        (model, gpu_type, STRENGTH),
        (model, gpus, 30 * STRENGTH),
        (gpu_type, gpus, 10 * STRENGTH),
    ):
        effect = np.unique(np.stack([a, b]), axis=1, return_inverse=True)[1].reshape(-1)
        blocks.append(np.eye(int(effect.max()) + 1)[effect])
        penalty.append(np.full(blocks[-1].shape[1], strength))
    x = np.concatenate(blocks, axis=1)
    hat = x @ np.linalg.solve(x.T @ x + np.diag(np.concatenate(penalty)), x.T)
    return np.asarray(y - (y - hat @ y) / (1.0 - np.diag(hat)), dtype=np.float64)


@dataclass(frozen=True)
class GuessedCurve:
    """A row of models.csv of kind power for a pair that was never measured; error: relative
    standard error.
    """

    model: str
    gpu_type: str
    parameters: dict[str, float]


def guess_curves(seen: Observations) -> list[GuessedCurve]:
    """Curves of all pairs without a row whose model and type both have some; [] where nothing can
    be compared.

    The error is that of predicting measured pairs left out whole, where there are such, at least
    the ridge's own.
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
    found = ridge(x, y, penalty)
    there = set(zip(m.tolist(), t.tolist(), strict=True))
    out = []
    for a in sorted(set(m.tolist())):
        for b in sorted(set(t.tolist())):
            if (a, b) in there:
                continue
            ends = features(np.array([a, a]), np.array([b, b]), np.array([1, 2]), *shape)
            mean, deviation = found.predict(ends)
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
