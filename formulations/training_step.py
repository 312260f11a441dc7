"""What a step of training takes: accumulation, gradient noise, and compression.

Gradient accumulation: the same global batch in m smaller passes, which need less memory.

    t_iter(B, m) = (m - 1) t(B/m) + (t(B/m)^d + comm^d)^(1/d)          t(x) = a0 + a1 x
    memory(B, m) = fixed + per_sample B/m

B is the batch of one GPU; a0, a1 and comm are seconds. d >= 1 says how much the synchronisation of
the last pass overlaps with computing (1 = not at all). The batch of a step, and with it
convergence, does not depend on m. Which m a pair takes: `allocator/performance/colocated_speed.py`.
Sources: step time, Qiao et al., "Pollux", OSDI 2021, section 3.2; more passes that make two jobs
fit, Luo et al., IWQoS 2024.

The gradient noise scale: how large a batch may be before its samples count for less.

G is the true gradient, S the trace of the covariance of the gradient of one sample, and g_b the
mean gradient of b samples, with E |g_b|^2 = |G|^2 + S / b. So two batches b < B give estimates
without bias:

    |G|^2 = (B |g_B|^2 - b |g_b|^2) / (B - b)        S = (|g_b|^2 - |g_B|^2) / (1/b - 1/B)
    phi   = S / |G|^2                                efficiency(B) = (phi + B0) / (phi + B)

phi is the noise scale in samples; B0 is the smallest batch, at which a sample counts as one. One
step says little, and a quotient of noisy numbers is biased: S and |G|^2 are averaged, not phi.
Sources: McCandlish, Kaplan, Amodei and OpenAI Dota Team, "An empirical model of large-batch
training", 2018, appendix A.1; the efficiency, Qiao et al., "Pollux", OSDI 2021, section 3.1.

What the exchange between workers costs a step, with and without compression.

A step computes for T seconds, compresses and decompresses for C seconds, and sends V GB over a link
of B GB/s at a ratio of compression r. It takes

    T + C + V / (r B)

Compression pays where V/B (1 - 1/r) > C, so on slow links only.

Source: Bian et al., "Does compressing activations help model parallel training?", MLSys 2024.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Floats


def combine_overlapping_times(a: Floats, b: Floats, gamma: Floats) -> Floats:
    """Return (a^gamma + b^gamma)^(1/gamma) for a, b >= 0 without overflow.

    This is the sum at gamma 1, and nearly the larger of the two at gamma 10.
    """
    most = np.maximum(np.maximum(a, b), 1e-300)
    return most * (1.0 + (np.minimum(a, b) / most) ** gamma) ** (1.0 / gamma)


def step_s(
    a0: Floats, a1: Floats, comm: Floats, d: Floats, batch: Floats, passes: Floats
) -> Floats:
    """Return the seconds of a step of `batch` samples per GPU in `passes` passes.

    All arguments are arrays that broadcast.
    """
    pass_s = a0 + a1 * batch / passes
    return (passes - 1.0) * pass_s + combine_overlapping_times(pass_s, comm, d)


def memory_per_gpu(fixed: Floats, per_sample: Floats, batch: Floats, passes: Floats) -> Floats:
    """Return the memory that the job needs on one GPU, in the unit of `fixed`.

    All arguments are arrays that broadcast.
    """
    return fixed + per_sample * batch / passes


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


def computing_share(
    compute_s: Floats, codec_s: Floats, volume_gb: Floats, ratio: Floats, link_gb_s: Floats | float
) -> Floats:
    """Return the share of a step in which it computes, (n,).

    Parameters
    ----------
    compute_s, codec_s : (n,)
        Seconds of a step that computes, and that compresses and decompresses.
    volume_gb, ratio : (n,)
        What a worker sends in a step before compression, GB, and how much less it is after it.
    link_gb_s : (n,)
        GB/s of the link.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.array([1.0, 1.0])
    >>> computing_share(a, np.array([0.0, 0.2]), 6 * a, np.array([1.0, 10.0]), 2.0)
    array([0.25     , 0.6666...])
    """
    return compute_s / (compute_s + codec_s + volume_gb / (ratio * link_gb_s))
