"""The command line in one process: what goes to standard output, what to standard error, and the
exit codes.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from builders import snapshot, write_folder
from commands import Output, call
from examples import examples
from hypothesis import given, strategies as st
from places import FAULTY, ROOT

from allocator.cli import doctor, main, tables
from allocator.errors import NoPlanInTime
from allocator.io import shipped

SHIPPED = ROOT / "data" / "snapshots"
COMMANDS = (
    "demo",
    "solve",
    "simulate",
    "validate",
    "explain",
    "whatif",
    "doctor",
    "examples",
    "config",
    "completion",
    "schema",
    "generate",
    "import",
    "bench",
    "report",
    "queue",
    "run",
    "serve",
    "history",
    "replay",
    "status",
    "configure",
    "fit",
    "spot",
    "rent",
    "frontier",
    "promise",
    "observe",
    "plan",
    "submit-slurm",
    "admit",
    "rbac",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two jobs that want 8 GPUs each, one pool of 8 at 1 $/h."""
    jobs = [
        {"job_id": "big", "remaining_work": 4800},
        {"job_id": "small", "weight": 2, "remaining_work": 4800},
    ]
    return write_folder(
        snapshot(
            jobs,
            [{"price_per_gpu_hour": 1}],
            tenants=[{"tenant": "default"}],
            config={"interval_s": 300},
        ),
        tmp_path / "pair",
    )


@pytest.mark.parametrize("command", [(), *((c,) for c in COMMANDS)])
def test_help_starts_with_examples(capsys: Output, command: tuple[str, ...]) -> None:
    """Two or three examples first, then usage; exit code 0; nothing on standard error."""
    code, out, err = call(capsys, *command, "--help")
    lines = out.splitlines()
    examples = lines[1 : lines.index("")]
    assert (code, err, lines[0]) == (0, "", "examples:")
    assert 2 <= len(examples) <= 3 and all(e.startswith("  allocator ") for e in examples)


def test_help_loads_nothing_heavy() -> None:
    """Help needs neither numpy nor a solver, that is why it is quick."""
    code = (
        "import sys; from allocator.cli.main import run; run(['solve', '--help']);"
        " print(sorted({*sys.modules, *(m.partition('.')[0] for m in sys.modules)} & {'numpy',"
        " 'scipy', 'pandas', 'rich', 'highspy', 'ortools', 'pulp', 'sqlalchemy', 'subprocess',"
        " 'importlib.metadata'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_lists_exactly_the_commands(capsys: Output) -> None:
    """Every command is listed, and none that does not exist."""
    listed = call(capsys, "--help")[1].partition("COMMAND\n")[2]
    names = [
        line.split()[0]
        for line in listed.splitlines()
        if line.startswith("    ") and line[4] != " "
    ]
    assert sorted(names) == sorted(COMMANDS)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["unknown"],
        ["solve"],
        ["solve", "x", "--gap", "-1"],
        ["solve", "x", "--gap", "nan"],
        ["solve", "x", "--time-limit", "soon"],
        ["solve", "x", "--budget", "inf"],
        ["solve", "x", "--seed", "1.5"],
        ["solve", "x", "--threads", "0"],
        ["solve", "x", "--jobs", "0"],
        ["solve", "x", "--form", "json"],
        ["solve", "x", "--policy", "mpi"],
        ["solve", "x", "--solver", "higs"],
        ["explain", "x"],
        ["schema", "plan"],
    ],
)
def test_wrong_usage_is_2(capsys: Output, argv: list[str]) -> None:
    """Wrong calls are told on standard error, standard output stays empty; abbreviations are not
    guessed.
    """
    code, out, err = call(capsys, *argv)
    assert (code, out) == (2, "") and err


def test_near_names_are_suggested(capsys: Output) -> None:
    """A misspelt policy, solver or job is answered with the nearest one."""
    demo_ = SHIPPED / "demo"
    for argv, name in (
        (("solve", demo_, "--policy", "mpi"), "mip"),
        (("solve", demo_, "--solver", "higs"), "highs"),
        (("explain", demo_, "sweep-x"), "sweep"),
    ):
        code, _, err = call(capsys, *argv)
        assert code == 2 and f'did you mean "{name}' in err


