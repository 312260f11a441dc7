"""Two jobs on the same GPUs: when sharing pays, when to begin, and when the jobs end.

Job B holds the GPUs, and job A waits for as many. a and b are the seconds that A and B still take
alone. xi_a, xi_b >= 1 are their slowdowns while both run. All arguments are arrays that broadcast.
Nothing is checked; nan gives nan or False.

Mean of the two completion times if A starts now (together):

    a/2 + xi_b b - xi_b b / (2 xi_a)      if xi_a a >= xi_b b  (A ends last)
    b/2 + xi_a a - xi_a a / (2 xi_b)      otherwise            (B ends last)

Mean if A waits for the end of B (apart):

    b + a/2

A should share if and only if together < apart, that is

    xi_b (1 - 1/(2 xi_a)) < 1             if A ends last, whatever the lengths
                                          (< 1.5 for equal slowdowns)
    a (2 xi_a - xi_a/xi_b - 1) < b        otherwise

A start between now and the end of B is never better than both of these. While B still ends last,
every second of waiting costs half a second of the mean; later the mean is linear in the offset.
Source: Luo et al., "Wise resource sharing" (SJF-BSBF), IWQoS 2024: the pair rule and the best time
to share.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Bools, Floats


def mean_completion_shared(a: Floats, b: Floats, xi_a: Floats, xi_b: Floats) -> Floats:
    """Return the mean completion time of the two if A joins B now, seconds."""
    long_a = xi_a * a
    long_b = xi_b * b
    return np.where(
        long_a >= long_b,
        a / 2 + long_b - long_b / (2 * xi_a),
        b / 2 + long_a - long_a / (2 * xi_b),
    )


def mean_completion_serial(a: Floats, b: Floats) -> Floats:
    """Return the mean completion time of the two if A starts when B ends, seconds."""
    return b + a / 2


def should_share(a: Floats, b: Floats, xi_a: Floats, xi_b: Floats) -> Bools:
    """Find where A should join B now, because that is strictly better than waiting."""
    return mean_completion_shared(a, b, xi_a, xi_b) < mean_completion_serial(a, b)
