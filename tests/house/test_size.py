"""The repository does not grow: each part keeps within its budget."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts.benchmarks.measure_size import count_tokens, measure

# Budgets only go down. `python scripts/benchmarks/measure_size.py --budgets` prints this table for
# the present state.
BUDGETS = {
    "allocator, tokens": 4_649,
    "allocator/audit, tokens": 14_676,
    "allocator/bench, tokens": 34_218,
    "allocator/cli, tokens": 50_844,
    "allocator/clusters, tokens": 44_127,
    "allocator/controller, tokens": 30_684,
    "allocator/domain, tokens": 39_242,
    "allocator/engine, tokens": 46_626,
    "allocator/executors, tokens": 31_209,
    "allocator/io, tokens": 44_335,
    "allocator/loop, tokens": 3_106,
    "allocator/market, tokens": 10_916,
    "allocator/options, tokens": 34_364,
    "allocator/performance, tokens": 31_641,
    "allocator/policies, tokens": 29_092,
    "allocator/queue, tokens": 35_812,
    "allocator/report, tokens": 26_457,
    "allocator/server, tokens": 31_211,
    "allocator/simulator, tokens": 25_432,
    "allocator/solvers, tokens": 15_042,
    "allocator/valuation, tokens": 2_268,
    "docs, pages": 24,
    "docs, words": 49_977,
    "formulations, tokens": 2_788,
    "formulations/bounds, tokens": 17_036,
    "formulations/branching, tokens": 9_724,
    "formulations/colocation, tokens": 6_623,
    "formulations/deadlines, tokens": 3_157,
    "formulations/horizon, tokens": 5_031,
    "formulations/lookahead, tokens": 1_330,
    "formulations/model, tokens": 11_325,
    "formulations/objectives, tokens": 7_615,
    "formulations/placement, tokens": 7_437,
    "formulations/primal, tokens": 14_708,
    "formulations/rental, tokens": 4_995,
    "formulations/transient, tokens": 6_450,
    "scripts, tokens": 29_508,
    "tests, tokens": 349_897,
}


def test_each_part_keeps_within_its_budget() -> None:
    """A package or a part that has no budget has none to spend; a budget of what is gone goes."""
    there = measure()
    above = {
        name: f"{count:,}, and the budget is {BUDGETS.get(name, 0):,}"
        for name, count in there.items()
        if count > BUDGETS.get(name, 0)
    }
    assert above == {}
    assert BUDGETS.keys() == there.keys()


def test_counts_by_hand(tmp_path: Path) -> None:
    """A docstring, x, =, 1 and the end are five tokens; comments, lines and files that git does not
    know count nothing; a script without a suffix counts."""
    text = '"""Two words."""\n\n# a comment\nx = 1\n'
    names = ("allocator/__init__.py", "allocator/io/a.py", "scripts/tool.py", "tests/new.py")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "scripts" / "check").write_text(f"#!/usr/bin/env python3\n{text}")
    (tmp_path / "scripts" / "test").write_text("#!/usr/bin/env bash\necho x = 1\n")
    for name in ("docs/reference/rules.md", "docs/limits.md", "docs/more.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("# Three words\n")
    for words in (["init", "-q"], ["add", ".", ":!tests"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    assert count_tokens(tmp_path / "tests" / "new.py") == 5
    assert measure(tmp_path) == {
        "allocator, tokens": 5,
        "allocator/io, tokens": 5,
        "docs, pages": 2,
        "docs, words": 6,
        "scripts, tokens": 10,
    }
