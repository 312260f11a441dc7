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

import pytest
from cluster_tables import plan, show
from slurm_cluster import SlurmCluster
from slurm_looks import whole_state
from waiting import wait_for

from allocator.cli.main import run
from allocator.clusters.adapter import ClusterUnreachable, ObserveRequest
from allocator.clusters.slurm import commands
from allocator.clusters.slurm.adapter import SlurmAdapter, write_script
from allocator.clusters.slurm.answers import parse_json

PLUGIN = files("allocator.clusters.slurm").joinpath("job_submit.lua").read_text(encoding="utf-8")
SAID = {"model": "bert", "min_gpus": 1, "max_gpus": 8, "total_work": 9000}
ELASTIC = f"--comment={json.dumps({'allocator': SAID})}"
KEEPS_CHECKPOINTS = (
    "trap 'echo saved >> {name}; exit 143' TERM; trap ': > {name}.hears' USR1; : >> {name};"
    " sleep 600 & while kill -0 $! 2>/dev/null; do wait $!; done"
)


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


def script_of(text: str, pool: str = "a100") -> str:
    """The script of a plan for the cluster as it is."""
    return write_script(plan(text, pool), SlurmAdapter().observe(ObserveRequest()).details)


def carry_out(slurm: SlurmCluster, script: str, wait_s: int = 120) -> tuple[int, str]:
    """Run a script as the operator; its exit code and standard error."""
    done = slurm.call("env", f"ALLOCATOR_WAIT_S={wait_s}", "bash", "-s", text=script)
    return done.returncode, done.stderr


def observed(columns: str = "state pool gpus") -> dict[str, str]:
    """Columns of the jobs that are observed, by id."""
    shown = show(SlurmAdapter().observe(ObserveRequest()), "jobs", f"job_id {columns}")
    return dict(row.split(" ", 1) for row in shown.split("; "))


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
    look = tmp_path / "look"
    monkeypatch.setenv("PATH", f"{slurm.commands_as('nobody')}:{os.environ['PATH']}")
    before = whole_state(slurm)
    assert run(f"observe slurm --out {look}".split()) == 0
    assert run(f"solve {look} --out {look}/plan".split()) == 0
    assert run(f"plan {look} --as slurm --out {look}/plan".split()) == 0
    assert whole_state(slurm) == before
    script = Path(look, "plan", "slurm.sh").read_text()
    assert "ReqNodeList=" in script and "scancel" not in script
    path = f"PATH={os.environ['PATH']}"
    refused = slurm.call("env", path, "ALLOCATOR_WAIT_S=3", "bash", "-s", text=script)
    assert refused.returncode == 1 and "the change was refused" in refused.stderr
    assert whole_state(slurm) == before


def hears_signals(slurm: SlurmCluster, job: str, path: Path) -> bool:
    """Send a signal to a job and return whether one has arrived."""
    slurm.call("scancel", "--signal=USR1", "--batch", job, user="nobody")
    return path.with_name(f"{path.name}.hears").exists()


def test_running_jobs_shrink_move_grow_and_pause(slurm: SlurmCluster) -> None:
    """Each writes its checkpoint, keeps its id, and gets the GPUs and nodes that the plan says."""
    gpus = {"shrinks": 4, "moves": 2, "grows": 2, "pauses": 4}
    saved = [slurm.folder / "work" / name for name in gpus]
    jobs = []
    for path in saved:
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.hears").unlink(missing_ok=True)
        wrap = KEEPS_CHECKPOINTS.format(name=path.name)
        options = (f"--gres=gpu:{gpus[path.name]}", ELASTIC, "-J", path.name)
        jobs.append(slurm.submit(*options, wrap=wrap, user="nobody"))
    first = "{} start n1:4; {} start n2:2; {} start n2:2; {} start n3:4"
    assert carry_out(slurm, script_of(first.format(*jobs))) == (0, "")
    wait_for(lambda: all(path.exists() for path in saved))  # then their traps are set
    # slurmstepd passes no signal to a step that it does not know to be running yet
    for job, path in zip(jobs, saved, strict=True):
        wait_for(lambda job=job, path=path: hears_signals(slurm, job, path))
    second = (
        "{} shrink n1:2 was 4; {} move v1:2/v100 was 2; {} grow n2:4,n3:4 was 2; {} pause was 4"
    )
    assert carry_out(slurm, script_of(second.format(*jobs))) == (0, "")
    given = ["running a100 2", "running v100 2", "running a100 8", "paused - -"]
    assert [observed()[job] for job in jobs] == given
    nodes = [slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip() for job in jobs[:3]]
    assert nodes == ["n1", "v1", "n[2-3]"]
    assert [slurm.gpus(job) for job in jobs[:3]] == [2, 2, 8]
    assert slurm.states()[jobs[3]] == "PENDING"
    assert slurm.call("scontrol", "release", jobs[3], user="nobody").returncode != 0
    assert [path.read_text() for path in saved] == ["saved\n"] * 4


