"""Who runs on whose GPUs: reading and writing it, and what may not be said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import problem
from text_tables import cases, given

from allocator.cli.main import run
from allocator.domain.rules.snapshot_rules import validate
from allocator.errors import InvalidInput
from allocator.io.problem_tables import snapshot_folder

HOLDS: dict[str, Any] = {"state": "running", "pool": "p0", "gpus": 2}


def test_a_secondary_and_its_primary() -> None:
    """j1 names j0; after writing and reading it still does; without j0 it has the GPUs to
    itself.
    """
    p = problem([HOLDS, HOLDS | {"shared_with": "j0"}, {}], pools=[{"sharing": "tenant"}, {}])
    assert p.jobs.primary.tolist() == [-1, 0, -1] and p.pools.sharing.tolist() == [1, 0]
    again = validate(snapshot_folder(p))
    assert again.jobs.primary.tolist() == [-1, 0, -1] and again.pools.sharing.tolist() == [1, 0]
    assert p.jobs.take(np.array([1, 2])).primary.tolist() == [-1, -1]
    assert p.jobs.take(np.array([2, 1, 0])).primary.tolist() == [-1, 2, -1]


def test_of_two_that_name_each_other_the_first_is_the_primary() -> None:
    """By submission, then by name."""
    for first_s, primary in ((0, [-1, 0]), (5, [1, -1]), (2, [-1, 0])):
        first = HOLDS | {"shared_with": "j1", "submitted_s": first_s}
        second = HOLDS | {"shared_with": "j0", "submitted_s": 2}
        assert problem([first, second]).jobs.primary.tolist() == primary


# `holds` is two GPUs of p0; `beside` are those of j0
NO_PAIRS = """
holds; shared_with=j0 -> jobs.csv:3: shared_with "j0" is given, but state is
beside -> jobs.csv:2: shared_with "j0" names the job itself (job "j0")
holds shared_with=j9 -> shared_with "j9" is not in jobs.csv
;beside -> shared_with "j0" is not running (jobs.csv:2)
holds; beside gpus=4 -> holds 2 GPUs of pool "p0", this job 4 GPUs
holds; beside pool=p1 -> this job 2 GPUs of pool "p1"
holds; beside; beside -> already shares its GPUs with "j1"; a GPU has two
holds; beside; holds shared_with=j1 -> shares the GPUs of "j0"; a GPU has
"""


@pytest.mark.parametrize(("jobs", "words"), cases(NO_PAIRS))
def test_what_a_pair_is_not(jobs: str, words: str) -> None:
    """One fault, which names file, line, job, value and rule."""
    held = "state=running pool=p0 gpus=2"
    text = jobs.replace("beside", f"{held} shared_with=j0").replace("holds", held)
    with pytest.raises(InvalidInput) as caught:
        problem(**given(f"jobs: {text} / pools: ;"))
    [fault] = caught.value.faults
    assert words in str(fault)


def test_placements_of_a_pair_count_once() -> None:
    """Both are placed on the same two GPUs of a node that has two."""
    p = problem(
        [HOLDS, HOLDS | {"shared_with": "j0"}],
        pools=[{"gpus": 2}],
        nodes=[{"node": "n0", "pool": "p0", "gpus": 2}],
        placements=[{"job_id": j, "node": "n0", "gpus": 2} for j in ("j0", "j1")],
    )
    assert not [w for w in p.warnings if "are placed there" in w]


def test_tables_and_explanations_name_the_other_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two that may not be moved and run on the same two GPUs: `solve` and `explain`
    name the other one.
    """
    for name, text in {
        "jobs.csv": (
            "job_id,model,submitted_s,remaining_work,max_gpus,min_gpus,state,pool,gpus,shared_with,"
            "memory_gb,preemptible\na,m,0,3600,2,2,running,p,2,,10,false\n"
            "b,m,9,3600,2,2,running,p,2,a,10,false\n"
        ),
        "pools.csv": "pool,gpu_type,gpus,memory_gb,sharing\np,A,2,40,any\n",
        "rates.csv": "model,gpu_type,gpus,work_per_s\nm,A,2,1\n",
        "sharing.csv": "model_a,model_b,gpu_type,gpus,slowdown_a,slowdown_b\nm,m,A,2,1.2,1.2\n",
    }.items():
        (tmp_path / name).write_text(text)
    assert run(["solve", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "2 x p next to b" in said and "2 x p next to a" in said
    assert run(["explain", str(tmp_path), "b"]) == 0
    assert "gets 2 x p next to a" in capsys.readouterr().out
