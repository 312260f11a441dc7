"""The decision before its audit: which job gets which GPUs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.domain.problem import NO_PLACEMENTS, Ints, Placements, Sharers


@dataclass(frozen=True)
class Allocation(Sharers):
    """One option per job, in the order of Problem.jobs; arrays (J,).

    Attributes
    ----------
    pool : (J,)
        Index into Problem.pools, -1 = nothing.
    gpus : (J,)
        Number of GPUs, 0 = nothing.
    row : (J,)
        Row of Problem.rates that gives batch and variant, -1 = interpolated, by formula, or
        nothing.
    primary : (J,)
        Of a secondary job, the index of the primary job on whose GPUs it runs, the first of
        several; all have the same pool, and none is a secondary job itself. -1: the job holds its
        GPUs itself, or nothing.
    places : Placements
        The nodes of each job in pools with nodes.
    shared_by : (J,), optional
        Of a primary job, the index of its secondary job, -1 = none. None: each secondary job has
        one primary job.
    """

    pool: Ints
    gpus: Ints
    row: Ints
    primary: Ints
    places: Placements = NO_PLACEMENTS
    shared_by: Ints | None = None


@dataclass(frozen=True)
class PlacedPlan:
    """What became of a plan when its jobs were placed on nodes.

    Attributes
    ----------
    places : Placements
        The nodes of each job in pools with nodes.
    value_before : float
        Value of the plan before it was placed: what the policy chose by GPUs of pools.
    moved : int
        Running jobs that move to other nodes of their pool to open a hole.
    reduced : int
        Jobs that get another option than the policy chose, because no nodes hold that one.
    unmet : (K,) or (0,)
        GPUs of each guarantee for which no nodes were found; (0,) = none.
    """

    places: Placements
    value_before: float
    moved: int
    reduced: int
    unmet: Ints


@dataclass(frozen=True)
class Repairs:
    """Rules of the snapshot that lost GPUs break and that the round therefore may not enforce.

    Attributes
    ----------
    released : (J,)
        True for non-preemptible jobs whose pool lost the GPUs they hold; they keep or pause.
    max_changes : int
        The limit in force, -1 = none. It is raised when lost GPUs force more changes than allowed.
    usable : (K,)
        GPUs u that each guarantee amounts to (docs/reference/rules.md, R18 and R64), those of
        tenants.csv first.
    messages : tuple of str
        One line for each repair.
    """

    released: NDArray[np.bool_]
    max_changes: int
    usable: Ints
    messages: tuple[str, ...] = ()
