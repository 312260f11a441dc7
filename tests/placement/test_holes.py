"""Free GPUs of nodes: best fit, shares, domains; and exact for one job."""

from __future__ import annotations

import itertools
import math

from hypothesis import given, strategies as st

from formulations.placement.holes import Holes, Need, Place, Wish


def holes(*gpus: int, domains: list[int] | None = None) -> Holes:
    """Nodes of pool 0 with so many free GPUs."""
    no_limit = [math.inf] * len(gpus)
    return Holes([0] * len(gpus), gpus, no_limit, no_limit, [domains or []])


def spot(places: tuple[Place, ...] | None) -> dict[int, int] | None:
    """GPUs by node."""
    return None if places is None else {n: k for n, k, _ in places}


def test_best_fit_keeps_large_holes() -> None:
    """3 GPUs go to the node with 4, not to one with 8 or 5."""
    assert spot(holes(8, 5, 4, 2).find(Need(0, 3, 1))) == {2: 3}


def test_shares_fill_the_fullest_gpu() -> None:
    """0.5 joins the GPU with 0.6 free, not the one with 0.7; 0.7 opens a new one."""
    nodes = holes(2, 4)
    nodes.take(((1, 1, 0),), Need(0, 1, 1, share=0.4))
    nodes.take(((1, 1, 2),), Need(0, 1, 1, share=0.3))
    assert nodes.find(Need(0, 1, 1, share=0.5)) == ((1, 1, 0),)
    assert nodes.find(Need(0, 1, 1, share=0.75)) == ((0, 1, 0),)


def test_levels_and_spread() -> None:
    """One domain, or the one that is preferred; as many nodes as possible, small holes first."""
    nodes = holes(4, 4, 3, 3, domains=[0, 1, 1, 1])
    same = Need(0, 6, 1, wish=Wish.SAME, level=0)
    assert spot(nodes.find(same)) == {1: 4, 2: 2}
    assert nodes.find(Need(0, 11, 2, wish=Wish.SAME, level=0)) is None
    far = spot(nodes.find(Need(0, 11, 2, wish=Wish.PREFER, level=0))) or {}
    assert sum(far.values()) == 11
    assert spot(nodes.find(Need(0, 3, 1, wish=Wish.SPREAD))) == {3: 1, 2: 1, 1: 1}


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(1, 14), st.integers(1, 4))
def test_one_job_is_placed_exactly_if_it_can_be(free: list[int], gpus: int, most: int) -> None:
    """Against all sets of nodes; the places are free, and no more nodes than allowed."""
    nodes = holes(*[6] * len(free))
    for n, k in enumerate(free):
        nodes.take(((n, 6 - k, -1),), Need(0, 6 - k, 1))
    found = nodes.find(Need(0, gpus, most))
    can = any(sum(some) >= gpus for some in itertools.combinations(free, min(most, len(free))))
    assert (found is not None) == can
    if found is not None:
        assert sum(k for _, k, _ in found) == gpus and len(found) <= most
        assert all(0 < k <= free[n] for n, k, _ in found)
        assert len({n for n, _, _ in found}) == len(found)
