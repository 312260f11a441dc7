"""The controller under faults at every write and every call: it may be cut off anywhere and
nothing is lost.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from queues import empty
from service_worlds import World

# what happens, and what counts as such, at least once in the runs of a kind
KINDS = {
    "": "crashes",
    "groups": "joined_several",
    "nodes": "node_changes",
}


def one(backend: str, folder: Path, seed: int, faults: int, **kind: bool) -> World:
    folder.mkdir(parents=True, exist_ok=True)
    with empty(backend, folder) as name:
        world = World(name, seed, faults=faults, **kind)
        try:
            world.run()
        finally:
            world.queue.close()
    return world


@pytest.mark.parametrize(
    ("backend", "kind", "runs"),
    [
        ("sqlite", "", 1),
        ("postgresql", "", 1),
        *(
            pytest.param(backend, kind, runs, marks=mark)
            for backend, few, many in (("sqlite", 6, 500), ("postgresql", 2, 150))
            for runs, mark in ((few, pytest.mark.nightly), (many, pytest.mark.soak))
            for kind in KINDS
        ),
    ],
)
def test_faults_by_seed(backend: str, kind: str, runs: int, tmp_path: Path) -> None:
    """Crashes, pauses while another controller acts, lost connections, full disks, executors that
    cannot, rounds that fail, observations that are withheld and repeated: no job lost, none twice,
    GPUs kept, the journal whole, the same end. The same while groups of jobs on the same
    GPUs are made, parted, and lost with their machines: a pool never gives more GPUs than it has,
    no GPU has three jobs, every GPU is billed once. The same while nodes are drained, fail and come
    back: every GPU of a node once at every instant, and rounds are decided again to the same bytes.
    In the soak 1,950 times.
    """
    more = {kind: True} if kind else {}
    total = 0
    for seed in range(1, runs + 1):
        world = one(backend, tmp_path / str(seed), seed, 1 + seed % 12, **more)
        total += getattr(world, KINDS[kind])
    assert total >= 1


def test_a_round_whose_write_is_lost_marks_no_other(tmp_path: Path) -> None:
    """Its number goes to a round that fails, which must not count as applied: seed 498."""
    one("sqlite", tmp_path, 498, 7)
