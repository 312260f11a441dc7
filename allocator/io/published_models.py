"""Read problems of choosing one column for each group under rows of capacity, as linear models.

    max  sum_c value_c x_c
    s.t. sum_c x_c = 1 for every group,  sum_c use_ck x_c <= capacity_k,  x binary

The numbers in the first line of a file tell its format:

- 3: groups, columns of each, rows; the capacities; for each group its number, then for each column
  its value and its uses. Multiple-choice multi-dimensional knapsacks I01 to I13 (Khan, "Quality
  adaptation in a multisession multimedia system", 1998).
- 4: the number of a problem, then as before, one problem after the other (Hiremath and Hill, "New
  greedy heuristics for the multiple-choice multi-dimensional knapsack problem", 2007).
- 2: agents, jobs; costs and uses, agent by agent; the capacities. Generalised assignment, where a
  value is the cost of a job on an agent, below zero (Yagiura, Ibaraki and Glover, 2004).
- 1: how many problems of the last form follow (Beasley, "OR-Library", 1990).

A saved round of the Sia scheduler is a numpy archive. Sia (Jayaram Subramanya et al. 2023, SOSP)
solves, for p < 0 (its default; for p > 0 it maximises the same expression, with a negative lam),

    min  sum_jc V_jc x_jc + lam (J - sum_jc x_jc)
    s.t. sum_c x_jc <= 1 for every job j,
         sum_jc use_ck x_jc <= caps_k for every GPU type k,
         x binary
    V = min(round((G with row j times restart_j, except where the job is now) ** p, 2 decimals),
    3000)

A job that does not run (prev -1) has nothing to restart, so its row of G is not multiplied. The
model here maximises sum_jc (lam - V_jc) x_jc instead.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from allocator.domain.findings import input_error
from allocator.errors import Fault, InvalidInput
from allocator.io.performance_models import arrays_of
from formulations.model.choices import ChoiceModel
from formulations.model.linear import (
    AT_MOST_ONE,
    CAPACITY,
    Floats,
    Ints,
    LinearModel,
    RowFamily,
    SparseRows,
)

CAP = 3000.0
SHAPES = {"names": 1, "G": 2, "restart": 1, "prev": 1, "use": 2, "caps": 1, "p": 0, "lam": 0}


def read_knapsacks(path: Path | str) -> list[LinearModel]:
    """Return the problems of a file. Raises InvalidInput if it is of none of the formats."""
    models: list[LinearModel] = []
    try:
        text = re.split("[A-Za-z]", Path(path).read_text())[0].strip()  # words come last
        numbers = np.array(text.split(), float)
        kind = len(text.partition("\n")[0].split())
        if kind == 1:
            kind, numbers = 2, numbers[1:]
        read = _read_assignment if kind == 2 else _read_choices
        while len(numbers) or not models:
            model, size = read(numbers[kind:], *numbers[:kind].astype(int)[-3:].tolist())
            if len(numbers) < kind + size:
                raise ValueError
            models.append(model)
            numbers = numbers[kind + size :]
    except (OSError, ValueError, TypeError) as error:
        why = f"problem {len(models) + 1} is of none of the published formats, or ends early"
        raise input_error(path, getattr(error, "strerror", why)) from error
    return models


def _read_choices(numbers: Floats, J: int, C: int, R: int) -> tuple[LinearModel, int]:
    """Read J groups of C columns under R rows; return the model, and its count of numbers."""
    size = R + J * (1 + C * (1 + R))
    lines = numbers[R:size].reshape(J, -1)[:, 1:].reshape(J, C, 1 + R)
    return build_choices(lines[:, :, 0], lines[:, :, 1:], np.arange(R), numbers[:R]), size


def _read_assignment(numbers: Floats, R: int, J: int) -> tuple[LinearModel, int]:
    """Read an assignment of J jobs to R agents; return the model, and its count of numbers."""
    size = (2 * J + 1) * R
    cost, use = numbers[: size - R].reshape(2, R, J)
    agent, capacity = np.arange(R)[:, None], numbers[size - R : size]
    return build_choices(-cost.T, use.T[:, :, None], agent, capacity), size


def build_choices(
    value: Floats,
    use: Floats,
    row: Ints,
    capacity: Floats,
    least: float = 1.0,
    names: Sequence[str] | None = None,
) -> LinearModel:
    """Return the model of J groups of C columns under R rows.

    Parameters
    ----------
    value : (J, C)
    use, row : (J, C, z) and (C, z)
        Entries of the columns, and in which row each is.
    capacity : (R,)
    least : columns of a group that a plan takes at least.
    names : of the groups; numbers by default.
    """
    (J, C, z), R = use.shape, len(capacity)
    return ChoiceModel.of(
        value.ravel(),
        np.append(np.full(J, least), np.full(R, -np.inf)),
        np.append(np.ones(J), capacity),
        (
            RowFamily(AT_MOST_ONE, 0, names or [str(j) for j in range(J)]),
            RowFamily(CAPACITY, J, [str(r) for r in range(R)]),
        ),
        C * np.arange(J + 1),
        np.repeat(np.arange(J), C),
        SparseRows(
            use.ravel(),
            np.broadcast_to(row, use.shape).ravel(),
            z * np.arange(J * C + 1),
            (J * C, R),
        ),
    )


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


def _option_values(G: Floats, restart: Floats, prev: Ints, p: float) -> Floats:
    """Return V, shape (J, C)."""
    factor = np.repeat(np.where(prev < 0, 1.0, restart)[:, None], G.shape[1], axis=1)
    j = np.flatnonzero(prev >= 0)
    factor[j, prev[j]] = 1.0
    with np.errstate(divide="ignore"):
        power = (G * factor) ** p
    return np.minimum(np.where(np.isfinite(power), np.round(power, 2), CAP), CAP)
