"""How many GPUs to keep for interactive jobs.

Let sessions arrive at random and each stay a while, with none waiting. The number present at once
is N ~ Poisson(m), where m = arrivals per second x mean seconds of a session, whatever the
distribution of these seconds (M/G/infinity; Eick, Massey and Whitt, Management Science 39, 1993,
section 1). A session that arrives finds N others, so GPUs for c sessions are too few for it with
probability

    P(N >= c) <= late        c = the least number for which this holds

For n observed sessions the same number is a quantile of what they needed, whatever the cause of
their arrival (rush hours, classes, sizes). H GPUs were too few for session i if its k_i GPUs and
those of the sessions present at its arrival are more than H:

    n_i = k_i + sum of k_i' with since_i' <= since_i < until_i'
    #(n_i > H) <= late n            H = the least number for which this holds
"""

from __future__ import annotations

import math

import numpy as np

from formulations.model.linear import Floats

MOST = 10_000_000  # sessions at once; larger numbers are typing errors


def sessions(mean: float, late: float) -> int:
    """Return the least c with P(N >= c) <= late for N ~ Poisson(mean).

    mean is >= 0 and 0 < late < 1. The result is 0 if there are no arrivals.
    """
    if mean == 0:
        return 0
    if mean >= MOST:
        return MOST
    n = np.arange(math.ceil(mean + 40.0 * math.sqrt(mean) - 2.0 * math.log(late) + 40.0))
    log_factorial = np.cumsum(np.log(np.maximum(n, 1)))
    each = np.exp(n * math.log(mean) - mean - log_factorial)
    at_least = np.append(np.cumsum(each[::-1])[::-1], 0.0)  # smallest terms first
    return int(np.argmax(at_least <= late))


def observed_headroom(since_s: Floats, until_s: Floats, gpus: Floats, late: float) -> int:
    """Return the GPUs that at most a share `late` of n observed sessions found too few.

    The result is 0 without sessions.

    Parameters
    ----------
    since_s : (n,)
        Arrival times, seconds, ascending. Of sessions that arrived together, each found those
        before it in the list.
    until_s : (n,)
        Times when the GPUs were free again, seconds, inf = not yet.
    gpus : (n,)
        GPUs of each session.
    late : float
        Accepted share of sessions that find too few GPUs.
    """
    n = len(since_s)
    if not n:
        return 0
    gone = np.concatenate([[0.0], np.cumsum(gpus[np.argsort(until_s, kind="stable")])])
    there = np.cumsum(gpus) - gone[np.searchsorted(np.sort(until_s), since_s, side="right")]
    return int(np.sort(there)[n - 1 - math.floor(late * n + 1e-9)])
