"""`allocator simulate` as a process: its files, what a kill, Ctrl-C and a full disk leave, and
rounds decided again.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from commands import Output, call
from places import ROOT
from test_cli_process import (
    COMMAND,
    environment,
    family,
    hanging,  # noqa: F401 - a fixture
    workers,
)
from waiting import PATIENCE_S, gone, wait_for
from worlds import workload

from allocator import read_workload, write_workload

DEMO = ROOT / "data" / "workloads" / "demo"
SPOT = ROOT / "data" / "workloads" / "machines-come-and-go"
CUT = ("--policy", "greedy", "--seed", "2")  # of the simulations of SPOT that are cut short
METRICS = [
    "jobs",
    "finished",
    "queue_s_mean",
    "queue_s_median",
    "queue_s_p99",
    "jct_s_mean",
    "jct_s_median",
    "jct_s_p99",
    "makespan_s",
    "efficiency_mean",
    "gpu_hours",
    "dollars",
    "restarts",
    "utilisation",
    "decision_s_mean",
    "decision_s_p99",
    "decision_s_max",
    "gap_mean",
    "gap_max",
    "ftf_mean",
    "ftf_max",
]
# besides docs/reference/rules.md, R52: docs/simulation.md
MORE = ["failures", "rounds", "revocations", "mean_gpus", "bill_dollars", "deadlines_met"]
COLUMNS = {
    "jobs.csv": (
        "policy,job_id,model,tenant,submitted_s,started_s,finished_s,queue_s,jct_s,"
        "efficiency,ftf,restarts,"
        "revocations,gpu_hours,dollars,requested_gpus,total_work"
    ),
    "timeline.csv": "policy,round,at_s,pool,gpus,used,running,queued,price_per_gpu_hour",
    "rounds.csv": (
        "policy,round,at_s,active,queued,changes,value,bound,gap,decision_s,status,fallback,"
        "dollar_price,spent,balance"
    ),
    "spans.csv": "policy,job_id,pool,gpus,from_s,to_s,shared_with",
}
SAME = ("jobs.csv", "timeline.csv", "spans.csv")  # what holds no timings


def process(*argv: object, first: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, argv)],
        capture_output=True,
        text=True,
        env=environment(first=first),
        timeout=120,
        check=False,
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as f:
        return list(csv.DictReader(f))


def bytes_of(out: Path, names: Sequence[str] = SAME) -> list[bytes]:
    return [(out / name).read_bytes() for name in names]


def test_files_and_columns(tmp_path: Path) -> None:
    """A process writes exactly the five files, with the metrics of docs/reference/rules.md, R52,
    and the documented columns; standard output is one JSON document equal to results.json."""
    out = tmp_path / "out"
    done = process("simulate", DEMO, "--policy", "static,greedy", "--out", out, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    results = json.loads(done.stdout)
    assert (out / "results.json").read_text() == done.stdout
    assert sorted(p.name for p in out.iterdir()) == sorted([*COLUMNS, "results.json"])
    assert {k: results[k] for k in ("schema_version", "workload", "seed")} == {
        "schema_version": 1,
        "workload": "demo",
        "seed": 0,
    }
    for name, metrics in results["policies"].items():
        assert set(metrics) == {*METRICS, *MORE}, name
        assert metrics.pop("deadlines_met") is None  # there are none
        assert all(isinstance(v, (int, float)) for v in metrics.values())
    for file, columns in COLUMNS.items():
        assert (out / file).read_text().splitlines()[0] == columns
        assert {r["policy"] for r in rows(out / file)} == {"static", "greedy"}
    for name, m in results["policies"].items():
        jobs = [r for r in rows(out / "jobs.csv") if r["policy"] == name]
        rounds = [r for r in rows(out / "rounds.csv") if r["policy"] == name]
        assert len(jobs) == m["jobs"] == 24 and len(rounds) == m["rounds"]
        assert math.fsum(float(r["jct_s"]) for r in jobs) / 24 == pytest.approx(m["jct_s_mean"])
        assert math.fsum(float(r["decision_s"]) for r in rounds) / len(rounds) == pytest.approx(
            m["decision_s_mean"]
        )


def test_the_table_has_a_column_per_policy(capsys: Output) -> None:
    """For people: jobs done, times, money; data on standard output, nothing else on standard
    error.
    """
    code, out, err = call(capsys, f"simulate {DEMO} --policy greedy,static")
    assert (code, err) == (0, "")
    table = {
        line.split("  ")[0]: line.split("  ", 1)[1].split()
        for line in out.splitlines()
        if "  " in line
    }
    assert table["jobs done"] == ["24", "24", "="] and table[""][:2] == ["greedy", "static"]
    assert "demo: 24 jobs, 16 GPUs in 1 pool" in out


@pytest.mark.parametrize(
    "argv",
    [
        [DEMO, "--policy", "greedy,static"],
        [DEMO, "--policy", "greedy", "static"],
        ["--policy", "greedy,static", DEMO],
        ["--policy", "greedy", "static", DEMO],
        ["--policy", "greedy", "--policy", "static", "--seed", "0", DEMO],
    ],
)
def test_policies_with_commas_or_blanks(capsys: Output, argv: list[object]) -> None:
    """All ways to name two policies, before and after the folder."""
    code, out, _ = call(capsys, "simulate", *argv, "--format", "json", "--until", "600")
    assert code == 0 and list(json.loads(out)["policies"]) == ["greedy", "static"]


def test_a_folder_is_needed(capsys: Output) -> None:
    """None, or only policies: a wrong call that says what is missing."""
    for argv in ([], ["--policy", "greedy"], ["--policy", "greedy", "mip"]):
        code, out, err = call(capsys, "simulate", *argv)
        assert (code, out) == (2, "") and "needs a WORKLOAD" in err


def test_warnings_go_to_standard_error(capsys: Output, tmp_path: Path) -> None:
    """A job that no pool can hold: named on standard error, numbers that do not exist are null,
    exit code 0.
    """
    folder = write_workload(
        tmp_path / "w", workload([{"min_gpus": 8, "max_gpus": 8, "requested_gpus": 8}], gpus=4)
    )
    code, out, err = call(capsys, f"simulate {folder} --policy greedy --format json")
    assert code == 0 and json.loads(out)["policies"]["greedy"]["jct_s_mean"] is None
    assert err.splitlines() == ["warning: greedy: 1 job was never done: j0"]


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["--policy", "gredy"], 2, 'did you mean "greedy"'),
        (["--policy", ","], 2, "nothing in it"),
        (["--policy", "mip,mip"], 2, "named twice"),
        (["--solver", "higs"], 2, "highs"),
        (["--gap", "-1"], 2, "--gap"),
        (["--noise", "x"], 2, "--noise"),
        (["--interval", "0"], 2, "--interval"),
        (["--react", "0"], 2, "--react"),
        (["--keep-snapshots"], 2, "--out"),
        (["--objective", "fun"], 2, "objective"),
        (["--until", "nan"], 2, "--until"),
        (["--seed", "1.5"], 2, "--seed"),
        (["--checkpoint", "-1"], 2, "--checkpoint"),
    ],
)
def test_wrong_calls(capsys: Output, tmp_path: Path, argv: list[str], code: int, says: str) -> None:
    """Wrong policies and values: exit code 2, what is wrong, nothing on standard output, nothing
    written.
    """
    out_too = () if "--keep-snapshots" in argv else ("--out", tmp_path / "o")
    got, out, err = call(capsys, "simulate", DEMO, *out_too, *argv)
    assert (got, out) == (code, "") and says in err and not (tmp_path / "o").exists()


def test_wrong_folders(capsys: Output, tmp_path: Path) -> None:
    """No folder, a faulty one: exit code 3 and lines that name
    files.
    """
    bad = tmp_path / "bad"
    shutil.copytree(DEMO, bad)
    text = (bad / "workload.csv").read_text().replace("gnmt-03,680", "gnmt-03,soon")
    (bad / "workload.csv").write_text(text)
    for folder, says in (
        (tmp_path / "no", "no such folder"),
        (bad, 'workload.csv:4: submitted_s "soon"'),
    ):
        code, out, err = call(capsys, f"simulate {folder} --out {tmp_path / 'o'}")
        assert (code, out) == (3, "") and says in err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("folder", "argv"),
    [
        (DEMO, ["--until", "4000", "--ageing", "1800"]),
        (DEMO, ["--until", "9000", "--sizes", "unknown"]),
        (
            SPOT,
            [
                "--seed",
                "3",
                "--failures",
                "0.1",
                "--misjudged",
                "0.2",
                "--until",
                "5000",
                "--objective",
                "throughput",
            ],
        ),
    ],
)
def test_kept_rounds_are_decided_again_exactly(
    tmp_path: Path, folder: Path, argv: list[str]
) -> None:
    """Every round kept as a snapshot, decided again by `allocator solve` with the printed options:
    the same bytes of plan.csv, round by round; the same value and bound."""
    out = tmp_path / "out"
    done = process(
        "simulate",
        folder,
        "--policy",
        "mip,greedy",
        "--out",
        out,
        "--keep-snapshots",
        "--gap",
        "0.0005",
        *argv,
    )
    assert done.returncode == 0, done.stderr
    told = [
        line
        for line in done.stderr.splitlines()
        if line.startswith("the same decisions again: allocator ")
    ]
    assert len(told) == 2
    for policy, line in zip(("mip", "greedy"), told, strict=True):
        again = tmp_path / policy
        words = line.partition("again: allocator ")[2].split()
        kept = sorted((out / "snapshots" / policy).iterdir())
        at = words.index(f"{out}/snapshots/{policy}/*")
        solved = process(*words[:at], *kept, *words[at + 1 :], "--out", again)
        assert solved.returncode == 0, solved.stderr
        assert [p.name for p in kept] == [f"{n:06d}" for n in range(len(kept))] and len(kept) > 10
        for path in kept:
            assert (again / path.name / "plan.csv").read_bytes() == (
                path / "plan.csv"
            ).read_bytes(), path
            one, two = (
                json.loads((p / "plan.json").read_text()) for p in (path, again / path.name)
            )
            assert [
                one[k] for k in ("digest", "objective_value", "bound", "termination", "seed")
            ] == [two[k] for k in ("digest", "objective_value", "bound", "termination", "seed")]


def killed(n: int, *argv: object) -> int:
    """Run the command in a process that kills itself right before the n-th file of a checkpoint
    would appear.
    """
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom allocator.cli import main\n"
        f"left, replace = [{n}], os.replace\n"
        "def dying(a, b):\n"
        "    left[0] -= Path(b).suffix == '.state'\n"
        "    if left[0] == 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    replace(a, b)\n"
        "os.replace = dying\nsys.exit(main.run(sys.argv[1:]))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, argv)],
        capture_output=True,
        env=environment(),
        timeout=120,
        check=False,
    ).returncode


def test_a_killed_simulation_goes_on(tmp_path: Path) -> None:
    """Killed hard in the first policy, then in the second, then left alone: the bytes of a run
    without a kill, kept rounds included, and no trace of the kills. The first kill strikes while
    the 12th checkpoint is written (11 rounds are kept); the second run writes the rounds left, once
    more at the end of the policy, and dies in its 5th of las.
    """
    argv = [
        "simulate",
        SPOT,
        "--policy",
        "greedy,las",
        "--seed",
        "2",
        "--failures",
        "0.05",
        "--noise",
        "0.1",
        "--until",
        "6000",
        "--keep-snapshots",
        "--out",
    ]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert process(*argv, whole).returncode == 0
    rounds = json.loads((whole / "results.json").read_text())["policies"]["greedy"]["rounds"]
    assert killed(12, *argv, broken, "--checkpoint", "0") == -9
    assert not (broken / "jobs.csv").exists() and (broken / ".state" / "greedy.state").exists()
    assert killed(rounds - 11 + 1 + 5, *argv, broken, "--checkpoint", "0") == -9
    done = process(*argv, broken)
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if "goes on" in line] == [
        f"greedy: goes on after round {rounds}",
        "las: goes on after round 4",
    ]
    assert bytes_of(broken) == bytes_of(whole)
    assert sorted(p.name for p in broken.iterdir()) == sorted(p.name for p in whole.iterdir())
    for path in (whole / "snapshots").rglob("*.csv"):
        assert (broken / path.relative_to(whole)).read_bytes() == path.read_bytes()
    without = (
        {k: v for k, v in r.items() if k != "decision_s"}
        for out in (whole, broken)
        for r in rows(out / "rounds.csv")
    )
    both = list(without)
    assert both[: len(both) // 2] == both[len(both) // 2 :]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What is kept of 19 rounds of SPOT under greedy with seed 2."""
    out = tmp_path_factory.mktemp("checkpoint")
    assert killed(20, "simulate", SPOT, *CUT, "--checkpoint", "0", "--out", out) == -9
    return (out / ".state" / "greedy.state").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """What the same simulation writes that nobody cuts short."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert process("simulate", SPOT, *CUT, "--out", out).returncode == 0
    return bytes_of(out)


@pytest.mark.parametrize("how", ["whole", "capacity", "options", "program", "half", "bit", "empty"])
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
    folder, out, argv = SPOT, tmp_path / "broken", [*CUT]
    if how == "capacity":
        w = read_workload(SPOT)
        folder = write_workload(
            tmp_path / SPOT.name,
            dataclasses.replace(
                w, changes=dataclasses.replace(w.changes, gpus=w.changes.gpus // 8 * 8)
            ),
        )
    elif how == "options":
        argv += ["--react", "60"]
    elif how == "program":
        monkeypatch.setattr("allocator.simulator.checkpoint._program", lambda: "another")
    middle = len(checkpoint) // 2
    (out / ".state").mkdir(parents=True)
    (out / ".state" / "greedy.state").write_bytes(
        {
            "half": checkpoint[:middle],
            "empty": b"",
            "bit": (
                checkpoint[:middle] + bytes((checkpoint[middle] ^ 1,)) + checkpoint[middle + 1 :]
            ),
        }.get(how, checkpoint)
    )
    code, _, err = call(capsys, "simulate", folder, *argv, "--out", out)
    says = "greedy: goes on after round 19" if how == "whole" else "greedy: starts anew"
    assert code == 0 and err.startswith(says) and len(err.splitlines()) == 1
    if how in ("capacity", "options"):
        assert call(capsys, "simulate", folder, *argv, "--out", tmp_path / "whole")[0] == 0
        undisturbed = bytes_of(tmp_path / "whole")
    assert bytes_of(out) == undisturbed and not (out / ".state").exists()


def test_rounds_of_an_earlier_simulation_do_not_stay(capsys: Output, tmp_path: Path) -> None:
    """A shorter simulation into the same folder leaves its own rounds only; other files there
    are left alone.
    """
    out = tmp_path / "out"
    argv = [DEMO, "--policy", "greedy", "--out", out, "--keep-snapshots"]
    assert call(capsys, "simulate", *argv)[0] == 0
    (out / "snapshots" / "greedy" / "notes").write_text("mine")
    assert call(capsys, "simulate", *argv, "--until", "1500")[0] == 0
    assert sorted(p.name for p in (out / "snapshots" / "greedy").iterdir()) == [
        *(f"{n:06d}" for n in range(6)),
        "notes",
    ]


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_interrupted(
    capsys: Output,
    hanging: Path,  # noqa: F811
    tmp_path: Path,
    number: int,
    code: int,
    word: str,
) -> None:
    """Ctrl-C (and a polite kill) while the second policy waits for a solver that hangs: a line how
    to go on, the exit code, no process left, whole checkpoints, no results. Then the same command,
    with a solver that works, goes on."""
    out = tmp_path / "out"
    argv = [
        "simulate",
        str(DEMO),
        "--policy",
        "greedy,mip",
        "--solver",
        "highs",
        "--gap",
        "0",
        "--until",
        "3000",
        "--out",
        str(out),
    ]
    child = subprocess.Popen(
        [*COMMAND, *argv],
        env=environment(first=str(hanging)),
        text=True,
        process_group=0,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_for(lambda: bool(workers(hanging)))
    everyone = family(child.pid)
    os.killpg(child.pid, number)
    said, err = child.communicate(timeout=PATIENCE_S)
    assert (
        (child.returncode, said) == (code, "")
        and err.splitlines()[-1] == word
        and len(err.splitlines()) == 2
    )
    assert err.startswith("greedy kept, mip") and "the same command" in err
    wait_for(lambda: all(map(gone, everyone | set(workers(hanging)))))
    assert [p.name for p in out.iterdir()] == [".state"]
    assert {p.suffix for p in (out / ".state").iterdir()} == {".state"}
    code, _, err = call(capsys, "simulate", *argv[1:])
    assert code == 0 and "greedy: goes on after round" in err
    assert call(capsys, "simulate", *argv[1:-1], tmp_path / "whole")[0] == 0
    assert bytes_of(out) == bytes_of(tmp_path / "whole")


def test_a_full_disk(capsys: Output, tmp_path: Path) -> None:
    """The operating system stops writing half way, first a checkpoint, then the results: one line
    says so with exit code 1, half of no file is left, and with space again the same command goes
    on.
    """
    out, whole = tmp_path / "out", tmp_path / "whole"
    for policies, limit in (("static,greedy", 2000), ("greedy", 3000)):
        code = (
            f"import resource, sys\nresource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
            "from allocator.cli import main\nsys.exit(main.run(sys.argv[1:]))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, "simulate", str(DEMO), "--policy", policies, "--out", out],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            # the limit is for those too
            env=environment(PYTHONDONTWRITEBYTECODE="1"),
        )
        assert (done.returncode, done.stdout) == (1, "") and "no space left" in done.stderr, done
        assert ("the same command starts anew" in done.stderr) == (policies != "greedy")
        assert [p for p in out.rglob("*") if p.is_file()] == []
        assert call(capsys, f"simulate {DEMO} --policy {policies} --out {out}")[0] == 0
        assert call(capsys, f"simulate {DEMO} --policy {policies} --out {whole}")[0] == 0
        assert bytes_of(out) == bytes_of(whole)
        shutil.rmtree(out)


def test_standard_output_that_breaks(tmp_path: Path) -> None:
    """A reader that leaves is no error, a full disk behind standard output is one; the results
    are written anyway.
    """
    argv = [*COMMAND, "simulate", str(DEMO), "--policy", "greedy", "--out"]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone, open("/dev/full", "w") as full:
        for stream, code in ((gone, 0), (full, 1)):
            out = tmp_path / str(code)
            done = subprocess.run(
                [*argv, str(out)],
                stdout=stream,
                stderr=subprocess.PIPE,
                text=True,
                env=environment(),
                timeout=PATIENCE_S,
                check=False,
            )
            assert done.returncode == code and len(done.stderr.splitlines()) == code
            assert (out / "results.json").exists()
