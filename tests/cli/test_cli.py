"""The command line in one process: what goes to standard output, what to standard error, and the
exit codes.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import snapshot, write_folder
from commands import Output, call
from examples import examples
from hypothesis import given, strategies as st
from places import FAULTY, ROOT

from allocator.cli import doctor, main, output
from allocator.cli.parsing import find_commands
from allocator.errors import NoPlanInTime

SHIPPED = ROOT / "data" / "snapshots"
COMMANDS = sorted({words[0] for words, _ in find_commands(main.parser())})
HEAVY = "numpy scipy pandas rich highspy ortools pulp sqlalchemy subprocess argcomplete"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two jobs that want 8 GPUs each, one pool of 8 at 1 $/h."""
    jobs = [{"job_id": "big"}, {"job_id": "small", "weight": 2}]
    return write_folder(
        snapshot(
            [{**job, "remaining_work": 4800} for job in jobs],
            [{"price_per_gpu_hour": 1}],
            tenants=[{"tenant": "default"}],
            config={"interval_s": 300},
        ),
        tmp_path / "pair",
    )


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_help_starts_with_examples() -> None:
    """Examples first, which name the command, then usage."""
    top = main.parser()
    for words, program in (((), top), *find_commands(top)):
        lines = program.format_help().splitlines()
        shown = lines[1 : lines.index("")]
        assert lines[0] == "examples:" and len(shown) <= 5, words
        assert shown[0].startswith(" ".join(("  allocator", *words)))


