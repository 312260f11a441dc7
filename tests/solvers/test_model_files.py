"""Models on disk: what other solvers read from our MPS and LP files, and the neutral file."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import Output, call
from examples import examples
from hypothesis import given, strategies as st
from models import INF, dense
from places import ROOT

from allocator.bench.solvers.instances import EVERYTHING, generate
from allocator.errors import InvalidInput, UsageError
from allocator.io.performance_models import (
    LABEL,
    read_instance,
    row_names,
    write_instance,
    write_model,
)
from allocator.io.published_models import read_knapsacks
from allocator.solvers import registry
from allocator.solvers.base import SolveLimits
from formulations.model.linear import LinearModel, RowFamily
from formulations.model.single_round import build_model

READ = """
import json, sys, highspy
for path in sys.argv[1:]:
    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    h.setOptionValue("mip_rel_gap", 0.0)
    ok = h.readModel(path) == highspy.HighsStatus.kOk
    lp = h.getLp()
    h.run()
    print(json.dumps({"ok": ok, "columns": list(lp.col_names_), "rows": list(lp.row_names_),
                      "maximise": lp.sense_ == highspy.ObjSense.kMaximize,
                      "status": h.modelStatusToString(h.getModelStatus()),
                      "objective": h.getInfo().objective_function_value,
                      "x": list(h.getSolution().col_value)}))
"""


def read_by_highs(*paths: Path) -> list[dict]:
    """What HiGHS reads from files and finds as their optimum, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", READ, *map(str, paths)], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def odd() -> LinearModel:
    """Two binaries, one free, one general, one fixed column; a ranged, an equal, an unbounded and a
    ">=" row.

    max 3 a + 2 b - y + 0 g + 2 f:  1 <= a + b <= 1.5;  y - g = -4.25;  g >= 2;  y unbounded below;
        g in -7 .. 3;  f = .5.
    Best: a = 1, b = 0; y = g - 4.25 is smallest at g = 2: y = -2.25, so the value is 3 + 2.25 + 1 =
        6.25.
    """
    model = dense(
        [3, 2, -1, 0, 2],
        [
            (1, [1, 1, 0, 0, 0], 1.5),
            (-4.25, [0, 0, 1, -1, 0], -4.25),
            (-INF, [1, 1, 1, 1, 0], INF),
            (2, [0, 0, 0, 1, 0], INF),
        ],
    )
    return replace(
        model,
        col_lower=np.array([0.0, 0, -INF, -7, 0.5]),
        col_upper=np.array([1.0, 1, INF, 3, 0.5]),
        integer=np.array([True, True, False, True, False]),
        families=(RowFamily("churn", 0, ["", "größe a/b", "größe:a b", "5"]),),
    )


def test_odd_rows_bounds_and_names_survive(tmp_path: Path) -> None:
    """Free, general and fixed columns, every kind of row and names no format allows: the optimum
    found by hand.
    """
    paths = [write_model(odd(), tmp_path / f"m{suffix}") for suffix in (".mps", ".lp")]
    for seen in read_by_highs(*paths):
        assert seen["ok"] and seen["maximise"] and len(seen["columns"]) == 5
        assert seen["objective"] == pytest.approx(6.25) and seen["x"][2] == pytest.approx(-2.25)
    own = registry.get("highs").solve(odd(), SolveLimits(gap=0.0))
    assert own.objective == pytest.approx(6.25)


