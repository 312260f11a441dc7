"""Jobs that users submit to a real Slurm, and that its plugin holds, under the controller.

They are taken into the queue once, run at the size and on the nodes of the plan, keep their ids and
their checkpoints, and are the users' to cancel, wherever the controller crashes.
"""

from __future__ import annotations

import json
import os
import pwd
import random
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from fakes.executor_faults import CrashHere
from queues import cluster
from servers import serve_metrics
from slurm_cluster import FakeNodes, SlurmCluster
from waiting import PATIENCE_S

from allocator.controller.clock import WallClock
from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.executors.slurm import commands
from allocator.executors.slurm.executor import SlurmExecutor
from allocator.queue.holdings import Retries
from allocator.queue.jobs.verbs import history
from allocator.queue.queue import Queue

PLUGIN = files("allocator.clusters.slurm").joinpath("job_submit.lua").read_text(encoding="utf-8")
TABLES = {
    "pools.csv": "pool,gpu_type,gpus,price_per_gpu_hour\na,A,8,1\n",
    "rates.csv": "model,gpu_type,gpus,work_per_s\n"
    "m,A,1,1\nm,A,2,1.9\nm,A,3,2.7\nm,A,4,3.5\ng,A,8,7\n",
    "tenants.csv": "tenant\nred\nvision\nnobody\n",
    "nodes.csv": "node,pool,gpus\nn1,a,4\nn2,a,4\n",
}
SCRIPT = """#!/bin/bash
# a user's job: it stamps what it has, and goes on at its checkpoint
stamp() { echo "$1 $NAME $SLURM_JOB_ID $EPOCHREALTIME $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $n" \\
    >> $FOLDER/stamps; }
n=$(cat $FOLDER/$NAME.saved 2>/dev/null || echo 0)
stamp start
# the step that was being done when the signal came is not in the checkpoint
trap 'n=$(cat $FOLDER/$NAME.saved 2>/dev/null || echo 0); stamp end; exit 143' TERM
while [ $n -lt $STEPS ]; do
    sleep 0.1 & wait $!
    n=$((n + 1)); echo $n > $FOLDER/$NAME.new; mv $FOLDER/$NAME.new $FOLDER/$NAME.saved
    echo "step $n of $STEPS"
    while [ $n = 20 -a -e $FOLDER/$NAME.halt ]; do sleep 0.1 & wait $!; done
done
stamp done
"""


class World:
    """A Slurm with the plugin, a queue with its nodes, and one controller at a time."""

    def __init__(self, slurm: SlurmCluster, folder: Path) -> None:
        self.slurm, self.folder = slurm, folder
        self.shared = slurm.folder / "work" / folder.name
        self.shared.mkdir(mode=0o777)
        self.shared.chmod(0o777)
        (self.shared / "job.sh").write_text(SCRIPT)
        Queue.create(str(folder / "q.db"), cluster(**TABLES)).close()
        self.queue = Queue(str(folder / "q.db"))
        self.events: list[str] = []
        self.start_controller()

    def start_controller(self) -> None:
        """A new one, which takes the lease of the last one over."""
        executor = SlurmExecutor(self.folder / "state", grace_s=5.0, patience_s=20.0, lease_s=3.0)
        options = ControllerOptions(
            every_s=2.0,
            react_s=0.2,
            poll_s=0.2,
            learn=False,
            retries=Retries(most=100, first_s=0.5, factor=1.0),
        )
        self.controller = Controller(
            self.queue.store, executor, WallClock(), options, holder="the only one"
        )
        self.log = self.controller.log
        inner = self.log.event
        self.log.event = lambda name, **more: (  # type: ignore[method-assign]
            self.events.append(f"{name} {more}"),
            inner(name, **more),
        )[-1]

    def submit(self, name: str, steps: int, *options: str, said: dict[str, object]) -> str:
        """A user submits a job, as `allocator submit-slurm` does."""
        comment = json.dumps({"allocator": {"model": "m", "total_work": steps / 10, **said}})
        return self.slurm.run(
            "sbatch",
            "--parsable",
            "--output=/dev/null",
            f"--comment={comment}",
            f"--export=ALL,NAME={name},STEPS={steps},FOLDER={self.shared}",
            *options,
            str(self.shared / "job.sh"),
            user="nobody",
        ).strip()

    def step_until(self, is_true: Callable[[], bool]) -> None:
        """Let the controller work until something is true."""
        end = time.monotonic() + PATIENCE_S
        while not is_true():
            assert time.monotonic() < end, "\n".join(
                [str(self.states()), str(self.slurm.states()), *self.events[-12:]]
            )
            self.controller.try_step()
            time.sleep(0.1)

    def on(self) -> dict[str, str]:
        """The nodes of each job that runs."""
        rows = self.slurm.run("squeue", "-h", "-t", "RUNNING", "-o", "%j|%N").split()
        return {row.partition(".")[0]: row.partition("|")[2] for row in rows}

    def states(self) -> dict[str, str]:
        """State of the jobs in the queue, by the id in Slurm."""
        return {
            job.job_id.removeprefix("slurm-").partition("-")[0]: job.state
            for job in self.queue.jobs()
        }

    def stamps(self) -> list[list[str]]:
        path = self.shared / "stamps"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def gpus(self, name: str) -> list[int]:
        """GPUs of each run of a job."""
        return [len(s[5].split(",")) for s in self.stamps() if s[:2] == ["start", name]]


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster((FakeNodes("a", "n", 2, "a100", 4),), lua=PLUGIN) as made:
        yield made


