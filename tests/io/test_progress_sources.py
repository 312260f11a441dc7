"""Progress from logs and from metrics, with input that nobody should trust."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from servers import serve_metrics
from text_tables import cases

from allocator.errors import UsageError
from allocator.io import progress_sources
from allocator.io.progress_sources import (
    CHUNK,
    LOG,
    LONGEST_LINE,
    METRIC,
    TRIES,
    URL,
    LogFile,
    LogPattern,
    Metric,
    read_source,
)

STEP = r"step[= ](?P<step>[\d,.]+)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"step 1\nstep 2\nloss 3\n", (2.0, 2.0)),
        (b"10% step 1,000\r20% step 2,000\r", (2000.0, 2000.0)),
        (b"step 7\nstep ...\n", (7.0, 7.0)),
        (b"\xff\xfe\x00step 5\x00\n", (5.0, 5.0)),
        (b"step 5" + b"x" * 10**6 + b"step 6\n", (5.0, 5.0)),
        (b"x" * LONGEST_LINE + b"step 6\n", None),
        (b"step 1e999\nstep -4\nstep nan\n", (1.0, 1.0)),
        (b"", None),
    ],
)
def test_the_last_line_with_progress_counts(text: bytes, found: tuple[float, float] | None) -> None:
    """Progress bars, other lines, binary data, endless lines, and numbers that are none."""
    assert LogPattern(STEP).find(text) == found


def test_a_pattern_may_say_what_is_safe() -> None:
    """Never more than what is done."""
    pattern = LogPattern(r"done (?P<work>\d+)(?: saved (?P<safe>\d+))?")
    assert pattern.find(b"done 9 saved 6\n") == (9.0, 6.0)
    assert pattern.find(b"done 9 saved 12\n") == (9.0, 9.0)
    assert pattern.find(b"done 9\n") == (9.0, 0.0)


@pytest.mark.parametrize(
    ("log", "url", "metric", "words"),
    cases(rf"""
( ->  ->  -> missing
step (\d+) ->  ->  -> no group
(?P<work>{"a" * 600}) ->  ->  -> longer than
{STEP} -> http://a/ ->  -> two sources
 -> file:///etc/passwd -> a -> no address
 -> http://a:port/ -> a -> no address
 -> http://a/b/../../c -> a -> no address
 -> http://a/%2e%2E/c -> a -> no address
 ->  -> a -> no address
 -> http://a/ ->  -> no name of a metric
 -> http://a/ -> a b -> no name of a metric
"""),
)
def test_sources_that_make_no_sense_are_refused(
    log: str, url: str, metric: str, words: str
) -> None:
    """Before the job is in the queue."""
    given = {name: text for name, text in ((LOG, log), (URL, url), (METRIC, metric)) if text}
    with pytest.raises(UsageError, match=words):
        read_source(given)


def test_a_search_that_takes_too_long_ends_and_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A line on which the expression tries 2^60 ways."""
    monkeypatch.setattr(progress_sources, "SEARCH_S", 0.02)
    pattern = LogPattern(r"(?P<work>(?:a|a)+)$")
    line = b"a" * 60 + b"!\n"
    assert [pattern.find(line) for _ in range(TRIES)] == [None] * TRIES
    assert pattern.is_given_up
    assert pattern.find(b"a\n") is None


def test_a_log_is_read_once_and_not_much_at_a_time(tmp_path: Path) -> None:
    """Lines in parts, a log that begins anew, one that is too large, one that is a pipe."""
    path = tmp_path / "log"
    log = LogFile(path)
    assert log.read_lines() == b""
    path.write_bytes(b"step 1\nst")
    assert log.read_lines() == b"step 1\n"
    with path.open("ab") as file:
        file.write(b"ep 2\nrest")
    assert log.read_lines() == b"step 2\n"
    assert log.read_lines(is_over=True) == b"rest"
    path.write_bytes(b"new\n")
    assert log.read_lines() == b"new\n"
    with path.open("ab") as file:
        file.write(b"x" * (3 * CHUNK) + b"\nstep 9\n")
    assert log.read_lines().endswith(b"\nstep 9\n")
    with path.open("ab") as file:
        file.write(b"y" * (3 * CHUNK))
    assert log.read_lines() == b""  # a line without an end
    os.mkfifo(tmp_path / "pipe")
    assert LogFile(tmp_path / "pipe").read_lines() == b""


def test_only_the_log_of_its_owner_is_read(tmp_path: Path) -> None:
    """From where it ended before. A file of another user and a link are not opened."""
    path = tmp_path / "log"
    path.write_bytes(b"step 9\n")
    me = os.getuid()
    log = LogFile(path, 7, me)
    with path.open("ab") as file:
        file.write(b"step 1\n")
    assert log.read_lines() == b"step 1\n"
    assert LogFile(path, 0, me + 1).read_lines() == b""
    (tmp_path / "link").symlink_to(path)
    assert LogFile(tmp_path / "link", 0, me).read_lines() == b""
    assert LogFile(tmp_path / "link").read_lines() == b"step 9\nstep 1\n"
    path.write_bytes(b"new\n")
    assert LogFile(path, 7, me).read_lines() == b"new\n"


def test_random_logs_are_read_as_they_grow(tmp_path: Path) -> None:
    """Cut anywhere, the last number is the one of the whole."""
    chance, pattern = random.Random(1), LogPattern(STEP)
    for case in range(30):
        lines = [f"step {n}\n" if chance.random() < 0.7 else "other\n" for n in range(40)]
        whole = "".join(lines).encode()
        path, at, last = tmp_path / str(case), 0, None
        log = LogFile(path)
        while at < len(whole):
            at += chance.randint(1, 60)
            path.write_bytes(whole[:at])
            last = pattern.find(log.read_lines()) or last
        assert last == pattern.find(whole)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"steps 4\n", 4.0),
        (b'# HELP steps x\nsteps{a="}"} 5 1700000000\nsteps_total 9\n', 5.0),
        (b"steps{} NaN\n", None),
        (b"steps\nsteps{\n\xff\n", None),
        (b"other 3\n", None),
    ],
)
def test_metrics(text: bytes, value: float | None) -> None:
    """Labels, times, other metrics that begin alike, and lines that are none."""
    assert Metric("", "steps").find(text) == (value and (value, value))


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("good", 7.0),
        ("moved", 7.0),
        ("elsewhere", None),
        ("endless", None),
        ("slow", None),
        ("error", None),
    ],
)
def test_servers_of_metrics(
    answer: str, value: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is too large or too slow is no answer; another address is followed on this server
    only, so that a job does not choose whom the controller asks.
    """
    monkeypatch.setattr(progress_sources, "FETCH_S", 0.5 if answer == "slow" else 5.0)
    with serve_metrics(answer) as url:
        assert Metric(url, "steps").fetch() == (value and (value, value))
    assert Metric(url, "steps").fetch() is None  # nobody listens any more
