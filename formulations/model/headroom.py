"""GPUs kept for interactive jobs: how many, and what options take of the others.

Sessions that arrive at random and each stay a while, none waiting, are N ~ Poisson(m) at once, m =
arrivals per second x mean seconds that one is there, whatever the law of these seconds
(M/G/infinity; Eick, Massey and Whitt, Management Science 39, 1993, section 1). An arrival finds N
others, so that GPUs for c sessions are too few for it with

    P(N >= c) <= late        c = the least number for which this holds

Of n sessions that have been seen the same is a quantile of what they needed, whatever made them
come: rush hours, classes, sizes. H GPUs were too few for session i where its k_i and those of the
others that were there when it came are more:

    n_i = k_i + sum of k_i' with since_i' <= since_i < until_i'
    #(n_i > H) <= late n                                      H = the least number for which this
        holds
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from formulations.model.linear import Floats, Ints

MOST = 10_000_000  # sessions at once; more are typing errors


@dataclass(frozen=True)
class Headroom:
    """Rows of a round that keep GPUs for interactive jobs; n options, P pools.

    batch (n,): GPUs that an option takes of those left to the others, 0 = its job is interactive,
    or a guest. firm (n,): those of them that it cannot give back at short notice. most_batch,
    most_firm (P,): most of both in a pool, inf = no limit.
    """

    batch: Ints
    firm: Ints
    most_batch: Floats
    most_firm: Floats

    def take(self, option: Ints) -> Headroom:
        """The rows for only these options."""
        return Headroom(self.batch[option], self.firm[option], self.most_batch, self.most_firm)


def sessions(mean: float, late: float) -> int:
    """The least c with P(N >= c) <= late for N ~ Poisson(mean); mean >= 0, 0 < late < 1. Nobody
    comes: none.
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
    """GPUs of which at most a share `late` of these sessions (n,) found too few; none came: none.

    since_s: when they came, ascending; those that came at once found the ones before them in the
    list. until_s: when their GPUs were free again, inf = not yet. gpus: of each.
    """
    n = len(since_s)
    if not n:
        return 0
    gone = np.concatenate([[0.0], np.cumsum(gpus[np.argsort(until_s, kind="stable")])])
    there = np.cumsum(gpus) - gone[np.searchsorted(np.sort(until_s), since_s, side="right")]
    return int(np.sort(there)[n - 1 - math.floor(late * n + 1e-9)])
