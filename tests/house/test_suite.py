"""The test suite itself: it ends, whatever hangs and wherever it was started, and leaves nothing
behind.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from machine import find_program
from places import ROOT

IGNORING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", \
*sys.argv[1:]])
"""


@pytest.mark.nightly
def test_the_suite_ends_and_says_what_it_did(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Run under nohup, in a process that ignores SIGINT, where no browser is on the PATH.

    The test that interrupts a child with SIGINT passes: the child has default signals. A test that
    waits for ever fails with its name after the time limit, and every test has one. The run says
    which test needed a browser.
    """
    assert float(pytestconfig.getini("timeout")) > 0
    (tmp_path / "test_hanging.py").write_text(
        "import time, pytest\n\n@pytest.mark.timeout(0.2)\ndef test_waits_for_ever():\n"
        "    time.sleep(3600)\n"
    )
    (tmp_path / "sleep").symlink_to(find_program("sleep") or "")  # the child of the first test
    report = "tests/report/test_report.py"
    done = subprocess.run(
        [
            *(sys.executable, "-c", IGNORING, "-c", str(ROOT / "pyproject.toml"), "-m", ""),
            "tests/solvers/test_isolation.py"
            "::test_a_parent_that_ends_leaves_no_process[interrupted]",
            f"{report}::test_chromium_has_nothing_to_complain_about",
            str(tmp_path / "test_hanging.py"),
        ],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "1 failed, 1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "test_waits_for_ever" in done.stdout and "Timeout" in done.stdout
    assert f"NOT TESTED: 1 of {report}: a browser needs chromium" in done.stdout


def test_what_numpy_warns_about_is_an_error() -> None:
    """In this process and in its children: no warning of a library can reach the screen of a
    user unseen.
    """
    with pytest.raises(RuntimeWarning, match="invalid value encountered in log"):
        np.log(np.array([-1.0]))
    child = subprocess.run(
        [sys.executable, "-c", "import numpy as np; np.log(np.array([-1.0]))"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 1 and "invalid value encountered in log" in child.stderr


def test_the_next_process_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    """A process with two folders is killed; the next one to make a folder removes both, once
    they are not new.
    """
    code = (
        "import os; from allocator.solvers.isolation.scratch_folders import Scratch;"
        " Scratch('task');"
        " Scratch('worker'); {}"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run(
        [sys.executable, "-c", code.format("os.kill(os.getpid(), 9)")], env=environment, check=False
    )
    left = sorted(tmp_path.iterdir())
    assert len(left) == 2
    for path in left:
        os.utime(path, (0, 0))
    subprocess.run([sys.executable, "-c", code.format("os._exit(0)")], env=environment, check=True)
    assert not set(left) & set(tmp_path.iterdir())
