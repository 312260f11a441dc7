"""`allocator queue` from a shell's point of view: what goes where, exit codes, formats, words."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from commands import Output, call
from places import ROOT
from queues import Story, cluster

from allocator.domain.records import USER
from allocator.domain.rules.snapshot_rules import validate
from allocator.errors import InvalidInput, UsageError
from allocator.io.snapshots import read_snapshot, write_snapshot
from allocator.queue.queue import Queue


@pytest.fixture
def name(tmp_path: Path) -> str:
    """A queue with the small cluster, without jobs; odd characters in its name are only a name."""
    path = tmp_path / "queue ?#%é.db"
    Queue.create(path, cluster()).close()
    return str(path)


def submit(capsys: Output, name: str, *more: object) -> tuple[int, str, str]:
    return call(
        capsys, "queue", "submit", name, "--model", "m", "--total-work", 100, "--max-gpus", 4, *more
    )


def test_from_a_snapshot_and_back(capsys: Output, tmp_path: Path) -> None:
    """init --from, export: the same jobs in the same states, with times that moved to now."""
    source, out = tmp_path / "source", tmp_path / "out"
    jobs, config = "r,m,5,50,4,running,a,2\nq,m,7,50,4,queued,,\n", {"config.toml": "now_s = 10\n"}
    write_snapshot(cluster(jobs, **config), source)
    code, said, err = call(capsys, "queue", "init", tmp_path / "q.db", "--from", source)
    assert (code, said) == (0, "") and err.splitlines()[-1] == "2 jobs, 2 pools, 12 GPUs"
    code, said, err = call(capsys, "queue", "export", tmp_path / "q.db", out)
    assert (code, said.strip(), err) == (0, str(out), "")
    after = validate(read_snapshot(out))
    assert after.jobs.gpus.tolist() == [2, 0]
    assert [after.now_s, after.jobs.submitted_s[0]] == pytest.approx([time.time()] * 2, abs=60)
    # again: nothing to do
    assert call(capsys, "queue", "init", tmp_path / "q.db")[0] == 0
    code, _, err = call(capsys, "queue", "init", tmp_path / "q.db", "--from", source)
    assert code == 2 and "has jobs already" in err


def test_submit_says_the_name_and_takes_a_command(capsys: Output, name: str) -> None:
    """What follows -- is the command, dashes and all; the name of the job is the data."""
    words = ("--job-id", "j", "--env", "A=b=c", "--progress-log", r"step (?P<step>\d+)")
    command = ("python", "-m", "x", "--", "--lr=1")
    assert submit(capsys, name, *words, "--", *command)[:2] == (0, "j\n")
    with Queue(name) as queue:
        job = queue.job("j")
    assert job.command == command
    assert job.environment.pop(USER) == os.environ.get("USER", "")
    assert job.environment == {"A": "b=c", "ALLOCATOR_PROGRESS_LOG": words[-1]}
    code, out, _ = submit(capsys, name, "--key", "k", "--format", "json")
    assert (code, json.loads(out)) == (0, {"schema_version": 1, "job_id": "m-2", "new": True})
    code, out, err = submit(capsys, name, "--key", "k", "--format", "json")
    assert json.loads(out)["new"] is False and "submitted before" in err


def test_submit_says_whether_the_deadline_can_be_promised(
    capsys: Output, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 of work takes 29 s on 4 GPUs: an hour is promised, 10 s are not, with the deadline that
    could be. Without one nothing is said; where it cannot be found out, whatever is wrong, the job
    is submitted all the same."""
    now = int(time.time())
    assert submit(capsys, name, "--job-id", "none", "--tenant", "blue") == (0, "none\n", "")
    _, out, err = submit(
        capsys, name, "--job-id", "i", "--tenant", "blue", "--deadline-s", now + 3600
    )
    assert out == "i\n" and err.startswith("the deadline can be promised: done in ")
    code, out, err = submit(
        capsys, name, "--job-id", "j", "--deadline-s", now + 10, "--format", "json"
    )
    told = json.loads(out)["promise"]
    assert told["promised"] is False and 20 < told["earliest_s"] - now < 200
    assert (
        "cannot be promised: even alone it needs" in err
        and f"({math.ceil(told['earliest_s'])})" in err
    )
    monkeypatch.setattr("allocator.cli.queue.verbs.MOST_DATED", 1)
    assert (
        "3 jobs have deadlines"
        in submit(capsys, name, "--job-id", "m", "--deadline-s", now + 3600)[2]
    )
    monkeypatch.setattr("allocator.queue.queue.Queue.snapshot", lambda _: 1 / 0)
    code, out, err = submit(
        capsys, name, "--job-id", "n", "--deadline-s", now + 3600, "--format", "json"
    )
    assert (code, json.loads(out)["promise"]) == (0, None) and "division by zero" in err
    with Queue(name) as queue:
        assert queue.job("n").state == "queued"