def test_version(capsys: Output) -> None:
    """--version prints the version."""
    assert call(capsys, "--version")[:2] == (0, "allocator 0.1.0\n")


def test_solve_json_is_the_plan_that_out_writes(
    capsys: Output, folder: Path, tmp_path: Path
) -> None:
    """Standard output, plan.json and plan.csv tell the same; the small job with double weight
    gets the GPUs.
    """
    code, out, err = call(capsys, "solve", folder, "--format", "json", "--out", tmp_path / "plans")
    plan = json.loads(out)
    assert (code, err) == (0, "")
    assert (tmp_path / "plans" / "plan.json").read_text() == out
    assert {j["job_id"]: j["gpus"] for j in plan["jobs"]} == {"big": 0, "small": 8}
    assert (plan["status"], plan["objective_value"]) == ("optimal", pytest.approx(1.0))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "plans" / "plan.csv").read_text())))
    assert [r["action"] for r in rows] == ["wait", "start"]


def test_solve_csv(capsys: Output, folder: Path) -> None:
    """--format csv prints the jobs part."""
    rows = list(csv.DictReader(io.StringIO(call(capsys, "solve", folder, "--format", "csv")[1])))
    assert [(r["job_id"], r["gpus"]) for r in rows] == [("big", "0"), ("small", "8")]


def test_solve_options_reach_the_decision(capsys: Output, folder: Path) -> None:
    """Budget 4 $/h leaves 4 GPUs; policy, objective, seed and solver are those asked for."""
    plan = json.loads(
        call(
            capsys,
            "solve",
            folder,
            "--format",
            "json",
            "--budget",
            4,
            "--objective",
            "throughput",
            "--seed",
            7,
            "--solver",
            "cpsat",
            "--gap",
            0,
            "--time-limit",
            60,
        )[1]
    )
    assert sum(j["gpus"] for j in plan["jobs"]) == 4
    assert (plan["objective"], plan["seed"], plan["policy"]) == ("throughput", 7, "mip")
    greedy = json.loads(call(capsys, "solve", folder, "--format", "json", "--policy", "greedy")[1])
    assert greedy["policy"] == "greedy" and greedy["bound"] >= greedy["objective_value"]


def test_table_shows_everything_uncut(capsys: Output, tmp_path: Path) -> None:
    """A piped table cuts nothing, however long a name; control characters cannot reach the
    terminal.
    """
    long = "x" * 300
    folder = write_folder(snapshot([{"job_id": long}, {}]), tmp_path / "s")
    code, out, _ = call(capsys, "solve", folder)
    assert code == 0 and long in out
    assert tables.text("red\x1b[31m") == "red\\x1b[31m"
    for word in (
        "value",
        "best possible at most",
        "gap",
        "optimal",
        "cost",
        "pools",
        "tenants",
        "price",
    ):
        assert word in out


def test_warnings_come_before_faults(capsys: Output, tmp_path: Path) -> None:
    """A misspelt column: that it is ignored, then that the column is missing; of one snapshot, of
    one in a batch, of a table on its own, and of jobs for a queue."""
    name = "fault-column-misspelt"
    ignored = (
        'jobs.csv:1: column "remaning_work" is not known and is ignored; did you mean'
        ' "remaining_work"?'
    )
    missing = 'jobs.csv:1: column remaining_work is missing; did you mean "remaning_work"?'
    for command in ("validate", "solve", "promise"):
        assert call(capsys, command, FAULTY / name) == (3, "", f"warning: {ignored}\n{missing}\n")
    _, _, err = call(capsys, "solve", FAULTY / name, SHIPPED / "demo")
    assert err.splitlines() == [f"{name}: warning: {ignored}", f"{name}: {missing}"]
    (tmp_path / "classes.csv").write_text("name,lod\nx,1\n")
    code, _, err = call(capsys, "rent", tmp_path / "classes.csv", "--budget", 1)
    assert code == 3 and err.startswith("warning: ") and "is missing" in err
    assert call(capsys, "queue", "init", tmp_path / "q.db", "--from", SHIPPED / "demo")[0] == 0
    (tmp_path / "jobs.csv").write_text("job_id,model,total_work,max_gpus,wieght\nx,none,-9,1,2\n")
    code, _, err = call(capsys, "queue", "import-csv", tmp_path / "q.db", tmp_path / "jobs.csv")
    assert code == 3 and err.startswith('warning: jobs.csv:1: column "wieght" is not known')
    assert 'total_work -9 must be above 0 (job "x")' in err


