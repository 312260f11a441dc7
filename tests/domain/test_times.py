"""Durations and times as people write them, wherever the allocator reads one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from commands import Output, call
from hypothesis import given, strategies as st
from places import ROOT

from allocator.cli import main
from allocator.cli.parsing import find_commands
from allocator.domain.times import parse_duration, parse_time
from allocator.queue.queue import Queue

DEMO = ROOT / "data" / "snapshots" / "demo"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(
            case.split(": ")
            for case in """0: 0
            90: 90
            1e3: 1000
            90s: 90
            90min: 5400
            2h: 7200
            1.5d: 129600
            1w: 604800
            1h30min: 5400
            1h 30min: 5400
            2 h : 7200
            inf: inf
            -5: -5""".splitlines()
        ),
    ],
)
def test_durations(text: str, seconds: str) -> None:
    """A number with a unit, several of them, or a plain number."""
    assert parse_duration(text) == float(seconds)


@pytest.mark.parametrize("text", ["", "soon", "2 hours", "h", "2hh", "x2h", "2h x", "nan", "1e3s"])
def test_no_duration(text: str) -> None:
    """The message says what can be written."""
    with pytest.raises(ValueError, match=r"is no duration: write 90min, 2h, 1.5d, or a number"):
        parse_duration(text)


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    """Nothing else happens, and a duration is a number."""
    try:
        assert not math.isnan(parse_duration(text))
    except ValueError as error:
        assert "is no duration" in str(error)


def test_a_plain_number_counts_in_the_unit_of_its_option() -> None:
    """Hours of --hours, days of --older-than; a unit says otherwise."""
    assert parse_duration("2", 3600) == parse_duration("120min", 3600) == 7200


def test_times() -> None:
    """A date is UTC unless it names a zone; a duration counts from now; a number is seconds."""
    assert parse_time("2026-11-30T18:00", 5.0) == parse_time("2026-11-30 19:00+01:00", 5.0)
    assert parse_time("2026-11-30", 5.0) == 1795996800
    assert (parse_time("2h", 5.0), parse_time("1795996800", 5.0)) == (7205, 1795996800)
    for text in ("soon", "2026-13-40", ""):
        with pytest.raises(ValueError, match="is no time: write a date"):
            parse_time(text, 5.0)


def test_every_option_for_a_time_reads_durations() -> None:
    """The help names such an option's value TIME; each of them takes 2h."""
    seen = 0
    for words, command in find_commands(main.parser()):
        for action in command._actions:
            if action.metavar == "TIME" and action.type is not None:
                assert callable(action.type) and action.type("2h") > 0, (words, action.dest)
                seen += 1
    assert seen > 30


def test_jobs_have_times_as_people_write_them(capsys: Output, tmp_path: Path) -> None:
    """Submitted by an option, by a file and from Python; changed; refused with the job's name."""
    name, table = tmp_path / "q.db", tmp_path / "c.csv"
    call(capsys, f"queue init {name} --from {DEMO}")
    job = "--job-id a --model bert --total-work 9e6 --max-gpus 2 --restart-s 2min"
    table.write_text("job_id,model,total_work,max_gpus,deadline_s\nc,bert,9e6,2,1d\n")
    for command in (
        f"submit {name} {job} --deadline-s 2100-01-01",
        f"submit {name} {job} --deadline-s 2100-01-01",  # the same again
        f"import-csv {name} {table}",
    ):
        assert call(capsys, f"queue {command}")[0] == 0
    with Queue(name) as queue:

        def due(job: str) -> float:
            return float(queue.job(job).values["deadline_s"] - queue.clock())

        assert queue.job("a").values["deadline_s"] == 4102444800
        assert queue.job("a").values["restart_s"] == 120
        queue.submit(job_id="b", model="bert", total_work=9e6, max_gpus=2, deadline_s="2h")
        assert call(capsys, f"queue change {name} a --deadline-s 3h")[0] == 0
        assert [due(job) for job in "abc"] == pytest.approx([10800, 7200, 86400], abs=300)
    code, _, err = call(capsys, f"queue change {name} a --deadline-s soon")
    assert code == 3 and 'deadline_s "soon" is no time: write a date' in err and 'job "a"' in err
