"""The controller under faults at every write and every call: it may be cut off anywhere and
nothing is lost.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import count
from queues import BACKENDS, copy_empty_queue, empty
from service_worlds import World

KINDS = {
    # what happens, what counts as such, runs on SQLite and on PostgreSQL, and the least count
    "": ("crashes", 6, 2, 8),
    "pairs": ("joined", 2, 0, 4),
    "groups": ("joined_several", 2, 0, 1),
    "nodes": ("node_changes", 2, 1, 8),
}


def one(backend: str, folder: Path, seed: int, faults: int, **kind: bool) -> World:
    folder.mkdir(parents=True, exist_ok=True)
    if backend == "sqlite":
        copy_empty_queue(folder / "queue.db")
    with empty(backend, folder) as name:
        world = World(name, seed, faults=faults, **kind)
        try:
            world.run()
        finally:
            world.queue.close()
    return world


def test_without_faults(tmp_path: Path) -> None:
    """The run that all others are compared with: every job is done, one was cancelled."""
    world = one("sqlite", tmp_path, 0, 0)
    assert sorted(world.expected.values()) == ["cancelled"] + 6 * ["done"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_faults_by_seed(backend: str, kind: str, tmp_path: Path) -> None:
    """Crashes, pauses while another controller acts, lost connections, full disks, executors that
    cannot, rounds that fail, observations that are withheld and repeated: no job lost, none twice,
    GPUs kept, the journal whole, the same end. The same while pairs and groups of jobs on the same
    GPUs are made, parted, and lost with their machines: a pool never gives more GPUs than it has,
    no GPU has three jobs, every GPU is billed once. The same while nodes are drained, fail and come
    back: every GPU of a node once at every instant, and rounds are decided again to the same bytes.
    """
    counted, *runs, least = KINDS[kind]
    few = runs[BACKENDS.index(backend)]
    more = {kind: True} if kind else {}
    total = 0
    for seed in range(number := count(few, 3 * few)):
        world = one(backend, tmp_path / str(seed), seed, 1 + seed % 6, **more)
        total += getattr(world, counted)
    assert total >= least * number // max(runs)


@pytest.mark.parametrize("seed", [1750, 2344])
def test_faults_that_were_found(seed: int, tmp_path: Path) -> None:
    """2344: starts were ordered, a crash came before they were given out, half of the machines went
    meanwhile: the next controller gave them out all the same. 1750: an end becomes known when
    another controller has billed for it already."""
    one("sqlite", tmp_path, seed, 1 + seed % 12)


@pytest.mark.soak
@pytest.mark.parametrize("backend", BACKENDS)
def test_faults_by_seed_at_length(backend: str, tmp_path: Path) -> None:
    """The same, two thousand times: a quarter of them with pairs, with groups, with nodes."""
    crashes, runs = 0, 2000 if backend == "sqlite" else 600
    for seed in range(1000, 1000 + runs):
        kind = [*KINDS][seed % 4]
        more = {kind: True} if kind else {}
        crashes += one(backend, tmp_path / str(seed), seed, 1 + seed % 12, **more).crashes
    assert crashes > 2 * runs
