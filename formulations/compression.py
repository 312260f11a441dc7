"""What the exchange between workers costs a step, with and without compression.

A step computes for T seconds, compresses and decompresses for C seconds, and sends V GB over a link
of B GB/s at a ratio of compression r. It takes

    T + C + V / (r B)

Compression pays where V/B (1 - 1/r) > C, so on slow links only.

References
----------
Bian et al., "Does compressing activations help model parallel training?", MLSys 2024.
"""

from __future__ import annotations

from formulations.model.linear import Floats


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
