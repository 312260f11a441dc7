"""Least squares: many small non-negative linear problems at once, or one non-linear one in a box.

Errors of speeds are relative, so all residuals here are relative or logarithmic.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from allocator.domain.problem import Floats

# added to a diagonal of 1, so that a column without information does not divide by 0
RIDGE = 1e-13
STEPS = 60  # largest number of steps of a search


def non_negative(a: Floats, y: Floats) -> Floats:
    """Minimise |a x - y|^2 over x >= 0, for G problems at once.

    The result is the best of the least-squares solutions over all supports whose entries are at
    least 0. It is exact, because the optimum is one of these solutions (Lawson and Hanson 1974,
    chapter 23; here by enumeration).

    Parameters
    ----------
    a : (G, n, p)
        Coefficients; p is at most 4.
    y : (G, n)
        Right-hand sides.

    Returns
    -------
    x : (G, p)
        Solutions.
    """
    g, _, p = a.shape
    scale = np.sqrt(np.maximum((a**2).sum(axis=1), 1e-300))
    a = a / scale[:, None, :]
    normal = a.transpose(0, 2, 1) @ a
    right = np.einsum("gnp,gn->gp", a, y)
    best = np.zeros((g, p))
    least = np.zeros(g)
    for size in range(1, p + 1):
        for chosen in combinations(range(p), size):
            s = np.array(chosen)
            inner = normal[:, s[:, None], s]
            inner = inner + RIDGE * np.eye(size)
            x = np.linalg.solve(inner, right[:, s, None])[:, :, 0]
            value = np.einsum("gi,gij,gj->g", x, normal[:, s[:, None], s], x)
            value = value - 2.0 * np.einsum("gi,gi->g", x, right[:, s])
            better = (x >= 0).all(axis=1) & (value < least)
            best[better] = 0.0
            best[np.ix_(better, s)] = x[better]
            least = np.where(better, value, least)
    return np.asarray(best / scale, np.float64)


def gauss_newton(
    residuals: Callable[[Floats], Floats], x: Floats, low: Floats, high: Floats
) -> Floats:
    """Minimise a sum of squares in a box by the method of Levenberg and Marquardt.

    A step that leaves the box is cut off at its bounds. A step that makes the sum larger is not
    taken. The search stops when a step gains less than a millionth.

    Parameters
    ----------
    residuals : callable
        Function of x (p,) with result (n,); for many points (m, p) at once its result is (m, n).
    x : (p,)
        Start.
    low, high : (p,)
        Bounds of the box.
    """
    damping = 1e-2
    x = np.clip(x, low, high)
    width = 1e-6 * np.maximum(1.0, np.abs(x))
    r = residuals(x)
    value = 0.5 * float(r @ r)
    for _ in range(STEPS):
        at = x + np.diag(width)
        jacobian = ((residuals(at) - r) / width[:, None]).T
        normal = jacobian.T @ jacobian
        slope = jacobian.T @ r
        stuck = ((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0))
        gained = False
        for _ in range(8):
            inner = normal + damping * np.diag(np.diag(normal) + 1e-12)
            inner[stuck], inner[:, stuck] = 0.0, 0.0
            inner[stuck, stuck] = 1.0
            new = np.clip(x - np.linalg.solve(inner, np.where(stuck, 0.0, slope)), low, high)
            there = residuals(new)
            new_value = 0.5 * float(there @ there)
            if new_value < value:
                gained = value - new_value > 1e-6 * value
                x = new
                r = there
                value = new_value
                damping = max(damping / 5.0, 1e-9)
                break
            damping *= 4.0
        if not gained:
            break
    return x
