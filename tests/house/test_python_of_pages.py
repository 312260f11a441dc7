"""The Python code that the documentation shows runs as it stands."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from allocator.io.snapshots import read_snapshot
from allocator.io.traces import assemble
from allocator.queue.queue import Queue

ELSEWHERE = {  # page: why its blocks do not run here, and what runs them
    "docs/extending.md": "they are files of a package; tests/engine/test_plugins.py",
    "docs/service.md": "it needs a service; tests/server/test_http_docs.py",
    "docs/ray.md": "it needs a Ray; tests/executors/test_example_job.py",
}
BLOCKS = {
    path.relative_to(ROOT).as_posix(): re.findall(
        r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
PAGES = [page for page, blocks in BLOCKS.items() if blocks and page not in ELSEWHERE]


class WaitedError(Exception):
    """Raised in place of the wait for the next round, in a block that goes on for ever."""


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One block after the other, in a folder with the shipped data, a queue, and what a job has."""
    (tmp_path / "data").symlink_to(ROOT / "data")
    (tmp_path / "now").symlink_to(ROOT / "data" / "snapshots" / "demo")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALLOCATOR_PROGRESS", str(tmp_path / "progress"))
    Queue.create("cluster.db", read_snapshot("now")).close()

    def wait(_seconds: float) -> None:
        raise WaitedError

    names: dict[str, Any] = {**vars(assemble), "os": os, "step": 5, "last_saved_step": 4}
    for block in BLOCKS[page]:
        if "while True" in block:
            monkeypatch.setattr("time.sleep", wait)
            with pytest.raises(WaitedError):
                exec(block, names)
            monkeypatch.undo()
            monkeypatch.chdir(tmp_path)
        else:
            exec(block, names)
