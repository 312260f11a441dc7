"""What another account put into a folder of a name that can be guessed is never run or believed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ROOT

from allocator.cli.measure import demo_live
from allocator.errors import UsageError
from allocator.executors.local import LocalExecutor
from allocator.io.tables.private_folders import private_folder, refuse_foreign

NOBODY = 65534
PLANT = """
import os, pathlib, sys
from allocator.cli.measure.demo_live import MARK, QUEUE, _snapshot
from allocator.queue.queue import Queue
place, mark = pathlib.Path(sys.argv[1]), sys.argv[2]
place.mkdir(parents=True)
(place / MARK).touch()
with Queue.create(place / QUEUE, _snapshot()) as queue:
    queue.submit(job_id="evil", model="steady", total_work=1, max_gpus=1, command=["touch", mark])
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like /tmp: everybody may make entries, nobody may rename those of others."""
    with tempfile.TemporaryDirectory(prefix="allocator-shared-") as name:
        os.chmod(name, 0o1777)
        yield Path(name)


def other_account() -> int | None:
    """User id of a second account that tests can run programs as; None: only root can."""
    return NOBODY if os.geteuid() == 0 else None


def test_a_folder_of_another_account_is_never_gone_on_with(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second account makes the folder of the live demo beforehand, with a queue whose command
    leaves a mark: the demo refuses the folder, and the mark is never made. Where the tests do not
    run as root there is no second account: then the folder is real, and this account counts as
    another one."""
    victim, place, mark = os.geteuid(), shared / f"allocator-demo-{os.geteuid()}", shared / "mark"
    account = other_account()
    if account is None:
        victim += 1
        place = shared / f"allocator-demo-{victim}"
        plant(place, mark, None)
        monkeypatch.setattr(os, "geteuid", lambda: victim)
        monkeypatch.setattr(tempfile, "tempdir", str(shared))
        with pytest.raises(UsageError, match="another account"):
            demo_live.live(None)
    else:
        plant(place, mark, account)
        assert place.stat().st_uid == account
        done = subprocess.run(
            [sys.executable, "-m", "allocator", "demo", "--live"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "TMPDIR": str(shared)},
        )
        assert done.returncode == 2 and "another account" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr and done.stdout == ""
    assert not mark.exists() and not (place / "executor").exists()


def plant(place: Path, mark: Path, account: int | None) -> None:
    """Make the folder with its queue, as the account."""
    subprocess.run([sys.executable, "-c", PLANT, place, mark], cwd=ROOT, check=True, timeout=120)
    if account is not None:  # given away: the other account need not be able to run the program
        for path in (place, *place.rglob("*")):
            os.lchown(path, account, account)


def test_only_an_own_private_folder_is_taken(shared: Path) -> None:
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
    other = os.geteuid() + 1
    with pytest.raises(UsageError, match="another account"):
        private_folder(mine, other)
    if other_account() is None:
        return  # nobody here can give a file to another account
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
