"""Who runs on whose GPUs: every primary job has one secondary job, which may have several.

A GPU has two jobs at most, so `secondary` (J,) says it all: of a primary job, the job that runs on
its GPUs too. `primary` (J,) is of a secondary job the first of its primary jobs.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
BETWEEN_NAMES = "|"  # as in every list of a cell


def secondary_of(primary: Ints) -> Ints:
    """Return the secondary job of each primary job, (J,), -1 = none, where each has one."""
    secondary = np.full(len(primary), -1)
    g = np.flatnonzero((primary >= 0) & (primary < len(primary)))
    secondary[primary[g]] = g
    return secondary


def first_primary(secondary: Ints) -> Ints:
    """Return the first primary job of each secondary job, (J,), -1 = none."""
    primary = np.full(len(secondary), -1)
    h = np.flatnonzero(secondary >= 0)[::-1]
    primary[secondary[h]] = h
    return primary


def held_gpus(gpus: Ints, secondary: Ints) -> Ints:
    """Return the GPUs that each job holds itself, (J,): all but those of its primary jobs."""
    h = np.flatnonzero(secondary >= 0)
    if not len(h):
        return gpus
    held = gpus.copy()
    np.subtract.at(held, secondary[h], gpus[h])
    return np.maximum(held, 0)


def other_jobs(secondary: Ints) -> list[list[int]]:
    """List the jobs on the GPUs of each job: its secondary job, or its primary jobs."""
    out: list[list[int]] = [[] for _ in secondary.tolist()]
    for h in np.flatnonzero(secondary >= 0).tolist():
        g = int(secondary[h])
        out[h].append(g)
        out[g].append(h)
    return out


def join_names(names: Iterable[str]) -> str:
    """Return the cell of `shared_with` that names these jobs."""
    return BETWEEN_NAMES.join(names)


def split_names(cell: str) -> list[str]:
    """Return the jobs that a cell of `shared_with` names."""
    return cell.split(BETWEEN_NAMES) if cell else []
