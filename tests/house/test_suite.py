"""The test suite itself: it ends, whatever hangs and wherever it was started, and leaves nothing
behind.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


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
