"""Thousands of damaged snapshots and workloads: each is read, or is a list of located faults, never
anything else.

Ten thousand of them: `pytest -m soak tests/io/test_fuzz_input.py` does those that the default suite
leaves out.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from everything import EVERYTHING
from everything_workload import EVERY_WORKLOAD, workload_content
from examples import count, seeds
from fakes.random_rounds import random_snapshot
from mutations import mutate

from allocator.domain.problem import Problem, State
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.workload import Workload
from allocator.errors import InvalidInput
from allocator.io.snapshots import FILES, parse_snapshot, read_snapshot
from allocator.io.workloads import FOLDER, parse_workload, read_workload, write_workload

CLUSTER = {
    "pools.csv": b"pool,gpu_type,gpus\np,A,4\n",
    "rates.csv": b"model,gpu_type,gpus,work_per_s\nm,A,1,2\n",
}
SMALL = CLUSTER | {
    "jobs.csv": b"job_id,model,submitted_s,remaining_work,max_gpus\na,m,0,100,2\nb,m,1,100,1\n"
}
WORK = CLUSTER | {
    "workload.csv": b"job_id,submitted_s,model,total_work,max_gpus\na,5,m,100,2\nb,3,m,100,1\n"
}
MOVING = WORK | {
    "capacity.csv": b"at_s,pool,gpus\n1,p,3\n9,p,0\n",
    "prices.csv": b"at_s,pool,price_per_gpu_hour,gpus\n1,p,2,\n9,p,,7\n",
}
RANDOM = [random_snapshot(np.random.default_rng(i), jobs=6).files() for i in range(4)]
SNAPSHOTS = (dict(EVERYTHING), SMALL, *RANDOM)
WORKLOADS = (dict(EVERY_WORKLOAD), WORK, MOVING)


def judge_faults(error: InvalidInput, files: dict[str, bytes], known: tuple[str, ...]) -> None:
    """Faults are located one-line messages about files of the folder."""
    assert error.faults
    for fault in error.faults:
        assert fault.file in known, fault
        assert fault.message and str(fault).isprintable() and len(str(fault)) < 500, fault
        data = files.get(fault.file, b"")
        most = 1 + data.count(b"\n") + data.count(b"\r")
        assert fault.line is None or 1 <= fault.line <= most, fault


def judge_problem(problem: Problem, known: tuple[str, ...] = FILES) -> None:
    """What every reader of a Problem relies on."""
    jobs, pools, rate = problem.jobs, problem.pools, problem.rates.rate
    assert all(w.isprintable() and w.startswith(known) for w in problem.warnings), problem.warnings
    assert (jobs.min_gpus <= jobs.requested_gpus).all()
    assert (jobs.requested_gpus <= jobs.max_gpus).all() and (jobs.remaining_work > 0).all()
    assert ((jobs.pool >= 0) == (jobs.gpus > 0)).all() and (jobs.pool < len(pools)).all()
    for numbers in (jobs.model, jobs.tenant, pools.gpus, rate):
        assert (numbers >= 0).all()
    assert np.isfinite(rate).all() and problem.interval_s > 0 and problem.budget_per_hour >= 0
    assert len(set(jobs.job_id)) == len(jobs.job_id) and all(jobs.job_id)


def judge_workload(workload: Workload) -> None:
    """What the simulator relies on."""
    jobs, changes, start = workload.problem.jobs, workload.changes, workload.problem.now_s
    judge_problem(workload.problem, FOLDER.files)
    assert (np.diff(jobs.submitted_s) >= 0).all() and (jobs.submitted_s >= start).all()
    assert (jobs.state == State.QUEUED).all() and (jobs.remaining_work == jobs.total_work).all()
    assert (np.diff(changes.at_s) >= 0).all() and (changes.at_s > start).all()
    assert (changes.pool >= 0).all() and (changes.pool < len(workload.problem.pools)).all()
    assert (changes.gpus >= -1).all() and not (changes.price_per_gpu_hour < 0).any()


def written(files: dict[str, bytes], folder: Path) -> Path:
    """A folder of these files."""
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("seed", seeds(1, 10))
@pytest.mark.parametrize("kind", ["snapshot", "workload"])
def test_damaged_folders_are_judged(kind: str, seed: int, tmp_path: Path) -> None:
    """InvalidInput with located messages, or a Problem or Workload that keeps its promises; both
    happen often. A folder on the disk has the digest of its files in memory; a workload survives
    writing.
    """
    bases, known = (SNAPSHOTS, FILES) if kind == "snapshot" else (WORKLOADS, FOLDER.files)
    rng, many, sound = random.Random(seed), count(80, 1000), 0
    for i in range(many):
        files = mutate(rng.choice(bases), rng)
        disk = None if i % 10 else written(files, tmp_path / str(i))
        try:
            if kind == "snapshot":
                read = parse_snapshot("fuzz", files)
                assert disk is None or read_snapshot(disk).digest == read.digest
                judge_problem(validate(read_snapshot(disk) if disk else read))
            else:
                workload = read_workload(disk) if disk else parse_workload("fuzz", files)
                judge_workload(workload)
                if disk:
                    again = read_workload(write_workload(tmp_path / f"{i}-again", workload))
                    assert workload_content(again) == workload_content(workload)
            sound += 1
        except InvalidInput as error:
            judge_faults(error, files, known)
    assert 0.1 < sound / many < 0.9
