"""The repository does not grow: each part keeps within its budget."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts.benchmarks.measure_size import count_tokens, measure

# Budgets only go down. `python scripts/benchmarks/measure_size.py --budgets` prints this table for
# the present state.
BUDGETS = {
    "allocator, tokens": 4_679,
    "allocator/audit, tokens": 12_771,
    "allocator/bench, tokens": 31_496,
    "allocator/cli, tokens": 43_257,
    "allocator/clusters, tokens": 40_828,
    "allocator/controller, tokens": 28_450,
    "allocator/domain, tokens": 35_529,
    "allocator/engine, tokens": 46_526,
    "allocator/executors, tokens": 28_140,
    "allocator/io, tokens": 41_078,
    "allocator/loop, tokens": 2_588,
    "allocator/market, tokens": 10_339,
    "allocator/options, tokens": 31_607,
    "allocator/performance, tokens": 28_661,
    "allocator/policies, tokens": 28_148,
    "allocator/queue, tokens": 34_599,
    "allocator/report, tokens": 22_624,
    "allocator/server, tokens": 29_166,
    "allocator/simulator, tokens": 23_574,
    "allocator/solvers, tokens": 14_953,
    "allocator/valuation, tokens": 2_373,
    "docs, pages": 24,
    "docs, words": 49_999,
    "formulations, tokens": 3_076,
    "formulations/bounds, tokens": 15_801,
    "formulations/branching, tokens": 12_816,
    "formulations/colocation, tokens": 5_768,
    "formulations/deadlines, tokens": 3_037,
    "formulations/horizon, tokens": 4_255,
    "formulations/lookahead, tokens": 1_142,
    "formulations/model, tokens": 11_166,
    "formulations/objectives, tokens": 7_225,
    "formulations/placement, tokens": 7_427,
    "formulations/primal, tokens": 13_009,
    "formulations/rental, tokens": 4_738,
    "formulations/transient, tokens": 5_957,
    "scripts, tokens": 29_951,
    "tests, tokens": 349_824,
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
