"""Views of a queue: what pages and API read, against the queue itself and sums made here."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cases.served import build_served_queue
from sqlalchemy import Connection
from waiting import PATIENCE_S

from allocator.errors import NoPlanInTime, UsageError
from allocator.queue.costs import list_days, read_daily_costs, read_job_costs
from allocator.queue.jobs.verbs import history
from allocator.queue.queue import Queue
from allocator.report.chart import to_html
from allocator.server.caller import VIEWER, Caller
from allocator.server.pages.charts import draw_spending
from allocator.server.views.advice import ask_child, compare_changes, read_question
from allocator.server.views.job import read_job
from allocator.server.views.jobs import JobsPage, list_jobs
from allocator.server.views.overview import read_overview
from allocator.server.views.rounds import compare_rounds, list_rounds, read_round
from allocator.server.views.sight import Sight, read_plan
from allocator.server.views.tenants import format_showback, read_tenants_view

NOW = 1_790_000_000.0
PRICES = {"h100": 4.1, "a100": 1.9, "l4": 0.4}


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    """A queue with six rounds; the last was a minute before NOW."""
    folder = tmp_path_factory.mktemp("views")
    with build_served_queue(folder / "queue.db", now_s=NOW, rounds=6) as queue:
        yield queue


def see(connection: Connection, tenant: str | None = None, size: int = 50) -> Sight:
    """What a viewer sees, or a member of a tenant."""
    return Sight(connection, NOW, Caller("member", tenant) if tenant else VIEWER, size)


def test_costs_are_gpus_times_hours_times_price(queue: Queue) -> None:
    """The cost of each job is the sum over its allocations; days and tenants add up to it."""
    names = [job.job_id for job in queue.jobs()]
    with queue.store.read() as connection:
        costs = read_job_costs(connection, names, NOW)
        daily = read_daily_costs(connection, NOW, 3)
        expected: Counter[str] = Counter()
        for name in names:
            for one in history(connection, name):
                hours = ((one["ended_s"] or NOW) - one["ordered_s"]) / 3600
                expected[name] += hours * one["gpus"] * PRICES[one["pool"]]
    for name, dollars in expected.items():
        assert costs[name].dollars == pytest.approx(dollars)
    assert sum(cost.dollars for cost in daily) == pytest.approx(sum(expected.values()))
    assert {cost.day for cost in daily} <= set(list_days(NOW, 3))
    assert format_showback(daily).startswith("day,tenant,gpu_hours,dollars\n")


def test_a_list_has_the_jobs_that_match_page_by_page(queue: Queue) -> None:
    """Pages of 7 together are all jobs; every filter gives what a filter of the queue gives."""

    def names(tenant: str | None = None, state: str = "all", **wanted: Any) -> list[str]:
        out, page = list[str](), 0
        with queue.store.read() as connection:
            while page * 7 <= len(out):
                page += 1
                sight = see(connection, tenant, 7)
                found = list_jobs(sight, JobsPage(state=state, page=page, **wanted))
                out += [row.job_id for row in found.rows]
        assert len(out) == found.total
        return out

    def known(**which: Any) -> list[str]:
        return [job.job_id for job in queue.jobs(**which)]

    assert names() == names(order="newest")[::-1] == known()
    assert names(state="running") == known(states=["running"])
    assert names(text="LLAMA") == known(model="llama") and names(text="%") == names(cluster="x")
    assert names("speech") == known(tenant="speech")
    with queue.store.read() as connection:
        other = JobsPage(state="all", tenant="vision")
        assert list_jobs(see(connection, "speech"), other).total == 0
        with pytest.raises(UsageError, match='mean "running"'):
            list_jobs(see(connection), JobsPage(state="runing"))


def test_every_active_job_has_one_sentence(queue: Queue) -> None:
    """Also the filter by reason has exactly the jobs whose rows have that reason."""
    with queue.store.read() as connection:
        sight = see(connection, size=500)
        found = list_jobs(sight, JobsPage())
        reasons = Counter(row.reason for row in found.rows)
        for row in found.rows:
            assert row.why.startswith(row.job_id) and row.why.endswith(".")
            assert (row.position is None) == (row.state not in ("queued", "paused"))
        for reason in filter(None, reasons):
            some = list_jobs(sight, JobsPage(reason=reason))
            assert some.total == reasons[reason]
    whys = " ".join(row.why for row in found.rows)
    assert "on hold until it is released" in whys and "not done yet" in whys


def test_a_job_has_its_timeline_and_its_speeds(queue: Queue) -> None:
    """A job that ran has an event for each step, in order; other tenants do not have the job."""
    job = queue.jobs(states=["running"])[0]
    with queue.store.read() as connection:
        view = read_job(see(connection), job.job_id)
        other = "speech" if view.row.tenant != "speech" else "vision"
        for name, tenant in ((job.job_id, other), ("no-such-job", None), ("a\0b", None)):
            with pytest.raises(UsageError, match="has no job") as refused:
                read_job(see(connection, tenant), name)
            assert job.job_id not in str(refused.value).replace(f'"{name}"', "")
    assert view.events[0].what == "submitted"
    assert [e.at_s for e in view.events] == sorted(e.at_s for e in view.events)
    assert view.allocations[-1]["ended_s"] is None and view.row.pool is not None
    assert any(speed.observed for speed in view.speeds)


def test_overview_and_tenants_add_up(queue: Queue) -> None:
    """Money, GPUs and jobs of the tenants below a tenant are those of the tenant. All GPUs in use
    are drawn once.
    """
    with queue.store.read() as connection:
        view = read_overview(see(connection))
        own = read_overview(see(connection, "speech"))
        rows = {row.tenant: row for row in read_tenants_view(see(connection)).tenants}
    assert view.jobs == queue.counts()
    used = sum(pool.used for pool in view.pools)
    for pool in view.pools:
        assert sum(holder.gpus for holder in pool.holders) == pool.used
        assert sum(part.gpus for h in pool.holders for part in h.nodes) in (0, pool.used)
    below = [rows[name] for name in ("vision", "speech", "language")]
    assert rows["research"].gpus == sum(row.gpus for row in below)
    assert rows["research"].gpus + rows["operations"].gpus == used
    assert view.dollars_per_hour == pytest.approx(sum(p.used * PRICES[p.pool] for p in view.pools))
    assert sum(row.share for row in below) == pytest.approx(1)
    assert view.last is not None and view.last.number == 6
    assert own.dollars_per_hour == rows["speech"].dollars_per_hour
    assert sum(own.jobs.values()) == len(queue.jobs(tenant="speech"))
    assert [row.tenant for row in own.tenants.tenants] == ["speech"]


def test_spending_of_a_tenant_has_those_below_it_and_its_budget(queue: Queue) -> None:
    """The costs of a parent are those of its children; a budget is a line, or said."""
    with queue.store.read() as connection:
        view = read_tenants_view(see(connection))
    costs = {name: view.list_costs(name) for name in ("research", "vision", "operations")}
    assert {cost.tenant for cost in costs["vision"]} == {"vision"}
    assert {cost.tenant for cost in costs["research"]} == {"vision", "speech", "language"}
    assert len(costs["research"]) + len(costs["operations"]) == len(view.daily)
    row = view.find("research")
    assert row is not None and row.recent == pytest.approx(
        sum(c.dollars for c in costs["research"])
    )
    assert view.find("nobody") is None
    for budget, words in (
        (1e6, "(budget of a day $24,000,000, far above)"),
        (0.0, '<text class="limit"'),
        (None, ""),
    ):
        drawn = draw_spending(view.days, view.daily, budget)
        assert drawn is not None and words in to_html(drawn)
        assert ("budget" in to_html(drawn)) == (budget is not None)


@pytest.mark.nightly
def test_threads_of_the_service_share_one_heap(tmp_path: Path) -> None:
    """Threads that come later get no heap of their own, in which the service would grow."""
    out = tmp_path / "heaps.xml"
    code = f"""
