"""Reports of simulations and benchmarks: self-contained, complete, and with the numbers of the
files.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from examples import series as first_of
from machine import find_chromium
from places import ROOT
from report_folders import benchmark, simulation, tables

from allocator.errors import InvalidInput, UsageError
from allocator.report.charts.holders import assign_rows
from allocator.report.charts.series import series, window
from allocator.report.folders import write_report
from allocator.report.measures import duration, number, percent, time_unit
from allocator.report.runs import read_benchmark, read_simulation
from allocator.report.theme import COLOURS, order_policies
from allocator.report.words import compare_policies, headline

PICTURES = ("changes", "times", "queue", "holders", "use", "decisions")
VOID = {"meta", "link", "br", "img", "hr"}


class Page(HTMLParser):
    """What a report holds; complains about tags that do not match."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.caption = ""
        self.figures: list[str] = []
        self.rows: list[tuple[list[str], dict[str, float]]] = [([], {})]
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        assert not self.open, f"never closed: {self.open}"
        self.text = self.text.replace("\N{NO-BREAK SPACE}", " ")
        self.cells = [(names, numbers) for names, numbers in self.rows if numbers]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {k: v or "" for k, v in attrs}
        self.attributes += [(tag, k, v) for k, v in known.items()]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "figure":
            self.figures.append(known["id"])
        if tag == "tr":
            self.rows.append(([self.caption], {}))
        if "data-metric" in known:
            self.rows[-1][1][known["data-metric"]] = float(known["title"])

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and self.open[-1] == "caption":
            self.caption = data
        if self.open and self.open[-1] == "th" and data.strip():
            self.rows[-1][0].append(data.strip())


def check_alone(page: Page) -> None:
    """Nothing in it asks for anything outside of it, and nothing runs."""
    assert "http://" not in page.source and "https://" not in page.source
    assert "default-src 'none'" in page.source
    assert "<script" not in page.source and "@import" not in page.source
    for tag, name, value in page.attributes:
        assert name not in ("src", "srcset", "onload", "onclick"), (tag, name)
        if name in ("href", "xlink:href"):
            assert value.startswith(("#", "data:")), (tag, value)
        assert value.count("url(") == value.count("url(#"), (tag, value)
    names = [value for _, name, value in page.attributes if name == "id"]
    assert len(names) == len(set(names))


def written(folder: Path) -> Page:
    """The report of a folder, which has every picture."""
    assert write_report(folder) == folder / "report.html"
    page = Page(folder / "report.html")
    check_alone(page)
    assert page.figures == list(PICTURES)
    return page


def test_simulation_with_several_policies(tmp_path: Path) -> None:
    """Two policies: every picture is in the page and in the folder, the numbers are those of
    results.json, and the headline is the one a reader would write: mip's jobs take 3900 s instead
    of 4800 s, 19 % less."""
    folder = simulation(tmp_path / "r", {p: tables(p) for p in ("mip", "greedy")})
    page = written(folder)
    for name in PICTURES:
        ElementTree.parse(folder / "pictures" / f"{name}.svg")
    found = json.loads((folder / "results.json").read_text())["policies"]
    for row, numbers in page.cells:
        for key, value in numbers.items():
            assert value == found[row[-1]][key]
    assert len(page.cells) == 2
    assert (
        "better in completion time −19 %, queueing −75 %,"
        " p99 completion −19 % and makespan −12 %" in page.text
    )


@pytest.mark.nightly
def test_benchmark(tmp_path: Path) -> None:
    """Loads and seeds: the table's means are those of results.csv, changes and verdicts those of
    comparison.csv.
    """
    folder = benchmark(tmp_path / "b")
    page = written(folder)
    with (folder / "results.csv").open(newline="") as source:
        rows = list(csv.DictReader(source))
    for (caption, policy), numbers in page.cells:
        load = caption.removeprefix("All numbers, load ")
        mine = [r for r in rows if (r["load"], r["policy"]) == (load, policy)]
        assert len(mine) == 6
        for key, value in numbers.items():
            values = [float(r[key]) for r in mine]
            assert value == pytest.approx(sum(values) / (1 if key == "finished" else 6))
    assert len(page.cells) == 4
    assert (
        "mip against greedy, both loads together:"
        " better in completion time −19 % [−24, −14] and" in page.text
    )
    assert "worse in makespan +4.5 % [−0.5, +9.5]; undecided: training efficiency" in page.text


