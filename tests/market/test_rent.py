"""`allocator rent`: the document it prints, tables, files, classes estimated from jobs,
every kind of fault.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections import Counter
from pathlib import Path

import pytest
from commands import Output, call
from places import ROOT
from text_tables import cases

from allocator import read_snapshot
from allocator.cli.models.rent import classes_csv, read_classes
from allocator.queue.queue import Queue

HEAD = (
    "class_id,arrivals_per_hour,mean_work_gpu_hours,kind,parameter,points,weight,gpu_type,"
    "relative_speed,max_gpus\n"
)
EXAMPLE = HEAD + "amdahl,0.4,1,amdahl,0.8,,,,,\nroot,0.4,1,power,0.5,,,,,\n"
POOLS = "pool,gpu_type,price_per_gpu_hour\nbig,A100,3\nsmall,V100,1\ndear,V100,2\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The published example."""
    return write(tmp_path / "classes.csv", EXAMPLE)


def write(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def test_the_document(file: Path, capsys: Output) -> None:
    """b = 2: mu 1/9, E[T] 1/3, widths 6 and 9, and what the two other rules give."""
    code, out, err = call(capsys, f"rent {file} --budget 2 --format json")
    found = json.loads(out)
    assert (code, err, found["schema_version"], found["budget"]) == (0, "", 1, 2)
    widths = {c["class_id"]: c["width"] for c in found["classes"]}
    assert widths == pytest.approx({"amdahl": 6, "root": 9})
    others = (found["comparison"][f"equal_{rule}"] for rule in ("widths", "spend"))
    names = ["mu", "mean_response_h", "mean_gpus", "sd_gpus", "saved_h_by_one_more", "least_budget"]
    assert [
        *(found[name] for name in names),
        *(other["mean_response_h"] for other in others),
    ] == pytest.approx([1 / 9, 1 / 3, 2, 3.949684, 0.087064, 0.8, 0.337873, 0.347059], rel=1e-5)
    assert "curve" not in found


def test_files_of_out(file: Path, tmp_path: Path, capsys: Output) -> None:
    """rent.json, the curve as numbers and as a picture, and the classes as they were understood;
    a table for people, and the curve on standard output."""
    code, out, _ = call(capsys, f"rent {file} --budget 2 --whole --curve --out {tmp_path / 'out'}")
    assert code == 0
    for words in ("mean response time 0.3333 h", "+4.1 %", "what other budgets buy"):
        assert words in out
    files = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert files == ["classes.csv", "curve.csv", "curve.svg", "rent.json"]
    curve = json.loads((tmp_path / "out" / "rent.json").read_text())["curve"]
    assert all(b["mean_response_h"] < a["mean_response_h"] for a, b in itertools.pairwise(curve))
    assert (tmp_path / "out" / "curve.svg").read_text().lstrip().startswith("<?xml")
    again = read_classes(str(tmp_path / "out" / "classes.csv"))
    assert classes_csv(again) == (tmp_path / "out" / "classes.csv").read_text()
    _, out, _ = call(capsys, f"rent {file} --budget 2 --format csv --curve")
    assert len(out.splitlines()) > 50 and out.splitlines()[1].startswith("0.8")


def test_a_budget_that_is_too_small_names_one_that_would_do(
    file: Path, tmp_path: Path, capsys: Output
) -> None:
    """Exit code 4; the budget that is named works as it is written, and buys what is said."""
    code, out, err = call(capsys, f"rent {file} --budget 0.8")
    assert (code, out) == (4, "") and "0.800001 GPUs give a mean response time of 1 h" in err
    code, out, _ = call(capsys, f"rent {file} --budget 0.800001 --format json")
    assert code == 0 and json.loads(out)["mean_response_h"] == pytest.approx(1, abs=1e-4)
    pools = write(tmp_path / "pools.csv", POOLS)
    code, _, err = call(capsys, f"rent {file} --pools {pools} --dollars --budget 0.1 --whole")
    assert code == 4 and "budget: 0.1 would have to be 0.800001" in err


def test_all_faults_at_once_with_file_and_line(tmp_path: Path, capsys: Output) -> None:
    """Currency text, zero, negative, unknown kinds, missing and needless cells, broken tables,
    classes that differ.
    """
    rows = """a,$3,2,amdahl,0.95,,,A100,,
a,3,2,amdahl,,,,V10,,
b,0,2,table,0.3,1:1|2:x,,A100,,
c,1,2,power,1,,,A100,,
d,1,-2,exp,1,,,,,
e,1,2,table,,1:2|2:1,,,,
e,2,2,table,,,,A100,,
f,1,2,table,,4:1|4:2,-1,A100,0,
g,1,2,table,,4:1,,A100,,2
g,1,2,amdahl,1.5,,,A100,,
"""
    classes = write(tmp_path / "classes.csv", HEAD + rows)
    head = POOLS.partition("\n")[0]
    pools = write(tmp_path / "pools.csv", f"{head}\nfree,A100,0\nbelow,V100,-1\neuro,T4,2 EUR\n")
    sound = write(tmp_path / "p.csv", POOLS)
    code, out, err = call(capsys, f"rent {classes} --pools {sound} --budget 5")
    assert (code, out) == (3, "")
    assert all(line.startswith(f"{classes}:") for line in err.splitlines())  # the file as given
    err += call(capsys, f"rent {classes} --pools {pools} --budget 5 --dollars")[2]
    for said in """classes.csv:2: arrivals_per_hour "$3" is not a number
classes.csv:3: kind amdahl needs parameter
classes.csv:3: gpu_type "V10" is in no pool; did you mean "V100"?
classes.csv:4: arrivals_per_hour 0 must be above 0
classes.csv:4: kind table has no parameter
classes.csv:4: points "1:1|2:x"
classes.csv:5: parameter 1 is a speed-up without end
classes.csv:6: kind "exp" is not known
classes.csv:7: points
classes.csv:8: kind table needs
classes.csv:8: arrivals_per_hour 2 differs from 1 in line 7
4 GPUs appear twice
classes.csv:9: weight -1 must be above 0
classes.csv:9: relative_speed 0 must be above 0
classes.csv:10: points
classes.csv:11: parameter 1.5 is above 1
is already in line 10
pools.csv:2: price_per_gpu_hour 0
pools.csv:3: price_per_gpu_hour -1 is below 0
pools.csv:4: price_per_gpu_hour "2 EUR" is not a number""".splitlines():
        assert said in err, said


WRONG = """
rent -> 2 -> from one place
rent no.csv --budget 1 -> 3 -> no.csv: there is no such file
rent no.csv --from-workload x --budget 1 -> 2 -> from one place
rent no.csv -> 2 -> needs --budget
rent no.csv --budget 1 --dollars -> 2 -> needs --pools
rent no.csv --budget -1 -> 2 -> not a number >= 0
rent --from-queue no.db -> 3 -> no.db
rent empty.csv --budget 1 -> 3 -> has no rows
"""


@pytest.mark.parametrize(("argv", "code", "said"), cases(WRONG))
def test_wrong_calls(
    argv: str, code: str, said: str, capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Usage errors, and files that are missing or empty."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "empty.csv", HEAD)
    found, out, err = call(capsys, argv)
    assert (found, out) == (int(code), "") and said in err


def test_classes_of_a_history(tmp_path: Path, capsys: Output) -> None:
    """Two models, jobs an hour apart: 1 an hour each second hour; work 7200 and 3600 units at 1
    unit/s on the first type: 2 h and 1 h; the second type has no single GPU: 2 GPUs of 3/s count as
    1.5 each. One job alone says nothing about an hour."""
    jobs = "a,0,bert,7200,4,1\nb,3600,gnmt,3600,1,2\nc,7200,bert,7200,4,3\nd,10800,gnmt,3600,1,2\n"
    head = "job_id,submitted_s,model,total_work,max_gpus,weight\n"
    write(tmp_path / "pools.csv", "pool,gpu_type,gpus\nv,V100,8\na,A100,8\n")
    speeds = "bert,V100,1,1\nbert,V100,2,1.8\nbert,A100,2,3\nbert,A100,4,5.4\ngnmt,V100,1,1\n"
    write(tmp_path / "rates.csv", f"model,gpu_type,gpus,work_per_s\n{speeds}")
    write(tmp_path / "workload.csv", head + jobs)
    assert call(capsys, f"rent --from-workload {tmp_path}")[1].splitlines()[1:] == [
        "bert,0.5,2.0,table,,1:1.0|2:1.8,2.0,V100,1.0,",
        "bert,0.5,2.0,table,,2:2.0|4:3.6,2.0,A100,1.5,",
        "gnmt,0.5,1.0,table,,1:1.0,2.0,V100,1.0,",
    ]
    write(tmp_path / "workload.csv", head + jobs.splitlines()[0])
    assert "give --hours" in call(capsys, f"rent --from-workload {tmp_path}")[2]


def test_a_workload_gives_classes_that_can_be_read_again(tmp_path: Path, capsys: Output) -> None:
    """Without a budget the classes are printed; the same plan comes from them and from the
    workload.
    """
    workload = ROOT / "data" / "workloads" / "demo"
    classes = write(tmp_path / "classes.csv", call(capsys, f"rent --from-workload {workload}")[1])
    plans = [
        json.loads(call(capsys, f"rent {source} --budget 20 --format json")[1])
        for source in (f"--from-workload {workload}", classes)
    ]
    for name in ("mu", "mean_response_h"):
        assert plans[0][name] == pytest.approx(plans[1][name])
    made = read_classes(from_workload=str(workload), hours=2.0)
    assert made.arrivals_per_hour.sum() == pytest.approx(24 / 2)  # of 24 jobs in 2 hours


def test_a_queue_gives_the_classes_of_its_jobs(tmp_path: Path, capsys: Output) -> None:
    """Arrivals of each model by --hours, with a row for each GPU type; all jobs are done by now."""
    name = tmp_path / "cluster.db"
    with Queue.create(name, read_snapshot(ROOT / "data" / "snapshots" / "demo")) as queue:
        models = Counter(job.cells["model"] for job in queue.jobs())
        with queue.store.write() as connection:
            connection.exec_driver_sql(
                "UPDATE jobs SET state = 'done', finished_s = submitted_s, remaining_work = 0, "
                "want_pool = '', want_gpus = 0"
            )
    code, out, err = call(capsys, f"rent --from-queue {name} --hours 4")
    rows = list(csv.DictReader(io.StringIO(out)))
    found = {row["class_id"]: float(row["arrivals_per_hour"]) for row in rows}
    assert code == 0 and len(rows) > len(found) > 1, err
    assert found == pytest.approx({model: models[model] / 4 for model in found})


def test_free_pools_cost_nothing(tmp_path: Path, capsys: Output) -> None:
    """Own GPUs at price 0: jobs there get as wide as the pool and spend nothing, the budget is for
    the others; a pool without a number of GPUs is a fault, more use than there is a warning."""
    classes, pools = tmp_path / "classes.csv", tmp_path / "pools.csv"

    def told(arrivals: int, free: str) -> tuple[int, str, str]:
        """Own jobs that come so often, for `free` own GPUs."""
        rows = f"own,{arrivals},2,amdahl,0.8,,,A100,,\nrented,0.4,1,power,0.5,,,V100,,\n"
        write(classes, HEAD + rows)
        head = "pool,gpu_type,price_per_gpu_hour,gpus\n"
        write(pools, f"{head}free,A100,0,{free}\nspot,V100,2,8\n")
        return call(capsys, f"rent {classes} --pools {pools} --dollars --budget 2 --format json")

    code, out, err = told(1, "4")  # 2 x 0.4 x 4 = 3.2 GPUs
    found = {row["class_id"]: (row["width"], row["spend"]) for row in json.loads(out)["classes"]}
    assert (code, err, found["own"]) == (0, "", (4, 0))
    assert found["rented"][1] == pytest.approx(2)
    code, _, err = told(9, "4")
    assert code == 0 and 'pool "free" is free and has 4 GPUs; the plan keeps 28.8' in err
    code, _, err = told(1, "")
    assert code == 3 and "price_per_gpu_hour 0 without gpus" in err
