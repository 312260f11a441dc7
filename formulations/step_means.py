"""Exact means over the bins of a grid, of functions that change in steps."""

import numpy as np

from formulations.model.linear import Floats, Ints


def bin_means(times: Floats, steps: Floats | Ints, edges: Floats) -> Floats:
    """Return the mean over each bin of the function that rises by steps[i] at times[i], (B,)."""
    if not len(times):
        return np.zeros(len(edges) - 1)
    order = np.argsort(times, kind="stable")
    t, s = times[order], steps[order]
    level = np.concatenate([[0.0], np.cumsum(s)])
    moment = np.concatenate([[0.0], np.cumsum(s * t)])
    k = np.searchsorted(t, edges, side="right")
    mean = np.diff(level[k] * edges - moment[k]) / np.diff(edges)
    return np.where(np.abs(mean) < 1e-9, 0.0, mean)


def span_means(begin: Floats, end: Floats, amounts: Floats | Ints, edges: Floats) -> Floats:
    """Return the mean over each bin of the sum of what lasts from each begin to its end, (B,)."""
    return bin_means(np.concatenate([begin, end]), np.concatenate([amounts, -amounts]), edges)