def test_warnings_go_to_standard_error(capsys: Output) -> None:
    """The snapshot that uses every column warns about what plans cannot do yet; the data stays
    clean.
    """
    code, out, err = call(capsys, "solve", SHIPPED / "full", "--format", "json")
    assert code == 0 and "warning: " in err
    assert json.loads(out)["warnings"] == [
        line.removeprefix("warning: ") for line in err.splitlines()
    ]


def test_log_of_the_solver(capsys: Output, tmp_path: Path) -> None:
    """--log keeps what the solver itself had to say."""
    log = tmp_path / "logs" / "highs.txt"
    code, out, _ = call(capsys, "solve", SHIPPED / "demo", "--solver", "highs", "--log", log)
    assert code == 0 and "objective progress, highs" in out and "HiGHS" in log.read_text()


def test_invalid_input_is_3_and_writes_nothing(capsys: Output, tmp_path: Path) -> None:
    """All faults, one line each, where they are; no plan, no folder. validate says the same."""
    folder = write_folder(
        snapshot([{"min_gpus": 4, "max_gpus": 2}, {"job_id": "j0", "model": "mm"}]),
        tmp_path / "bad",
    )
    code, out, err = call(capsys, "solve", folder, "--out", tmp_path / "plans")
    assert (code, out) == (3, "") and not (tmp_path / "plans").exists()
    assert 'jobs.csv:2: max_gpus 2 is below min_gpus 4 (job "j0")' in err.splitlines()
    assert any(line.startswith("jobs.csv:3: ") for line in err.splitlines())
    assert call(capsys, "validate", folder) == (3, "", err)


def test_validate_counts_what_is_there(capsys: Output, folder: Path) -> None:
    """A valid snapshot is summed up in one line."""
    assert call(capsys, "validate", folder) == (
        0,
        "valid: 2 jobs, 1 pool, 8 GPUs, 1 tenant, 1 model, 4 rates\n",
        "",
    )


