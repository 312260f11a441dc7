"""docs/tutorial.md, followed from the copy of the examples to the end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from executor_rigs import LocalRig
from places import ROOT
from waiting import PATIENCE_S, wait_for

from allocator.errors import AllocatorError
from allocator.executors.local import LocalExecutor, device_numbers
from allocator.queue.cluster_tables import used
from allocator.queue.queue import Queue

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
BY_HAND = ("pip install", "mkdir ~/tryout")  # the installation, and a folder in the home


class Reader:
    """Somebody who follows the page in a folder."""

    def __init__(self, folder: Path) -> None:
        programs = folder / "bin"
        programs.mkdir()
        for name, options in (("python", ""), ("allocator", "-P -m allocator")):
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {options} "$@"\n')
            (programs / name).chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        self.folder = folder
        self.controller: subprocess.Popen[bytes] | None = None

    def start(self, text: str, out: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start what is typed into a shell."""
        return subprocess.Popen(
            ["bash", "-euc", text], cwd=self.folder, env=self.environment, stdout=out, stderr=out
        )

    def follow(self, block: str) -> str:
        """Do what a block says, and return what it prints."""
        if block == "kill %1\n":
            self.end_controller()
            return ""
        lines = block.splitlines()
        if lines[-1].endswith(" &"):
            # a port that is free, in place of the one of the page
            line = lines.pop().removesuffix(" &")
            self.controller = self.start("exec " + line.replace("--serve", "--serve 127.0.0.1:0"))
        child = self.start("\n".join(lines), subprocess.PIPE)
        out, err = child.communicate(timeout=PATIENCE_S)
        assert child.returncode == 0, (block, out, err)
        return out.decode()

    def end_controller(self) -> None:
        """End the controller, if it runs, as it ends on a machine that stops."""
        if self.controller is not None and self.controller.poll() is None:
            self.controller.terminate()
            assert self.controller.wait(PATIENCE_S) == 0

    def look(self) -> tuple[int, dict[str, int]]:
        """Return the GPUs that jobs hold, and the number of jobs by state."""
        with Queue(self.folder / "cluster.db") as queue, queue.store.read() as connection:
            return sum(used(connection).values()), dict(queue.counts())


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.end_controller()
    executor = LocalExecutor(tmp_path / "cluster.db.local", device_numbers({"machine": 8}), 5.0)
    for one in executor.ledger.known():
        with suppress(AllocatorError):
            LocalRig(tmp_path).end(one.job_id, one.generation, 99, executor)


@pytest.mark.nightly
def test_the_tutorial_leads_where_it_says(reader: Reader) -> None:
    """Every block runs in its order; jobs start, a smaller budget pauses some, and all end."""
    blocks = [text for text in BLOCKS if not any(part in text for part in BY_HAND)]
    assert len(BLOCKS) - len(blocks) == len(BY_HAND)
    reader.follow("allocator examples demo team --out .")
    said = {}
    waits: dict[str, Callable[[], bool]] = {
        "allocator status": lambda: reader.look()[1]["running"] >= 4,
        "allocator queue list cluster.db --state active\nallocator explain": (
            lambda: reader.look()[0] <= 4
        ),
        "kill %1": lambda: not reader.look()[1]["running"],
    }
    for block in blocks:
        for begin, is_there in waits.items():
            if block.startswith(begin):
                wait_for(is_there, PATIENCE_S)
        said[block.split("\n")[0]] = reader.follow(block)
    assert "value 7.14" in said["allocator solve demo"]
    assert said["allocator queue init cluster.db --from team"].count("queued") == 8
    assert " leads " in said["allocator status cluster.db"]
    assert reader.look()[1]["cancelled"] >= 1
