"""The repository does not grow: each part keeps within its budget."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts.benchmarks.measure_size import count_tokens, measure

# Budgets only go down. `python scripts/benchmarks/measure_size.py --budgets` prints this table for
# the present state.
BUDGETS = {
    "allocator, tokens": 4_673,
    "allocator/audit, tokens": 16_151,
    "allocator/bench, tokens": 30_843,
    "allocator/cli, tokens": 52_977,
    "allocator/clusters, tokens": 38_998,
    "allocator/controller, tokens": 31_243,
    "allocator/domain, tokens": 43_869,
    "allocator/engine, tokens": 46_682,
    "allocator/executors, tokens": 32_646,
    "allocator/io, tokens": 41_802,
    "allocator/loop, tokens": 3_138,
    "allocator/market, tokens": 10_489,
    "allocator/options, tokens": 33_185,
    "allocator/performance, tokens": 31_789,
    "allocator/policies, tokens": 26_268,
    "allocator/queue, tokens": 38_612,
    "allocator/report, tokens": 34_507,
    "allocator/server, tokens": 33_294,
    "allocator/simulator, tokens": 25_585,
    "allocator/solvers, tokens": 15_193,
    "allocator/valuation, tokens": 2_415,
    "docs, pages": 25,
    "docs, words": 56_011,
    "formulations, tokens": 2_788,
    "formulations/bounds, tokens": 17_207,
    "formulations/branching, tokens": 9_705,
    "formulations/colocation, tokens": 6_690,
    "formulations/deadlines, tokens": 3_189,
    "formulations/horizon, tokens": 5_082,
    "formulations/lookahead, tokens": 1_344,
    "formulations/model, tokens": 11_399,
    "formulations/objectives, tokens": 7_692,
    "formulations/placement, tokens": 4_953,
    "formulations/primal, tokens": 14_274,
    "formulations/rental, tokens": 5_045,
    "formulations/transient, tokens": 6_515,
    "scripts, tokens": 27_502,
    "tests, tokens": 438_698,
}


def test_each_part_keeps_within_its_budget() -> None:
    """A package or a part that has no budget has none to spend."""
    above = {
        name: f"{count:,}, and the budget is {BUDGETS.get(name, 0):,}"
        for name, count in measure().items()
        if count > BUDGETS.get(name, 0)
    }
    assert above == {}


def test_every_budget_is_of_something() -> None:
    """A budget of what is gone goes."""
    assert set(BUDGETS) - set(measure()) == set()


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
