"""The executor of Slurm on a real Slurm that fails, and among users that do as they like.

Whatever happens, an allocation runs once, its end is known, and what is said of it is true.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from executor_rigs import PATIENCE_S, SAY, SlurmRig, shell
from slurm_cluster import FakeNodes, SlurmCluster
from waiting import wait_for

from allocator.executors.slurm import commands
from allocator.executors.slurm.executor import SlurmExecutor
from allocator.loop.executor import NodePart, NodeStatus, Order, Phase

STAMP = 'echo "start $SLURM_JOB_ID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES" >> $STAMPS; '
RUN = f"{STAMP} set 2; {SAY} trap 'echo stop >> $STAMPS; exit 143' TERM; "
ENDLESS = f"{RUN} while :; do sleep 0.05; done"


class FaultRig(SlurmRig):
    """The executor on a Slurm that may be hurt; jobs stamp what they were given."""

    def __init__(self, folder: Path, slurm: SlurmCluster) -> None:
        self.folder, self.slurm, self.stamps = folder / "state", slurm, folder / "stamps"

    def executor(self, patience_s: float = 60.0) -> SlurmExecutor:
        return SlurmExecutor(self.folder, grace_s=5.0, lease_s=3.0, patience_s=patience_s)

    def ordered(self, job: str, gpus: int = 1, *nodes: NodePart) -> Order:
        order = shell(job, 1, ENDLESS, gpus=gpus)
        return replace(order, environment={"STAMPS": str(self.stamps)}, nodes=nodes)

    def starts(self) -> int:
        """How often a job has started."""
        return sum(stamp[0] == "start" for stamp in self.read_stamps())

    def slurm_id(self, job: str) -> str:
        """Id of its batch job."""
        return str(self.read(job, "submitted")["slurm_job_id"])


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    """A Slurm that only the tests of this module hurt."""
    nodes = (FakeNodes("a", "n", 3, "a100", 4),)
    with SlurmCluster(nodes, slurmd_timeout_s=5) as made:
        yield made


@pytest.fixture
def rig(tmp_path: Path, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultRig]:
    """An empty state; its jobs are stopped in the end. The next test finds all GPUs free.

    A job that was cancelled just before slurmctld was killed runs again once slurmctld is back.
    """
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    with closing(FaultRig(tmp_path, slurm)) as made:
        yield made
    slurm.reset()


def put_in_front(rig: FaultRig, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    """Let a script answer for a command of Slurm; REAL is the command itself."""
    folder = rig.folder.parent / "bin"
    folder.mkdir(exist_ok=True)
    real = next(p for p in os.get_exec_path() if (Path(p) / name).exists())
    (folder / name).write_text(f"#!/bin/sh\nREAL={real}/{name}\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_submission_whose_answer_was_lost_is_not_repeated(
    rig: FaultRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm took the job, and sbatch says that it timed out. The next start finds the job by its
    name. It started once.
    """
    executor = rig.current
    with monkeypatch.context() as patch:
        script = '$REAL "$@" >/dev/null; echo "sbatch: error: Socket timed out" >&2; exit 1'
        put_in_front(rig, patch, "sbatch", script)
        with pytest.raises(OSError, match="Socket timed out"):
            executor.start(rig.ordered("j"))
    rig.executor().start(rig.ordered("j"))
    rig.running("j", 2.0)
    names = [one.name for one in commands.list_batch_jobs() if one.name.startswith("j.1.")]
    assert len(names) == rig.starts() == 1


def test_a_second_batch_job_of_an_allocation_never_runs(rig: FaultRig) -> None:
    """Somebody submits the same script under the same name again: it waits, and is cancelled with
    the allocation; started anyway it ends at once.
    """
    rig.begin(rig.ordered("j"), 2.0)
    first = rig.slurm_id("j")
    script = rig.slurm.run("scontrol", "write", "batch_script", first, "-")
    again = ("sbatch", "--parsable", "--output=/dev/null", "--partition=a", "--gres=gpu:1")
    name = next(one.name for one in commands.list_batch_jobs() if one.job_id == first)
    same = rig.slurm.call(*again, f"--job-name={name}", f"--chdir={Path.cwd()}", text=script)
    rig.slurm.wait_for_state(same.stdout.strip(), "COMPLETED", "CANCELLED")
    assert rig.running("j").generation == rig.starts() == 1


