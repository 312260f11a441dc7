"""Dollars of jobs and tenants: lists, shows, the status and the report tell the same."""

from __future__ import annotations

import csv
import functools
import io
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from cases.served import build_served_queue
from commands import Output, call

from allocator.queue.jobs.verbs import history
from allocator.queue.queue import Queue

PRICES = {"h100": 4.1, "a100": 1.9, "l4": 0.4}


def test_every_place_shows_what_jobs_and_tenants_cost(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUs times hours times the price of the pool, made here from the allocations."""
    name, now = str(tmp_path / "q.db"), time.time()
    with build_served_queue(Path(name), now_s=now, rounds=4):
        pass
    at_now = functools.partial(Queue, clock=lambda: now)
    for place in ("allocator.cli.queue.verbs.Queue", "allocator.queue.queue.Queue"):
        monkeypatch.setattr(place, at_now)
    dollars: dict[str, float] = {}
    of_tenant: dict[str, float] = defaultdict(float)
    with Queue(name) as queue, queue.store.read() as connection:
        for job in queue.jobs():
            held = [
                ((a["ended_s"] or now) - a["ordered_s"]) / 3600 * a["gpus"] * PRICES[a["pool"]]
                for a in history(connection, job.job_id)
            ]
            dollars[job.job_id] = sum(held)
            of_tenant[job.values["tenant"] or "default"] += sum(held)

    def told(*words: object) -> Any:
        return json.loads(call(capsys, *words, "--json")[1])

    listed = told("queue", "list", name)["jobs"]
    assert {job["job_id"]: job["dollars"] for job in listed} == {
        job: pytest.approx(value) for job, value in dollars.items()
    }
    rows = csv.DictReader(io.StringIO(call(capsys, "queue", "list", name, "--format", "csv")[1]))
    assert {r["job_id"]: float(r["dollars"]) for r in rows} == {
        j: pytest.approx(v) for j, v in dollars.items()
    }
    dear = max(dollars, key=dollars.__getitem__)
    shown = told("queue", "show", name, dear)["dollars"]
    assert shown == pytest.approx(dollars[dear]) and shown > 0
    paid = {tenant: value for tenant, value in of_tenant.items() if value}
    costs = {row["tenant"]: row["dollars"] for row in told("status", name)["costs"]}
    assert costs == {tenant: pytest.approx(value) for tenant, value in paid.items()}
    status = call(capsys, "status", name)[1]
    assert all(f"cost        {tenant}: " in status for tenant in paid)
    assert "$" in call(capsys, "queue", "list", name)[1].splitlines()[3]
