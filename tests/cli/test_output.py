"""What every command prints with --json, --quiet and --verbose, and what it says of misspelt words.

Each command runs once, in the order of the list, in one folder. The list is compared with the
parser: a command that is not in it fails the test.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from commands import Output, call
from places import FAULTY, ROOT

from allocator.cli import doctor, main
from allocator.cli.parsing import find_commands

DEMO = "data/snapshots/demo"
QUEUE = "cluster.db"
# in their order, each with its words in the folder of the test
RUNS = dict(
    re.findall(
        r"^([a-z -]+): ?(.*)$",
        f"""
demo:
doctor:
examples:
config:
completion: bash
solve: {DEMO} --out plan
explain: {DEMO} llm-tune
whatif: {DEMO} --set budget_per_hour=24
validate: {DEMO}
promise: {DEMO}
frontier: {DEMO} --points 3
schema:
observe: ray --answers answers --out look-again
plan: look --as ray --plan look-plan
submit-slurm: --show -- --gres=gpu:2 train.sh
admit: --once
rbac: advise
queue init: {QUEUE} --from {DEMO}
queue submit: {QUEUE} --job-id new --model bert --total-work 9e6 --max-gpus 8
queue list: {QUEUE}
queue show: {QUEUE} new
queue change: {QUEUE} new --weight 2
queue hold: {QUEUE} new
queue release: {QUEUE} new
queue cancel: {QUEUE} new
queue retry: {QUEUE} new
queue import-csv: {QUEUE} more.csv
queue export-csv: {QUEUE}
queue pools: {QUEUE}
queue costs: {QUEUE}
queue config: {QUEUE}
queue purge: {QUEUE} --older-than 90
queue cluster: {QUEUE} --from {DEMO}
queue export: {QUEUE} now
queue tenant list: {QUEUE}
queue tenant set: {QUEUE} research --max-gpus 8
queue reserve add: {QUEUE} r --pool v100 --gpus 2 --at 6h --tenant research
queue reserve list: {QUEUE}
queue reserve cancel: {QUEUE} r
queue node list: {QUEUE}
queue node add: {QUEUE} n1 --pool a100 --gpus 8
queue node set: {QUEUE} n1 --label rack=r1
queue node up: {QUEUE} n1
queue node drain: {QUEUE} n1
queue node down: {QUEUE} n1
queue node remove: {QUEUE} n1
queue token add: {QUEUE} ann --role operator
queue token list: {QUEUE}
queue token revoke: {QUEUE} 1
run: {QUEUE} --once --executor files --state actor --grace 0
queue adopt: {QUEUE} --executor files --state actor
shadow watch: {DEMO} shadow.db --rounds 1
shadow report: shadow.db
history: {QUEUE}
replay: {QUEUE}
status: {QUEUE}
configure: {DEMO} pretrain
fit: data/examples/observations.csv
spot plan: data/spot/resnet32.csv --work 64000
spot fit: line data/examples/checkpoints.csv
spot servers: data/examples/servers/measured.csv
spot features: data/examples/features.csv
spot hazards: data/examples/regions/hazards.csv --pools data/examples/regions/pools.csv
rent: data/rental/example.csv --budget 2
simulate: data/workloads/demo --policy greedy --until 3000
generate: bursty --jobs 5 --out made
import csv: log.csv --map submitted_s=at --map duration_s=length --map gpus=n --gpus 8 --out \
imported
import slurm: data/examples/traces/history.txt --out history
assess: history
import spot-events: events.txt --out spots
bench solvers: --sizes 6x8x2 --seeds 1 --engines greedy --limit 5 --out solvers
bench policies: --workloads data/workloads/demo --policies greedy --seeds 1 --out sweep
report: {QUEUE} --last 1
""",
        re.MULTILINE,
    )
)
SAME = {  # imports: one that is run, and those with the same function
    "csv": "auto philly sia alibaba-openb gavel kueue prometheus",
    "spot-events": "spot-counts spot-held spot-prices spot-log catalog",
}
COMMANDS = [*find_commands(main.parser())]
PROGRAMS = [" ".join(words) for words, _ in COMMANDS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which all commands run; answers of a cluster stand for the cluster."""
    here = tmp_path_factory.mktemp("output")
    (here / "data").symlink_to(ROOT / "data")
    shutil.copytree(ROOT / "data" / "recorded" / "ray", here / "answers")
    (here / "more.csv").write_text("job_id,model,total_work,max_gpus\nmore,bert,9e6,2\n")
    (here / "log.csv").write_text("job_id,at,length,n\na,0,600,1\nb,60,600,2\n")
    (here / "events.txt").write_text("0,add,n1\n60000,add,n2\n120000,remove,n1\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.setattr(doctor, "ORDERS", ())
        patch.setattr(doctor, "SOLVERS", ("highs",))
        patch.setattr("allocator.cli.clusters.look.ClientApi", lambda *_: None)
        admitted = ["train-1: admitted"]
        patch.setattr("allocator.cli.clusters.look.answer_checks", lambda *_: admitted)
        assert main.run(["observe", "ray", "--answers", "answers", "--out", "look"]) == 0
        assert main.run(["solve", "look", "--out", "look-plan", "--quiet"]) == 0
        yield here


def test_every_command_is_run() -> None:
    """The lists hold every command of the parser and no other. `serve` runs until it is ended and
    prints no result.
    """
    calls = {" ".join(words): one.get_default("call") for words, one in COMMANDS}
    for one, others in SAME.items():
        for name in others.split():
            assert calls.pop(f"import {name}") is calls[f"import {one}"]
    assert {*RUNS, "serve"} == {*calls}


@pytest.mark.nightly
def test_results_are_json_with_their_version(folder: Path, capsys: Output) -> None:
    """Standard output has nothing else: one document, or one per line. The commands run in their
    order, as one needs what another wrote.
    """
    capsys.readouterr()
    for command, words in RUNS.items():
        code, out, err = call(capsys, f"{command} --json {words}")
        assert code == 0, (command, err)
        for document in documents(out):
            assert document["schema_version"] == 1, command


def documents(out: str) -> list[dict[str, Any]]:
    """The JSON of a command: one document over several lines, or one a line."""
    try:
        return [json.loads(out)]
    except ValueError:
        return [json.loads(line) for line in out.splitlines()]


def test_a_wrong_call_is_json(capsys: Output) -> None:
    """A wrong command line is an error in the same form on standard error."""
    for command in PROGRAMS[::6]:
        code, out, err = call(capsys, f"{command} --json --quite")
        error = json.loads(err)["error"]
        assert (code, out, error["code"], error["exit_code"]) == (2, "", "usage", 2)


@pytest.mark.parametrize(
    ("name", "exit_code", "code", "words"),
    [
        ("fault-column-misspelt", 3, "invalid_input", "is missing"),
        ("infeasible-fixed-above-budget", 4, "infeasible", "budget"),
        ("infeasible-guarantee-above-quota", 1, "internal", "ZeroDivisionError"),
    ],
)
def test_errors_are_json(
    name: str,
    exit_code: int,
    code: str,
    words: str,
    capsys: Output,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each kind of error has a code for programs, each fault its file and its line; warnings are in
    the same document."""
    if code == "internal":
        fail = Mock(side_effect=ZeroDivisionError("1 / 0"))
        monkeypatch.setattr("allocator.cli.plan.batch.decide", fail)
    found, out, err = call(capsys, f"solve {FAULTY / name} --json")
    document = json.loads(err)
    error = document["error"]
    assert (found, out, document["schema_version"]) == (exit_code, "", 1)
    assert error["code"] == code and words in error["message"]
    if code == "invalid_input":
        assert (error["faults"][0]["file"], error["faults"][0]["line"]) == ("jobs.csv", 1)
        assert "is ignored" in error["warnings"][0]


def test_what_is_not_json(capsys: Output, tmp_path: Path) -> None:
    """--format json is about the result alone, as ever. The options of a job's command are not
    those of the allocator."""
    _, _, err = call(capsys, f"solve {ROOT / 'data' / 'nowhere'} --format json")
    assert not err.startswith("{")
    job = "--job-id j --model bert --total-work 9 --max-gpus 1 -- train --json --quiet"
    call(capsys, f"queue init {tmp_path / 'q.db'} --from {ROOT / DEMO}")
    code, out, _ = call(capsys, f"queue submit {tmp_path / 'q.db'} {job}")
    assert (code, out) == (0, "j\n")


def test_verbose_tells_what_was_read_and_how_long_it_took(capsys: Output) -> None:
    """Reading, deciding, and the end; standard output is the same."""
    plain = call(capsys, f"promise {ROOT / DEMO}")
    code, out, err = call(capsys, f"promise {ROOT / DEMO} --verbose")
    assert (code, out) == plain[:2]
    assert "read " in err and "12 jobs, 2 pools, 16 GPUs" in err and "exit code 0 after" in err
    assert "seconds: " in call(capsys, f"solve {ROOT / DEMO} -v")[2]
