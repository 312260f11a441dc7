"""Backups restored and queues made anew, made to agree with what really runs: real controllers,
jobs and databases.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import postgres_server
import pytest
import waiting
from commands import Output
from fakes.executor_faults import CrashHere
from queues import cluster
from sites import Site, wait_for

from allocator.executors.ledger import Fence, Ledger
from allocator.executors.local import LocalExecutor
from allocator.queue import lease
from allocator.queue.database.schema import OPEN
from allocator.queue.queue import Queue


def live_on(site: Site) -> None:
    """A backup is taken while `runs`, `ends` and `stops` run and `starts` waits for `ends`. Then
    `ends` ends, `starts` runs, `stops` is held and stopped with half its work safe, `new` is
    submitted and runs, `short` is submitted and ends."""
    for name in ("runs", "ends", "stops"):
        site.submit(name, SCRIPT)
    site.submit("starts", SCRIPT, after="ends")
    with Queue(site.name) as queue:
        controller = site.run()
        wait_for(lambda: len(site.ran()) == 3 and _all_seen(site))
        site.back_up()
        (site.folder / "end-ends").touch()
        queue.hold("stops")
        site.submit("new", SCRIPT)
        site.submit("short", "exit 0")
        running = {"runs", "starts", "new"}
        states = dict.fromkeys(running, "running") | LEFT
        wait_for(lambda: site.states() == states and len(site.ran()) == 6)
        executor = LocalExecutor(site.state, {})
        wait_for(lambda: {one.job_id for one in executor.observe()} == running)
    site.stop(controller)


LEFT = {"ends": "done", "stops": "held", "short": "done"}
SCRIPT = (
    'echo "50 50" > "$ALLOCATOR_PROGRESS"; '
    "while [ ! -e {folder}/end ] && [ ! -e {folder}/end-$ALLOCATOR_JOB ]; do sleep 0.05; done"
)


def crash(*_: object) -> None:
    """Die, as by kill -9."""
    raise CrashHere


def _all_seen(site: Site) -> bool:
    """Whether all that run have said that half of their work is safe."""
    seen = "SELECT phase = 'running' AND work_done >= 50 FROM allocations"
    return all(row[0] for row in site.query(f"{seen} WHERE phase IN {OPEN}"))


@pytest.mark.nightly
def test_a_restored_backup_is_adopted_by_a_command_that_is_killed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite. Killed at each step in turn: no controller acts on what is half done, and in the end
    all is as without kills. What was told by the call that was killed is not told again. Jobs that
    run are on the nodes of their orders."""
    with Queue(site.name) as queue:
        queue.add_nodes("n1", "n2", pool="a", gpus=4)
    live_on(site)
    placed = "SELECT job_id, nodes FROM allocations WHERE phase = 'running'"
    before = dict(site.query(placed))
    site.restore()
    for owner, step in (
        (lease, "take"),
        (lease, "release"),
        (LocalExecutor, "stop"),
        (Fence, "end_adoption"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, crash)
            with pytest.raises(CrashHere):
                site.adopt()
        assert "cut short" in site.refused() and len(site.ran()) == 6
    assert site.adopt()[0] == 0
    found = {"runs": "running", "ends": "done", "stops": "paused", "starts": "running"}
    assert site.states() == found
    after = dict(site.query(placed))
    assert after == {job: before[job] for job in ("runs", "starts")} and all(after.values())
    site.run_to_the_end()
    assert sorted(site.ran())[-2:] == ["stops 1", "stops 2"] and len(site.ran()) == 7
    generations = dict(site.query("SELECT job_id, generation FROM jobs"))
    assert generations == {"runs": 1, "ends": 1, "stops": 2, "starts": 1}


@pytest.mark.nightly
def test_a_queue_made_anew_takes_an_old_state(site: Site) -> None:
    """The database is lost for good, and a new one has a job of the same name: what runs is
    stopped, because nobody knows whether it is the same job; then the new one runs, once, with an
    empty folder."""
    site.submit("a", SCRIPT)
    site.run_until(lambda: site.ran() == ["a 1"])
    for path in site.folder.glob("queue.db*"):
        path.unlink()
    Queue.create(site.queue, cluster()).close()
    site.submit("a", "exit 0")
    said = site.refused()
    assert "another queue" in said and "queue adopt" in said
    assert (site.rounds(), site.ran()) == (0, ["a 1"])
    assert site.adopt()[0] == 2  # which executor?
    told = "a: was told to stop: no job of this queue runs there so\n"
    assert site.adopt("--executor", "local", "--state", site.state)[:2] == (0, told)
    site.run_to_the_end()
    assert site.ran() == ["a 1", "a 2"] and (site.state / "jobs" / "a" / "work.2").is_dir()


GROUPED = {
    "pools.csv": "pool,gpu_type,gpus,memory_gb,sharing\na,A,4,40,any\n",
    "rates.csv": "model,gpu_type,gpus,work_per_s\nm,A,1,0.001\nn,A,4,0.001\n",
    "sharing.csv": "model_a,model_b,gpu_type,gpus,slowdown_a,slowdown_b\nm,n,A,1,1.2,1.2\n",
    "config.toml": "now_s = 0\ninterval_s = 60\nmax_primaries = 3\n",
}


@pytest.mark.nightly
def test_a_group_goes_on_without_the_job_that_ended_after_the_backup(site: Site) -> None:
    """A secondary job keeps running if one of its two primary jobs ends after the backup.

    When the backup is taken, job "all" runs on the GPUs of the jobs "one" and "two" and on two idle
    ones. Then "two" ends. After `queue adopt` the job "all" still runs on the GPU of "one", holds
    the GPU of "two" itself, and no job starts again.
    """
    held = "SELECT job_id, host, held_gpus FROM allocations WHERE ended_s IS NULL ORDER BY job_id"
    site.queue.unlink()
    Queue.create(site.name, cluster(**GROUPED)).close()
    for name, model, gpus in (("one", "m", 1), ("two", "m", 1), ("all", "n", 4)):
        site.submit(name, SCRIPT, model=model, memory_gb=4, min_gpus=gpus, max_gpus=gpus)
    controller = site.run("--policy", "ffs")
    wait_for(lambda: len(site.ran()) == 3 and _all_seen(site))
    assert site.query(held) == [("all", "one|two", 2), ("one", "", 1), ("two", "", 1)]
    site.back_up()
    (site.folder / "end-two").touch()
    wait_for(lambda: site.states()["two"] == "done")
    site.stop(controller)
    site.restore()
    assert site.adopt()[0] == 0
    assert site.states() == {"all": "running", "one": "running", "two": "done"}
    assert site.query(held) == [("all", "one", 3), ("one", "", 1)]
    site.run_to_the_end()
    assert sorted(site.ran()) == ["all 1", "one 1", "two 1"]


@pytest.mark.nightly
def test_an_empty_state_is_taken_only_when_nothing_runs_under_the_old_one(site: Site) -> None:
    """While job `a` runs, the queue cannot go over to an empty folder, nor while a controller is
    leading. Once it has stopped, it can: the job counts as lost there and is started again under
    the new folder."""
    site.submit("a", SCRIPT)
    controller = site.run()
    wait_for(lambda: site.ran() == ["a 1"])
    state = site.folder / "new-state"
    words = ("--executor", "local", "--state", state)
    assert " leads" in site.adopt(*words)[2]
    site.stop(controller)
    code, _, err = site.adopt(*words)
    assert code == 2 and "would be started a second time" in err
    executor = LocalExecutor(site.state, {})
    executor.stop("a", 1, 99)
    wait_for(lambda: executor.observe()[0].phase == "stopped")
    told = "a: does not run: it is started again when a round gives it GPUs\n"
    assert site.adopt(*words)[:2] == (0, told)
    site.run_until(lambda: len(site.ran()) == 2, state=state)
    assert site.ran() in (["a 1", "a 2"], ["a 1", "a 1"])
    assert "a second time" in site.refused()
    assert Ledger(state, "local").fence.identity().token > 1


RESTORES = 25  # of each database: pytest -m soak tests/controller/test_adopt.py
STAMPED = (
    'mkdir {folder}/alive-$ALLOCATOR_JOB || echo "$ALLOCATOR_JOB" >> {folder}/doubled; '
    "trap 'rmdir {folder}/alive-$ALLOCATOR_JOB; exit 143' TERM; "
    "n=0; while [ ! -e {folder}/end ] && [ $n -lt LENGTH ]; do sleep 0.1; n=$((n+1)); done; "
    "rmdir {folder}/alive-$ALLOCATOR_JOB"
)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_many_restores(tmp_path: Path, capsys: Output, backend: str) -> None:
    """Jobs come, are held, released and end; at random moments a backup is taken, controllers are
    killed or stopped, and the backup is restored and adopted. The jobs themselves say whether two
    copies ran at once: never. In the end every job that the queue knows is done: none is stuck."""
    chance = random.Random(7)
    site = Site(tmp_path, capsys, postgres_server.new_database() if backend == "postgresql" else "")
    try:
        for number in range(RESTORES):
            controller = site.run()
            for step in range(6):
                if step == 2:
                    site.back_up()
                length = str(chance.choice((1, 10, 100)))
                site.submit(f"j{number}-{step}", STAMPED.replace("LENGTH", length))
                with Queue(site.name) as queue:
                    active = queue.jobs(states=["queued", "running", "paused"])
                    for job in chance.sample(active, min(2, len(active))):
                        queue.hold(job.job_id)
                    for job in queue.jobs(states=["held"])[:3]:
                        queue.release(job.job_id)
                time.sleep(chance.uniform(0.0, 1.0))
                if chance.random() < 0.3:
                    site.stop(controller, chance.choice((signal.SIGKILL, signal.SIGTERM)))
                    controller = site.run()
            site.stop(controller, chance.choice((signal.SIGKILL, signal.SIGTERM)))
            site.restore()
            code, _, err = site.adopt("--executor", "local", "--state", site.state)
            assert code == 0, err
            assert not (tmp_path / "doubled").exists(), number
        controller = site.run()
        with Queue(site.name) as queue:
            for job in queue.jobs(states=["active"]):
                queue.release(job.job_id)
        (tmp_path / "end").touch()
        waiting.wait_for(lambda: set(site.states().values()) == {"done"}, 120.0, 0.5)
        site.stop(controller)
        assert not (tmp_path / "doubled").exists()
    finally:
        site.close()
        if site.url:
            postgres_server.drop(site.url)
