"""The cases of Kueue's published tests of preemption, as rounds of this product.

tests/data/kueue has what the tests state (kubernetes-sigs/kueue at ff69552e, 2026-08-22,
pkg/scheduler/preemption: priority, tree and share are TestPreemption, TestHierarchicalPreemptions
and TestFairPreemptions), under our own names and with the terms of docs/coming-from.md. GPUs stand
for CPUs, and each priority is a weight, thirty times that of the next lower one. The column
`differs` names the cases in which a decision here is another one: `shares`, because the shares of
queues are not made equal, or `owed`, because a guarantee is owed to all jobs of a queue. All jobs
were submitted ten minutes before the round.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

import allocator

DATA = Path(__file__).parents[1] / "data" / "kueue"
CASES = {row["case"]: row for row in csv.DictReader((DATA / "cases.csv").open())}


@pytest.mark.parametrize("case", [name for name in CASES if not CASES[name]["not_expressible"]])
def test_what_kueue_admits_is_admitted_for_no_more(case: str, tmp_path: Path) -> None:
    """The new job starts in every case in which Kueue admits it. The jobs that stop lose no more
    value than those that Kueue preempts. Each queue keeps as much of its nominal quota as its jobs
    can use. The table names the cases in which a decision differs."""
    known, tables = CASES[case], {}
    for name in ("jobs", "pools", "quotas", "rates", "tenants"):
        file = f"{name}.csv"
        tables[name] = re.findall(rf"(?m)^(?:case|{case}),(.*)", (DATA / file).read_text())
        (tmp_path / file).write_text("\n".join(tables[name]))
    (tmp_path / "config.toml").write_text("now_s = 600")
    plan = allocator.solve(allocator.Problem.read(tmp_path), objective=known["objective"], gap=0.0)
    gets = dict(zip(plan.jobs["job_id"], plan.jobs["gpus"], strict=True))
    jobs = {job["job_id"]: job for job in csv.DictReader(tables["jobs"])}
    value = {name: int(job["max_gpus"]) * int(job["weight"]) for name, job in jobs.items()}
    if known["is_admitted"] == "yes":
        lost = sum(value[name] for name in jobs if name != "new" and not gets[name])
        theirs = sum(value[name] for name in known["victims"].split("|"))
        differs = "shares" if not gets["new"] else "owed" if lost > theirs else ""
        assert differs == known["differs"]
    for quota in csv.DictReader(tables["quotas"]):
        sums, holds = {0}, 0
        for name, job in jobs.items():
            if job["tenant"] == quota["tenant"] and job["model"] == quota["gpu_type"]:
                sums |= {total + int(job["max_gpus"]) for total in sums}
                holds += gets[name]
        assert holds >= max(s for s in sums if s <= int(quota["guaranteed_gpus"]))
