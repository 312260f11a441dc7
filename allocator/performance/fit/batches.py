"""Fit the kinds of speed models that know the batch: goodput, and iteration with epochs.

goodput: its seven parameters are fitted by Gauss-Newton on logarithms, as in the published fit
(Qiao et al., "Pollux", OSDI 2021, section 4.1). The sum of squares has three parts: errors of the
step; with a small weight, errors of its computing part where that was measured; and a preference
for little overlap and for synchronisation that does not grow. Large errors count less (weights
1/sqrt(error)), because profiles have odd rows. A part that was never observed stays at its lower
bound, which is optimistic: so does synchronisation inside a node if no job had more than one GPU.
If jobs were observed inside a node only, synchronisation between nodes is assumed to take 1.1 times
as long.

iteration: the problem is linear for a given noise. So the noise is searched on a grid, then on
finer grids around the best value.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Bools, Floats
from allocator.performance import batched
from allocator.performance.fit.observations import Observations
from allocator.performance.fit.squares import gauss_newton, non_negative

NAMES = ("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n")
LEAST, MOST = 1e-9, 1e4  # bounds of the parameters, relative to the median step
COMPUTE = 0.1  # weight of the error of the computing part
FEW = 0.02  # errors up to this size have full weight
STARTS = (1.5, 4.0)  # values of gamma that the search starts from
GRID, FINER = 161, 41  # values of the noise


def goodput(
    seen: Observations, per_node: int, near: dict[str, float] | None = None
) -> dict[str, float]:
    """Return the parameters of kind "goodput" without bounds of the batch, from rows with a batch.

    Parameters
    ----------
    seen : Observations
        Rows of one model and GPU type.
    per_node : int
        GPUs per node, for rows that do not state their nodes.
    near : dict of str to float, optional
        Parameters of almost the same rows, as the start; default: the best of several starts.
    """
    k = seen.gpus.astype(np.float64)
    b = np.ceil(seen.batch / (seen.gpus * seen.passes) - 1e-9)
    step = seen.batch / seen.rate
    unit = float(np.median(step))
    nodes = np.where(seen.nodes > 0, seen.nodes, np.ceil(k / per_node))
    local = (k > 1) & (nodes <= 1)
    far = (k > 1) & (nodes > 1)
    known: Bools = ~np.isnan(seen.compute_s) & (seen.compute_s > 1e-3 * step)
    grad = np.where(known, seen.compute_s, step)

    def predict(x: Floats) -> tuple[Floats, Floats]:
        q = {name: np.exp(x[:, i, None]) for i, name in enumerate(NAMES)} | {"gamma": x[:, 6, None]}
        return np.log(batched.goodput_s(q, k, seen.batch, seen.passes, nodes)), np.log(
            q["alpha_c"] + q["beta_c"] * b
        )

    low = np.append(np.full(6, np.log(LEAST * unit)), 1.0)
    high = np.append(np.full(6, np.log(MOST * unit)), 10.0)
    for slow, rows in (((2, 3), local), ((4, 5), far)):
        high[list(slow)] = np.where(rows.any(), high[list(slow)], low[list(slow)] + 1e-6)
        # one size does not show how synchronisation grows
        if np.unique(k[rows]).size < 2:
            high[slow[1]] = low[slow[1]] + 1e-6
    single = np.unique(b).size < 2
    usual = np.log(unit * np.array([0.4, 0.4 / np.median(b), 0.1, 0.01, 0.3, 0.03]))
    starts = [np.append(usual, gamma) for gamma in STARTS]
    if near is not None:
        starts = [
            np.append(np.log(np.maximum([near[n] for n in NAMES], 2 * LEAST * unit)), near["gamma"])
        ]
    best = starts[0]
    least = np.inf
    for start in starts:
        x = start
        weight = np.ones(len(k))
        for _ in range(4 if near is None else 2):
            part = COMPUTE * weight * known

            def residuals(x: Floats, weight: Floats = weight, part: Floats = part) -> Floats:
                many = np.atleast_2d(x)
                log_step, log_grad = predict(many)
                prior = np.stack(
                    [
                        1e-2 * (many[:, 6] - 1.0),
                        1e-2 * np.exp(np.minimum(many[:, 3] - many[:, 2], 9.0)),
                        1e-2 * np.exp(np.minimum(many[:, 5] - many[:, 4], 9.0)),
                        single * 0.1 * (many[:, 0] - many[:, 1] - np.log(b[0])),
                    ],
                    axis=1,
                )
                r = np.concatenate(
                    [weight * (log_step - np.log(step)), part * (log_grad - np.log(grad)), prior],
                    axis=1,
                )
                return r[0] if x.ndim == 1 else r

            x = gauss_newton(residuals, x, low, high)
            wrong = np.abs(predict(x[None])[0][0] - np.log(step))
            weight = 1.0 / np.sqrt(np.maximum(wrong, FEW) / FEW)
        if wrong.mean() < least:
            best = x
            least = float(wrong.mean())
    out = {
        name: 0.0 if value <= 2 * LEAST * unit else value
        for name, value in zip(NAMES, np.exp(best[:6]).tolist(), strict=True)
    } | {"gamma": float(best[6])}
    # synchronisation between nodes is not faster than inside one
    if local.any() and not far.any():
        out |= {"alpha_n": 1.1 * out["alpha_r"], "beta_n": 1.1 * out["beta_r"]}
    return out


def noise_scale(seen: Observations, batch_0: float) -> float:
    """Return phi of efficiency = (phi + B0) / (phi + B), where B0 is batch_0.

    It is the least-squares fit of 1 / efficiency - 1 = (B - B0) / (phi + B0), and nan if no
    efficiency below 1 was observed.
    """
    some = ~np.isnan(seen.efficiency) & (seen.efficiency < 1.0) & (seen.batch > batch_0)
    if not some.any():
        return float("nan")
    x = seen.batch[some] - batch_0
    y = 1.0 / seen.efficiency[some] - 1.0
    # weights that turn errors of the inverse into errors of the efficiency
    weight = seen.efficiency[some] ** 2
    slope = float((weight * x * y).sum() / (weight * x * x).sum())
    return max(0.0, 1.0 / slope - batch_0)


def iteration(
    k: Floats, batch: Floats, rate: Floats, noise: Floats | None = None, constant: bool = True
) -> dict[str, Floats]:
    """Return compute, sync, constant and noise of kind "iteration", (G,) each, of G groups.

        batch / rate = (1 + u / sqrt B) / (1 + u / sqrt B0) (alpha B / K + beta K + const)

    B0 is the smallest batch, and u the noise.

    Parameters
    ----------
    k, batch, rate : (G, n)
        Sizes in GPUs, global batches, and useful speeds.
    noise : (G,), optional
        u where it is known; otherwise it is searched from -0.9 sqrt B0 to 30 sqrt B0.
    constant : bool
        Whether there may be a constant. Four corner points do not determine one.
    """
    first = np.sqrt(batch.min(axis=1))
    if noise is not None:
        return _linear(k, batch, rate, noise, constant)[0]
    grid = np.concatenate(
        [-np.geomspace(0.9, 0.005, GRID // 2), [0.0], np.geomspace(0.005, 30.0, GRID // 2)]
    )
    u = np.broadcast_to(grid, (len(k), len(grid)))  # in units of sqrt B0
    for closer in (0.1, 3e-3, 1e-4, 3e-6, 1e-7, 0.0):
        many_k, many_batch, many_rate = (np.repeat(v, u.shape[1], axis=0) for v in (k, batch, rate))
        errors = _linear(many_k, many_batch, many_rate, (u * first[:, None]).reshape(-1), constant)[
            1
        ].reshape(u.shape)
        best = np.take_along_axis(u, np.argmin(errors, axis=1)[:, None], axis=1)
        u = np.maximum(
            best + closer * np.maximum(np.abs(best), 0.06) * np.linspace(-1.0, 1.0, FINER), -0.9
        )
    return _linear(k, batch, rate, best[:, 0] * first, constant)[0]


def _linear(
    k: Floats, batch: Floats, rate: Floats, noise: Floats, constant: bool
) -> tuple[dict[str, Floats], Floats]:
    """Return the fit for given noise, and its sum of squared relative errors (G,)."""
    root = np.sqrt(batch)
    first = np.sqrt(batch.min(axis=1))[:, None]
    more = (1.0 + noise[:, None] / root) / (1.0 + noise[:, None] / first)
    seconds = batch / rate
    columns = [batch / k, k, np.ones_like(k)][: 3 if constant else 2]
    a = np.stack(columns, axis=2) * (more / seconds)[:, :, None]
    x = non_negative(a, np.ones_like(seconds))
    wrong = ((np.einsum("gnp,gp->gn", a, x) - 1.0) ** 2).sum(axis=1)
    left = x[:, 2] if constant else np.zeros(len(k))
    return {
        "compute": np.maximum(x[:, 0], 1e-15),
        "sync": x[:, 1],
        "constant": left,
        "noise": noise,
    }, wrong
