"""Speed models by formula (models.csv), for sizes where nothing was measured.

    amdahl    rate(k) = rate_1 / ((1 - p) + p/k)      p = `parallel`
    power     rate(k) = rate_1 k^a                    a = `exponent`
    overhead  rate(k) = rate_1 k / (1 + c (k - 1))    c = `c`
    capped    rate(k) = min(k rate_1, cap)
    iteration, goodput                                at the best batch of the size: batched.py

k is the number of GPUs, and rate_1 the rate of one. p is the share of the work that runs in
parallel (Amdahl 1967). c is the share by which each further GPU lengthens a step. Workers of a
capped model are independent of each other until something that they share is the bottleneck, such
as a parameter server or the network (Li, Walls, Guo, "CM-DARE", ICDCS 2020). Every formula holds
for min_gpus <= k <= max_gpus (default 1 to 1024). CURVE_PARAMETERS in domain/schema/columns.py has
the names and ranges of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints
from allocator.domain.schema.columns import CURVE_PARAMETERS
from allocator.performance import batched

_RANGE = {c.name: int(c.default) for c in CURVE_PARAMETERS["amdahl"] if c.default is not None}
MIN_GPUS = _RANGE["min_gpus"]
MAX_GPUS = _RANGE["max_gpus"]
# of one curve, or one curve per size
Parameters = Mapping[str, float] | Mapping[str, Floats]


def amdahl(q: Parameters, k: Floats) -> Floats:
    """Return the rate on k GPUs by Amdahl's law."""
    return q["rate_1"] / ((1.0 - q["parallel"]) + q["parallel"] / k)


def power(q: Parameters, k: Floats) -> Floats:
    """Return the rate on k GPUs as a power of k."""
    return q["rate_1"] * k ** q["exponent"]


def overhead(q: Parameters, k: Floats) -> Floats:
    """Return the rate on k GPUs where each GPU slows all others down."""
    return q["rate_1"] * k / (1.0 + q["c"] * (k - 1.0))


def capped(q: Parameters, k: Floats) -> Floats:
    """Return the rate on k independent GPUs, up to a limit."""
    return np.minimum(k * q["rate_1"], q["cap"])


def iteration(q: Parameters, k: Floats) -> Floats:
    """Return the rate on k GPUs at the best batch, of kind `iteration` of batched.py."""
    return batched.best("iteration", q, k).rate


def goodput(q: Parameters, k: Floats) -> Floats:
    """Return the rate on k GPUs at the best batch, of kind `goodput` of batched.py."""
    return batched.best("goodput", q, k).rate


KINDS: Mapping[str, Callable[[Parameters, Floats], Floats]] = {
    "amdahl": amdahl,
    "power": power,
    "overhead": overhead,
    "capped": capped,
    "iteration": iteration,
    "goodput": goodput,
}


def rate(kind: str, parameters: Parameters, k: Ints) -> Floats:
    """Return the work per second on k GPUs, of the shape of k.

    It is nan outside [min_gpus, max_gpus] of the parameters.

    Parameters
    ----------
    kind : str
        A key of KINDS.
    parameters : mapping of str to number or array
        Checked by validate. Arrays have the shape of k; nan is the default of min_gpus or max_gpus.

    Raises
    ------
    KeyError
        The kind is unknown, or a parameter is missing.
    """
    return np.where(
        is_offered(parameters, k),
        KINDS[kind](parameters, np.maximum(k, 1).astype(np.float64)),
        np.nan,
    )


def is_offered(parameters: Parameters, k: Ints) -> Bools:
    """Return whether k lies in [min_gpus, max_gpus] of the parameters."""
    low, high = (
        batched.number(parameters, name, default)
        for name, default in (("min_gpus", MIN_GPUS), ("max_gpus", MAX_GPUS))
    )
    return (k >= low) & (k <= high)
