"""The shipped workloads are what their generators make and show what their pages say."""

from __future__ import annotations

from pathlib import Path

from cases.small import shipped_folders
from folders import content
from places import ROOT

from allocator.io.workloads import read_workload
from allocator.simulator.run import simulate

DATA = ROOT / "data" / "workloads"
NAMES = ("bursty", "demo", "diurnal", "machines-come-and-go", "mixed", "reproduction")


def test_regenerating_changes_no_byte(tmp_path: Path) -> None:
    """The generators write exactly the committed folders, which the page of the folder lists."""
    for made in shipped_folders():
        made.write(tmp_path / made.name)
    written, committed = content(tmp_path), content(DATA)
    assert sorted(written) == sorted(committed)
    assert [name for name in written if written[name] != committed[name]] == []
    page = (DATA / "README.md").read_text(encoding="utf-8")
    for tables in shipped_folders():
        assert f"| `{tables.name}` | {len(tables.tables['workload.csv']['job_id'])} |" in page


def test_demo_shows_what_its_page_says() -> None:
    """24 jobs on 16 GPUs in under three hours; MIP's mean completion time is about a third below
    greedy's, and the last job ends a little later."""
    workload = read_workload(DATA / "demo")
    greedy, mip = (simulate(workload, policy=p).metrics for p in ("greedy", "mip"))
    assert (len(workload.problem.jobs.job_id), workload.problem.pools.gpus.sum()) == (24, 16)
    assert greedy["finished"] == mip["finished"] == 24
    assert 0.58 < mip["jct_s_mean"] / greedy["jct_s_mean"] < 0.72
    assert 1.0 < mip["makespan_s"] / greedy["makespan_s"] < 1.05
    assert mip["makespan_s"] < 3 * 3_600