def test_lists_in_every_format(capsys: Output, name: str) -> None:
    """`queue list` shows the same jobs as a table, as JSON and as CSV. One job has held two GPUs
    for an hour at $2.5 an hour each. The lists and the status of its tenant say so.
    """

    def told(*words: str) -> Any:
        return json.loads(call(capsys, *words, "--json")[1])

    for job in ("i", "j"):
        submit(capsys, name, "--job-id", job, "--tenant", "red")
    with Queue(name, clock=lambda: time.time() - 3600) as queue:
        Story(queue).play("want i=a/2\nstarts")
    i, j = told("queue", "list", name)["jobs"]
    columns = ("job_id", "state", "pool", "gpus", "phase", "total_work", "tenant")
    assert [i[column] for column in columns] == ["i", "running", "a", 2, "ordered", 100.0, "red"]
    assert [j[column] for column in columns] == ["j", "queued", None, 0, None, 100.0, "red"]
    written = call(capsys, "queue", "list", name, "--format", "csv")[1]
    rows = list(csv.DictReader(io.StringIO(written)))
    assert [(row["state"], row["pool"]) for row in rows] == [("running", "a"), ("queued", "")]
    table = call(capsys, "queue", "list", name, "--state", "running")[1]
    assert "2 x a" in table and "1 queued, 1 running" in table and "\nj " not in table
    assert call(capsys, "queue", "list", name, "--tenant", "\udcff")[0] == 0
    shown = told("queue", "show", name, "i")
    assert [a["gpus"] for a in shown["allocations"]] == [2] and shown["observations"] == []
    pool = told("queue", "pools", name)["pools"][0]
    assert pool == {"pool": "a", "gpu_type": "A", "gpus": 8, "used": 2, "free": 6}
    [cost] = told("status", name)["costs"]
    for dollars in (i["dollars"], rows[0]["dollars"], shown["dollars"], cost["dollars"]):
        assert float(dollars) == pytest.approx(5.0, abs=0.5)
    assert "cost        red: " in call(capsys, "status", name)[1]
    assert re.search(r"\b[45]\.\d\d\b", table)


def test_verbs_and_their_answers(capsys: Output, name: str) -> None:
    """One line per job; refusals are wrong usage; unknown jobs come with a suggestion."""
    for job in ("job-1", "job-2"):
        submit(capsys, name, "--job-id", job)
    assert call(capsys, "queue", "hold", name, "job-1", "job-2")[1] == "job-1: held\njob-2: held\n"
    assert call(capsys, "queue", "cancel", name, "job-2")[1] == "job-2: cancelled\n"
    code, out, err = call(capsys, "queue", "release", name, "job-1", "job-2")
    assert (code, out) == (
        2,
        "",
    ) and 'job "job-2" cannot be released: it is cancelled; "retry" brings it back' in err
    with Queue(name) as queue:
        assert queue.job("job-1").state == "held"
    out = call(capsys, "queue", "retry", name, "job-2", "--format", "json")[1]
    assert json.loads(out)["jobs"][0]["state"] == "queued"
    code, out, err = call(capsys, "queue", "hold", name, "jbo-1")
    assert (code, out) == (2, "") and 'did you mean "job-1"?' in err


