"""Formulas of speed, read a second time: lines of models.csv, and the normal distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping


def below(x: float) -> float:
    """Probability of a standard normal variable below x."""
    return math.erfc(-x / math.sqrt(2)) / 2


def curve(kind: str, q: Mapping[str, float], k: int) -> float | None:
    """A line of models.csv; of those that know the batch, with one batch only."""
    if not q.get("min_gpus", 1) <= k <= q.get("max_gpus", 1024):
        return None
    if kind == "iteration":
        batch = q["min_batch"]
        return batch / (q["compute"] * batch / k + q["sync"] * k + q.get("constant", 0))
    if kind == "goodput":
        batch, passes = q["batch_0"], math.ceil(math.ceil(q["batch_0"] / k) / q["max_local"])
        grad = q["alpha_c"] + q["beta_c"] * math.ceil(batch / (k * passes))
        near = k <= q.get("gpus_per_node", 8)
        alpha, beta = (q["alpha_r"], q["beta_r"]) if near else (q["alpha_n"], q["beta_n"])
        sync = alpha + beta * max(0, k - 2) if k > 1 else 0.0
        return batch / (
            (passes - 1) * grad + (grad ** q["gamma"] + sync ** q["gamma"]) ** (1 / q["gamma"])
        )
    one = q["rate_1"]
    return float(
        {
            "amdahl": lambda: one / (1 - q["parallel"] + q["parallel"] / k),
            "power": lambda: one * k ** q["exponent"],
            "overhead": lambda: one * k / (1 + q["c"] * (k - 1)),
            "capped": lambda: min(k * one, q["cap"]),
        }[kind]()
    )
