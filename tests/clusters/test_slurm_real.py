"""Advise and suggest on a real Slurm: a look changes nothing, and a plan's script does what it
says.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import SlurmCluster
from slurm_looks import whole_state
from waiting import wait_for

from allocator.cli.main import run
from allocator.clusters.adapter import ClusterUnreachable, ObserveRequest, PlannedJob
from allocator.clusters.slurm import commands
from allocator.clusters.slurm.adapter import SlurmAdapter
from allocator.clusters.slurm.answers import parse_json
from allocator.clusters.slurm.script import write_script

PLUGIN = files("allocator.clusters.slurm").joinpath("job_submit.lua").read_text(encoding="utf-8")
SAID = {"model": "bert", "min_gpus": 1, "max_gpus": 8, "total_work": 9000}
ELASTIC = f"--comment={json.dumps({'allocator': SAID})}"
KEEPS_CHECKPOINTS = (
    "trap 'echo saved >> {name}; exit 143' TERM; trap ': > {name}.hears' USR1; : >> {name};"
    " sleep 600 & while kill -0 $! 2>/dev/null; do wait $!; done"
)
RATES = """\
model,gpu_type,gpus,work_per_s
bert,a100,1,1
bert,a100,2,1.9
bert,a100,4,3.5
bert,a100,8,6
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with SlurmCluster(lua=PLUGIN) as slurm:
        yield slurm


