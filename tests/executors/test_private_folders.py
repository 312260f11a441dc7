"""What another account put into a folder of a name that can be guessed is never run or believed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from queues import cluster

from allocator.cli.measure import demo_live
from allocator.errors import UsageError
from allocator.executors.local import LocalExecutor
from allocator.io.tables.private_folders import private_folder, refuse_foreign
from allocator.queue.queue import Queue

NOBODY = 65534


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like /tmp: everybody may make entries, nobody may rename those of others."""
    with tempfile.TemporaryDirectory(prefix="allocator-shared-") as name:
        os.chmod(name, 0o1777)
        yield Path(name)


def test_a_folder_of_another_account_is_never_gone_on_with(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the live demo is there beforehand, with a queue whose command leaves a mark,
    and its account counts as another one: the demo refuses it, and the mark is never made."""
    victim, mark = os.geteuid() + 1, shared / "mark"
    place = shared / f"allocator-demo-{victim}"
    place.mkdir()
    (place / demo_live.MARK).touch()
    with Queue.create(place / demo_live.QUEUE, cluster()) as queue:
        command = ["touch", str(mark)]
        queue.submit(job_id="evil", model="m", total_work=1, max_gpus=1, command=command)
    monkeypatch.setattr(os, "geteuid", lambda: victim)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    with pytest.raises(UsageError, match="another account"):
        demo_live.live(None)
    assert not mark.exists() and not (place / "executor").exists()


def test_only_an_own_private_folder_is_taken(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one gets mode 0700 and may be found again. Links, files, folders that others may write
    to or that lie where others may rename them, and foreign entries in an own folder are refused.
    """
    mine = private_folder(shared / "mine")
    assert mine.stat().st_mode & 0o777 == 0o700 and private_folder(mine) == mine
    (shared / "link").symlink_to(mine)
    (shared / "file").touch()
    (shared / "open").mkdir()
    os.chmod(shared / "open", 0o777)
    (shared / "open" / "in").mkdir(mode=0o700)
    for name, words in (
        ("link", "link"),
        ("file", "no folder"),
        ("open", "may write"),
        ("open/in", "may rename"),
    ):
        with pytest.raises(UsageError, match=words):
            private_folder(shared / name)
    with monkeypatch.context() as patch, pytest.raises(UsageError, match="another account"):
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        private_folder(mine)
    if os.geteuid() != 0:
        return  # only root can give a file to another account
    (mine / "planted").touch()
    os.chown(mine / "planted", NOBODY, NOBODY)
    with pytest.raises(UsageError, match='"planted" in it belongs to another account'):
        private_folder(mine)


def test_orders_of_another_account_are_not_run(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of the local executor holds commands. A folder of its name that another account
    made (here: this one, which then counts as another) is refused before anything is read."""
    LocalExecutor(shared / "state", {"a": (0,)})
    refuse_foreign(shared / "state")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UsageError, match="another account"):
        LocalExecutor(shared / "state", {"a": (0,)})
