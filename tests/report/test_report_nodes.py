"""Pictures of nodes: every GPU is drawn once, in the page of a plan and of a simulation."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import series
from places import ROOT

from allocator.cli.main import run
from allocator.report.charts import style
from allocator.report.folders import write_report
from allocator.report.nodes.cells import (
    JobPart,
    NodeRow,
    blocks_of,
    choose_colours,
    draw_nodes,
)
from allocator.report.nodes.simulated import find_moment, state_at
from allocator.report.runs import read_simulation

FULL = str(ROOT / "data" / "snapshots" / "full")


def test_shares_are_on_their_gpu_and_whole_gpus_in_what_is_left() -> None:
    """Two shares of GPU 1, one of GPU 3; a job of 3 GPUs gets 0, 2 and 4, in three blocks."""
    parts = [
        JobPart("w", "n", 3),
        JobPart("b", "n", 1, 1, 0.25),
        JobPart("a", "n", 1, 1, 0.5),
        JobPart("c", "n", 1, 3, 0.4),
        JobPart("x", "n", 2),
    ]
    found = {
        (b.part.job, *b.cells, round(b.low, 2), round(b.high, 2))
        for b in blocks_of(NodeRow("n", 8), parts)
    }
    assert found == {
        ("a", 1, 0, 0.5),
        ("b", 1, 0.5, 0.75),
        ("c", 3, 0, 0.4),
        ("w", 0, 0, 1),
        ("w", 2, 0, 1),
        ("w", 4, 0, 1),
        ("x", 5, 6, 0, 1),
    }


def test_jobs_near_each_other_have_other_colours() -> None:
    """500 rows of three jobs: no two of a row, or of neighbouring rows, are alike; few colours."""
    rows = [[f"j{3 * i}", f"j{3 * i + 1}", f"j{3 * i + 2}"] for i in range(500)]
    shades = choose_colours(rows)
    for before, row in zip([[], *rows], rows, strict=False):
        near = [shades[job] for job in (*before, *row)]
        assert len(set(near)) == len(near)
    assert len(set(shades.values())) < 20


@pytest.mark.parametrize("count", series([40, 1, 500], 1))
def test_every_gpu_of_every_node_is_one_cell(count: int) -> None:
    """The picture has a cell for each GPU: of a job, or empty in the colour of the node's state."""
    nodes = [NodeRow(f"n{i}", 8, ("up", "drain", "down")[i % 3]) for i in range(count)]
    parts = [JobPart(f"j{i}", f"n{i}", 1 + i % 8) for i in range(0, count, 3)]
    with style.report_style():
        drawn = draw_nodes(nodes, parts)
        paths = [p.get_path() for p in drawn.axes[0].patches]
        names = {text.get_text() for text in drawn.axes[0].texts}
    assert sum(len(path.vertices) for path in paths) == 5 * 8 * count
    assert {node.name for node in nodes} <= names


def test_the_page_of_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The nodes come from the snapshot that was decided, and from no other."""
    plan = str(tmp_path / "plan")
    assert run(["solve", FULL, "--out", plan]) == 0
    capsys.readouterr()
    assert run(["report", plan]) == 2
    assert "say --snapshot SNAPSHOT" in capsys.readouterr().err
    assert run(["report", plan, "--snapshot", str(ROOT / "data" / "snapshots" / "demo")]) == 2
    assert "is not one of the snapshot" in capsys.readouterr().err
    assert run(["report", plan, "--snapshot", FULL]) == 0
    page = Path(capsys.readouterr().out.strip()).read_text(encoding="utf-8")
    assert "Which job gets which GPUs" in page and "t4-0" in page


def test_the_page_of_a_simulation_with_nodes(tmp_path: Path) -> None:
    """It has fragmentation over time, and who had what at the worst moment."""
    folder, out = str(tmp_path / "w"), tmp_path / "out"
    made = ["generate", "bursty", "--out", folder, "--jobs", "40", "--load", "1.4"]
    assert run([*made, "--nodes-per-rack", "2"]) == 0
    simulated = ["simulate", folder, "--policy", "las,srtf", "--prove", "0", "--out", str(out)]
    assert run([*simulated, "--placement", "wait"]) == 0
    page = write_report(out).read_text(encoding="utf-8")
    assert 'id="nodes"' in page and 'id="fragmentation"' in page
    study = read_simulation(out)
    chosen, at_s = find_moment(study, study.runs)
    nodes, parts = state_at(study, chosen, at_s)
    row = study.frame(chosen, "fragmentation").query("at_s == @at_s").iloc[0]
    assert sum(node.gpus for node in nodes) - sum(part.gpus for part in parts) == row["free"]
