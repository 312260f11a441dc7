"""Random numbers that depend on the seed and their place only.

So the same job has the same draws under every policy. A counter-based generator (the finaliser of
SplitMix64: Steele, Lea, Flood, OOPSLA 2014) maps (seed, stream, a, b) to a uniform number. It has
no state, so neither the order of events nor a resumed run changes a draw.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from allocator.domain.problem import Floats, Ints

# streams
(
    MISJUDGED,
    NOISE,
    FAILURE,
    REVOCATION,
    EVENT,
    VICTIM,
    STARTUP,
    SIZE,
    PROFILE,
    OBSERVED,
    NODE,
    SLOWDOWN,
    CURVE,
    LOSS,
) = range(1, 15)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniform(seed: int, stream: int, a: Ints, b: Ints | int = 0) -> Floats:
    """Return uniform numbers in (0, 1), one for every (seed, stream, a, b).

    `b` is broadcast to the shape of `a`, which is that of the result.
    """
    with np.errstate(over="ignore"):
        x = _mixed(np.full(a.shape, np.uint64(seed & (2**64 - 1))) + np.uint64(stream) * _GOLDEN)
        x = _mixed(x ^ (a.astype(np.uint64) + _GOLDEN))
        x = _mixed(x ^ (np.broadcast_to(np.asarray(b), a.shape).astype(np.uint64) * _GOLDEN))
    return ((x >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53


def lognormal(sigma: float, seed: int, stream: int, a: Ints, b: Ints | int = 0) -> Floats:
    """Return factors with mean 1 whose logarithm has standard deviation `sigma`."""
    if sigma <= 0:
        return np.ones(a.shape)
    # not above: this package takes longer to load than a short simulation takes without noise
    from scipy.special import ndtri

    factors: Floats = np.exp(sigma * ndtri(uniform(seed, stream, a, b)) - sigma * sigma / 2)
    return factors


def exponential(seed: int, stream: int, a: Ints, b: Ints | int = 0) -> Floats:
    """Return waiting times of mean 1."""
    return -np.log(uniform(seed, stream, a, b))


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
