"""Learn the gradient noise scale of a model from what its jobs report while they train.

S and |G|^2 of formulations/training_step.py are averaged, and their quotient is the noise scale. A
report of the noise scale itself counts as S with |G|^2 = 1, so all jobs of a model should report
the same fields. The mean is that of all reports at first, and an exponential one over MEMORY
reports later, because the noise grows while a model trains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from formulations.training_step import estimate_noise

MEMORY = 10  # reports over which the mean goes


class LearnedNoise(NamedTuple):
    """The averages of S and |G|^2 over so many reports."""

    trace: float = 0.0
    square: float = 0.0
    reports: int = 0

    @property
    def noise_scale(self) -> float:
        """The noise scale in samples, nan as long as the averages give none."""
        return self.trace / self.square if min(self.trace, self.square) > 0 else math.nan

    def add_report(self, reported: Mapping[str, float]) -> LearnedNoise:
        """Return the averages with one more report; one that says nothing of noise changes nothing.

        Examples
        --------
        >>> LearnedNoise().add_report({"noise_scale": 900.0}).noise_scale
        900.0
        """
        seen = read_noise(reported)
        if seen is None:
            return self
        weight = 1.0 / min(self.reports + 1, MEMORY)
        trace, square = (
            old + weight * (new - old) for old, new in zip(self[:2], seen, strict=True)
        )
        return LearnedNoise(trace, square, self.reports + 1)


def read_noise(reported: Mapping[str, float]) -> tuple[float, float] | None:
    """Return (S, |G|^2) of a report, None if it has none that make sense."""
    if (noise_scale := reported.get("noise_scale", -1.0)) >= 0:
        return noise_scale, 1.0
    try:
        small_batch, small_norm2, batch, norm2 = (
            reported[name] for name in ("small_batch", "small_norm2", "batch", "norm2")
        )
    except KeyError:
        return None
    if not 0 < small_batch < batch or min(small_norm2, norm2) < 0:
        return None
    return estimate_noise(small_batch, small_norm2, batch, norm2)