@pytest.fixture
def world(tmp_path: Path, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.environment[name])
    made = World(slurm, tmp_path)
    yield made
    made.queue.close()
    slurm.reset()


def runs(stamps: list[list[str]], name: str) -> list[list[list[str]]]:
    """The stamps of each run of a job."""
    found: list[list[list[str]]] = []
    for stamp in stamps:
        if stamp[1] == name:
            if stamp[0] == "start":
                found.append([])
            found[-1].append(stamp)
    return found


def check(world: World, *names: str) -> None:
    """What the jobs say: each was done once, from checkpoint to checkpoint, with the GPUs and on
    the node that its allocation in the queue has.
    """
    with world.queue.store.read() as connection:
        held = {
            job.job_id: [one for one in history(connection, job.job_id) if one["running_s"]]
            for job in world.queue.jobs()
        }
    idents = {stamp[1]: stamp[2] for stamp in world.stamps()}
    for name in names:
        of_job = runs(world.stamps(), name)
        assert [stamp[0] for run in of_job for stamp in run].count("done") == 1
        assert of_job[-1][-1][0] == "done"
        steps = [int(stamp[6]) for run in of_job for stamp in run]
        assert steps == sorted(steps)
        [planned] = [held[job] for job in held if job.split("-")[1] == idents[name]]
        given = [(run[0][4], len(run[0][5].split(","))) for run in of_job]
        wanted = [(one["nodes"][0]["node"], one["gpus"]) for one in planned]
        assert [one for one in given if one not in wanted] == []


@pytest.mark.nightly
def test_what_is_taken_and_what_is_left(world: World) -> None:
    """Tasks of an array and a job that depends on another are taken; a heterogeneous job is refused
    with a reason; a job that does not wait for the allocator is left alone, and its GPUs count as
    occupied.
    """
    alone = world.slurm.submit("--gres=gpu:3", "--nodelist=n1", user="daemon")
    world.slurm.wait_for_state(alone, "RUNNING")
    array = world.submit("t", 3, "--gres=gpu:1", "--array=1-3", said={})
    late = world.submit("late", 3, "--gres=gpu:2", f"--dependency=afterok:{array}", said={})
    script = str(world.shared / "job.sh")
    het = (
        "sbatch",
        "--parsable",
        '--comment={"allocator":{}}',
        "--gres=gpu:1",
        ":",
        "--gres=gpu:1",
    )
    pair = world.slurm.run(*het, script, user="nobody").strip()
    world.step_until(lambda: f"{array}_3" in world.states() and late in world.states())
    assert "after" in str(world.queue.jobs()[-1].values) and pair not in world.states()
    assert world.queue.jobs()[-1].environment["ALLOCATOR_USER"]
    world.step_until(lambda: set(world.states().values()) == {"done"})
    refused = [text for text in world.events if "not_taken" in text and f"-{pair}+" in text]
    assert len(refused) == 2 and "heterogeneous job, which is refused" in refused[0]
    assert world.slurm.states()[alone] == "RUNNING" and alone not in world.states()
    assert world.stamps()[-1][:2] == ["done", "late"]


