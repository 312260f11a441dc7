"""The model of options and places: what it allows is what nodes hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from models import dense

from allocator.solvers.base import SolveLimits
from allocator.solvers.registry import get
from formulations.placement.exact import place_options
from formulations.placement.holes import Holes, Need, Place, Wish

INF = math.inf


def solve(
    needs: list[Need],
    nodes: Holes,
    stays: dict[int, tuple[Place, ...]] | None = None,
    values: list[float] | None = None,
) -> tuple[list[int], dict[int, tuple[Place, ...]]]:
    """Return the options of the best plan and their places."""
    one_each = [(-INF, row, 1.0) for row in np.eye(len(needs))]
    placed = place_options(
        dense(values or [float(need.gpus) for need in needs], one_each, choices=len(needs)),
        dict(enumerate(needs)),
        stays or {},
        nodes,
    )
    answer = get("highs").solve(placed.model, SolveLimits(gap=0.0))
    assert answer.values is not None and placed.model.feasible(np.round(answer.values))
    chosen = np.flatnonzero(answer.values[: len(needs)] > 0.5).tolist()
    return chosen, placed.places(answer.values)


def test_packed_jobs() -> None:
    """5 and 3 on a node of 8 leave 4 on the other; a job of 8 on one node would need it whole."""
    nodes = Holes([0, 0], [8, 8], [INF] * 2, [INF] * 2)
    chosen, places = solve([Need(0, k, 1) for k in (5, 3, 5, 3, 8)], nodes)
    assert len(chosen) in (3, 4) and sum(k for at in places.values() for _, k, _ in at) == 16
    wide, places = solve([Need(0, 9, 2), Need(0, 4, 1), Need(0, 3, 1)], nodes)
    assert wide == [0, 1, 2] and len(places[0]) == 2


def test_a_job_that_stays_is_where_it_is() -> None:
    """2 of 4 GPUs of each node are taken: no hole for 4, unless one of the two goes."""
    nodes = Holes([0, 0], [4, 4], [INF] * 2, [INF] * 2)
    needs = [Need(0, 2, 1), Need(0, 2, 1), Need(0, 4, 1)]
    chosen, places = solve(needs, nodes, {0: ((0, 2, -1),), 1: ((1, 2, -1),)}, [3.0, 3.0, 5.0])
    assert len(chosen) == 2 and 2 in chosen and places[2] == ((places[2][0][0], 4, -1),)


@pytest.mark.parametrize("shares", [(0.5, 0.5, 0.6, 0.3), (0.25,) * 8])
def test_shares_fill_gpus(shares: tuple[float, ...]) -> None:
    """All are in two GPUs."""
    nodes = Holes([0], [2], [INF], [INF])
    chosen, places = solve([Need(0, 1, 1, share=f) for f in shares], nodes)
    assert len(chosen) == len(shares)
    filled = [sum(f for o, f in enumerate(shares) if places[o] == ((0, 1, g),)) for g in range(2)]
    assert max(filled) <= 1 + 1e-9


def test_levels_and_cpus() -> None:
    """A job of 6 in one rack; CPUs let a node give 2 GPUs only."""
    nodes = Holes([0] * 4, [4] * 4, [16.0, INF, INF, INF], [INF] * 4, [[0, 0, 1, 1]])
    rack = Need(0, 6, 2, cpus=8.0, wish=Wish.SAME, level=0)
    chosen, places = solve([rack, rack], nodes)
    assert chosen == [0, 1]
    assert all(len({n // 2 for n, _, _ in at}) == 1 for at in places.values())
    assert all(k <= 2 for at in places.values() for n, k, _ in at if n == 0)
