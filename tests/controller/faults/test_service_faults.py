"""The controller under faults at every write and every call: it may be cut off anywhere and
nothing is lost.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from queues import BACKENDS, copy_empty_queue, empty
from service_worlds import World

RUNS = {"sqlite": 36, "postgresql": 12}


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


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_faults(backend: str, tmp_path: Path) -> None:
    """The run that all others are compared with: every job is done, one was cancelled."""
    world = one(backend, tmp_path, 0, 0)
    assert sorted(world.expected.values()) == ["cancelled"] + 6 * ["done"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_faults_by_seed(backend: str, tmp_path: Path) -> None:
    """Crashes, pauses while another controller acts, lost connections, full disks, executors that
    cannot, rounds that fail, observations that are withheld and repeated: no job lost, none twice,
    GPUs kept, the journal whole, the same end."""
    crashes = happened = 0
    for seed in range(RUNS[backend]):
        world = one(backend, tmp_path / str(seed), seed, 1 + seed % 6)
        crashes += world.crashes
        happened += len(world.fate.log)
    assert crashes > RUNS[backend] / 2 and happened > RUNS[backend]


def test_faults_with_pairs(tmp_path: Path) -> None:
    """The same while pairs are made, parted, and lost with their machines: a pool never gives more
    GPUs than it has, no GPU has three jobs, every GPU is billed once."""
    joined = 0
    for seed in range(8):
        joined += one("sqlite", tmp_path / str(seed), seed, seed % 6, pairs=True).joined
    assert joined > 8


def test_faults_with_jobs_on_the_gpus_of_several(tmp_path: Path) -> None:
    """The same while jobs run on the GPUs of several jobs and on idle ones: of every job the queue
    knows which GPUs it holds itself, and they are billed once."""
    joined = 0
    for seed in range(6):
        world = one("sqlite", tmp_path / str(seed), seed, seed % 6, groups=True)
        joined += world.joined_several
    assert joined >= 6


@pytest.mark.parametrize("backend", BACKENDS)
def test_faults_with_nodes(backend: str, tmp_path: Path) -> None:
    """The same while nodes are drained, fail and come back: every GPU of a node once at every
    instant, no job lost, and every round is decided again to the same bytes."""
    changes = 0
    for seed in range(7 if backend == "sqlite" else 6):
        changes += one(backend, tmp_path / str(seed), seed, seed % 6, nodes=True).node_changes
    assert changes > 20


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
        crashes += one(
            backend,
            tmp_path / str(seed),
            seed,
            1 + seed % 12,
            pairs=seed % 4 == 1,
            nodes=seed % 4 == 2,
            groups=seed % 4 == 3,
        ).crashes
    assert crashes > 2 * runs
