"""A queue and the state of its executor know each other: real controllers and jobs, restored
backups, other folders.
"""

from __future__ import annotations

import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from commands import call
from examples import series
from fakes.executor_faults import CrashHere
from queues import cluster
from sites import Site, wait_for

from allocator.executors.files import FilesExecutor
from allocator.executors.ledger import Fence, Ledger
from allocator.executors.local import LocalExecutor
from allocator.loop.executor import Order, WrongState
from allocator.queue.database import identity
from allocator.queue.queue import Queue


@pytest.mark.nightly
def test_another_state_starts_nothing_twice(site: Site) -> None:
    """A job runs; its controller is killed and started again with another folder: refused before
    anything is ordered, with the folder that is right. Neither does another executor with a folder
    of its own get to act. The right folder goes on."""
    site.submit("a")
    site.run_until(lambda: site.ran() == ["a 1"], number=signal.SIGKILL)
    rounds = site.rounds()
    for executor in ("local", "files"):
        said = site.refused(state=site.folder / f"other-state-{executor}", executor=executor)
        assert str(site.state) in said and "a second time" in said and "queue adopt" in said
        assert (site.rounds(), site.states()) == (rounds, {"a": "running"})
    assert 'of the executor "local", not of "files"' in site.refused(executor="files")
    site.run_to_the_end()
    assert site.ran() == ["a 1"]


@pytest.mark.parametrize("restarts", series([1, 0], 0))
def test_a_restored_backup_is_recognised(site: Site, restarts: int) -> None:
    """A backup is taken while job `a` runs; then `b` is submitted and ends, `c` runs. The backup is
    restored: the controller stops at once, whether other controllers took over meanwhile (then by
    the token) or not (then by what runs), nothing is written or stopped, and a second try says the
    same."""
    site.submit("a")
    controller = site.run()
    wait_for(lambda: site.ran() == ["a 1"])
    site.back_up()
    for _ in range(restarts):
        site.stop(controller)
        controller = site.run()
    site.submit("b", "exit 0")
    site.submit("c")
    states = {"a": "running", "b": "done", "c": "running"}
    wait_for(lambda: site.states() == states and len(site.ran()) == 3)
    site.stop(controller)
    site.restore()
    rounds = site.rounds()
    for _ in range(2):
        said = site.refused()
        assert "restored from a backup" in said and "queue adopt" in said
        by_token = "the state has seen token" in said
        assert by_token == bool(restarts) or 'job "c" has allocation 1' in said
    assert site.rounds() == rounds and len(site.ran()) == 3
    running = [o.job_id for o in LocalExecutor(site.state, {}).observe() if o.phase == "running"]
    assert sorted(running) == ["a", "c"]


@pytest.mark.nightly
def test_a_refused_order_ends_the_controller(site: Site) -> None:
    """Restored to a moment before job `a` ran to its end, in the life of one controller, and
    nothing runs: the first order is refused, and the controller stops with the reason instead of
    giving it for ever."""
    site.submit("a", "exit 0")
    site.run_until(lambda: site.states() == {"a": "done"})
    # as a backup from before that
    with Queue(site.queue) as queue, queue.store.write() as connection:
        for statement in (
            "DELETE FROM observations",
            "DELETE FROM allocations",
            (
                "UPDATE jobs SET state = 'queued', generation = 0, finished_s = NULL,"
                " remaining_work = 100, first_started_s = NULL, want_pool = '', want_gpus = 0"
            ),
        ):
            connection.exec_driver_sql(statement)
    said = site.refused()
    assert "was acknowledged" in said and "restored from a backup" in said
    assert site.ran() == ["a 1"]


def crash(*_: object) -> None:
    """Die, as by kill -9."""
    raise CrashHere


def test_killed_between_the_two_writes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue knows the state, and the state nothing of the queue: the next controller completes
    it and acts. Until then no other folder is taken; another queue that comes first gets the
    folder, and then this one is refused."""
    site.submit("a", "exit 0")
    with monkeypatch.context() as patch:
        patch.setattr(Fence, "claim", crash)
        with pytest.raises(CrashHere):
            call(site.capsys, *site.words(), "--every", "1")
    assert Ledger(site.state, "local").fence.identity().queue == "" and site.ran() == []
    assert "a second time" in site.refused(state=site.folder / "other-state")
    shutil.copytree(site.state, site.folder / "taken-state")
    other = site.folder / "other.db"
    Queue.create(other, cluster()).close()
    code, _, err = call(site.capsys, *site.words(other, site.folder / "taken-state"), "--once")
    assert code == 0, err
    assert "another queue" in site.refused(state=site.folder / "taken-state")
    site.run_until(lambda: site.states() == {"a": "done"})
    with Queue(site.queue) as queue, queue.store.read() as connection:
        assert Ledger(site.state, "local").fence.identity().queue == identity.queue_id(connection)


@pytest.mark.nightly
def test_jobs_that_run_under_no_known_state(site: Site) -> None:
    """A queue that names no state is refused a new folder once a job was seen running: the job
    would be started a second time."""
    site.submit("a")
    observed = "SELECT job_id FROM allocations WHERE observed_s IS NOT NULL"
    site.run_until(lambda: site.ran() == ["a 1"] and site.query(observed))
    with Queue(site.queue) as queue, queue.store.write() as connection:
        connection.exec_driver_sql("DELETE FROM meta WHERE key = 'executor'")
    assert "is new and knows nothing" in site.refused(state=site.folder / "new-state")


def test_a_controller_notices_that_its_folder_went_over(tmp_path: Path) -> None:
    """Orders of a queue whose folder another queue adopted meanwhile are refused, not carried
    out.
    """
    executor = FilesExecutor(tmp_path)
    executor.claim("one")
    executor.start(Order("j", 1, 1, "a", 1, "A", 1.0))
    other = Ledger(tmp_path, "files")
    with other.hold_lock():
        assert other.fence.begin_adoption("two", 5).queue == "one"
    with pytest.raises(WrongState):
        executor.start(Order("k", 1, 9, "a", 1, "A", 1.0))
    with other.hold_lock():
        other.fence.end_adoption("two")
    with pytest.raises(WrongState), suppress(KeyError):
        executor.stop("j", 1, 9)
    assert [one.job_id for one in executor.ledger.known()] == ["j"]