@pytest.mark.nightly
def test_jobs_of_slurm_itself_do_not_take_the_gpus_meanwhile(slurm: SlurmCluster) -> None:
    """A waiting job that the plan leaves waiting is held only while the script runs."""
    ours = slurm.submit("--gres=gpu:4", ELASTIC, "-p", "v100", user="nobody")
    assert carry_out(slurm, script_of(f"{ours} start v1:4", "v100")) == (0, "")
    one, two = (slurm.submit("--gres=gpu:8", "-p", "v100") for _ in range(2))
    slurm.wait_for_state(one, "RUNNING")
    grow = script_of(f"{ours} grow v1:8 was 4; {one} keep v2:8 was 8; {two} wait", "v100")
    assert f"scontrol hold {two}" in grow
    assert carry_out(slurm, grow) == (0, "")
    assert slurm.gpus(ours) == 8 and slurm.states()[two] == "PENDING"
    slurm.run("scancel", one)
    slurm.wait_for_state(two, "RUNNING")


@pytest.mark.nightly
def test_tasks_of_arrays_are_started_one_by_one(slurm: SlurmCluster) -> None:
    """A task that waits in its array is changed and released by its own name, whatever its job is
    called.
    """
    odd = ("-J", "a 'b' $(c)")
    array = slurm.submit("--gres=gpu:1", ELASTIC, *odd, "--array=1-3", user="nobody")
    script = script_of(f"{array}_2 start n2:4; {array}_1 wait; {array}_3 wait")
    assert carry_out(slurm, script) == (0, "")
    states = slurm.states()
    assert [states[f"{array}_{task}"] for task in (1, 2, 3)] == ["PENDING", "RUNNING", "PENDING"]
    assert slurm.gpus(f"{array}_2") == 4


@pytest.mark.nightly
def test_a_script_stops_before_any_change_if_the_cluster_is_another(slurm: SlurmCluster) -> None:
    """An id that belongs to another job, or a job that ended, ends the script."""
    job, other = (
        slurm.submit("--gres=gpu:4", ELASTIC, "-J", name, user="nobody") for name in ("one", "two")
    )
    script = script_of(f"{job} start n1:4; {other} start n2:4")
    code, said = carry_out(slurm, script.replace("|one'", "|another'"))
    assert code == 1 and "not as it was" in said and "nothing was changed" in said
    slurm.run("scancel", other)
    code, said = carry_out(slurm, script)
    assert code == 1 and slurm.states()[job] == "PENDING"
    code, said = carry_out(slurm, script.replace("22.05", "24.11"))
    assert code == 1 and "this is not Slurm 24.11" in said


def test_a_change_that_is_refused_or_ignored_is_reported(slurm: SlurmCluster) -> None:
    """The script reports both. A job whose change Slurm refuses stays held. Slurm accepts the
    spelling of another version and ignores it; the script finds that when it reads the job's GPUs
    back. The third job starts.
    """
    refused, ignored, other = (
        slurm.submit("--gres=gpu:1", ELASTIC, user="nobody") for _ in range(3)
    )
    script = script_of(f"{refused} start n1:1; {ignored} start n2:4; {other} start n3:1")
    wrong = script.replace("ReqNodeList=n1", "ReqNodeList=nowhere")
    wrong = wrong.replace("TresPerNode=gres:gpu:4", "TresPerNode=gres/gpu:4")
    assert wrong.count("gres/gpu:4") == script.count("gres/gpu:4") + 1
    code, said = carry_out(slurm, wrong, wait_s=3)
    assert code == 1 and f"job {refused}: the change was refused" in said
    assert f"job {ignored} should be RUNNING 4 n2" in said
    states = slurm.states()
    assert (states[refused], states[other]) == ("PENDING", "RUNNING")


@pytest.mark.nightly
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
    assert observed() == {ours: "queued - -", plain: "running a100 1"}
    assert observed("preemptible")[plain] == "False"
    slurm.run("scancel", ours, user="nobody")


@pytest.mark.nightly
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
    assert run(f"observe slurm --out {tmp_path}/look".split()) == 1
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
