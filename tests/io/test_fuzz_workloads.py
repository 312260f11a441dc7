"""Thousands of damaged workload folders: each is a Workload or a list of located faults, never
anything else.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
from everything_workload import EVERY_WORKLOAD, workload_content
from examples import count, seeds
from mutations import mutate
from test_fuzz_input import plausible

from allocator.domain.problem import State
from allocator.domain.workload import Workload
from allocator.errors import InvalidInput
from allocator.io.workloads import FOLDER, parse_workload, read_workload, write_workload

MINIMAL = {
    "workload.csv": b"job_id,submitted_s,model,total_work,max_gpus\na,5,m,100,2\nb,3,m,100,1\n",
    "pools.csv": b"pool,gpu_type,gpus\np,A,4\n",
    "rates.csv": b"model,gpu_type,gpus,work_per_s\nm,A,1,2\n",
}
MOVING = {
    **MINIMAL,
    "capacity.csv": b"at_s,pool,gpus\n1,p,3\n9,p,0\n",
    "prices.csv": b"at_s,pool,price_per_gpu_hour,gpus\n1,p,2,\n9,p,,7\n",
}
BASES = (dict(EVERY_WORKLOAD), MINIMAL, MOVING)
IN_MEMORY, ON_DISK = count(200, 400), 20  # mutations of each seed
SEEDS = seeds(2, 5)


def judged(error: InvalidInput, files: dict[str, bytes]) -> None:
    """Faults are located one-line messages about files of a workload."""
    assert error.faults
    for fault in error.faults:
        assert fault.file in FOLDER.files, fault
        assert fault.message and str(fault).isprintable() and len(str(fault)) < 500, fault
        data = files.get(fault.file, b"")
        assert fault.line is None or 1 <= fault.line <= 1 + data.count(b"\n") + data.count(b"\r"), (
            fault
        )


def sound(workload: Workload) -> None:
    """What the simulator relies on."""
    jobs, changes = workload.problem.jobs, workload.changes
    for warning in workload.problem.warnings:
        assert warning.isprintable() and warning.startswith(FOLDER.files), warning
    plausible(dataclasses.replace(workload.problem, warnings=()))
    assert (np.diff(jobs.submitted_s) >= 0).all() and (
        jobs.submitted_s >= workload.problem.now_s
    ).all()
    assert (jobs.state == State.QUEUED).all() and (jobs.remaining_work == jobs.total_work).all()
    assert (np.diff(changes.at_s) >= 0).all() and (changes.at_s > workload.problem.now_s).all()
    assert (changes.pool >= 0).all() and (changes.pool < len(workload.problem.pools)).all()
    assert (changes.gpus >= -1).all() and not (changes.price_per_gpu_hour < 0).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_workload_is_judged(seed: int, tmp_path: Path) -> None:
    """InvalidInput with located messages, or a Workload that keeps its promises and survives
    writing.
    """
    rng = random.Random(seed)
    good = 0
    for i in range(IN_MEMORY + ON_DISK):
        files = mutate(rng.choice(BASES), rng)
        folder = tmp_path / str(i)
        try:
            if i < IN_MEMORY:
                workload = parse_workload("fuzz", files)
            else:
                folder.mkdir()
                for name, data in files.items():
                    (folder / name).write_bytes(data)
                workload = read_workload(folder)
        except InvalidInput as error:
            judged(error, files)
            continue
        good += 1
        sound(workload)
        if i % 10 == 0:
            again = read_workload(write_workload(tmp_path / f"{i}-again", workload))
            assert workload_content(again) == workload_content(workload)
    assert 0.1 < good / (IN_MEMORY + ON_DISK) < 0.9
