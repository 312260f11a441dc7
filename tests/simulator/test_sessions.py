"""Sessions that hold GPUs only while a cell runs: how they are read, simulated and submitted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from allocator.errors import InvalidInput
from allocator.io.workloads import read_workload
from allocator.simulator.options import SimulationOptions
from allocator.simulator.run import simulate

AT_ONCE = SimulationOptions(react_s=1e-6, prove_every=0)
POOLS = "pool,gpu_type,gpus\np,A,{gpus}\n"
RATES = "model,gpu_type,gpus,work_per_s\nnotebook,A,1,1\nnotebook,A,2,1\n"
HEAD = (
    "job_id,submitted_s,model,total_work,requested_gpus,min_gpus,max_gpus,"
    "cells,state_gb,state_gb_s\n"
)


def write(folder: Path, rows: str, gpus: int = 8) -> Path:
    """Write a workload of sessions on one pool."""
    (folder / "pools.csv").write_text(POOLS.format(gpus=gpus))
    (folder / "rates.csv").write_text(RATES)
    (folder / "workload.csv").write_text(HEAD + rows)
    (folder / "config.toml").write_text("interval_s = 60\n")
    return folder


def test_a_session_holds_gpus_while_its_cells_run(tmp_path: Path) -> None:
    """Three cells by hand: 8 GB at 2 GB/s are 4 s to load and 4 s to save. On enough GPUs each cell
    runs when it starts, and nothing is held between them."""
    rows = "nb,100,notebook,170,1,1,1,0:100|300:50|60:20,8,2\nplain,0,notebook,7,1,1,1,,,\n"
    work = read_workload(write(tmp_path, rows))
    jobs = work.problem.jobs
    assert list(jobs.job_id) == ["plain", "nb", "nb@2", "nb@3"]
    assert jobs.total_work.tolist() == [7, 104, 58, 24]
    assert jobs.submitted_s.tolist() == [0, 100, 100 + 104 + 300, 504 + 58 + 60]
    spans = simulate(work, policy="mip", options=AT_ONCE).spans
    held = [[0, 7], [100, 204], [504, 562], [622, 646]]
    assert spans[["from_s", "to_s"]].to_numpy() == pytest.approx(np.array(held), abs=1e-3)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("nb,0,notebook,9,1,1,1,0:x,,", "is not THINK:RUN"),
        ("nb,0,notebook,9,1,1,1,-1:9,,", "is not THINK:RUN"),
        ("nb,0,notebook,9,1,1,1,0:4|5:6,,", "its cells run 10 s, total_work is 9"),
        ("nb,0,notebook,9,1,1,1,0:9,4,", "state_gb needs state_gb_s"),
    ],
)
def test_faults_of_sessions(tmp_path: Path, row: str, words: str) -> None:
    """Each is named."""
    with pytest.raises(InvalidInput, match=words):
        read_workload(write(tmp_path, row + "\n"))


def test_a_cell_never_starts_before_the_one_before_it_ends(tmp_path: Path) -> None:
    """Six sessions on one GPU: cells of a session never overlap, and no two run at a time."""
    rows = "".join(f"s{i},0,notebook,90,1,1,1,0:30|10:30|10:30,2,1\n" for i in range(6))
    work = read_workload(write(tmp_path, rows, gpus=1))
    done = simulate(work, policy="mip", options=AT_ONCE)
    ends = dict(zip(done.jobs["job_id"], done.jobs["finished_s"], strict=True))
    starts = dict(zip(done.jobs["job_id"], done.jobs["started_s"], strict=True))
    for i in range(6):
        assert starts[f"s{i}@2"] >= ends[f"s{i}"] and starts[f"s{i}@3"] >= ends[f"s{i}@2"]
    assert len(ends) == 18 and max(ends.values()) >= 18 * 30 + 6 * 4 * 2
