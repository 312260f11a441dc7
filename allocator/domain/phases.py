"""Phases of training: models whose speeds change as their jobs go on.

A model MODEL@SHARE of rates.csv or models.csv says how MODEL runs from this share of its total_work
on, up to the next such share. Speeds of a phase are looked up as those of any other model. A job of
MODEL enters the phase by itself, once it has done that share of its work.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from allocator.domain.problem import Floats, Ints

ROUNDING = 1e-6  # a job whose share of work is less than this below the begin of a phase is in it


class Phase(NamedTuple):
    """One phase of a model.

    `model` is the number of MODEL, `begins` the share of work at which the phase begins, and
    `phase` the number of MODEL@SHARE.
    """

    model: int
    begins: float
    phase: int


@lru_cache(maxsize=16)
def find_phases(models: tuple[str, ...]) -> tuple[Phase, ...]:
    """Return the phases among the models, by model and share."""
    number = {name: m for m, name in enumerate(models)}
    phases = []
    for name, m in number.items():
        base, _, share = name.rpartition("@")
        if base in number and 0.0 < (begins := _as_number(share)) < 1.0:
            phases.append(Phase(number[base], begins, m))
    return tuple(sorted(phases))


def _as_number(text: str) -> float:
    """Return the number that the text holds, -1 if it holds none."""
    try:
        return float(text)
    except ValueError:
        return -1.0


def present_models(models: Sequence[str], model: Ints, share_done: Floats) -> Ints:
    """Return the model of each job in its present phase, (n,).

    `share_done` (n,) is the share of its work that each job has done.
    """
    out = model
    for phase in find_phases(tuple(models)):
        is_in = (model == phase.model) & (share_done >= phase.begins - ROUNDING)
        out = np.where(is_in, phase.phase, out)
    return out


def next_begin(models: Sequence[str], model: Ints, share_done: Floats) -> Floats:
    """Return the share of work at which the next phase of each job begins, 1 without one, (n,)."""
    out = np.ones(len(model))
    for phase in reversed(find_phases(tuple(models))):
        is_ahead = (model == phase.model) & (share_done < phase.begins - ROUNDING)
        out = np.where(is_ahead, phase.begins, out)
    return out