def test_help_is_light_and_lists_every_command(capsys: Output) -> None:
    """Help loads neither numpy nor a solver nor a configuration: that is why it is quick."""
    code = (
        "import sys; from allocator.cli.main import run;"
        " run(['solve', '--help']); run(['queue', 'list', '--help']);"
        f" print({{m.partition('.')[0] for m in sys.modules}} & {{*{HEAVY!r}.split()}})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines()[-1] == b"set()"
    listed = call(capsys, "--help")[1].partition("COMMAND\n")[2].splitlines()
    names = [line.split()[0] for line in listed if line.startswith("    ") and line[4] != " "]
    assert sorted(names) == COMMANDS
    assert call(capsys, "--version")[:2] == (0, "allocator 0.1.0\n")


WRONG = """
                                              -> COMMAND
solve                                         -> SNAPSHOT
solve x --gap -1                              -> --gap
solve x --gap nan                             -> --gap
solve x --time-limit soon                     -> --time-limit
solve x --budget inf                          -> --budget
solve x --seed 1.5                            -> --seed
solve x --threads 0                           -> --threads
solve x --jobs 0                              -> --jobs
solve x --form json                           -> --form
explain x                                     -> JOB
schema plan                                   -> plan
solve data/snapshots/demo --policy mpi        -> did you mean "mip
solve data/snapshots/demo --policy Tiresias   -> did you mean "las
solve data/snapshots/demo --solver higs       -> did you mean "highs
explain data/snapshots/demo sweep-x           -> did you mean "sweep
slove x                                       -> did you mean "solve"?
queue lst x                                   -> did you mean "list"?
queue node drian x                            -> did you mean "drain"?
solve x --tim-limit 3                         -> did you mean "--time-limit"?
solve x --tim-limit=3                         -> did you mean "--time-limit"?
queue submit x --max-gpu 3                    -> did you mean "--max-gpus"?
simulate x --victims yongest                  -> did you mean "youngest"?
solve x --format jsn                          -> did you mean "json"?
run x --every 0                               -> not a number
run x --every 60 --once                       -> not allowed with
run x --cooldown -1 --once                    -> not a number
run x --policy best --once                    -> policy
run x --solver best --once                    -> solver
run x --executor ssh                          -> unknown executor "ssh" (known: dry-run, files,
simulate                                      -> needs a WORKLOAD
simulate --policy greedy mip                  -> needs a WORKLOAD
simulate data/workloads/demo --policy gredy   -> did you mean "greedy"
simulate data/workloads/demo --policy ,       -> nothing in it
simulate data/workloads/demo --policy mip,mip -> named twice
simulate data/workloads/demo --gap -1         -> --gap
simulate data/workloads/demo --noise x        -> --noise
simulate data/workloads/demo --interval 0     -> --interval
simulate data/workloads/demo --react 0        -> --react
simulate data/workloads/demo --keep-snapshots -> --out
simulate data/workloads/demo --objective fun  -> objective
simulate data/workloads/demo --until nan      -> --until
simulate data/workloads/demo --checkpoint -1  -> --checkpoint
solve x --gap 5%                              -> 5% is not a number >= 0
solve x --seed two                            -> two is not a whole number from 0
frontier x --keep much                        -> much is not a number >= 0
frontier x --keep 120%                        -> 120% is no share from 0% to 100%
queue submit x --max-gpus 4 python train.py   -> write -- before the command
import slurm x --gpus a100:16 --out y         -> a100:16 is not a whole number
spot fit hazard x --ages 0,x                  -> write numbers with commas
examples demos                                -> did you mean "demo"?
whatif data/snapshots/demo --set pools.h.gpus=2 -> a new one needs gpu_type, too
demo --sabotage                               -> --sabotage needs --live
demo --dir x                                  -> --dir needs --live
"""


@pytest.mark.parametrize("case", WRONG.strip("\n").splitlines())
def test_wrong_usage_is_2(capsys: Output, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """Wrong calls are told on standard error with the nearest name, standard output stays empty;
    abbreviations are not guessed."""
    monkeypatch.chdir(ROOT)
    line, said = case.split(" -> ")
    code, out, err = call(capsys, *line.split())
    assert (code, out) == (2, "") and said in err


def test_solve_json_is_the_plan_that_out_writes(
    capsys: Output, folder: Path, tmp_path: Path
) -> None:
    """Standard output, plan.json and plan.csv tell the same; the small job with double weight
    gets the GPUs. --format csv prints the jobs part.
    """
    plans = tmp_path / "plans"
    code, out, err = call(capsys, f"solve {folder} --format json --out {plans}")
    plan = json.loads(out)
    assert (code, err, (plans / "plan.json").read_text()) == (0, "", out)
    assert {j["job_id"]: j["gpus"] for j in plan["jobs"]} == {"big": 0, "small": 8}
    assert (plan["status"], plan["objective_value"]) == ("optimal", pytest.approx(1.0))
    written = (plans / "plan.csv").read_text()
    assert [r["action"] for r in rows(written)] == ["wait", "start"]
    assert call(capsys, f"solve {folder} --format csv")[1] == written


def test_solve_options_reach_the_decision(capsys: Output, folder: Path, tmp_path: Path) -> None:
    """Budget 4 $/h leaves 4 GPUs; policy, objective, seed and solver are those asked for; --log
    keeps what the solver itself had to say."""
    more = "--objective throughput --seed 7 --solver cpsat --gap 0 --time-limit 60"
    plan = json.loads(call(capsys, f"solve {folder} --json --budget 4 {more}")[1])
    assert sum(j["gpus"] for j in plan["jobs"]) == 4
    assert (plan["objective"], plan["seed"], plan["policy"]) == ("throughput", 7, "mip")
    greedy = json.loads(call(capsys, f"solve {folder} --json --policy greedy")[1])
    assert greedy["policy"] == "greedy" and greedy["bound"] >= greedy["objective_value"]
    log = tmp_path / "logs" / "highs.txt"
    code, out, _ = call(capsys, f"solve {SHIPPED / 'demo'} --solver highs --log {log}")
    assert code == 0 and "objective progress, highs" in out and "HiGHS" in log.read_text()


def test_table_shows_everything_uncut(capsys: Output, tmp_path: Path) -> None:
    """A piped table cuts nothing, however long a name; control characters cannot reach the
    terminal.
    """
    long = "x" * 300
    folder = write_folder(snapshot([{"job_id": long}, {}]), tmp_path / "s")
    code, out, _ = call(capsys, f"solve {folder}")
    assert code == 0
    assert output.text("red\x1b[31m") == "red\\x1b[31m"
    words = (long, "value", "best possible at most", "gap", "optimal", "cost", "pools", "price")
    assert [word for word in words if word not in out] == []


def test_warnings_come_before_faults(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelt column: that it is ignored, then that the column is missing; of one snapshot, of
    one in a batch, of a table on its own, and of jobs for a queue."""
    monkeypatch.chdir(tmp_path)
    name = "fault-column-misspelt"
    _, _, err = call(capsys, f"solve {FAULTY / name} {SHIPPED / 'demo'}")
    ignored, missing = err.splitlines()
    assert ignored.startswith(f'{name}: warning: jobs.csv:1: column "remaning_work" is not known')
    assert missing.startswith(f"{name}: jobs.csv:1: column remaining_work is missing")
    said = f"{ignored}\n{missing}\n".replace(f"{name}: ", "")
    assert call(capsys, f"promise {FAULTY / name}") == (3, "", said)
    call(capsys, f"queue init q.db --from {SHIPPED / 'demo'}")
    Path("table.csv").write_text("job_id,model,total_work,max_gpus,wieght\nx,none,-9,1,2\n")
    for command in ("rent table.csv --budget 1", "queue import-csv q.db table.csv"):
        code, _, err = call(capsys, command)
        assert code == 3 and err.startswith("warning: ") and "warning: " not in err.splitlines()[-1]


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

    monkeypatch.setattr("allocator.cli.plan.batch.decide", fail)
    got, out, err = call(capsys, f"solve {folder}")
    assert (got, out, len(err.splitlines())) == (code, "", 1)
    monkeypatch.setenv("ALLOCATOR_DEBUG", "1")
    assert ("Traceback" in call(capsys, f"solve {folder}")[2]) == (code == 1)


def test_a_batch(capsys: Output, folder: Path, tmp_path: Path) -> None:
    """A line each in the given order, as table, JSON and CSV, whether decided in turn or side by
    side; plans below DIR/NAME; it goes on after a failure, and the gravest exit code counts (3 is
    graver than 4). Two snapshots of one name and --out are a wrong call."""
    bad = write_folder(snapshot([{"max_gpus": 0}]), tmp_path / "bad")
    stuck, plans = FAULTY / "infeasible-fixed-above-budget", tmp_path / "plans"
    batch = f"solve {stuck} {bad} {tmp_path / 'gone'} {folder}"
    names = "infeasible-fixed-above-budget", "bad", "gone", "pair"
    expected = [*zip(names, ("infeasible", "invalid", "invalid", "optimal"), strict=True)]
    for jobs in (1, 2):
        code, out, err = call(capsys, f"{batch} --out {plans} --jobs {jobs}")
        assert code == 3 and [tuple(line.split()[:2]) for line in out.splitlines()] == expected
        assert [p.name for p in plans.iterdir()] == ["pair"]
        assert "bad: jobs.csv:2: max_gpus 0 is below 1" in err
        shutil.rmtree(plans)
    lines = [json.loads(s) for s in call(capsys, f"{batch} --json")[1].splitlines()]
    assert [(s["snapshot"], s["status"]) for s in lines] == expected
    assert [s["exit_code"] for s in lines] == [4, 3, 3, 0]
    assert lines[3]["objective_value"] == pytest.approx(1.0) == lines[3]["bound"]
    table = rows(call(capsys, f"{batch} --format csv")[1])
    assert [r["status"] for r in table] == [status for _, status in expected]
    other = write_folder(snapshot([{}]), tmp_path / "elsewhere" / "pair")
    for option in ("--out", "--log"):
        assert call(capsys, f"solve {folder} {other} {option} {plans}")[0] == 2
    assert not plans.exists()


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
    others = [write_folder(snapshot([{}]), tmp_path / name) for name in "bc"]
    monkeypatch.setattr(sys, "executable", str(python))
    code, out, err = call(capsys, "solve", folder, *others, "--jobs", "2")
    assert code == 1 and "the process that worked on it died" in err
    assert sorted(line.split()[1] for line in out.splitlines()) == ["error", "optimal", "optimal"]


def test_demo_shows_both_plans(capsys: Output) -> None:
    """Every job with both choices, both values, the gain; the trace under both policies, where MIP
    is better and where worse, the queue in digits; and commands that exist."""
    code, out, _ = call(capsys, "demo")
    assert code == 0 and [w for w in ("7.14", "3.71", "+92 %") if w not in out] == []
    jobs = [r["job_id"] for r in rows((SHIPPED / "demo" / "jobs.csv").read_text())]
    assert [job for job in jobs if f"\n{job}" not in out] == []
    one, other, change = re.search(r"\nqueueing, min +(\S+) +(\S+) +(\S+) %", out).groups()
    assert 100 * (float(one) / float(other) - 1) == pytest.approx(float(change), abs=1)
    assert f" queueing ({change} %)" in out.partition("MIP is better in")[2]
    assert re.search(r"It is worse in .*p99 completion \(", out)
    assert re.search(r"one digit per round\nmip +[\d+]+\b.*\ngreedy +[\d+]+\b", out)
    tried = re.findall(r"^ +allocator (\S+)", out.partition("try next:")[2], re.MULTILINE)
    assert tried and {*tried} <= {*COMMANDS}


def test_doctor_tells_what_is_not_well(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is missing and a solver that answers wrongly: not ok, exit code 1."""
    monkeypatch.setattr(doctor, "NEEDED", ("numpy", "no-such-package"))
    monkeypatch.setattr(doctor, "SOLVERS", ("highs",))
    monkeypatch.setattr(doctor, "ORDERS", (("no_such_module", "highs"),))
    monkeypatch.setattr(doctor, "BEST", 9.0)
    code, out, _ = call(capsys, "doctor")
    sick = [line for line in out.splitlines() if line.startswith("not ok")]
    words = ("no-such-package is not installed", "highs", "no_such_module")
    assert code == 1 and all(w in line for w, line in zip(words, sick, strict=True))


SAID = "schema --format json csv text --gap 0 --jobs 1 --out --solver --policy greedy --budget 3"
WORDS = [*SAID.split(), "-h", "--", "-", "", "é\udcff", "\x00", "9" * 30, "big", "PAIR", "BAD"]


@examples(15, 150)
@given(
    st.tuples(
        st.sampled_from(["solve", "simulate", "validate"]), st.sampled_from(["PAIR", "BAD", "-h"])
    ),
    st.lists(st.sampled_from(WORDS), max_size=6),
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