NO_ANSWERS = (
    "exit 0",
    "echo garbage",
    "echo 'slurm_load_jobs error' >&2; exit 1",
    "kill -9 $$",
    "$REAL \"$@\" | head -1; echo '12|RUNN'",
    "sleep 60",
)


def test_no_answer_is_not_an_empty_list(rig: FaultRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """squeue prints nothing, something else, half of it, fails, is killed, or hangs: nothing is
    concluded, and the job goes on.
    """
    rig.begin(rig.ordered("j"), 2.0)
    for script in NO_ANSWERS:
        with monkeypatch.context() as patch:
            patch.setattr(commands, "TIMEOUT_S", 2.0)
            put_in_front(rig, patch, "squeue", script)
            with pytest.raises(OSError, match="squeue"):
                rig.executor().observe()
    assert rig.running("j").work_done == 2.0
    assert rig.starts() == 1


def test_capacity_is_what_others_leave(rig: FaultRig) -> None:
    """Jobs of others count off on their node, unequal parts of a job of this state are its own, on
    a drained node too, as long as it runs.
    """
    executor = rig.current
    assert executor.capacity() == {"a": 12}
    other = rig.slurm.submit("--partition=a", "--gres=gpu:1", "--nodelist=n1")
    rig.slurm.wait_for_state(other, "RUNNING")
    rig.begin(rig.ordered("j", 4, NodePart("n1", 3), NodePart("n2", 1)), 2.0)
    assert executor.capacity() == {"a": 11}
    rig.slurm.run("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
    executor.observe()
    assert executor.capacity() == {"a": 8}
    assert executor.observe_nodes() == [
        NodeStatus("n1", "a", 3),
        NodeStatus("n2", "a", 1, "drain"),
        NodeStatus("n3", "a", 4),
    ]
    assert rig.end("j").phase is Phase.STOPPED
    wait_for(lambda: executor.observe() or executor.capacity() == {"a": 7}, PATIENCE_S, 0.2)
    rig.slurm.run("scontrol", "update", "nodename=n2", "state=resume")
    rig.slurm.run("scancel", other)
    wait_for(lambda: executor.observe() or executor.capacity() == {"a": 12}, PATIENCE_S, 0.2)


def test_what_slurm_can_never_give_has_failed(rig: FaultRig) -> None:
    """More GPUs than there are, shares of a GPU, no such partition, options that Slurm refuses."""
    executor = rig.current
    impossible = {
        "many": rig.ordered("many", 13),
        "share": rig.ordered("share", 1, NodePart("n1", 1, 0, 0.5)),
        "nowhere": replace(rig.ordered("nowhere"), pool="b"),
        "typo": replace(rig.ordered("typo"), environment={"ALLOCATOR_SBATCH": "--qos=1 --tpyo"}),
    }
    for order in impossible.values():
        executor.start(order)
    said = {one.job_id: (one.phase, one.detail) for one in executor.observe()}
    assert {phase for phase, _ in said.values()} == {Phase.FAILED}
    assert "has no nodes with 13 GPUs" in said["many"][1]
    assert "shares of a GPU" in said["share"][1]
    assert 'partition "b"' in said["nowhere"][1]
    assert "tpyo" in said["typo"][1]


def test_a_supervisor_that_is_killed_takes_its_job_with_it(rig: FaultRig) -> None:
    """Slurm ends what is left of the batch job, and it counts as lost."""
    rig.begin(rig.ordered("j"), 2.0)
    os.kill(rig.supervisor("j"), signal.SIGKILL)
    seen = rig.ended("j")
    assert (seen.phase, seen.work_done) == (Phase.LOST, 2.0)
    assert "Slurm says" in seen.detail