def test_csv_in_and_out(capsys: Output, name: str, tmp_path: Path) -> None:
    """workload.csv and jobs.csv columns, commands as JSON or as for a shell; export reads in
    again; twice adds none.
    """
    file = tmp_path / "jobs.csv"
    file.write_text(
        "job_id,model,remaining_work,max_gpus,state,command,environment,colour\n"
        'i,m,5,4,running,"python a.py --name ""x y""","{""A"": ""1""}",red\n'
        'j,m,6,4,queued,"[""sh"", ""-c"", ""echo""]",,\n',
        encoding="utf-8",
    )
    code, out, err = call(capsys, "queue", "import-csv", name, file)
    assert (
        (code, out) == (0, "")
        and "2 jobs submitted" in err
        and '"colour" is not known and is ignored' in err
    )
    assert "state: a submitted job starts with nothing held" in err
    with Queue(name) as queue:
        i, j = queue.jobs()
    assert (
        i.command == ("python", "a.py", "--name", "x y")
        and i.environment == {"A": "1"}
        and i.state == "queued"
    )
    assert j.command == ("sh", "-c", "echo") and j.total_work == 6
    assert (
        "0 jobs submitted, 2 were there before"
        in call(capsys, "queue", "import-csv", name, file)[2]
    )
    other, copy = tmp_path / "other.db", tmp_path / "copy.csv"
    Queue.create(other, cluster()).close()
    assert call(capsys, "queue", "export-csv", name, copy)[:2] == (0, "")
    assert call(capsys, "queue", "import-csv", other, copy)[0] == 0
    with Queue(other) as queue:
        assert [(k.job_id, k.command, k.submitted_s) for k in queue.jobs()] == [
            (k.job_id, k.command, k.submitted_s) for k in (i, j)
        ]


def test_faults_of_a_csv_file_name_file_line_and_job(
    capsys: Output, name: str, tmp_path: Path
) -> None:
    """All at once, exit code 3, nothing kept."""
    file = tmp_path / "many.csv"
    file.write_text(
        "job_id,model,total_work,max_gpus,after,command\n"
        "i,m,5,4,,\nj,M,5,4,,\nk,m,-5,4,,\ni,m,5,4,,\nl,m,5,4,nobody,\n"
    )
    code, out, err = call(capsys, "queue", "import-csv", name, file)
    assert (code, out) == (3, "")
    assert err.splitlines() == [
        (
            'many.csv:3: model "M" has no row in rates.csv; did you mean "m"? If it is another '
            'model, set unknown_models = "assume" (job "j")'
        ),
        'many.csv:4: total_work -5 must be above 0 (job "k")',
        'many.csv:5: job_id "i" is already in line 2',
        'many.csv:6: after "nobody" is no job of the queue (job "l")',
    ]
    file.write_text(
        "job_id,model,total_work,max_gpus,command,environment\n"
        'i,m,5,4,"a \'b",\nj,m,5,4,"[1]",\nk,m,5,4,,[]\n'
    )
    code, _, err = call(capsys, "queue", "import-csv", name, file)
    assert (
        code == 3
        and all(f"many.csv:{n}:" in err for n in (2, 3, 4))
        and "no closing quotation" in err
    )
    with Queue(name) as queue:
        assert queue.jobs() == []


