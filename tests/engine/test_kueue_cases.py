"""The cases of Kueue's published tests of preemption, as rounds of this product.

tests/data/kueue has what the tests state (kubernetes-sigs/kueue at ff69552e, 2026-08-22,
pkg/scheduler: priority, tree, share and cycle are TestPreemption, TestHierarchicalPreemptions,
TestFairPreemptions and the cycles of scheduler_fs_test.go), under our own names and with the terms
of docs/coming-from.md. GPUs stand for CPUs, and each priority is a weight, thirty times that of the
next lower one. A resource of which there is enough for all, or that every job takes in the same
proportion, is left out, and so are jobs without CPUs. A part of a workload in another flavour is a
job. Where no queue of a test may preempt, running jobs are not preemptible, and queues
leave their nominal quota to their cohort. A queue that may reclaim only from lower priorities has
no guarantee, and jobs elsewhere that have its priority are not preemptible. All jobs were submitted
so long ago that only shares count under `fairness`. The column `differs` names the cases in which a
decision here is another one: `shares`, where Kueue divides GPUs among queues otherwise, or `owed`,
where the jobs of a cohort could hold more of its nominal quota than under the plan of Kueue.
"""

from __future__ import annotations

import csv
import re
from itertools import chain, combinations
from pathlib import Path

import pytest

import allocator

DATA = Path(__file__).parents[1] / "data" / "kueue"
CASES = {row["case"]: row for row in csv.DictReader((DATA / "cases.csv").open())}


@pytest.mark.parametrize("case", CASES)
def test_what_kueue_admits_is_admitted_for_no_more(case: str, tmp_path: Path) -> None:
    """Every job that Kueue admits starts. Every queue and cohort keeps as much of its nominal quota
    as its jobs can use. The jobs that stop lose no more value than those that Kueue preempts. Where
    they lose more, every plan that keeps all quotas is tried, and none loses less."""
    known, table = CASES[case], {}
    for name in ("jobs", "pools", "quotas", "rates", "tenants"):
        text = "\n".join(
            re.findall(rf"(?m)^(?:case|{case}),(.*)", (DATA / f"{name}.csv").read_text())
        )
        (tmp_path / f"{name}.csv").write_text(text)
        table[name] = list(csv.DictReader(text.splitlines()))
    (tmp_path / "config.toml").write_text("now_s = 1e9")
    plan = allocator.solve(allocator.Problem.read(tmp_path), objective=known["objective"], gap=0.0)
    place = dict(zip(plan.jobs["job_id"], plan.jobs["pool"], strict=True))
    jobs, parent = table["jobs"], {row["tenant"]: row["parent"] for row in table["tenants"]}
    held = {j["job_id"] for j in jobs if j["state"] == "running"}

    def lost(running: set[str]) -> int:
        return sum(
            int(j["max_gpus"]) * int(j["weight"]) for j in jobs if j["job_id"] in held - running
        )

    def keeps_quotas(running: set[str]) -> bool:
        for quota in table["quotas"]:
            sums, holds = {0}, 0
            for j in jobs:
                tenant = j["tenant"]
                while tenant and tenant != quota["tenant"]:
                    tenant = parent[tenant]
                if tenant and quota["gpu_type"] in j["model"]:
                    sums |= {total + int(j["max_gpus"]) for total in sums}
                    on_it = place[j["job_id"]] in ("", quota["gpu_type"])
                    holds += int(j["max_gpus"]) * (j["job_id"] in running and on_it)
            if holds < max(s for s in sums if s <= int(quota["guaranteed_gpus"])):
                return False
        return True

    runs = {job for job, pool in place.items() if pool}
    assert keeps_quotas(runs)
    admitted = set(known["admitted"].split("|")) - {""}
    theirs = (held | admitted) - set(known["victims"].split("|"))
    if admitted:
        differs = "owed" if lost(runs) > lost(theirs) else ""
        assert (differs if admitted <= runs else "shares") == known["differs"]
    if known["differs"] == "owed":
        gpus = sum(int(p["gpus"]) for p in table["pools"])
        for kept in chain.from_iterable(combinations(jobs, n) for n in range(len(jobs) + 1)):
            some = {j["job_id"] for j in kept}
            fits = sum(int(j["max_gpus"]) for j in kept) <= gpus
            is_plan = fits and admitted <= some and keeps_quotas(some)
            assert not is_plan or lost(some) >= lost(runs)
