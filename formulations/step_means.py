"""Exact means over time of functions that change in steps."""

import numpy as np

from formulations.model.linear import Floats, Ints


def means_between(times: Floats, steps: Floats | Ints, begin: Floats, end: Floats) -> Floats:
    """Return the means, from each begin to its end, of what rises by steps[i] at times[i], (B,)."""
    if not len(times):
        return np.zeros(len(begin))
    order = np.argsort(times, kind="stable")
    t = times[order]
    level: Floats = np.cumsum(steps[order])
    area: Floats = np.append(0.0, np.cumsum(level[:-1] * np.diff(t)))

    def integral_until(x: Floats) -> Floats:
        i = np.maximum(np.searchsorted(t, x, side="right") - 1, 0)
        return area[i] + level[i] * np.maximum(0.0, x - t[i])

    length = np.maximum(end - begin, 1e-9)
    return (integral_until(np.maximum(end, begin + 1e-9)) - integral_until(begin)) / length


def bin_means(times: Floats, steps: Floats | Ints, edges: Floats) -> Floats:
    """Return the mean over each bin of the function that rises by steps[i] at times[i], (B,)."""
    mean = means_between(times, steps, edges[:-1], edges[1:])
    return np.where(np.abs(mean) < 1e-9, 0.0, mean)


def span_means(begin: Floats, end: Floats, amounts: Floats | Ints, edges: Floats) -> Floats:
    """Return the mean over each bin of the sum of what lasts from each begin to its end, (B,)."""
    return bin_means(np.concatenate([begin, end]), np.concatenate([amounts, -amounts]), edges)
