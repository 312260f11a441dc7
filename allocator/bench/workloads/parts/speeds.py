"""Models with speed curves, by how much work a job has, as Pollux and Sia draw them.

The speed on n GPUs of a type is t1 n / (1 + c (n - 1)). Each model variant has its own t1 and c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.bench.workloads.parts import draw
from allocator.bench.workloads.parts.measured import RELATIVE_SPEED
from allocator.domain.problem import Floats, Ints

FAMILIES = ("cifar10", "recommender", "deepspeech2", "bert", "yolov3", "imagenet")
VARIANTS = 4
# GPU-hours: below 1 cifar10 or recommender, below 10 deepspeech2 or bert ...
UP_TO_H = (1.0, 10.0, 100.0)
CHOICES = ((0, 1), (2, 3), (4, 4), (5, 5))
SAMPLES_PER_S = (900.0, 2_500.0, 40.0, 90.0, 60.0, 380.0)  # on one V100, order of magnitude


@dataclass(frozen=True)
class Training:
    """Model and work of each job, and the speeds of all models.

    Attributes
    ----------
    model : names, J of them.
    work : units of the model, five digits, shape (J,).
    gpu_s : GPU-seconds of that work on V100s at the requested sizes, shape (J,).
    curves : columns of models.csv.
    """

    model: list[str]
    work: Floats
    gpu_s: Floats
    curves: dict[str, list[Any]]

    def mean_speed_up(self, requested: Ints, gpu_type: str) -> float:
        """Return the speed on a type over that on a V100, averaged over the GPU-seconds of jobs."""
        speed_up = draw.speed_ups(self.model, requested, gpu_type, self.curves)
        return float(np.average(speed_up, weights=self.gpu_s))


def draw_training(
    rng: np.random.Generator,
    requested: Ints,
    run_s: Floats,
    types: Sequence[str] = ("V100",),
    group: Ints | None = None,
) -> Training:
    """Draw models for jobs that take `run_s` seconds on V100s at the requested sizes.

    Parameters
    ----------
    rng : source of every draw.
    requested, run_s : (J,).
    types : GPU types of models.csv.
    group : number of the sweep of each job, shape (J,). Jobs of one sweep take the same variant
    within a class. Without it, each job is alone.
    """
    group = np.arange(len(requested)) if group is None else group
    model, rate_1, c, curves = _model_rows(
        rng, _family_of(requested * run_s / 3_600.0), types, group
    )
    rate = draw.overhead_rate(rate_1, c, requested)
    work = draw.round_digits(run_s * rate, 5)
    return Training(model, work, work / rate * requested, curves)


def _family_of(gpu_hours: Floats) -> Ints:
    """Return the class of each job by its GPU-hours, shape (J,).

    It is 0 below 1, 1 below 10, 2 below 100, and 3 above.
    """
    return np.searchsorted(np.array(UP_TO_H), gpu_hours, side="right")


def _model_rows(
    rng: np.random.Generator, kind: Ints, types: Sequence[str], group: Ints
) -> tuple[list[str], Floats, Floats, dict[str, list[Any]]]:
    """Return model name, t1 and c on a V100 of each job, shapes (J,), and models.csv.

    `kind` is the class of each job (_family_of). Jobs of one `group` (a sweep) take the same
    variant within a class.
    """
    pick = rng.integers(0, 2, int(group.max()) + 1)[group]
    variant = rng.integers(0, VARIANTS, int(group.max()) + 1)[group]
    one = np.array(CHOICES)[kind, pick] * VARIANTS + variant
    count = len(FAMILIES) * VARIANTS
    rate_1 = draw.round_digits(
        np.repeat(SAMPLES_PER_S, VARIANTS) * np.exp(rng.normal(0.0, 0.4, count)), 4
    )
    c = draw.curve_c(rng, count)
    names = [f"{family}-{v + 1}" for family in FAMILIES for v in range(VARIANTS)]
    rows: dict[str, list[Any]] = {"model": [], "gpu_type": [], "kind": [], "parameters": []}
    used = np.unique(one).tolist()
    for t in types:
        ratio = rng.uniform(*RELATIVE_SPEED[t], count)
        bend = np.ones(count) if t == "V100" else rng.uniform(0.7, 1.4, count)
        for i in used:
            rows["model"].append(names[i])
            rows["gpu_type"].append(t)
            rows["kind"].append("overhead")
            rows["parameters"].append(
                {
                    "c": float(f"{c[i] * bend[i]:.4g}"),
                    "rate_1": float(f"{rate_1[i] * ratio[i]:.4g}"),
                }
            )
    return [names[i] for i in one.tolist()], rate_1[one], c[one], rows