def test_pools_settings_and_a_new_cluster(capsys: Output, name: str, tmp_path: Path) -> None:
    """What an operator changes; a cluster that would take rates from jobs says so, or is refused
    where models without rates are; one that would take pools from jobs that need them is refused.
    """
    for verb, words, code in (
        ("pools", "a=6", 0),
        ("pools", "a=x", 2),
        ("pools", "a", 2),
        ("pools", "c=1", 2),
        ("pools", "a=-1", 2),
        ("config", "interval_s=30", 0),
        ("config", "interval_s=soon", 2),
        ("config", "spread_pauses=false", 0),
    ):
        assert call(capsys, "queue", verb, name, "--set", words)[0] == code, words
    with Queue(name) as queue:
        problem = validate(queue.snapshot())
    assert problem.spread_pauses is False and problem.interval_s == 30
    assert problem.pools.gpus.tolist() == [6, 4]
    submit(capsys, name, "--job-id", "j")

    def replace(**files: str) -> tuple[int, str]:
        write_snapshot(cluster(**files), tmp_path)
        code, _, err = call(capsys, "queue", "cluster", name, "--from", tmp_path)
        return code, err

    few = {"rates.csv": "model,gpu_type,gpus,work_per_s\nn,A,1,1\n"}
    code, err = replace(**few, **{"config.toml": 'unknown_models = "refuse"\n'})
    assert code == 3 and 'model "m" has no row in rates.csv' in err and '(job "j")' in err
    code, err = replace(**few)
    assert code == 0 and '1 job of 1 model without a rate, "m": it runs' in err
    assert replace(**{"pools.csv": "pool,gpu_type,gpus\nz,A,3\n"})[0] == 0
    with Queue(name) as queue:
        assert queue.pools() == {"z": 3}
        Story(queue).play("want j=z/2\nstarts")
    code, err = replace()
    assert code == 2 and 'pool "z" would be gone, but jobs hold 2 of its GPUs' in err


FAULT = ROOT / "tests" / "data" / "snapshots" / "fault-model-misspelt"
SUBMIT = "queue submit {q} --model m --total-work 100 --max-gpus 4"


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("queue", 2, "usage"),
        ("queue list", 2, "required"),
        ("queue nothing q", 2, "invalid choice"),
        ("queue list none.db", 3, "no such queue"),
        ("queue list mysql://h/d", 2, "mysql"),
        ("queue list postgresql://me:secret@127.0.0.1:9/d", 1, "127.0.0.1"),
        ("queue list 'postgresql://me@127.0.0.1:9/d?password=secret'", 1, "127.0.0.1"),
        ("queue list postgresql://me@127.0.0.1:9/d", 1, "127.0.0.1"),
        ("queue list postgresql+nope://me:secret@host/d", 2, ""),
        ("queue list ''", 2, ""),
        ("queue init none/q.db", 3, "No such file"),
        (f"queue init new.db --from '{FAULT}'", 3, "jobs.csv:"),
        ("queue list {q} --state hold", 2, 'did you mean "held"'),
        (f"{SUBMIT} --job-id j --min-gpus 9", 3, 'max_gpus 4 is below min_gpus 9 (job "j")'),
        (f"{SUBMIT} --job-id j --weight x", 3, 'weight "x" is not a number (job "j")'),
        (SUBMIT, 3, "job_id is empty, and so is key"),
        (f"{SUBMIT} --job-id j --env A", 2, "write NAME=VALUE"),
        (f"{SUBMIT} --job-id j --progress-log step", 2, "has no group"),
        (f"{SUBMIT} --job-id \udcff", 3, "job_id"),
        (f"{SUBMIT} --job-id j --workdir \udcff", 2, "workdir"),
        ("queue hold {q} \udcff", 2, "no job"),
        ("queue import-csv {q} none.csv", 3, "none.csv"),
        (f"{SUBMIT} --job-id j --size 3", 2, "unrecognized arguments"),
    ],
)
def test_wrong_calls(
    capsys: Output,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    code: int,
    says: str,
) -> None:
    """Wrong calls 2, wrong values and no or broken queues 3, a database that is out of reach 1; so
    are bytes of a shell that are no UTF-8. A password, which everybody can see in the list of
    processes, is warned about and not repeated. Nothing is in the queue.
    """
    monkeypatch.chdir(tmp_path)
    found, out, err = call(capsys, line.format(q=f"'{name}'"))
    assert (found, out) == (code, "") and says in err
    assert err and "secret" not in err and "Traceback" not in err
    assert ("~/.pgpass" in err) == ("secret" in line)
    with Queue(name) as queue:
        assert queue.jobs() == []
    assert not Path("new.db").exists()