def test_infeasible_is_4(capsys: Output) -> None:
    """Rules that clash are named with the smallest relaxation."""
    code, out, err = call(capsys, "solve", FAULTY / "infeasible-guarantees-above-capacity")
    assert (code, out) == (4, "") and "in conflict" in err and "smallest relaxation" in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoPlanInTime("no plan in 1 s"), 5),
        (ZeroDivisionError("1 / 0"), 1),
        (MemoryError(), 1),
        (RecursionError("deep\nstack"), 1),
        (PermissionError(13, "Permission denied", "x.csv"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_whatever_happens_is_one_line(
    capsys: Output, folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    """Errors of every kind end in one line and their exit code, without a traceback; with
    ALLOCATOR_DEBUG=1 the internal ones show one."""

    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise error

    monkeypatch.setattr("allocator.engine.decision.decide", fail)
    got, out, err = call(capsys, "solve", folder)
    assert (got, out, len(err.splitlines())) == (code, "", 1)
    monkeypatch.setenv("ALLOCATOR_DEBUG", "1")
    assert ("Traceback" in call(capsys, "solve", folder)[2]) == (code == 1)


def test_batch_goes_on_after_a_failure(capsys: Output, folder: Path, tmp_path: Path) -> None:
    """A line each in the given order; plans below DIR/NAME; the gravest exit code (3 is graver
    than 4).
    """
    bad = write_folder(snapshot([{"max_gpus": 0}]), tmp_path / "bad")
    stuck = FAULTY / "infeasible-fixed-above-budget"
    code, out, err = call(capsys, "solve", stuck, bad, folder, "--out", tmp_path / "plans")
    assert code == 3
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["infeasible-fixed-above-budget", "infeasible"],
        ["bad", "invalid"],
        ["pair", "optimal"],
    ]
    assert [p.name for p in (tmp_path / "plans").iterdir()] == ["pair"]
    assert "bad: jobs.csv:2: max_gpus 0 is below 1" in err


@pytest.mark.parametrize("jobs", [1, 2])
def test_batch_json_lines_and_csv(capsys: Output, folder: Path, tmp_path: Path, jobs: int) -> None:
    """One JSON object or CSV row per snapshot, the same whether decided in turn or side by side."""
    again = write_folder(snapshot([{}]), tmp_path / "again")
    gone = tmp_path / "gone"
    code, out, _ = call(capsys, "solve", folder, gone, again, "--format", "json", "--jobs", jobs)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 3
    assert [(s["snapshot"], s["exit_code"], s["status"]) for s in lines] == [
        ("pair", 0, "optimal"),
        ("gone", 3, "invalid"),
        ("again", 0, "optimal"),
    ]
    assert lines[0]["objective_value"] == pytest.approx(1.0) and lines[0]["bound"] == pytest.approx(
        1.0
    )
    rows = list(
        csv.DictReader(
            io.StringIO(call(capsys, "solve", folder, again, "--format", "csv", "--jobs", jobs)[1])
        )
    )
    assert [r["status"] for r in rows] == ["optimal", "optimal"]


def test_batch_refuses_plans_over_each_other(capsys: Output, folder: Path, tmp_path: Path) -> None:
    """Two snapshots of one name and --out: a wrong call, before anything is decided."""
    other = write_folder(snapshot([{}]), tmp_path / "elsewhere" / "pair")
    assert call(capsys, "solve", folder, other, "--out", tmp_path / "plans")[0] == 2
    assert call(capsys, "solve", folder, other, "--log", tmp_path / "log")[0] == 2
    assert not (tmp_path / "plans").exists()


def test_a_child_that_dies_costs_one_snapshot(
    capsys: Output, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first child process kills itself: its snapshot is reported, another child does the
    rest.
    """
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nif mkdir "{tmp_path}/died" 2>/dev/null; then kill -9 $$; fi\n'
        f'exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    others = [write_folder(snapshot([{}]), tmp_path / name) for name in ("b", "c", "d")]
    monkeypatch.setattr(sys, "executable", str(python))
    code, out, err = call(capsys, "solve", folder, *others, "--jobs", "2")
    assert code == 1 and "the process that worked on it died" in err
    assert sorted(line.split()[1] for line in out.splitlines()) == [
        "error",
        "optimal",
        "optimal",
        "optimal",
    ]


def test_explain(capsys: Output, folder: Path) -> None:
    """The waiting job is explained, as text and as JSON; an unknown one is a wrong call."""
    code, out, _ = call(capsys, "explain", folder, "big")
    assert code == 0 and out.startswith("big waits: ") and "reason: " in out
    told = json.loads(call(capsys, "explain", folder, "big", "--format", "json")[1])
    assert told["job_id"] == "big" and told["got"]["gpus"] == 0
    assert call(capsys, "explain", folder, "nobody")[0] == 2


def test_schema(capsys: Output) -> None:
    """Both schemas are JSON and name the documented fields."""
    assert "jobs.csv" in json.dumps(json.loads(call(capsys, "schema")[1]))
    assert "objective_value" in json.loads(call(capsys, "schema", "result")[1])["properties"]


def test_demo_shows_both_plans(capsys: Output) -> None:
    """Every job with both choices, both values, the gain; the trace under both policies, where MIP
    is better and where worse, the queue in digits; and commands that exist."""
    code, out, _ = call(capsys, "demo")
    assert code == 0
    jobs = [r["job_id"] for r in csv.DictReader((SHIPPED / "demo" / "jobs.csv").open())]
    assert all(any(line.startswith(j) for line in out.splitlines()) for j in jobs)
    assert "7.14" in out and "3.71" in out and "+92 %" in out
    shown = {line[:26].strip(): line.split()[-4:] for line in out.splitlines() if line}
    one, other, change, unit = shown["mean queueing, min"]
    assert (
        100 * (float(one) / float(other) - 1) == pytest.approx(float(change), abs=1) and unit == "%"
    )
    assert f"mean queueing ({change} %)" in out.partition("MIP is better in ")[2].partition("\n")[0]
    assert "p99 completion (" in out.partition("It is worse in ")[2].partition("\n")[0]
    queues = {
        line.split()[0]: line.split()[1]
        for line in out.partition("one digit per round\n")[2].splitlines()[:2]
    }
    assert set(queues) == {"mip", "greedy"} and all(
        set(q) <= set("0123456789+") for q in queues.values()
    )
    tried = [line.split() for line in out.partition("try next:")[2].splitlines() if line]
    assert all(words[0] == "allocator" and words[1] in COMMANDS for words in tried)


def test_demo_says_so_when_its_data_is_missing(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An installation without the snapshot: one line, exit code 1."""
    monkeypatch.setattr(shipped, "__file__", str(tmp_path / "a" / "b" / "shipped.py"))
    code, out, err = call(capsys, "demo")
    assert (code, out) == (1, "") and "data/snapshots/demo is missing" in err


def test_doctor_finds_this_installation_well(capsys: Output) -> None:
    """Every check is ok, or a warning about something optional."""
    code, out, _ = call(capsys, "doctor")
    assert code == 0
    assert all(line.startswith(("ok ", "warning ")) for line in out.splitlines())
    assert all(
        f"{name} " in out for name in ("Python", "highs", "cpsat", "pulp", "demo snapshot: value")
    )
    assert "demo trace: 24 of 24 jobs done" in out


def test_doctor_tells_what_is_not_well(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is missing and a solver that answers wrongly: not ok, exit code 1."""
    monkeypatch.setattr(doctor, "NEEDED", ("numpy", "no-such-package"))
    monkeypatch.setattr(doctor, "SOLVERS", {"highs": "highspy"})
    monkeypatch.setattr(doctor, "ORDERS", (("no_such_module", "highs"),))
    import dataclasses

    model = doctor.tiny_model()
    monkeypatch.setattr(
        doctor, "tiny_model", lambda: dataclasses.replace(model, value=-model.value)
    )
    code, out, _ = call(capsys, "doctor")
    sick = [line for line in out.splitlines() if line.startswith("not ok")]
    assert code == 1 and len(sick) == 3
    assert (
        "no-such-package is not installed" in sick[0]
        and "highs" in sick[1]
        and "no_such_module" in sick[2]
    )


def test_runs_outside_the_main_thread(folder: Path) -> None:
    """A program may call it from any thread: signals are then left alone."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main.run(["validate", str(folder)])))
    thread.start()
    thread.join()
    assert codes == [0]


WORDS = st.sampled_from(
    [
        "schema",
        "--format",
        "json",
        "csv",
        "text",
        "--gap",
        "0",
        "--jobs",
        "1",
        "--out",
        "--solver",
        "--policy",
        "greedy",
        "marginal",
        "--budget",
        "3",
        "-h",
        "--",
        "-",
        "",
        "é\udcff",
        "\x00",
        "9" * 30,
        "big",
        "PAIR",
        "BAD",
        "PAIR",
    ]
)


@examples(50, 150)
@given(
    st.tuples(st.sampled_from(COMMANDS[1:4]), st.sampled_from(["PAIR", "BAD", "-h"])),
    st.lists(WORDS, max_size=6),
)
def test_any_words_end_in_an_exit_code(
    capsys: Output, folder: Path, tmp_path: Path, first: tuple[str, str], words: list[str]
) -> None:
    """Random command lines never raise, never trace back, and give a documented exit code
    (docs/reference/rules.md, R45)."""
    places = {
        "PAIR": str(folder),
        "BAD": str(tmp_path / "nowhere"),
        "--out": f"--out={tmp_path / 'plans'}",
    }
    code, _, err = call(capsys, *(places.get(w, w) for w in (*first, *words)))
    assert code in (0, 2, 3) and "Traceback" not in err and "internal error:" not in err
