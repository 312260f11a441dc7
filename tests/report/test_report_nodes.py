"""Pictures of nodes: every GPU is drawn once, in the page of a plan and of a simulation."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Output, call
from examples import series
from places import ROOT

from allocator.report.folders import write_report
from allocator.report.nodes import (
    JobPart,
    NodeRow,
    blocks_of,
    draw_nodes,
    find_moment,
    state_at,
)
from allocator.report.runs import read_simulation

SHIPPED = ROOT / "data" / "snapshots"


def test_shares_are_on_their_gpu_and_whole_gpus_in_what_is_left() -> None:
    """Two shares of GPU 1, one of GPU 3; a job of 3 GPUs gets 0, 2 and 4, in three blocks."""
    parts = [
        JobPart("w", "n", 3),
        JobPart("b", "n", 1, 1, 0.25),
        JobPart("a", "n", 1, 1, 0.5),
        JobPart("c", "n", 1, 3, 0.4),
        JobPart("x", "n", 2),
    ]
    found = blocks_of(NodeRow("n", 8), parts)
    said = {f"{b.job} {[*b.cells]} {b.low:.2f}-{b.high:.2f}" for b in found}
    shares = {"a [1] 0.00-0.50", "b [1] 0.50-0.75", "c [3] 0.00-0.40"}
    whole = {"w [0] 0.00-1.00", "w [2] 0.00-1.00", "w [4] 0.00-1.00", "x [5, 6] 0.00-1.00"}
    assert said == shares | whole


@pytest.mark.parametrize("count", series([40, 1, 500], 1))
def test_every_gpu_of_every_node_is_one_cell(count: int) -> None:
    """The picture has a cell for each GPU: of a job, or empty in the colour of the node's state."""
    nodes = [NodeRow(f"n{i}", 8, ("up", "drain", "down")[i % 3]) for i in range(count)]
    parts = [JobPart(f"j{i}", f"n{i}", 1 + i % 8) for i in range(0, count, 3)]
    panels = draw_nodes(nodes, parts).panels
    cells = [mark for panel in panels for mark in panel.marks if mark.kind == "boxes"]
    assert sum(len(mark.x) for mark in cells) == 8 * count
    free = {tip.split(": ")[1] for mark in cells for tip in mark.tips if "j" not in tip}
    assert free == ({"free", "drain", "down"} if count > 1 else set()) or count == 1
    names = [name.split()[0] for panel in panels for name in (panel.y.ticks or {}).values()]
    assert sorted(names) == sorted(node.name for node in nodes)


def test_the_page_of_a_plan(tmp_path: Path, capsys: Output) -> None:
    """The nodes come from the snapshot that was decided, and from no other."""
    plan = tmp_path / "plan"
    assert call(capsys, f"solve {SHIPPED / 'full'} --out {plan}")[0] == 0
    for more, said in (
        ("", "say --snapshot SNAPSHOT"),
        (f"--snapshot {SHIPPED / 'demo'}", "is not one of the snapshot"),
    ):
        code, _, err = call(capsys, f"report {plan} {more}")
        assert code == 2 and said in err
    code, out, _ = call(capsys, f"report {plan} --snapshot {SHIPPED / 'full'}")
    page = Path(out.strip()).read_text(encoding="utf-8")
    assert code == 0 and "Which job gets which GPUs" in page and "t4-0" in page


@pytest.mark.nightly
def test_the_page_of_a_simulation_with_nodes(tmp_path: Path, capsys: Output) -> None:
    """It has fragmentation over time, and who had what at the worst moment."""
    work, out = tmp_path / "w", tmp_path / "out"
    made = f"generate bursty --out {work} --jobs 16 --load 1.4 --nodes-per-rack 2"
    simulated = f"simulate {work} --policy las --prove 0 --out {out} --placement wait"
    for line in (made, simulated):
        assert call(capsys, line)[0] == 0
    page = write_report(out).read_text(encoding="utf-8")
    assert 'id="nodes"' in page and 'id="fragmentation"' in page
    chosen, at_s = find_moment(read_simulation(out).runs)
    nodes, parts = state_at(chosen, at_s)
    row = chosen.frame("fragmentation").query("at_s == @at_s").iloc[0]
    assert sum(node.gpus for node in nodes) - sum(part.gpus for part in parts) == row["free"]
