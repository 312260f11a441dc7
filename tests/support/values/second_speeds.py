"""Formulas of speed, read a second time: lines of models.csv, and the normal distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


STEP: Row = {"compute_s": None, "codec_s": 0.0, "volume_gb": 0.0, "ratio": 1.0}


def useful_rate(r: Row, gb_s: float) -> float:
    """Work per second of a line of rates.csv: a step computes, then compresses, then sends."""
    rate = float(r["work_per_s"] * r["efficiency"])
    if r["compute_s"] is None:
        return rate
    sending_s = r["volume_gb"] / r["ratio"] / gb_s
    return rate / ((r["compute_s"] + r["codec_s"] + sending_s) / r["compute_s"])


@dataclass
class Speeds:
    """Rows of rates.csv with their defaults, and of models.csv."""

    rates: list[Row]
    lines: Sequence[Row]

    def rate(
        self,
        model: str,
        gpu_type: str,
        k: int,
        gb: float | None = None,
        gb_s: float = math.inf,
    ) -> float | None:
        """Work per second on k GPUs of so much memory and so fast links, None where nothing is
        known."""
        sizes: dict[int, float | None] = {}
        for r in self.rates:
            if (r["model"], r["gpu_type"]) == (model, gpu_type):
                fits = gb is None or r["memory_gb"] is None or r["memory_gb"] <= gb
                speed = useful_rate(r, gb_s) if fits else None
                best = sizes.get(r["gpus"])
                sizes[r["gpus"]] = max((s for s in (speed, best) if s is not None), default=None)
        if k in sizes:
            return sizes[k]
        if not sizes or not min(sizes) < k < max(sizes):
            line = (c for c in self.lines if (c["model"], c["gpu_type"]) == (model, gpu_type))
            by_line = next((curve(c["kind"], c["parameters"], k) for c in line), None)
            return self.assumed(model, k) if self.unrated(model) else by_line
        a, b = max(n for n in sizes if n < k), min(n for n in sizes if n > k)
        low, high = sizes[a], sizes[b]
        if low is None or high is None:
            return None
        return min(low + (high - low) * (k - a) / (b - a), low * k / a)

    def memory(self, model: str, pool: Row, k: int) -> float:
        """GB of each of k GPUs of a pool that the model needs, 0 where neither a row nor a line of
        one batch says so."""
        gb, gb_s = pool["memory_gb"] or math.inf, pool["link_gb_s"]
        mine = [r for r in self.rates if (r["model"], r["gpu_type"]) == (model, pool["gpu_type"])]
        here = [r for r in mine if r["gpus"] == k]
        here = [r for r in here if (r["memory_gb"] or 0.0) <= gb] or here
        if here:
            return float(max(here, key=lambda r: useful_rate(r, gb_s))["memory_gb"] or 0.0)
        sizes = [r["gpus"] for r in mine]
        for line in self.lines if not (sizes and min(sizes) < k < max(sizes)) else ():
            q = line["parameters"]
            if (line["model"], line["gpu_type"]) == (model, pool["gpu_type"]):
                batch = q.get("min_batch", q.get("batch_0", 0)) if "rate_1" not in q else 0
                passes = math.ceil(math.ceil(batch / k) / q.get("max_local", math.inf)) or 1
                each = q.get("memory_per_sample_gb", 0.0) * math.ceil(batch / (k * passes))
                return float(q.get("memory_gb", 0.0) + each) if batch > 1 else 0.0
        return 0.0

    def unrated(self, model: str) -> bool:
        """Whether nobody gave a rate of the model; a controller may have observed some."""
        given = any(r["model"] == model and not r["observed"] for r in self.rates)
        return not given and all(c["model"] != model for c in self.lines)

    def assumed(self, model: str, k: int) -> float:
        """As much per GPU as at the nearest observed size, the slowest of several; 1 without."""
        seen = [
            (abs(math.log2(k / r["gpus"])), r["work_per_s"] * r["efficiency"] / r["gpus"])
            for r in self.rates
            if r["model"] == model
        ]
        return min(seen)[1] * k if seen else 1.0

    def is_assumed(self, model: str, gpu_type: str, k: int) -> bool:
        """Whether nothing was observed at the size, nor on both sides of it."""
        sizes = [r["gpus"] for r in self.rates if (r["model"], r["gpu_type"]) == (model, gpu_type)]
        return self.unrated(model) and not (sizes and min(sizes) <= k <= max(sizes))


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