@pytest.fixture
def slurm(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """The cluster of this file, without jobs and with all nodes up; commands speak to it."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, cluster.environment[name])
    yield cluster
    cluster.reset()


def plan(slurm: SlurmCluster, *jobs: PlannedJob) -> str:
    """The script of a plan for the cluster as it is."""
    return write_script(jobs, SlurmAdapter().observe(ObserveRequest()).details)


def carry_out(slurm: SlurmCluster, script: str, wait_s: int = 120) -> tuple[int, str]:
    """Run a script as the operator; its exit code and standard error."""
    done = slurm.call("env", f"ALLOCATOR_WAIT_S={wait_s}", "bash", "-s", text=script)
    return done.returncode, done.stderr


def nodes_of(slurm: SlurmCluster, job: str) -> str:
    return slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip()


def test_advise_changes_nothing(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user without rights looks, decides and writes commands; the whole state of the cluster is
    the same before and after. The script does nothing for that user.
    """
    running = slurm.submit("--gres=gpu:2", "-t", "60", user="daemon")
    slurm.submit("--gres=gpu:4", "--array=1-3%1", "-p", "v100", user="nobody")
    slurm.submit("--gres=gpu:4", ELASTIC, user="nobody")
    slurm.submit("--gres=gpu:4", f"--dependency=afterok:{running}")
    slurm.run("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=test")
    slurm.wait_for_state(running, "RUNNING")
    slurm.wait_for_state("2_1", "RUNNING")
    look = str(tmp_path / "look")
    monkeypatch.setenv("PATH", f"{slurm.commands_as('nobody')}:{os.environ['PATH']}")
    before = whole_state(slurm)
    assert run(["observe", "slurm", "--out", look]) == 0
    assert run(["solve", look, "--out", f"{look}/plan"]) == 0
    assert run(["plan", look, "--as", "slurm", "--out", f"{look}/plan"]) == 0
    assert whole_state(slurm) == before
    script = Path(look, "plan", "slurm.sh").read_text()
    assert "ReqNodeList=" in script and "scancel" not in script
    path = f"PATH={os.environ['PATH']}"
    refused = slurm.call("env", path, "ALLOCATOR_WAIT_S=3", "bash", "-s", text=script)
    assert refused.returncode == 1 and "the change was refused" in refused.stderr
    assert whole_state(slurm) == before


def test_a_waiting_job_starts_where_the_plan_says(
    slurm: SlurmCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the look to the script: a job that the plugin holds gets its size and its node."""
    job = slurm.submit("--gres=gpu:1", ELASTIC, "-J", "a 'b' $(c)", user="nobody")
    look, rates = str(tmp_path / "look"), tmp_path / "rates.csv"
    rates.write_text(RATES)
    assert run(["observe", "slurm", "--out", look, "--add", str(rates)]) == 0
    assert run(["solve", look, "--out", f"{look}/plan"]) == 0
    capsys.readouterr()
    assert run(["plan", look, "--as", "slurm"]) == 0
    code, said = carry_out(slurm, capsys.readouterr().out)
    assert (code, said) == (0, "")
    assert slurm.states()[job] == "RUNNING" and slurm.gpus(job) == 8
    assert run(["observe", "slurm", "--out", look, "--add", str(rates)]) == 0
    assert run(["solve", look, "--out", f"{look}/plan"]) == 0
    decided = json.loads(Path(look, "plan", "plan.json").read_text())["jobs"]
    assert [job["action"] for job in decided] == ["keep"]


def hears_signals(slurm: SlurmCluster, job: str, path: Path) -> bool:
    """Send a signal to a job and return whether one has arrived."""
    slurm.call("scancel", "--signal=USR1", "--batch", job, user="nobody")
    return path.with_name(f"{path.name}.hears").exists()


def test_running_jobs_shrink_move_grow_and_pause(slurm: SlurmCluster) -> None:
    """Each writes its checkpoint, keeps its id, and gets the GPUs and nodes that the plan says."""
    saved = [slurm.folder / "work" / name for name in ("shrinks", "moves", "grows", "pauses")]
    for path in saved:
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.hears").unlink(missing_ok=True)
    shrinks, moves, grows, pauses = (
        slurm.submit(
            f"--gres=gpu:{gpus}",
            ELASTIC,
            "-J",
            name,
            wrap=KEEPS_CHECKPOINTS.format(name=name),
            user="nobody",
        )
        for name, gpus in (("shrinks", 4), ("moves", 2), ("grows", 2), ("pauses", 4))
    )
    first = plan(
        slurm,
        PlannedJob(shrinks, "start", "a100", 4, {"n1": 4}),
        PlannedJob(moves, "start", "a100", 2, {"n2": 2}),
        PlannedJob(grows, "start", "a100", 2, {"n2": 2}),
        PlannedJob(pauses, "start", "a100", 4, {"n3": 4}),
    )
    assert carry_out(slurm, first) == (0, "")
    wait_for(lambda: all(path.exists() for path in saved))  # then their traps are set
    # slurmstepd passes no signal to a step that it does not know to be running yet
    for job, path in zip((shrinks, moves, grows, pauses), saved, strict=True):
        wait_for(lambda job=job, path=path: hears_signals(slurm, job, path))
    second = plan(
        slurm,
        PlannedJob(shrinks, "shrink", "a100", 2, {"n1": 2}, "a100", 4),
        PlannedJob(moves, "move", "v100", 2, {"v1": 2}, "a100", 2),
        PlannedJob(grows, "grow", "a100", 8, {"n2": 4, "n3": 4}, "a100", 2),
        PlannedJob(pauses, "pause", None, 0, {}, "a100", 4),
    )
    assert carry_out(slurm, second) == (0, "")
    assert {job: slurm.gpus(job) for job in (shrinks, moves, grows)} == {
        shrinks: 2,
        moves: 2,
        grows: 8,
    }
    assert [nodes_of(slurm, job) for job in (shrinks, moves, grows)] == ["n1", "v1", "n[2-3]"]
    assert slurm.states()[pauses] == "PENDING"
    assert slurm.call("scontrol", "release", pauses, user="nobody").returncode != 0
    assert [path.read_text() for path in saved] == ["saved\n"] * 4
    states = {job["job_id"]: job["state"] for job in observed_jobs()}
    assert states[pauses] == "paused"


def observed_jobs() -> list[dict[str, Any]]:
    return [dict(row) for row in SlurmAdapter().observe(ObserveRequest()).tables["jobs.csv"]]


def test_jobs_of_slurm_itself_do_not_take_the_gpus_meanwhile(slurm: SlurmCluster) -> None:
    """A waiting job that the plan leaves waiting is held only while the script runs."""
    ours = slurm.submit("--gres=gpu:4", ELASTIC, "-p", "v100", user="nobody")
    start = plan(slurm, PlannedJob(ours, "start", "v100", 4, {"v1": 4}))
    assert carry_out(slurm, start) == (0, "")
    blocking = [slurm.submit("--gres=gpu:8", "-p", "v100") for _ in range(2)]
    slurm.wait_for_state(blocking[0], "RUNNING")
    grow = plan(
        slurm,
        PlannedJob(ours, "grow", "v100", 8, {"v1": 8}, "v100", 4),
        PlannedJob(blocking[0], "keep", "v100", 8, {"v2": 8}, "v100", 8),
        PlannedJob(blocking[1], "wait"),
    )
    assert f"scontrol hold {blocking[1]}" in grow
    assert carry_out(slurm, grow) == (0, "")
    assert slurm.gpus(ours) == 8 and slurm.states()[blocking[1]] == "PENDING"
    slurm.run("scancel", blocking[0])
    slurm.wait_for_state(blocking[1], "RUNNING")


def test_tasks_of_arrays_are_started_one_by_one(slurm: SlurmCluster) -> None:
    """A task that waits in its array is changed and released by its own name."""
    array = slurm.submit("--gres=gpu:1", ELASTIC, "--array=1-3", user="nobody")
    script = plan(
        slurm,
        PlannedJob(f"{array}_2", "start", "a100", 4, {"n2": 4}),
        PlannedJob(f"{array}_1", "wait"),
        PlannedJob(f"{array}_3", "wait"),
    )
    assert carry_out(slurm, script) == (0, "")
    states = slurm.states()
    assert [states[f"{array}_{task}"] for task in (1, 2, 3)] == ["PENDING", "RUNNING", "PENDING"]
    assert slurm.gpus(f"{array}_2") == 4


def test_a_script_stops_before_any_change_if_the_cluster_is_another(slurm: SlurmCluster) -> None:
    """An id that belongs to another job, or a job that ended, ends the script."""
    job = slurm.submit("--gres=gpu:4", ELASTIC, "-J", "one", user="nobody")
    other = slurm.submit("--gres=gpu:4", ELASTIC, "-J", "two", user="nobody")
    script = plan(
        slurm,
        PlannedJob(job, "start", "a100", 4, {"n1": 4}),
        PlannedJob(other, "start", "a100", 4, {"n2": 4}),
    )
    code, said = carry_out(slurm, script.replace("|one'", "|another'"))
    assert code == 1 and "not as it was" in said and "nothing was changed" in said
    slurm.run("scancel", other)
    code, said = carry_out(slurm, script)
    assert code == 1 and slurm.states()[job] == "PENDING"
    code, said = carry_out(slurm, script.replace("22.05", "24.11"))
    assert code == 1 and "this is not Slurm 24.11" in said


def test_what_slurm_accepts_and_ignores_is_found(slurm: SlurmCluster) -> None:
    """The spelling of another version changes nothing: the script reads back what runs."""
    job = slurm.submit("--gres=gpu:1", ELASTIC, user="nobody")
    script = plan(slurm, PlannedJob(job, "start", "a100", 4, {"n1": 4}))
    wrong = script.replace("TresPerNode=gres:gpu:4", "TresPerNode=gres/gpu:4")
    assert wrong != script
    code, said = carry_out(slurm, wrong, wait_s=5)
    assert code == 1 and f"job {job} should be RUNNING 4 n1" in said


def test_a_refused_change_is_reported_and_its_job_stays_held(slurm: SlurmCluster) -> None:
    """The others start."""
    one, two = (slurm.submit("--gres=gpu:1", ELASTIC, user="nobody") for _ in range(2))
    script = plan(
        slurm,
        PlannedJob(one, "start", "a100", 1, {"n1": 1}),
        PlannedJob(two, "start", "a100", 1, {"n2": 1}),
    )
    wrong = script.replace("ReqNodeList=n1", "ReqNodeList=nowhere")
    code, said = carry_out(slurm, wrong, wait_s=5)
    assert code == 1 and f"job {one}: the change was refused" in said
    states = slurm.states()
    assert (states[one], states[two]) == ("PENDING", "RUNNING")


def test_the_plugin_holds_only_what_declares_itself(slurm: SlurmCluster) -> None:
    """Users neither release nor resize such a job; all other jobs are Slurm's, as before."""
    ours = slurm.submit("--gres=gpu:1", ELASTIC, user="nobody")
    plain = slurm.submit("--gres=gpu:1", user="nobody")
    cpus = slurm.submit(ELASTIC, user="nobody")
    slurm.wait_for_state(plain, "RUNNING")
    slurm.wait_for_state(cpus, "RUNNING")
    for words in (("release", ours), ("update", f"JobId={ours}", "TresPerNode=gres:gpu:2")):
        assert slurm.call("scontrol", *words, user="nobody").returncode != 0
    assert slurm.states()[ours] == "PENDING"
    jobs = {row["job_id"]: row for row in observed_jobs()}
    assert jobs[ours]["state"] == "queued" and jobs[plain]["preemptible"] is False
    assert cpus not in jobs
    slurm.run("scancel", ours, user="nobody")


def test_a_slurm_that_does_not_answer(
    slurm: SlurmCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 1 and Slurm's own words; nothing is written. No answer is not an empty list, which
    `squeue --json` writes then, with exit code 0.
    """
    slurm.kill("slurmctld", signal.SIGTERM)
    hasty = str(slurm.hasty_conf())
    monkeypatch.setenv("SLURM_CONF", hasty)
    assert run(["observe", "slurm", "--out", str(tmp_path / "look")]) == 1
    assert "Unable to contact slurm controller" in capsys.readouterr().err
    assert not (tmp_path / "look").exists()
    empty = slurm.call("env", f"SLURM_CONF={hasty}", "squeue", "--json")
    assert empty.returncode == 0 and json.loads(empty.stdout)["jobs"] == []
    with pytest.raises(ClusterUnreachable, match="Failed while looking for jobs"):
        parse_json(empty.stdout, "squeue --json", "jobs")
    slurm.start_controller()
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    with pytest.raises(ClusterUnreachable, match="no answer within"):
        commands.run_slurm("squeue", "--json", timeout_s=0.0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterUnreachable, match="are Slurm's commands installed here"):
        SlurmAdapter().observe(ObserveRequest())
