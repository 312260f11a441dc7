"""The gradient noise scale: how large a batch may be before its samples count for less.

G is the true gradient, S the trace of the covariance of the gradient of one sample, and g_b the
mean gradient of b samples, with E |g_b|^2 = |G|^2 + S / b. So two batches b < B give estimates
without bias:

    |G|^2 = (B |g_B|^2 - b |g_b|^2) / (B - b)        S = (|g_b|^2 - |g_B|^2) / (1/b - 1/B)
    phi   = S / |G|^2                                efficiency(B) = (phi + B0) / (phi + B)

phi is the noise scale in samples; B0 is the smallest batch, at which a sample counts as one. One
step says little, and a quotient of noisy numbers is biased: S and |G|^2 are averaged, not phi.
Sources: McCandlish, Kaplan, Amodei and OpenAI Dota Team, "An empirical model of large-batch
training", 2018, appendix A.1; the efficiency, Qiao et al., "Pollux", OSDI 2021, section 3.1.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Floats


def estimate_noise(
    small_batch: float, small_norm2: float, batch: float, norm2: float
) -> tuple[float, float]:
    """Return estimates of (S, |G|^2) from the squared gradient norms of two batches.

    Parameters
    ----------
    small_batch, batch : float
        Samples of the two batches, the first one smaller: with data parallelism those of one GPU
        and of all GPUs.
    small_norm2, norm2 : float
        Squared norm of the gradient of each batch; of several small batches the mean.

    Examples
    --------
    >>> estimate_noise(32, 5.0, 128, 2.0)
    (128.0, 1.0)
    """
    trace = (small_norm2 - norm2) / (1.0 / small_batch - 1.0 / batch)
    square = (batch * norm2 - small_batch * small_norm2) / (batch - small_batch)
    return trace, square


def compute_efficiency(
    noise_scale: float | Floats, first_batch: float | Floats, batch: float | Floats
) -> Floats:
    """Return what a sample of a batch counts, relative to one of the smallest batch.

    The arguments broadcast; nan stays nan.

    Examples
    --------
    >>> float(compute_efficiency(900.0, 100.0, 1100.0))
    0.5
    """
    return np.asarray((noise_scale + first_batch) / (noise_scale + batch), np.float64)
