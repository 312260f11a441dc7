"""Thousands of damaged snapshots: each is a Problem or a list of located faults, never anything
else.

Ten thousand of them: `pytest -m soak tests/io/test_fuzz_input.py` does those that the default suite
leaves out.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from everything import EVERYTHING, content
from examples import count, seeds
from fakes.random_rounds import random_snapshot
from mutations import mutate

from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot
from allocator.errors import InvalidInput
from allocator.io.snapshots import FILES, parse_snapshot, read_snapshot

MINIMAL = {
    "jobs.csv": b"job_id,model,submitted_s,remaining_work,max_gpus\na,m,0,100,2\nb,m,1,100,1\n",
    "pools.csv": b"pool,gpu_type,gpus\np,A,4\n",
    "rates.csv": b"model,gpu_type,gpus,work_per_s\nm,A,1,2\n",
}
RANDOM = [random_snapshot(np.random.default_rng(i), jobs=6).files() for i in range(4)]
BASES = (dict(EVERYTHING), MINIMAL, *RANDOM)
IN_MEMORY, ON_DISK = count(400, 1_000), 50  # mutations of each seed
SEEDS = seeds(3, 10)


def judged(snapshot: Snapshot, files: dict[str, bytes]) -> bool:
    """Whether the snapshot is sound; asserts that faults and warnings are located one-line
    messages.
    """
    try:
        problem = validate(snapshot)
    except InvalidInput as error:
        assert error.faults
        for fault in error.faults:
            assert fault.file in FILES, fault
            assert fault.message and str(fault).isprintable() and len(str(fault)) < 500, fault
            data = files.get(fault.file, b"")
            most = 1 + data.count(b"\n") + data.count(b"\r")
            assert fault.line is None or 1 <= fault.line <= most, fault
        return False
    plausible(problem)
    return True


def plausible(problem: Problem) -> None:
    """What every reader of a Problem relies on."""
    jobs, pools, rates = problem.jobs, problem.pools, problem.rates
    assert all(w.isprintable() and w.startswith(FILES) for w in problem.warnings), problem.warnings
    assert (jobs.min_gpus <= jobs.requested_gpus).all() and (
        jobs.requested_gpus <= jobs.max_gpus
    ).all()
    assert ((jobs.pool >= 0) == (jobs.gpus > 0)).all() and (jobs.pool < len(pools)).all()
    assert (jobs.model >= 0).all() and (jobs.tenant >= 0).all() and (pools.gpus >= 0).all()
    assert (
        np.isfinite(rates.rate).all()
        and (rates.rate >= 0).all()
        and (jobs.remaining_work > 0).all()
    )
    assert len(set(jobs.job_id)) == len(jobs.job_id) and all(jobs.job_id)
    assert problem.interval_s > 0 and problem.budget_per_hour >= 0


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_snapshot_is_judged(seed: int, tmp_path: Path) -> None:
    """InvalidInput with located messages, or a Problem that keeps its promises; both happen
    often.
    """
    rng = random.Random(seed)
    sound = 0
    for i in range(IN_MEMORY + ON_DISK):
        files = mutate(rng.choice(BASES), rng)
        if i < IN_MEMORY:
            snapshot = parse_snapshot("fuzz", files)
        else:
            folder = tmp_path / str(i)
            folder.mkdir()
            for name, data in files.items():
                (folder / name).write_bytes(data)
            snapshot = read_snapshot(folder)
        sound += judged(snapshot, files)
    assert 0.1 < sound / (IN_MEMORY + ON_DISK) < 0.9


def test_memory_and_disk_read_alike(tmp_path: Path) -> None:
    """What the fuzzer reads from memory is what a folder gives, faults included."""
    rng = random.Random(99)
    for i in range(40):
        files = mutate(BASES[i % 2], rng)
        for name, data in files.items():
            (tmp_path / f"{i}").mkdir(exist_ok=True)
            (tmp_path / f"{i}" / name).write_bytes(data)
        # on disk, a missing file also gets a hint
        if not {"jobs.csv", "pools.csv"} <= set(files):
            continue
        a, b = read_snapshot(tmp_path / f"{i}"), parse_snapshot(f"{i}", files)
        assert (a.digest, a.faults, a.tables) == (b.digest, b.faults, b.tables)


def test_bases_are_sound() -> None:
    """Undamaged, every base is valid."""
    for base in BASES:
        assert content(validate(parse_snapshot("base", base)))
