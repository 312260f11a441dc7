"""Speed models that know the batch: seconds of a step, useful share of a sample, and best batches.

K is the number of GPUs, B the global batch, s the passes per step (accumulation), and b = ceil(B /
(K s)) the local batch; all are arrays of one shape.

iteration: an iteration computes and synchronises. The number of epochs grows with the gradient
noise, which falls with the batch (Tyagi and Sharma, "Scavenger", CCGrid 2023).

    T = s alpha b' + beta K + const            b' = B / (K s)
    K* = sqrt(alpha B / beta)                  best size for one batch
    efficiency = (1 + u / sqrt B0) / (1 + u / sqrt B)        u = noise, B0 = min_batch
                 that of goodput where noise_scale is known

goodput: seven parameters (Qiao et al., "Pollux", OSDI 2021, sections 3.1 and 3.2).

    T_grad = alpha_c + beta_c b
    T_sync = 0                          K = 1
             alpha_r + beta_r (K - 2)   one node
             alpha_n + beta_n (K - 2)   several nodes
    T      = (s - 1) T_grad + (T_grad^gamma + T_sync^gamma)^(1/gamma)
    efficiency = (phi + B0) / (phi + B)                      phi = noise_scale, B0 = batch_0

The speed that counts is B / T x efficiency, samples at B0 per second. Parameters: CURVE_PARAMETERS
of domain/schema/columns.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Bools, Floats
from formulations.training_step import combine_overlapping_times, compute_efficiency

Parameters = Mapping[str, float] | Mapping[str, Floats]
# batches tried in each size, evenly in their logarithm; half of them multiples of the size
BATCHES = 50


@dataclass(frozen=True)
class BestBatch:
    """Speeds with the settings that give them, arrays of one shape; rate nan = impossible."""

    rate: Floats
    batch: Floats
    passes: Floats


def number(q: Parameters, name: str, default: float | Floats = np.nan) -> Floats:
    """Return a parameter, or the default where it is missing or nan."""
    value = np.asarray(q.get(name, np.nan), np.float64)
    return np.where(np.isnan(value), default, value)


def iteration_s(q: Parameters, k: Floats, batch: Floats, passes: Floats, nodes: Floats) -> Floats:
    """Return the seconds of a step of kind iteration.

    The passes compute in turn, so their number has no effect.
    """
    del passes, nodes
    return q["compute"] * batch / k + q["sync"] * k + number(q, "constant", 0.0)


def goodput_s(q: Parameters, k: Floats, batch: Floats, passes: Floats, nodes: Floats) -> Floats:
    """Return the seconds of a step of kind goodput."""
    grad = q["alpha_c"] + q["beta_c"] * np.ceil(batch / (k * passes) - 1e-9)
    beyond = np.maximum(k - 2.0, 0.0)
    sync = np.where(
        nodes > 1, q["alpha_n"] + q["beta_n"] * beyond, q["alpha_r"] + q["beta_r"] * beyond
    )
    return (passes - 1.0) * grad + combine_overlapping_times(
        grad, np.where(k > 1, sync, 0.0), np.asarray(q["gamma"])
    )


def iteration_efficiency(q: Parameters, batch: Floats) -> Floats:
    """Return the epochs at the smallest batch divided by the epochs at this one.

    Where the noise scale is known it says so; elsewhere the line of epochs over noise does, and the
    result is nan where that gives no epochs.
    """
    phi = number(q, "noise_scale")
    noise = number(q, "noise", 0.0)
    first = number(q, "min_batch", 1.0)
    epochs = 1.0 + noise / np.sqrt(batch)
    reference = 1.0 + noise / np.sqrt(first)
    by_line = np.where(
        (epochs > 0) & (reference > 0), reference / np.where(epochs > 0, epochs, 1.0), np.nan
    )
    return np.where(np.isnan(phi), by_line, compute_efficiency(phi, first, batch))


def goodput_efficiency(q: Parameters, batch: Floats) -> Floats:
    """Return the progress per sample relative to the smallest batch.

    It is 1 where the noise scale is unknown.
    """
    phi = number(q, "noise_scale")
    return np.where(np.isnan(phi), 1.0, compute_efficiency(phi, q["batch_0"], batch))


@dataclass(frozen=True)
class BatchKind:
    """A kind that knows the batch; `least` is the parameter with the smallest global batch."""

    step_s: Callable[[Parameters, Floats, Floats, Floats, Floats], Floats]
    efficiency: Callable[[Parameters, Floats], Floats]
    least: str


KINDS: Mapping[str, BatchKind] = {
    "iteration": BatchKind(iteration_s, iteration_efficiency, "min_batch"),
    "goodput": BatchKind(goodput_s, goodput_efficiency, "batch_0"),
}


def range_of(kind: str, q: Parameters) -> tuple[Floats, Floats]:
    """Return the smallest and the largest global batch."""
    low = number(q, KINDS[kind].least, 1.0)
    return low, np.maximum(low, number(q, "max_batch", low))


def passes_for(kind: str, q: Parameters, k: Floats, batch: Floats) -> Floats:
    """Return the fewest passes that fit the memory.

    One GPU needs two for any goodput batch above the smallest, because the noise is estimated from
    more than one gradient.
    """
    fewest = np.ceil(np.ceil(batch / k - 1e-9) / number(q, "max_local", np.inf) - 1e-9)
    alone = (
        (k == 1) & (batch > number(q, "batch_0", np.inf))
        if kind == "goodput"
        else np.zeros(1, bool)
    )
    return np.maximum(fewest, np.where(alone, 2.0, 1.0))


def at(
    kind: str,
    q: Parameters,
    k: Floats,
    batch: Floats,
    passes: Floats | None = None,
    nodes: Floats | None = None,
) -> BestBatch:
    """Return the speed at given batches.

    By default steps have the fewest passes that fit the memory, and GPUs are on the fewest nodes.
    The rate is nan where a batch is out of range, does not give every GPU its smallest local batch,
    or does not fit the memory.
    """
    form = KINDS[kind]
    fewest = passes_for(kind, q, k, batch)
    s = fewest if passes is None else passes
    n = np.ceil(k / number(q, "gpus_per_node", 8.0)) if nodes is None else nodes
    low, high = range_of(kind, q)
    fits: Bools = (batch >= low) & (batch <= high) & (s >= fewest)
    # a single batch of unknown size counts as 1
    uncounted = np.isnan(number(q, form.least))
    fits = fits & (uncounted | (batch >= k * s * number(q, "min_local", 1.0)))
    with np.errstate(all="ignore"):
        rate = batch / form.step_s(q, k, batch, s, n) * form.efficiency(q, batch)
    return BestBatch(np.where(fits, rate, np.nan), batch, s)


def best(kind: str, q: Parameters, k: Floats) -> BestBatch:
    """Return the fastest of BATCHES batches at each size (n,); parameters are numbers or (n,)."""
    low, high = range_of(kind, q)
    low = np.broadcast_to(
        np.maximum(low, np.where(high > low, k * number(q, "min_local", 1.0), low)), k.shape
    )
    high = np.broadcast_to(high, k.shape)
    step = np.log(np.maximum(high / low, 1.0))[:, None] * np.linspace(0.0, 1.0, BATCHES // 2)
    any_ = low[:, None] * np.exp(step)
    # batches that are the same on every GPU
    even = np.where(step > 0, np.round(any_ / k[:, None]) * k[:, None], any_)
    tried = np.clip(
        np.concatenate([even, np.round(any_)], axis=1), low[:, None], np.maximum(high, low)[:, None]
    )
    wide = {
        name: np.broadcast_to(np.asarray(v, np.float64), k.shape)[:, None] for name, v in q.items()
    }
    rates = at(kind, wide, k[:, None], tried)
    place = np.argmax(np.where(np.isnan(rates.rate), -np.inf, rates.rate), axis=1)[:, None]

    def pick(values: Floats) -> Floats:
        return np.take_along_axis(np.broadcast_to(values, tried.shape), place, axis=1)[:, 0]

    return BestBatch(pick(rates.rate), pick(tried), pick(rates.passes))
