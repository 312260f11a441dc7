"""The cases of Kueue's published tests of preemption, as rounds of this product.

tests/data/kueue has what the tests state (kubernetes-sigs/kueue at ff69552e, 2026-08-22,
pkg/scheduler/preemption: priority, tree and share are TestPreemption, TestHierarchicalPreemptions
and TestFairPreemptions), under our own names and with the terms of docs/coming-from.md. GPUs stand
for CPUs, and a priority is thirty times the weight of the one below. `differs` says where this
decides otherwise: `shares` of queues are not made equal, or GPUs are `owed` to all jobs of a queue.
The jobs are ten minutes old.
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
    """The job starts where Kueue admits it, the jobs that stop lose no more than those that Kueue
    preempts, and every queue has of its nominal quota what its jobs can hold."""
    known, tables = CASES[case], {}
    for name in ("jobs", "pools", "quotas", "rates", "tenants"):
        tables[name] = re.findall(
            rf"^(?:case|{case}),(.*)", (DATA / f"{name}.csv").read_text(), re.MULTILINE
        )
        (tmp_path / f"{name}.csv").write_text("\n".join(tables[name]))
    (tmp_path / "config.toml").write_text("now_s = 600")
    plan = allocator.solve(allocator.Problem.read(tmp_path), objective=known["objective"], gap=0.0)
    gets = dict(zip(plan.jobs["job_id"], plan.jobs["gpus"], strict=True))
    jobs = {job["job_id"]: job for job in csv.DictReader(tables["jobs"])}
    value = {name: int(job["max_gpus"]) * int(job["weight"]) for name, job in jobs.items()}
    if known["is_admitted"] == "yes":
        lost = sum(value[name] for name in jobs if name != "new" and not gets[name])
        theirs = sum(value[name] for name in known["victims"].split("|"))
        found = "shares" if not gets["new"] else "owed" if lost > theirs else ""
        assert found == known["differs"]
    for quota in csv.DictReader(tables["quotas"]):
        sums, holds = {0}, 0
        for name, job in jobs.items():
            if job["tenant"] == quota["tenant"] and job["model"] == quota["gpu_type"]:
                sums |= {total + int(job["max_gpus"]) for total in sums}
                holds += gets[name]
        assert holds >= max(total for total in sums if total <= int(quota["guaranteed_gpus"]))