@pytest.mark.parametrize(
    "made",
    first_of(
        (
            {"mip": {k: [] for k in ("jobs", "timeline", "rounds", "spans")}},
            {p: tables(p, 3, finished=0, rounds=False) for p in ("mip", "greedy")},
            {"mip": tables("mip", 1)},
        ),
        1,
    ),
)
def test_little_to_show(tmp_path: Path, made: dict[str, Any]) -> None:
    """Still a page with every picture."""
    page = Page(write_report(simulation(tmp_path, made)))
    check_alone(page)
    assert [f for f in page.figures if f != "changes"] == list(PICTURES[1:])


@pytest.mark.nightly
def test_unfinished_jobs_are_said(tmp_path: Path) -> None:
    """A policy that leaves jobs undone cannot be the winner of completion times, and a note says
    so. The same folder makes the same bytes again.
    """
    made = {"mip": tables("mip", finished=2), "greedy": tables("greedy")}
    folder = simulation(tmp_path, made)
    page = Page(write_report(folder))
    assert "mip left 3 jobs unfinished" in page.text
    assert "no policy completes jobs sooner" in page.text
    assert "2 of 5" in page.text
    assert write_report(folder).read_text(encoding="utf-8") == page.source


def test_headline_is_fair(tmp_path: Path) -> None:
    """The headline names who completes jobs soonest, and who is better in something else."""
    folder = simulation(tmp_path, {p: tables(p) for p in ("mip", "static", "greedy")})
    document = json.loads((folder / "results.json").read_text())
    document["policies"]["static"]["efficiency_mean"] = 1.3
    document["policies"]["mip"]["makespan_s"] *= 2
    (folder / "results.json").write_text(json.dumps(document))
    study = read_simulation(folder)
    assert (
        headline(study)
        == "On made-up jobs are done soonest, on average, under <b>mip</b> (−19 % against"
        " greedy). The price, for mip: makespan +75 %. Others have better means in training"
        " efficiency (static) and makespan (greedy)."
    )
    assert [*compare_policies(study)][1].startswith(
        "<b>static</b> against greedy: better in training efficiency +30 %;"
    )


def test_strange_names_are_only_text(tmp_path: Path) -> None:
    """Names with markup, dollars and percent signs stay text in HTML and pictures; a job may be
    called NA.
    """
    made = tables("<b>&$x_1$</b>")
    made["spans"] = [(r[0], "NA", *r[2:]) for r in made["spans"]]
    made["jobs"] = [(r[0], "NA", *r[2:]) for r in made["jobs"]]
    page = Page(write_report(simulation(tmp_path, {"<b>&$x_1$</b>": made})))
    check_alone(page)
    assert "<b>&$x_1$</b>" in page.text and "NA" in page.text


def test_colours_and_order_of_policies() -> None:
    """Twelve known policies have twelve colours; an unknown one is last but for the baseline."""
    assert len({*COLOURS.values()}) == len(COLOURS) == 12
    ordered = order_policies(["zeta", "greedy", "mip", "alpha"], baseline="greedy")
    assert ordered == ["mip", "alpha", "zeta", "greedy"]


def test_faults_of_the_files(tmp_path: Path) -> None:
    """Missing files, missing columns and cells that are no numbers are named with file, line and
    value.
    """
    folder = simulation(tmp_path / "r", {"mip": tables("mip")})
    bench = benchmark(tmp_path / "b", seeds=1, loads=("1",))
    (folder / "spans.csv").unlink()
    for missing, words in (
        (tmp_path / "nowhere", "neither a folder nor a queue"),
        (tmp_path, "holds no results"),
        (folder, r"spans\.csv.* is missing"),
    ):
        with pytest.raises(UsageError, match=words):
            write_report(missing)
    head = "policy,job_id,pool,gpus,from_s,to_s\nmip,a,p,1,0,5\n"
    done = (bench / "results.csv").read_text().replace(",5,5,", ",5,five,", 1)
    for file, text, words in (
        (folder / "spans.csv", "policy,job_id,pool,from_s,to_s\n", 'spans.csv:1: column "gpus" is'),
        (folder / "spans.csv", head + "mip,b,p,two,0,5\n", 'spans.csv:3: gpus "two" is not a'),
        (folder / "results.json", "{", "results.json: is not JSON"),
        (bench / "comparison.csv", "workload,load\n", 'comparison.csv:1: column "change_percent"'),
        (bench / "results.csv", done, 'results.csv:2: finished "five" is not a number'),
        (bench / "results.csv", "", "results.csv:1: has no header"),
    ):
        file.write_text(text)
        with pytest.raises(InvalidInput, match=re.escape(words)):
            write_report(file.parent)


