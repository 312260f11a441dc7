"""Powers of two that turn a solver's absolute tolerances into relative ones.

They change no digit of a number.
"""

from __future__ import annotations

import math

import numpy as np

from formulations.model.linear import Floats, LinearModel


def value_scale(model: LinearModel, size: int) -> float:
    """Return the power of two that brings the largest value to between 2^(size - 1) and 2^size."""
    largest = float(np.abs(model.value).max(initial=0.0))
    return 1.0 if largest < 1e-200 else 2.0 ** (size - math.frexp(largest)[1])


def row_scale(model: LinearModel) -> Floats:
    """Return a power of two for each row, (m,).

    It is 1 for rows of whole numbers and for rows with bounds below 2. In other rows the larger
    finite bound is brought to between 2 and 4. There an absolute tolerance of 1e-9 is at most half
    of LinearModel.tolerance.
    """
    broken = np.zeros(model.m, dtype=bool)
    broken[model.index[model.coef != np.rint(model.coef)]] = True
    size = np.maximum(
        np.where(np.isfinite(model.lower), np.abs(model.lower), 0.0),
        np.where(np.isfinite(model.upper), np.abs(model.upper), 0.0),
    )
    exponent = np.frexp(size)[1]
    return np.where(broken & (size >= 2.0), np.exp2(2.0 - exponent), 1.0)


def round_values(model: LinearModel, x: Floats) -> Floats:
    """Round the values of integer columns, and keep all values within the bounds, (n,)."""
    return np.clip(np.where(model.integer, np.rint(x), x), model.col_lower, model.col_upper)