import ctypes, re, threading
from allocator.server.serving import _share_heap

libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p

def count_heaps():
    file = ctypes.c_void_p(libc.fopen({str(out)!r}.encode(), b"w"))
    libc.malloc_info(0, file)
    libc.fclose(file)
    return len(re.findall("<heap nr", open({str(out)!r}).read()))

_share_heap()
before, barrier = count_heaps(), threading.Barrier(9)

def use():
    bytearray(50_000)
    barrier.wait()

threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads:
    thread.start()
barrier.wait()
print(before == count_heaps())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout == "True\n"


def test_two_rounds_are_compared_job_by_job(queue: Queue) -> None:
    """What differs between two plans is what their entries say; a member sees its own jobs."""
    with queue.store.read() as connection:
        rows = list_rounds(see(connection, size=4)).rows
        first = read_round(see(connection), 3)
        plans = [read_plan(connection, number) for number in (3, 6)]
        found, own = (compare_rounds(see(connection, who), 3, 6) for who in (None, "speech"))
        with pytest.raises(UsageError, match="no round 99"):
            compare_rounds(see(connection), 3, 99)
    assert [row.number for row in rows] == [6, 5, 4, 3] and all(row.changes > 0 for row in rows)
    entries = [list(plan.jobs.values()) for plan in plans if plan is not None]
    assert sum(first.actions.values()) == len(entries[0])
    before, after = (sum(entry["gpus"] for entry in one) for one in entries)
    assert sum(job.gain("gpus") for job in found.jobs) == after - before
    assert own.jobs and {job.tenant for job in own.jobs} == {"speech"}


def test_questions_are_answered_by_a_child_within_their_limit(queue: Queue) -> None:
    """A what-if says who gains, and a member sees its own jobs; too short a limit is an error."""
    with queue.store.read() as connection:
        snapshot, command = read_question(connection, NOW, 60.0)
    values = {"nodes.a100-0.state": "drain"}
    found = ask_child(compare_changes, 60.0, snapshot, command, values)
    gpus = sum(job.gpus_after - job.gpus_before for job in found.jobs)
    assert gpus == found.gpus[1] - found.gpus[0] == sum(row.gpus for row in found.tenants)
    assert all(job.tenant == "speech" for job in found.seen_by("speech").jobs)
    with pytest.raises(UsageError, match="no pool"):
        ask_child(compare_changes, 60.0, snapshot, command, {"pools.nowhere.gpus": "1"})
    with pytest.raises(NoPlanInTime, match=r"within 0\.01 s"):
        ask_child(compare_changes, 0.01, snapshot, command, values)