@pytest.mark.nightly
def test_users_and_operators_do_as_they_like(world: World) -> None:
    """A job that its user cancels, waiting or running, is cancelled in the queue; one that is
    cancelled in the queue is cancelled in Slurm. Other GPUs than ordered, a release and a requeue
    by hand are noticed and mended.
    """
    running = world.submit("r", 500, "--gres=gpu:2", said={})
    waiting = world.submit("w", 500, "--gres=gpu:9", said={})
    world.step_until(lambda: world.states() == {running: "running"} and world.gpus("r") == [2])
    world.slurm.run("scancel", waiting)
    world.slurm.run("scancel", running, user="nobody")
    world.step_until(lambda: world.states()[running] == "cancelled")
    ours = world.submit("o", 500, "--gres=gpu:1", said={})
    world.step_until(lambda: world.gpus("o") == [1])
    job = next(job.job_id for job in world.queue.jobs() if job.state == "running")
    for command in (("scontrol", "requeue"), ("scontrol", "requeuehold")):
        starts = len(world.gpus("o")) + 1
        world.slurm.run(*command, ours)
        world.step_until(lambda starts=starts: len(world.gpus("o")) == starts)  # type: ignore[misc]
    world.queue.hold(job)
    world.step_until(lambda: world.queue.job(job).state == "held")
    time.sleep(2.0)  # Slurm would not start it so soon after its end
    world.slurm.run(
        "scontrol", "update", f"JobId={ours}", "TresPerNode=gres:gpu:3", "StartTime=now"
    )
    world.slurm.run("scontrol", "release", ours)
    world.slurm.wait_for_state(ours, "RUNNING")
    world.step_until(lambda: world.slurm.states()[ours] == "PENDING")
    world.queue.release(job)
    world.step_until(
        lambda: world.queue.job(job).state == "running" and world.gpus("o")[-1:] == [1]
    )
    world.queue.cancel(job)
    world.step_until(lambda: world.slurm.states()[ours] == "CANCELLED")


@pytest.mark.nightly
def test_what_a_users_job_prints_or_measures_is_its_progress(world: World) -> None:
    """Steps in its output file are its progress, go on after a stop, and do not count what an
    earlier job printed; a metric is asked for on the job's own node, whatever its address says. The
    output of another user is not read.
    """
    pattern = r"^step (?P<step>\d+)"
    output = world.shared / "out"
    output.mkdir()
    output.chmod(0o777)
    (output / "steps").write_text("step 58 of an earlier job\n")
    os.chown(output / "steps", pwd.getpwnam("nobody").pw_uid, -1)
    (output / "foreign").write_text("step 50\n")
    (output / "foreign").chmod(0o666)
    (world.shared / "steps.halt").touch()
    names = ("steps", "foreign", "measured")
    idents = {}
    with serve_metrics("good") as url:
        port = url.rpartition(":")[2].partition("/")[0]
        sources = {
            "steps": {"progress_log": pattern},
            "foreign": {"progress_log": pattern},
            "measured": {
                "progress_url": f"http://elsewhere.invalid:{port}/metrics",
                "progress_metric": "steps",
            },
        }
        for name in names:
            said: dict[str, object] = {"total_work": 60, **sources[name]}
            where = ("--open-mode=append", f"--output={output}/{name}")
            steps = 60 if name == "steps" else 1000
            idents[name] = world.submit(name, steps, "--gres=gpu:1", *where, said=said)

        def done(name: str) -> float:
            jobs = {
                job.job_id.removeprefix("slurm-").partition("-")[0]: job
                for job in world.queue.jobs()
            }
            found = jobs.get(idents[name])
            return 0.0 if found is None else 60.0 - found.remaining_work

        world.step_until(lambda: (done("steps"), done("measured")) == (20, 7))
        [job] = [j.job_id for j in world.queue.jobs() if j.job_id.split("-")[1] == idents["steps"]]
        (world.shared / "steps.halt").unlink()
        world.queue.hold(job)
        world.step_until(lambda: world.queue.job(job).state == "held")
        world.queue.release(job)
        world.step_until(lambda: world.queue.job(job).state == "done")
        with world.queue.store.read() as connection:
            held = [one for one in history(connection, job) if one["running_s"]]
        assert [one["work_done"] > 0 for one in held] == [True, True]
        assert sum(one["work_done"] for one in held) == 60
        assert done("foreign") == 0 and done("measured") == 7


