"""`allocator simulate` as a process: its files, what a kill, Ctrl-C and a full disk leave, and
rounds decided again.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from commands import Output, call
from examples import series
from places import ROOT
from test_cli_process import (
    environment,
    hanging,  # noqa: F401 - a fixture
)
from waiting import PATIENCE_S

from allocator import read_workload, write_workload
from allocator.cli import main

DEMO = ROOT / "data" / "workloads" / "demo"
SPOT = ROOT / "data" / "workloads" / "machines-come-and-go"
CUT = "--policy greedy --seed 2 --until 4000"  # of the simulations of SPOT that are cut short
METRICS = (  # docs/reference/rules.md, R52, and docs/simulation.md
    "jobs finished queue_s_mean queue_s_median queue_s_p99 jct_s_mean jct_s_median jct_s_p99"
    " makespan_s efficiency_mean gpu_hours dollars restarts utilisation decision_s_mean"
    " decision_s_p99 decision_s_max gap_mean gap_max ftf_mean ftf_max failures rounds revocations"
    " mean_gpus bill_dollars"
)
COLUMNS = {
    "jobs.csv": (
        "policy,job_id,model,tenant,submitted_s,started_s,finished_s,queue_s,jct_s,efficiency,ftf,"
        "restarts,revocations,gpu_hours,dollars,requested_gpus,total_work"
    ),
    "timeline.csv": "policy,round,at_s,pool,gpus,used,running,queued,price_per_gpu_hour",
    "rounds.csv": (
        "policy,round,at_s,active,queued,changes,value,bound,gap,decision_s,status,fallback,"
        "dollar_price,spent,balance"
    ),
    "spans.csv": "policy,job_id,pool,gpus,from_s,to_s,shared_with",
}
SAME = ("jobs.csv", "timeline.csv", "spans.csv")  # what holds no timings


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def process(code: str, *argv: object, **more: str) -> subprocess.CompletedProcess[str]:
    """`allocator` with these words in a process that does `code` first."""
    run = "import sys\nfrom allocator.cli import main\nsys.exit(main.run(sys.argv[1:]))\n"
    return subprocess.run(
        [sys.executable, "-c", code + run, *map(str, argv)],
        capture_output=True,
        text=True,
        env=environment(**more),
        timeout=PATIENCE_S,
        check=False,
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as f:
        return list(csv.DictReader(f))


def bytes_of(out: str, names: Sequence[str | Path] = SAME) -> list[bytes]:
    return [Path(out, name).read_bytes() for name in names]


def test_files_and_columns(capsys: Output) -> None:
    """Exactly the five files, with the metrics of docs/reference/rules.md, R52, and the documented
    columns; standard output is one JSON document equal to results.json."""
    code, said, err = call(capsys, f"simulate {DEMO} --policy static,greedy --out out --json")
    results, out = json.loads(said), Path("out")
    assert (code, err, (out / "results.json").read_text()) == (0, "", said)
    assert {p.name for p in out.iterdir()} == {*COLUMNS, "results.json"}
    assert [results[k] for k in ("schema_version", "workload", "seed")] == [1, "demo", 0]
    for file, columns in COLUMNS.items():
        assert (out / file).read_text().splitlines()[0] == columns
        assert {r["policy"] for r in rows(out / file)} == {"static", "greedy"}
    for name, m in results["policies"].items():
        assert m.pop("deadlines_met") is None  # there are none
        assert set(m) == {*METRICS.split()} and m["jobs"] == 24
        assert all(isinstance(v, (int, float)) for v in m.values())
        for file, key, count in (("jobs", "jct_s", "jobs"), ("rounds", "decision_s", "rounds")):
            cells = [float(r[key]) for r in rows(out / f"{file}.csv") if r["policy"] == name]
            assert len(cells) == m[count]
            assert math.fsum(cells) / len(cells) == pytest.approx(m[f"{key}_mean"])


@pytest.mark.parametrize(
    "words",
    series(
        [
            "--policy greedy --policy static --seed 0 {}",
            "{} --policy greedy,static",
            "--policy greedy static {}",
        ],
        1,
    ),
)
def test_a_table_with_a_column_per_policy(capsys: Output, words: str) -> None:
    """However the policies are named. For people: jobs done, times, money; nothing on standard
    error."""
    code, out, err = call(capsys, f"simulate {words.format(DEMO)}")
    assert (code, err) == (0, "")
    lines = (line.split("  ", 1) for line in out.splitlines() if "  " in line)
    table = {name: cells.split() for name, cells in lines}
    assert table["jobs finished"] == ["24", "24", "="] and table[""][:2] == ["greedy", "static"]
    assert "demo: 24 jobs, 16 GPUs in 1 pool" in out


AGAIN = (
    f"{SPOT} --until 4000 --seed 3 --failures 0.1 --misjudged 0.2 --objective throughput",
    f"{DEMO} --until 3000 --ageing 1800 --sizes unknown",
)


@pytest.mark.parametrize("words", series(AGAIN, 1))
def test_kept_rounds_are_decided_again_exactly(capsys: Output, words: str) -> None:
    """Every round kept as a snapshot, decided again by `allocator solve` with the printed options:
    the same bytes of plan.csv, round by round; the same value and bound."""
    argv = f"{words} --policy mip,greedy --out out --keep-snapshots --gap 0.0005"
    code, _, err = call(capsys, f"simulate {argv}")
    told = re.findall(r"^the same decisions again: allocator (.*)$", err, re.MULTILINE)
    assert code == 0 and len(told) == 2
    for policy, line in zip(("mip", "greedy"), told, strict=True):
        kept = sorted(Path("out", "snapshots", policy).iterdir())
        assert [p.name for p in kept] == [f"{n:06d}" for n in range(len(kept))] and len(kept) > 10
        again = line.replace(f"out/snapshots/{policy}/*", " ".join(map(str, kept)))
        assert again != line and call(capsys, f"{again} --out {policy}")[0] == 0
        for path in kept:
            one, two = (folder / "plan.csv" for folder in (path, Path(policy, path.name)))
            assert one.read_bytes() == two.read_bytes(), path
            first, second = (json.loads(p.with_suffix(".json").read_text()) for p in (one, two))
            for name in ("digest", "objective_value", "bound", "termination", "seed"):
                assert first[name] == second[name]


def killed(n: int, words: str) -> int:
    """Run the command in a process that kills itself right before the n-th file of a checkpoint
    would appear.
    """
    code = (
        "import os, signal\nfrom pathlib import Path\n"
        f"left, replace = [{n}], os.replace\n"
        "def dying(a, b):\n"
        "    left[0] -= Path(b).suffix == '.state'\n"
        "    if left[0] == 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    replace(a, b)\n"
        "os.replace = dying\n"
    )
    return process(code, *words.split()).returncode


@pytest.mark.nightly
def test_a_killed_simulation_goes_on(capsys: Output) -> None:
    """Killed hard in the first policy, then in the second, then left alone: the bytes of a run
    without a kill, kept rounds included, and no trace of the kills. The first kill strikes while
    the 12th checkpoint is written (11 rounds are kept); the second run writes the rounds left, once
    more at the end of the policy, and dies in its 5th of las.
    """
    argv = (
        f"simulate {SPOT} --policy greedy,las --seed 2 --failures 0.05 --noise 0.1 --until 4500"
        " --keep-snapshots --out"
    )
    whole, broken = Path("whole"), Path("broken")
    assert call(capsys, f"{argv} whole")[0] == 0
    rounds = json.loads((whole / "results.json").read_text())["policies"]["greedy"]["rounds"]
    for n in (12, rounds - 11 + 1 + 5):
        assert killed(n, f"{argv} broken --checkpoint 0") == -9
        assert not (broken / "jobs.csv").exists() and (broken / ".state" / "greedy.state").exists()
    code, _, err = call(capsys, f"{argv} broken")
    assert code == 0
    assert [line for line in err.splitlines() if "goes on" in line] == [
        f"greedy: goes on after round {rounds}",
        "las: goes on after round 4",
    ]
    kept = [path.relative_to(whole) for path in (whole / "snapshots").rglob("*.csv")]
    assert bytes_of("broken", (*SAME, *kept)) == bytes_of("whole", (*SAME, *kept))
    assert {p.name for p in broken.iterdir()} == {p.name for p in whole.iterdir()}
    one, two = (
        [{**r, "decision_s": ""} for r in rows(out / "rounds.csv")] for out in (whole, broken)
    )
    assert one == two


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """What SPOT under greedy with seed 2 gives without a checkpoint."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert main.run(f"simulate {SPOT} {CUT} --out {out}".split()) == 0
    return bytes_of(str(out))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What is kept of 9 rounds of SPOT under greedy with seed 2."""
    out = tmp_path_factory.mktemp("checkpoint")
    assert killed(10, f"simulate {SPOT} {CUT} --checkpoint 0 --out {out}") == -9
    return (out / ".state" / "greedy.state").read_bytes()


HOW = ["whole", "options", "bit", "capacity", "program", "half", "empty"]


@pytest.mark.parametrize("how", series(HOW, 3))
def test_checkpoints_that_do_not_fit_are_ignored(
    capsys: Output,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    checkpoint: bytes,
    undisturbed: list[bytes],
    how: str,
) -> None:
    """A checkpoint of a workload that has changed since, of other options, of another version of
    the program, cut, with one bit flipped: the simulation says so, starts anew and is right. Only
    the whole one of this very simulation is used."""
    folder, argv = SPOT, CUT
    if how == "capacity":
        w = read_workload(SPOT)
        changes = dataclasses.replace(w.changes, gpus=w.changes.gpus // 8 * 8)
        folder = write_workload(tmp_path / SPOT.name, dataclasses.replace(w, changes=changes))
    elif how == "options":
        argv += " --react 60"
    elif how == "program":
        monkeypatch.setattr("allocator.simulator.checkpoint._program", lambda: "another")
    middle = len(checkpoint) // 2
    bit = bytes((checkpoint[middle] ^ 1,))
    state = tmp_path / "broken" / ".state"
    state.mkdir(parents=True)
    (state / "greedy.state").write_bytes(
        {
            "half": checkpoint[:middle],
            "empty": b"",
            "bit": checkpoint[:middle] + bit + checkpoint[middle + 1 :],
        }.get(how, checkpoint)
    )
    code, _, err = call(capsys, f"simulate {folder} {argv} --out broken")
    says = "greedy: goes on after round 9" if how == "whole" else "greedy: starts anew"
    first, *rest = err.splitlines()
    assert code == 0 and first.startswith(says)
    assert all("never done" in line for line in rest)
    if argv != CUT or folder != SPOT:
        assert call(capsys, f"simulate {folder} {argv} --out other")[0] == 0
        undisturbed = bytes_of("other")
    assert bytes_of("broken") == undisturbed and not state.exists()


@pytest.mark.parametrize("case", series([("static,greedy", 2000), ("greedy", 3000)], 0))
def test_a_full_disk(case: tuple[str, int], capsys: Output) -> None:
    """The operating system stops writing half way, first a checkpoint, then the results: one line
    says so with exit code 1, half of no file is left, and with space again the same command goes
    on.
    """
    policies, limit = case
    code = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
    argv = f"simulate {DEMO} --policy {policies} --out"
    # the limit is for those too
    done = process(code, *argv.split(), "full", PYTHONDONTWRITEBYTECODE="1")
    assert (done.returncode, done.stdout) == (1, "") and "no space left" in done.stderr, done
    assert ("the same command starts anew" in done.stderr) == (policies != "greedy")
    assert [p for p in Path("full").rglob("*") if p.is_file()] == []
    for out in ("full", "whole"):
        assert call(capsys, f"{argv} {out}")[0] == 0
    assert bytes_of("full") == bytes_of("whole")