@examples(30, 300)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=20))
def test_any_label_becomes_a_legal_and_unique_name(labels: list[str]) -> None:
    """Whatever jobs are called: short, ASCII, not like a number or a keyword, and never the same
    twice.
    """
    model = dense([1.0], [(-INF, [1.0], 1.0)] * len(labels))
    names = row_names(replace(model, families=(RowFamily("quota", 0, labels),)))
    assert len(set(names)) == len(names)
    for name in names:
        assert name.isascii() and name[0].isalpha() and len(name) <= LABEL + 20
        assert not {*name} - {*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."}


def test_neutral_file_gives_the_same_model(tmp_path: Path) -> None:
    """Every array, family and label comes back, bit by bit; twice the same bytes."""
    for name, model in (
        ("odd", odd()),
        ("round", build_model(generate((30, 24, 3), 0, EVERYTHING))),
        ("none", dense([], [])),
    ):
        path = write_instance(model, tmp_path / f"{name}.npz")
        assert write_instance(read_instance(path), tmp_path / "read.npz").read_bytes() == (
            path.read_bytes()
        )
        assert write_model(model, tmp_path / "again.npz").read_bytes() == path.read_bytes()


DAMAGE = {
    "format": np.array("other"),
    "value": np.array([1, None], dtype=object),  # pickled: nothing of a file is executed
    "index": np.array([0, 0, 7]),
    "coef": np.array([1.0, np.inf, 1.0]),
    "lower": np.array([np.nan, 0.0]),
    "row_label": np.array(["a"]),
}


def test_damaged_neutral_files_are_refused(tmp_path: Path) -> None:
    """Every fault is InvalidInput that names the file; nothing of a file is executed."""
    path = write_instance(dense([1, 2], [(-INF, [1, 1], 1), (0, [0, 1], 1)]), tmp_path / "m.npz")
    whole = dict(np.load(path))
    broken = [whole | {name: array} for name, array in DAMAGE.items()]
    for arrays in [*broken, {"format": whole["format"]}]:
        np.savez(path, **arrays)
        with pytest.raises(InvalidInput, match=r"m\.npz"):
            read_instance(path)
    path.write_text("no archive")
    for wrong in (path, tmp_path / "gone" / "m.npz"):
        with pytest.raises(InvalidInput, match=r"m\.npz"):
            read_instance(wrong)


def test_other_endings_and_impossible_rows_are_refused(tmp_path: Path) -> None:
    """.txt is no format; a row that wants more than it may is nothing MPS can say. No file is
    left.
    """
    with pytest.raises(UsageError, match=r"\.mps, \.lp"):
        write_model(odd(), tmp_path / "m.txt")
    with pytest.raises(UsageError, match="above upper bound"):
        write_model(dense([1.0], [(2.0, [1.0], 1.0)]), tmp_path / "m.mps")
    assert list(tmp_path.iterdir()) == []


def test_solve_writes_the_rounds_model(tmp_path: Path, capsys: Output) -> None:
    """--write-model with a normal solve; what HiGHS finds in the files is the value of the
    plan. Another ending, or a batch: a wrong call, exit code 2, and no file.
    """
    demo, paths = ROOT / "data" / "snapshots" / "demo", [tmp_path / "m.mps", tmp_path / "m.lp"]
    words = ("solve", demo, "--gap", 0, "--format", "json", "--write-model")
    values = [json.loads(call(capsys, *words, path)[1])["objective_value"] for path in paths]
    for value, seen in zip(values, read_by_highs(*paths), strict=True):
        assert seen["objective"] == pytest.approx(value)
        assert all(name.startswith("x_") for name in seen["columns"])
    for words in ((demo, "m.xyz"), (demo, demo, "n.lp")):
        code, out, _ = call(capsys, "solve", *words[:-1], "--write-model", tmp_path / words[-1])
        assert (code, out) == (2, "") and sorted(tmp_path.iterdir()) == sorted(paths)


HEAD = {3: "2 2 1", 4: "1 2 2 1", 2: "2 2", 1: "1\n2 2"}  # groups, columns, rows; agents, jobs
CHOICES = "5\n1\n3 2\n9 4\n2\n4 2\n10.00 4\n"
ASSIGNMENT = "3 4\n9 10\n2 2\n4 4\n4 5\n"


@pytest.mark.parametrize(
    ("text", "best", "plan"),
    [
        (f"\n {HEAD[3]} \n{CHOICES} opt = 7", [7.0], [0, 2]),
        (f"{HEAD[4]}\t\n{CHOICES}" * 2, [7.0, 7.0], [0, 2]),
        # the first agent has room for both jobs, at 3 and 4
        (f"{HEAD[2]}\n{ASSIGNMENT}", [-7.0], [0, 2]),
        (f"{HEAD[1]}\n{ASSIGNMENT}", [-7.0], [0, 2]),
    ],
)
def test_published_knapsacks_by_hand(
    tmp_path: Path, text: str, best: list[float], plan: list[int]
) -> None:
    """Values 3, 9 and 4, 10 for 2 and 4 of 5 units: only the first of both fit together."""
    path = tmp_path / "I01"
    path.write_text(text)
    models = read_knapsacks(path)
    answers = [registry.get("highs").solve(model, SolveLimits(gap=0.0)) for model in models]
    assert [answer.objective for answer in answers] == best
    assert np.flatnonzero(answers[0].values).tolist() == plan
    path.write_text(text.replace("4\n", "", 1))
    with pytest.raises(InvalidInput, match="I01"):
        read_knapsacks(path)