def test_tenants_are_set_listed_and_exported(capsys: Output, name: str, tmp_path: Path) -> None:
    """A tree, a quota by type and what is lent; the export has them, and a new queue again."""

    def told(queue: object) -> Any:
        return json.loads(call(capsys, "queue", "tenant", "list", queue, "--json")[1])

    for words in (
        "research --max-gpus 12",
        "red --parent research",
        "red --type A --guaranteed-gpus 4 --lend-gpus 2 --max-gpus 6",
        "red --type A --max-gpus ''",
    ):
        assert call(capsys, f"queue tenant set '{name}' {words}")[0] == 0
    found = told(name)
    tenants = [(t["tenant"], t["parent"], t["max_gpus"]) for t in found["tenants"]]
    assert {("red", "research", 6), ("research", "", 12)} < {*tenants}
    (quota,) = found["quotas"]
    assert (quota["guaranteed_gpus"], quota["max_gpus"], quota["lend_gpus"]) == (4, None, 2)
    assert "research" in call(capsys, "queue", "tenant", "list", name)[1]
    again = tmp_path / "again.db"
    call(capsys, "queue", "export", name, tmp_path / "now")
    assert call(capsys, "queue", "init", again, "--from", tmp_path / "now")[0] == 0
    assert told(again) == found


def test_reservations_are_made_listed_and_cancelled(capsys: Output, name: str) -> None:
    """A round of a controller that opens the queue later has the row, with its times."""

    def told(words: str) -> tuple[int, str, str]:
        verb, _, rest = words.partition(" ")
        return call(capsys, f"queue reserve {verb} '{name}' {rest}")

    assert told("add r --pool a --gpus 2 --at 2h --until 4h")[0] == 0
    assert "nobody" in told("list")[1] and "r,a,2," in told("list --format csv")[1]
    with Queue(name) as queue:
        r, now_s = validate(queue.snapshot()).reservations, queue.clock()
        queue.reserve("over", pool="a", gpus=1, at_s=0, until_s=now_s - 1)
        queue.reserve("next", pool="a", gpus=1, at_s=0)
        assert [row["reservation"] for row in queue.reservations()] == ["r", "next"]
    assert (r.gpus.tolist(), r.until_s - r.at_s) == ([2], pytest.approx(7200, abs=9))
    assert told("cancel r")[2] == "r is cancelled\n" and told("cancel r")[0] == 2
    assert 'no job "x"' in told("add r --pool a --gpus 2 --job x")[2]
    assert told("add r --pool c --gpus 2")[0] == 3
    assert "is no time" in told("add r --pool a --gpus 2 --at 4h --until 2h")[2]
    assert "100 are more than" in told("add r --pool a --gpus 100")[2]


def test_a_change_that_breaks_a_rule_changes_nothing(name: str) -> None:
    """Circles, unknown names and values are refused with all faults, and nothing is stored."""
    with Queue(name) as queue:
        queue.set_tenant("red", {"parent": "blue"})
        before = queue.tenants()
        with pytest.raises(InvalidInput, match="parent makes a circle"):
            queue.set_tenant("blue", {"parent": "red"})
        with pytest.raises(InvalidInput, match='gpu_type "A100" is a type of no pool'):
            queue.set_tenant("red", {"max_gpus": 4}, {"max_gpus": 4}, gpu_type="A100")
        with pytest.raises(UsageError, match="has no column"):
            queue.set_tenant("red", {"lend_gpus": 4})
        assert queue.tenants() == before
