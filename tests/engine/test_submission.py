"""`whatif --submit`: what it says is what submitting the job then does."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cases.submissions import CASES, JOB, RAY, ROW_CASES, SBATCH
from commands import Output, call
from examples import series
from places import ROOT

import allocator
from allocator.domain.plan import Plan
from allocator.engine.advice.submission import submit, with_job
from allocator.engine.advice.trials import SolveCommand
from allocator.io.snapshots import write_snapshot

DEMO = ROOT / "data" / "snapshots" / "demo"
FULL = DEMO.with_name("full")
GOT = ("job_id", "action", "pool", "gpus", "reason")


def with_row(source: Path, folder: Path, row: dict[str, Any]) -> Path:
    """The snapshot with one more line in its jobs.csv."""
    shutil.copytree(source, folder)
    jobs = list(csv.DictReader((folder / "jobs.csv").read_text(encoding="utf-8").splitlines()))
    latest = max(float(job["submitted_s"]) for job in jobs)
    now = allocator.Problem.read(source).checked.now_s
    assert now >= latest
    jobs.append({"submitted_s": now, **row})
    names = list(dict.fromkeys(name for job in jobs for name in job))
    with (folder / "jobs.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(jobs)
    return folder


def outcomes(plan: Plan | list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    if isinstance(plan, list):
        return [tuple(job[name] for name in GOT) for job in plan]
    return list(zip(*(plan.jobs[name] for name in GOT), strict=True))


@pytest.mark.parametrize("name", series([*CASES, *ROW_CASES][::-1], 2))
def test_the_answer_is_what_submitting_does(name: str, tmp_path: Path, capsys: Output) -> None:
    """The plan with it is that of a snapshot into which its row was written by hand, job by job;
    the plan without it is that of the snapshot; the snapshot of --out has the job; each piece of
    advice, followed, gives what was said.
    """
    text, row = (CASES | ROW_CASES)[name]
    source = FULL if name[0].isdigit() else DEMO
    file, out = tmp_path / name, tmp_path / "out"
    file.write_text(text, encoding="utf-8")
    code, said, err = call(capsys, f"whatif {source} --submit {file} --out {out} --json")
    assert code == 0, err
    told = json.loads(said)
    folder = with_row(source, tmp_path / "really", row)
    really = allocator.solve(allocator.Problem.read(folder))
    assert outcomes(told["after"]["jobs"]) == outcomes(really)
    assert outcomes(told["before"]["jobs"]) == outcomes(
        allocator.solve(allocator.Problem.read(source))
    )
    assert told["after"]["objective_value"] == really.objective_value
    assert outcomes(allocator.solve(allocator.Problem.read(out))) == outcomes(really)
    assert told["job_id"] == row["job_id"] and told["answer"].startswith(row["job_id"])
    for advice in told["explanation"]["changes"]:
        write_snapshot(allocator.changed(allocator.read_snapshot(folder), advice["values"]), out)
        got = outcomes(allocator.solve(allocator.Problem.read(out)))[-1]
        assert got[2:4] == (advice["pool"], advice["gpus"])


def test_who_is_pushed_away_is_named(tmp_path: Path, capsys: Output) -> None:
    """A job of large weight takes GPUs: the answer comes first, names who loses them, and the
    table has the same jobs as both plans.
    """
    (tmp_path / "row.csv").write_text("job_id,model,total_work,min_gpus,max_gpus,weight\n"
                                      "big,bert,90000,4,8,900\n", encoding="utf-8")  # fmt: skip
    code, said, _ = call(capsys, f"whatif {DEMO} --submit {tmp_path / 'row.csv'} --json")
    told = json.loads(said)
    gpus = [
        {job["job_id"]: job["gpus"] for job in told[when]["jobs"]} for when in ("before", "after")
    ]
    lost = {name for name, n in gpus[0].items() if gpus[1][name] < n}
    assert code == 0 and lost and told["answer"].startswith("big starts on ")
    changed = told["comparison"]["jobs"]
    assert {job["job_id"] for job in changed if job["what"] in ("stops", "shrinks")} == lost
    assert changed[0]["job_id"] == "big" and "GPUs" in told["answer"].partition("Of the others")[2]


def test_starts_that_become_later_are_told() -> None:
    """Jobs that wait in both plans, with the expected start of each, the most delayed first."""
    snapshot = allocator.read_snapshot(DEMO)
    row = {"job_id": "wide", "model": "bert", "submitted_s": 0, "remaining_work": 1e5}
    command = SolveCommand()
    other = with_job(snapshot, row | {"min_gpus": 8, "max_gpus": 8})
    problem, with_other = (command.problem(one, {}) for one in (snapshot, other))
    done, before, after = submit(problem, other, with_other, command)
    waits = [
        {d.round.problem.jobs.job_id[j] for j in (d.allocation.gpus == 0).nonzero()[0].tolist()}
        for d in (before, after)
    ]
    delays = [(x.after_s or 1e99) - x.before_s for x in done.later]
    assert delays and delays == sorted(delays, reverse=True) and min(delays) > 1
    assert {x.job_id for x in done.later} <= waits[0] & waits[1]
    assert any("starts later" in line for line in [done.answer, *done.lines()])


def test_a_start_that_rests_on_assumed_speeds_says_so(tmp_path: Path, capsys: Output) -> None:
    """The job of an sbatch script has no measured speed: a start, but no range of it."""
    (tmp_path / "a.sh").write_text(SBATCH, encoding="utf-8")
    code, said, _ = call(capsys, f"whatif {DEMO} --submit {tmp_path / 'a.sh'}")
    assert code == 0 and "Expected start: in about" in said
    assert "if jobs take as long as is assumed of them" in said and "90 % of cases" not in said


def test_a_queue_is_asked_too(tmp_path: Path, capsys: Output) -> None:
    """The new job is compared with those that are in the queue, which stays as it is."""
    queue = tmp_path / "q.db"
    assert call(capsys, f"queue init {queue} --from {DEMO}")[0] == 0
    (tmp_path / "row.csv").write_text(CASES["row.csv"][0], encoding="utf-8")
    code, said, err = call(capsys, f"whatif {queue} --submit {tmp_path / 'row.csv'} --json")
    assert code == 0, err
    ids = [
        [job["job_id"] for job in json.loads(said)[when]["jobs"]] for when in ("before", "after")
    ]
    assert ids[1] == [*ids[0], "new-1"]
    assert call(capsys, f"queue list {queue} --json")[1].find("new-1") < 0


MANY = "job_id,model,total_work,max_gpus\na,bert,1,1\nb,bert,1,1\n"
FAULTY = {  # text of a file -> line, beginning of the message
    SBATCH.replace("a100:2", "h100:2"): (
        3,
        '--gres "gpu:h100:2": no pool has GPUs of a type "h100"',
    ),
    SBATCH.replace("1-00:00:00", "soon"): (4, '--time "soon": "soon" is no time of Slurm'),
    SBATCH.replace("--time", "time"): (4, '#SBATCH "time=1-00:00:00" is no option of sbatch'),
    "#!/bin/sh\necho\n": (None, "asks for no GPUs"),
    JOB.replace('min-gpus: "2"', "min-gpus: two"): (6, 'annotation min-gpus is "two"'),
    JOB.replace("  name: train\n", ""): (6, "Job is not of its form"),
    f"{JOB}---\n{RAY}": (None, "has 2 jobs that ask for GPUs"),
    RAY.replace("replicas: 3", "replicas: x"): (1, "RayJob is not of its form"),
    '{"kind": "Job",\n]': (2, "is no JSON"),
    "job_id,modell\na,b\n": (1, '"modell" is no column of jobs.csv; did you mean "model"'),
    MANY: (None, "has 2 rows; one job can be submitted at a time"),
    "job_id,model,total_work,max_gpus\na,bert,1,x\n": (2, 'max_gpus "x" is not a'),
    "job_id,model,total_work,max_gpus\nrank,bert,1,1\n": (2, 'job_id "rank" is there already'),
    "job_id,model,total_work,max_gpus,min_gpus\na,bert,1,1,2\n": (
        2,
        "max_gpus 1 is below min_gpus 2",
    ),
    "": (None, "is empty"),
}


@pytest.mark.parametrize("text", series(sorted(FAULTY, key=len), 8))
def test_a_bad_file_is_a_fault_of_that_file(text: str, tmp_path: Path, capsys: Output) -> None:
    """Exit code 3, and one line: file, line, value, rule; no traceback, no line of the snapshot."""
    file = tmp_path / "job"
    file.write_text(text, encoding="utf-8")
    code, said, err = call(capsys, f"whatif {DEMO} --submit {file}")
    line, message = FAULTY[text]
    place = f"{file}:{line}: " if line else str(file)
    faults = [one for one in err.splitlines() if one.startswith(str(file))]
    assert (code, said) == (3, ""), err
    assert any(one.startswith(place) and message in one for one in faults), err
    assert "jobs.csv:" not in err and "Traceback" not in err


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"x" * (1 << 21), b"a: &a [*a]\nkind: Job"])
def test_no_file_is_an_internal_error(
    content: bytes | None, tmp_path: Path, capsys: Output
) -> None:
    """No file, noise, too large, YAML that holds itself."""
    file = tmp_path / "job"
    if content is not None:
        file.write_bytes(content)
    code, said, err = call(capsys, f"whatif {DEMO} --submit {file}")
    assert (code, said) == (3, "") and str(file) in err, err


def test_set_and_submit_are_two_questions(capsys: Output) -> None:
    """One of them is needed, and not both."""
    assert call(capsys, f"whatif {DEMO}")[0] == 2
    assert call(capsys, f"whatif {DEMO} --set budget_per_hour=9 --submit x.csv")[0] == 2


def test_an_observed_slurm_knows_its_partitions(tmp_path: Path, capsys: Output) -> None:
    """The pools of a partition come from the observation, where they have other names."""
    look = tmp_path / "look"
    recorded = ROOT / "data" / "recorded" / "slurm"
    assert call(capsys, f"observe slurm --answers {recorded} --out {look}")[0] == 0
    document = json.loads((look / "cluster.json").read_text(encoding="utf-8"))
    pools = document["details"]["pools"]
    pool, partition = next((pool, names[0]) for pool, names in pools.items() if names)
    types = {row["pool"]: row["gpu_type"] for row in csv.DictReader((look / "pools.csv").open())}
    file = tmp_path / "a.sh"
    file.write_text(f"#SBATCH -p {partition} --gres=gpu:1 -t 10\ntrue\n", encoding="utf-8")
    code, said, err = call(capsys, f"whatif {look} --submit {file} --json")
    assert code == 0, err
    mine = {types[name] for name, names in pools.items() if partition in names}
    row = json.loads(said)["submit"]["job"]
    assert set(row["gpu_types"] or types.values()) == mine and types[pool] in mine