def test_benchmark_that_has_hardly_begun(tmp_path: Path) -> None:
    """No comparison: everything but the changes. No finished task: a page that says so."""
    folder = benchmark(tmp_path, loads=("1",), seeds=1)
    (folder / "comparison.csv").unlink()
    assert Page(write_report(folder)).figures == list(PICTURES[1:])
    head, *_ = (folder / "results.csv").read_text().splitlines()
    (folder / "results.csv").write_text(f"{head}\n")
    assert "No simulation has finished" in Page(write_report(folder)).text


@pytest.mark.nightly
def test_chromium_has_nothing_to_complain_about(tmp_path: Path) -> None:
    """Opened in a browser: no console message, no request. A page with both is told from it."""
    words = [sys.executable, str(ROOT / "scripts" / "check_report"), "--browser", find_chromium()]
    page = write_report(simulation(tmp_path, {p: tables(p) for p in ("mip", "greedy")}))
    clean = subprocess.run([*words, str(page)], capture_output=True, text=True, check=False)
    assert (clean.returncode, clean.stdout) == (0, "")
    page.write_text(
        "<!DOCTYPE html><title>x</title><img src=a.png><script>console.log('hello')</script>"
    )
    found = subprocess.run([*words, str(page)], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "console log: hello" in found.stdout and "/a.png" in found.stdout


def test_waiting_adds_up_to_queueing(tmp_path: Path) -> None:
    """The area under the queue is the sum of the waiting times: 5 jobs of 300 s."""
    study = read_simulation(simulation(tmp_path, {"mip": tables("mip")}))
    length = window(study.runs).length_s
    s = series(study.runs[0], length)
    assert s.waiting.mean() * length == pytest.approx(5 * 300.0)
    assert set(s.capacity) == {32.0} and set(s.cost_of_all) == {64.0}


def test_window_cuts_a_long_tail(tmp_path: Path) -> None:
    """A job on one GPU that runs 200 h longer than 2000 others does not squeeze everything else
    into a corner.
    """
    made = tables("mip", 2000)
    made["spans"][0] = ("mip", "job-0", "a100", 1, 300.0, 2e6)
    made["jobs"][0] = (*made["jobs"][0][:6], 2e6, 300.0, 2e6, *made["jobs"][0][9:])
    found = window(read_simulation(simulation(tmp_path, {"mip": made})).runs)
    assert found.longest_s == 2e6
    assert 1.2e6 < found.length_s < 1.4e6 and "goes on to" in found.words()


def test_rows_below_the_line() -> None:
    """Of a pool of 4 GPUs: a job that stays is one block; one that grows keeps its row."""
    for jobs, gpus, begin, end, blocks in (
        (
            "abbc",
            [2, 1, 1, 1],
            [0.0, 0, 5, 0],
            [5.0, 5, 9, 5],
            [("a", 0, 0, 5), ("b", 2, 0, 9), ("c", 3, 0, 5)],
        ),
        (
            "baa",
            [2, 1, 2],
            [0, 0, 5],
            [5, 5, 9],
            [("a", 1, 5, 9), ("a", 2, 0, 5), ("b", 0, 0, 5)],
        ),
    ):
        held = assign_rows([*jobs], gpus, begin, end, 4)
        assert sorted((jobs[h.span], h.row, h.begin, h.end) for h in held) == blocks


def test_assigned_rows_never_overlap() -> None:
    """Random spans within capacity: no row is held twice, every span gets as many rows as it has
    GPUs.
    """
    rng = np.random.default_rng(0)
    begin = rng.integers(0, 50, 200).astype(float)
    end = begin + rng.integers(1, 10, 200)
    gpus = rng.integers(1, 5, 200)
    blocks = assign_rows(list(range(200)), gpus.tolist(), begin.tolist(), end.tolist(), 8)
    held = [
        (b.row + r, t)
        for b in blocks
        for r in range(b.rows)
        for t in range(int(begin[b.span]), int(end[b.span]))
    ]
    assert len(held) == len(set(held))
    assert [sum(b.rows for b in blocks if b.span == i) for i in range(200)] == gpus.tolist()


def test_numbers() -> None:
    """How numbers read."""
    read = (
        *map(number, (0.0, 1234.5, 12.345, 0.0012345, float("nan"))),
        *map(percent, (-25.4, 4.0, 0.0, 1084.2)),
        *map(duration, (0.012, 42.0, 12_600.0)),
    )
    assert "|".join(read) == "0|1,234|12.3|0.00123|–|−25|+4.0|0.0|+1,084|12 ms|42 s|3.5 h"
    assert time_unit([30.0, 7000.0, 7000.0]) == ("min", 60.0)


def test_typical_seed(tmp_path: Path) -> None:
    """Completion times of the baseline grow with the seed here: of 0 .. 4 the middle one is 2."""
    assert read_benchmark(benchmark(tmp_path, ("1",), 5)).typical_seed("1") == 2
