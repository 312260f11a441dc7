"""Read saved rounds of the Sia scheduler as linear models (Jayaram Subramanya et al. 2023, SOSP).

Sia solves, for p < 0 (its default; for p > 0 it maximises the same expression, with a negative
lam),

    min  sum_jc V_jc x_jc + lam (J - sum_jc x_jc)
    s.t. sum_c x_jc <= 1 for every job j,
         sum_jc use_ck x_jc <= caps_k for every GPU type k,
         x binary
    V = min(round((G with row j times restart_j, except where the job is now) ** p, 2 decimals),
    3000)

A job that does not run (prev -1) has nothing to restart, so its row of G is not multiplied. The
model here maximises sum_jc (lam - V_jc) x_jc instead; `sia_objective` converts its value to Sia's.
"""

from pathlib import Path

import numpy as np

from allocator.errors import Fault, InvalidInput
from allocator.io.model_files.knapsacks import build_choices
from allocator.io.performance_models import arrays_of
from formulations.model.linear import Floats, Ints, LinearModel

CAP = 3000.0
SHAPES = {"names": 1, "G": 2, "restart": 1, "prev": 1, "use": 2, "caps": 1, "p": 0, "lam": 0}


def read_sia_ilp(path: Path | str) -> LinearModel:
    """Return the model of a saved round; column j C + c is configuration c of job j.

    The file holds names (J,), goodput G (J, C), restart (J,), prev (J,), which is the present
    configuration or -1, use (C, K) in GPUs of each type, caps (K,), p and lam. No column is left
    out, not even one of negative value. Raises InvalidInput.
    """
    given = arrays_of(path)
    if wrong := [n for n, dims in SHAPES.items() if n not in given or given[n].ndim != dims]:
        raise InvalidInput(
            [Fault(str(path), None, f"{name} is missing or of another shape") for name in wrong]
        )
    (J, C), K = given["G"].shape, len(given["caps"])
    lengths = {"names": J, "restart": J, "prev": J, "use": C}
    if wrong := [n for n, length in lengths.items() if len(given[n]) != length] + ["use"] * (
        given["use"].shape[1] != K
    ):
        raise InvalidInput(
            [Fault(str(path), None, f"{name} does not fit G or caps") for name in wrong]
        )
    p, lam = float(given["p"]), float(given["lam"])
    numbers = (given[name].astype(np.float64) for name in ("G", "restart", "use", "caps"))
    G, restart, use, caps = numbers
    V = _option_values(G, restart, given["prev"].astype(np.int64), p)
    value = lam - V if p < 0 else V - lam
    use = np.broadcast_to(use, (J, C, K))
    return build_choices(value, use, np.arange(K), caps, -np.inf, given["names"].tolist())


def sia_objective(path: Path | str, value: float) -> float:
    """Return Sia's objective of a plan with this value in the model of `read_sia_ilp`.

    It is lam J - value for p < 0, and lam J + value for p > 0.
    """
    given = arrays_of(path)
    constant = float(given["lam"]) * len(given["names"])
    return constant - value if float(given["p"]) < 0 else constant + value


def _option_values(G: Floats, restart: Floats, prev: Ints, p: float) -> Floats:
    """Return V, shape (J, C)."""
    factor = np.repeat(np.where(prev < 0, 1.0, restart)[:, None], G.shape[1], axis=1)
    j = np.flatnonzero(prev >= 0)
    factor[j, prev[j]] = 1.0
    with np.errstate(divide="ignore"):
        power = (G * factor) ** p
    return np.minimum(np.where(np.isfinite(power), np.round(power, 2), CAP), CAP)