@pytest.mark.nightly
def test_a_controller_that_dies_between_any_two_commands(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commands of Slurm in five that change something are the last one of a controller, and one
    in ten of all others; it dies before or after it. Every job is taken once, done once, and has
    what its allocations say. Its account is its tenant.
    """
    luck, crashes = random.Random(0), 0
    real = commands.run

    def run(*command: str, **more: str) -> str:
        nonlocal crashes
        is_change = command[0] not in ("squeue", "sinfo")
        if luck.random() < (0.4 if is_change else 0.1):
            crashes += 1
            if luck.random() < 0.5:
                real(*command, **more)
            raise CrashHere
        return real(*command, **more)

    said: dict[str, object] = {"sizes": [1, 2, 4], "max_gpus": 4}
    account = ("--gres=gpu:1", "--account=vision")
    idents = [world.submit(f"j{i}", 20, *account, said=said) for i in range(6)]
    monkeypatch.setattr(commands, "run", run)
    end = time.monotonic() + 4 * PATIENCE_S
    while set(world.states().values()) != {"done"}:
        assert time.monotonic() < end, (world.states(), world.slurm.states(), world.events[-9:])
        try:
            world.controller.try_step()
            time.sleep(0.1)
        except CrashHere:
            world.controller.cluster.lease_holder.release()  # as if it had expired
            world.start_controller()
    assert sorted(world.states()) == sorted(idents) and crashes > 5
    assert {job.values["tenant"] for job in world.queue.jobs()} == {"vision"}
    check(world, *(f"j{i}" for i in range(6)))


@pytest.mark.nightly
def test_no_job_runs_into_a_later_reservation_of_slurm(world: World) -> None:
    """n1 is reserved in some minutes. Of two jobs that may not be stopped the long one gets n2, and
    the short one n1, with a time limit, as Slurm lets no other start there. A gang that can be
    stopped gets both nodes when they are free, and leaves when one of them is said to leave now."""
    make = "scontrol create reservation reservationname=r starttime=now+9minutes duration=9"
    world.slurm.run(*make.split(), "users=root", "nodes=n1")
    firm = {"model": "m", "min_gpus": 4, "max_gpus": 4, "preemptible": False}
    sleep = ["sh", "-c", "trap 'exit 143' TERM; sleep 9999 & wait"]
    try:
        for name, work in ("long", 7e3), ("short", 35.0):
            world.queue.submit(job_id=name, total_work=work, command=sleep, **firm)
        world.step_until(lambda: len(world.on()) == 2)
        assert world.on() == {"long": "n2", "short": "n1"}
        gang = {"model": "g", "min_gpus": 8, "max_gpus": 8, "placement": "spread"}
        world.queue.submit(job_id="gang", total_work=35.0, command=sleep, **gang)
        world.queue.cancel("long", "short")
        world.step_until(lambda: world.on() == {"gang": "n[1-2]"})
        world.queue.change_nodes("n2", leaves_s=time.time() + 1)
        world.step_until(lambda: not world.on())
    finally:
        world.slurm.run("scontrol", "delete", "reservation=r")
