"""Two controllers as real processes: one decides, the other stands by; a paused one cannot act
when it comes back.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sites import Site, wait_for
from waiting import in_time

from allocator.queue.queue import Queue


@pytest.mark.nightly
def test_standby_takes_over_and_the_paused_one_cannot_act(site: Site) -> None:
    """SIGSTOP to the one leading: the other one leads soon after and decides. SIGCONT: the first
    writes nothing more. SIGTERM to the second: it gives the lease back, and the first takes it.
    Every job starts once."""
    for name in ("a", "b"):
        site.submit(name)
    first = site.run()
    wait_for(lambda: len(site.ran()) == 2)
    second = site.run()
    with Queue(site.queue) as queue:

        def tokens() -> list[int | None]:
            """Of all rounds."""
            return [one.token for one in queue.rounds(limit=10_000)]

        first.send_signal(signal.SIGSTOP)
        wait_for(lambda: 2 in tokens())
        by_first = tokens().count(1)
        site.submit("new")
        wait_for(lambda: "new 1" in site.ran())
        first.send_signal(signal.SIGCONT)
        time.sleep(2.0)
        assert tokens().count(1) == by_first
        with in_time(5.0):
            site.stop(second)
            made = site.rounds()
            wait_for(lambda: site.rounds() > made)
        assert (first.poll(), second.returncode) == (None, 0)
        assert tokens() == sorted(tokens())
        numbers = [one.number for one in queue.rounds(limit=10_000)]
        assert numbers == list(range(1, len(numbers) + 1))
    assert sorted(site.ran()) == ["a 1", "b 1", "new 1"]


@pytest.mark.soak
def test_the_live_demo_survives_kills(tmp_path: Path) -> None:
    """`demo --live`, killed with -9 twice and given again: all ten jobs are done and no job
    began at step 0 twice.
    """
    command = [sys.executable, "-m", "allocator", "demo", "--live", "--dir", str(tmp_path / "live")]
    for seconds in (14.0, 9.0):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        child.kill()
        child.wait()
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert "10 of 10 jobs done" in done.stdout and "none begun anew" in done.stdout
    logs = sorted((tmp_path / "live" / "jobs").glob("*/log.csv"))
    assert len(logs) == 10
    for log in logs:
        starts = [line for line in log.read_text().splitlines() if line.startswith("start")]
        assert [line.split(",")[2] for line in starts].count("0") == 1, log
