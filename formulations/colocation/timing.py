"""Two jobs on the same GPUs: when it pays, when to begin, when they end.

Job B holds the GPUs, job A waits for as many. a, b: seconds that A and B still take alone. xi_a,
xi_b >= 1: slowdown of each while both are there. All arguments are arrays that broadcast; nothing
is checked, nan gives nan or False.

    together   A starts now. Mean of the two completion times:
                   a/2 + xi_b b - xi_b b / (2 xi_a)      if xi_a a >= xi_b b  (A ends last)
                   b/2 + xi_a a - xi_a a / (2 xi_b)      otherwise            (B ends last)
    apart      A waits for the end of B:  b + a/2
    share      iff together < apart, that is
                   xi_b (1 - 1/(2 xi_a)) < 1             if A ends last, whatever the lengths (equal
                                                         slowdowns: < 1.5)
                   a (2 xi_a - xi_a/xi_b - 1) < b        otherwise

A beginning between now and the end of B is never better than both ends: while B still ends last
every second of waiting costs half a second of the mean, later the mean is linear in the offset.
Source: Luo et al., "Wise resource sharing" (SJF-BSBF), IWQoS 2024: the pair rule and the best time
to share.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Bools, Floats


def completion(
    a: Floats, b: Floats, xi_a: Floats, xi_b: Floats, offset: Floats
) -> tuple[Floats, Floats]:
    """Seconds until A and B end if A starts `offset` seconds from now, 0 <= offset <= b."""
    left = b - offset  # of B when A joins, in seconds alone
    a_last = xi_a * a >= xi_b * left
    shared = np.where(a_last, xi_b * left, xi_a * a)  # seconds in which both run
    end = offset + shared
    return (
        np.where(a_last, end + a - shared / xi_a, end),
        np.where(a_last, end, end + left - shared / xi_b),
    )


def mean_completion_shared(a: Floats, b: Floats, xi_a: Floats, xi_b: Floats) -> Floats:
    """Return the mean completion time of the two if A joins B now, seconds."""
    long_a, long_b = xi_a * a, xi_b * b
    return np.asarray(
        np.where(
            long_a >= long_b,
            a / 2 + long_b - long_b / (2 * xi_a),
            b / 2 + long_a - long_a / (2 * xi_b),
        ),
        dtype=np.float64,
    )


def mean_completion_serial(a: Floats, b: Floats) -> Floats:
    """Mean completion time of the two if A starts when B ends, seconds."""
    return np.asarray(b + a / 2, dtype=np.float64)


def should_share(a: Floats, b: Floats, xi_a: Floats, xi_b: Floats) -> Bools:
    """Find where A should join B now, because that is strictly better than waiting."""
    return np.asarray(mean_completion_shared(a, b, xi_a, xi_b) < mean_completion_serial(a, b))


def start_s(a: Floats, b: Floats, xi_a: Floats, xi_b: Floats) -> Floats:
    """The best second for A to start: now, or at the end of B."""
    return np.where(should_share(a, b, xi_a, xi_b), 0.0, b)


def relative_saving(a: Floats, b: Floats, xi_a: Floats, xi_b: Floats) -> Floats:
    """Share of the mean completion time that starting now saves against waiting: 1 - together /
    apart, below 1/2.

    For given slowdowns it falls with a/b and depends on nothing else: long running jobs and short
    newcomers go best.
    """
    return np.asarray(
        1.0 - mean_completion_shared(a, b, xi_a, xi_b) / mean_completion_serial(a, b),
        dtype=np.float64,
    )
