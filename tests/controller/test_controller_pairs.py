"""A controller carries out pairs: two jobs on the same GPUs, started, moved, left by one of
them, billed once; with the price of memory, as the plans said.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.simulated_executor import MachineBehaviour, SimulatedExecutor
from queues import NOW, Clock, Controller, Seen, cluster, fresh
from test_service import RATES, Rig, submit

from allocator.controller import spending
from allocator.controller.controller import Controller as ServiceController
from allocator.controller.options import ControllerOptions
from allocator.controller.reporting.journal import read_plan
from allocator.controller.reporting.replay import replay
from allocator.controller.reporting.status import format_status, status
from allocator.domain.rules.snapshot_rules import validate
from allocator.loop.executor import Order
from allocator.queue import (
    cluster_tables as queue_cluster,
    round_journal,
    snapshot as snapshots,
)
from allocator.queue.costs import read_job_costs
from allocator.queue.jobs import verbs as queue_jobs
from allocator.queue.queue import Queue

POOLS = (
    "pool,gpu_type,gpus,memory_gb,sharing,market,price_per_gpu_hour\n"
    "a,A,1,40,any,on_demand,3600\nb,B,0,40,none,on_demand,1\n"
)
SLOW = "model_a,model_b,gpu_type,gpus,slowdown_a,slowdown_b\nm,m,A,1,1.25,1.25\n"
BUDGET = f"now_s = {NOW}\ninterval_s = 60\n[longrun]\naverage_per_hour = 1000000\n"


def paired(
    folder: Path, policy: str = "bsbf", pools: str = POOLS, memory_gb: tuple[float, float] = (4, 4)
) -> Rig:
    """One GPU at a dollar a second, on which two jobs run at 0.8 each: jobs one (200 units) and
    two (500).
    """
    rig = Rig(folder, ControllerOptions(every_s=60.0, poll_s=10.0, policy=policy))
    with rig.queue.store.write() as connection:
        snapshots.replace_cluster(
            connection,
            cluster(**{"pools.csv": pools, "sharing.csv": SLOW, "config.toml": BUDGET}),
            NOW,
        )
    rig.machines.set_gpus("a", 1)
    rig.machines.set_gpus("b", 0)
    rig.machines.truth = MachineBehaviour(
        rate=lambda o: RATES[o.gpu_type, o.gpus],
        colocated_rate=lambda o, other: 0.8 * RATES[o.gpu_type, o.gpus],
    )
    submit(rig, "one", work=200, memory_gb=memory_gb[0], max_gpus=1)
    submit(rig, "two", work=500, memory_gb=memory_gb[1], max_gpus=1)
    return rig


def spent(rig: Rig) -> float:
    with rig.queue.store.read() as connection:
        return float(
            json.loads(queue_cluster.get_meta(connection, "longrun") or "{}")["account"]["spent"]
        )


def test_a_pair_from_its_start_to_the_end_of_both(tmp_path: Path) -> None:
    """Both at 0.8: one is done after 250 s, when two has 200 of 500; the other 300 take 300 s
    alone. One GPU is held for 550 s: 250 GPU-seconds of one, 300 of two, and 550 dollars. Every
    round is decided again the same."""
    rig = paired(tmp_path, "mip")
    rig.steps(200)
    table = rig.queue.snapshot().tables["jobs.csv"]
    assert table.texts("shared_with") == ["", "one"] and table.texts("gpus") == ["1", "1"]
    assert rig.machines.used["a"] == 1 and spent(rig) == 180.0
    rig.steps(400)
    one, two = rig.queue.jobs()
    assert (one.finished_s, two.finished_s) == (NOW + 250, NOW + 550) and (
        one.restarts,
        two.restarts,
    ) == (0, 0)
    assert (one.attained_gpu_s, two.attained_gpu_s) == (250, 300)
    assert (one.received, two.received) == ({"A": 250.0}, {"A": 550.0})
    assert spent(rig) == 540.0 and rig.machines.used["a"] == 0 and rig.machines.breaches == []
    for r in rig.queue.rounds():
        again = replay(rig.queue.store, r.number)
        assert again.same and again.is_digest_valid
    rig.queue.close()


def test_speeds_of_colocated_jobs_correct_nothing(tmp_path: Path) -> None:
    """Machines are twice as fast as believed. Two jobs on the same GPUs teach nothing; alone, from
    the second look after the other's end on, the job does."""
    rig = paired(tmp_path)
    rig.machines.truth = MachineBehaviour(rate=lambda o: 2.0, colocated_rate=lambda o, other: 0.5)
    rig.steps(360)

    def learned() -> list[dict[str, Any]]:
        with rig.queue.store.read() as connection:
            return queue_cluster.read_learned_rates(connection)

    assert rig.queue.counts()["running"] == 2 and learned() == []
    rig.queue.cancel("one")
    rig.steps(130)
    here = [r for r in learned() if (r["gpu_type"], r["gpus"]) == ("A", 1)]
    assert [r["work_per_s"] is not None for r in here] == [True]
    rig.queue.close()


def slowdowns(rig: Rig) -> list[float]:
    """Both slowdowns of the last row of sharing.csv as the next round reads it."""
    table = rig.queue.snapshot().tables["sharing.csv"]
    return [float(table.texts(name)[-1]) for name in ("slowdown_a", "slowdown_b")]


@pytest.mark.parametrize("gpus", [1, 4])
def test_observed_slowdowns_are_used_in_decisions(gpus: int, tmp_path: Path) -> None:
    """Both jobs do 0.4 a second together, not 0.8: a slowdown of 2.5 where 1.25 was given, for
    their one GPU or for four. After some rounds the next snapshot says so, and two new jobs no
    longer share. Another controller knows it, a replay decides the same, `allocator status` says
    it, and the owner's row stays as it was given."""
    rig = paired(tmp_path)
    files = {"pools.csv": POOLS, "sharing.csv": SLOW.replace("A,1,", f"A,{gpus},")}
    with rig.queue.store.write() as connection:
        snapshots.replace_cluster(connection, cluster(**files, **{"config.toml": BUDGET}), NOW)
    rig.machines.truth = MachineBehaviour(rate=lambda o: 1.0, colocated_rate=lambda o, other: 0.4)
    rig.steps(120)
    assert slowdowns(rig) == [1.25, 1.25]
    rig.steps(360)
    assert slowdowns(rig) == pytest.approx([2.5, 2.5], rel=0.02)
    assert len(rig.queue.snapshot().tables["sharing.csv"]) == (1 if gpus == 1 else 2)
    words = [w for w in format_status(status(rig.queue)) if "next" in w]
    assert len(words) == (1 if gpus == 1 else 2)
    assert words[-1].startswith("corrected   m next to m on 1 x A: slowdown 2.")
    for name in ("one", "two"):
        rig.queue.cancel(name)
    rig.steps(60)
    rig.controller.stop()
    rig.controller = rig.new()
    submit(rig, "three", work=300, memory_gb=4.0, max_gpus=1)
    submit(rig, "four", work=300, memory_gb=4.0, max_gpus=1)
    rig.steps(120)
    assert rig.queue.counts()["running"] == 1
    assert all(replay(rig.queue.store, r.number).same for r in rig.queue.rounds())
    with rig.queue.store.read() as connection:
        given = queue_cluster.read_stored_columns(connection, "sharing.csv")
        assert given["slowdown_a"] == [1.25] and queue_cluster.read_learned_rates(connection) == []
    rig.queue.close()


def test_right_slowdowns_stay_and_no_learning_learns_none(tmp_path: Path) -> None:
    """Machines as believed give no correction. Without learning a wrong row stays."""
    for folder, rate, learn in (("a", 0.8, True), ("b", 0.4, False)):
        (tmp_path / folder).mkdir()
        rig = paired(tmp_path / folder)
        rig.options = replace(rig.options, learn=learn)
        rig.machines.truth = MachineBehaviour(
            rate=lambda o: 1.0, colocated_rate=lambda o, other, rate=rate: rate
        )
        rig.controller = rig.new()
        rig.steps(240)
        assert slowdowns(rig) == [1.25, 1.25]
        rig.queue.close()


def test_jobs_are_told_how_to_run(tmp_path: Path) -> None:
    """A batch in one pass needs 30 of 40 GB, in two passes 15: two jobs share the GPU in two passes
    each, and the environment of both says so. Alone, a job runs in one pass and shares with nobody.
    """
    rig = paired(tmp_path, "mip")
    rates = (
        "model,gpu_type,gpus,work_per_s,batch_size,accumulation,memory_gb,variant\n"
        "m,A,1,1,64,1,30,plain\nm,A,1,0.95,64,2,15,\n"
    )
    files = {"pools.csv": POOLS, "sharing.csv": SLOW, "config.toml": BUDGET, "rates.csv": rates}
    with rig.queue.store.write() as connection:
        snapshots.replace_cluster(connection, cluster(**files), NOW)
    told: dict[tuple[str, int], dict[str, str]] = {}

    def rate(order: Order) -> float:
        told[order.job_id, order.generation] = dict(order.environment)
        return 1.0

    rig.machines.truth = MachineBehaviour(rate=rate, colocated_rate=lambda o, other: 0.76)
    rig.steps(60)
    both = {
        "ALLOCATOR_ACCUMULATION": "2",
        "ALLOCATOR_BATCH_SIZE": "64",
        "ALLOCATOR_JOBS_PER_GPU": "2",
    }
    assert told == {("one", 1): both, ("two", 1): both}
    rig.queue.cancel("one")
    rig.queue.cancel("two")
    rig.steps(60)
    submit(rig, "three", work=200, memory_gb=4.0, max_gpus=1)
    rig.steps(120)
    assert told["three", 1] == {
        "ALLOCATOR_ACCUMULATION": "1",
        "ALLOCATOR_BATCH_SIZE": "64",
        "ALLOCATOR_VARIANT": "plain",
    }
    rig.queue.close()


def test_no_job_joins_one_that_could_not_be_told(tmp_path: Path) -> None:
    """While the executor cannot tell the running job, the other one does not start."""
    rig = paired(tmp_path)
    rig.queue.hold("two")
    rig.steps(60)
    rig.queue.release("two")

    class Mute(SimulatedExecutor):
        def write_settings(self, *arguments: Any) -> None:
            raise OSError(28, "disk full")

    rig.controller.stop()
    rig.controller = ServiceController(
        rig.queue.store, Mute(rig.machines), rig.clock, rig.options, holder="me"
    )
    rig.steps(120)
    assert rig.machines.orders == 1
    rig.controller.stop()
    rig.controller = rig.new()
    rig.steps(20)
    assert rig.machines.orders == 2 and rig.machines.settings["one", 1] == {
        "ALLOCATOR_JOBS_PER_GPU": "2"
    }
    rig.queue.close()


def test_a_secondary_of_a_snapshot_is_a_secondary_in_the_queue(tmp_path: Path) -> None:
    """Loaded into a queue and read again: the same pair, one GPU used."""
    jobs = (
        "job_id,model,submitted_s,remaining_work,max_gpus,state,pool,gpus,shared_with\n"
        f"p,m,{NOW - 20},50,1,running,a,1,\ns,m,{NOW - 10},50,1,running,a,1,p\n"
    )
    source = cluster(**{"jobs.csv": jobs, "pools.csv": POOLS, "sharing.csv": SLOW})
    with Queue.create(tmp_path / "queue.db", source, clock=lambda: NOW) as queue:
        table = queue.snapshot().tables["jobs.csv"]
        assert list(table.texts("job_id")) == ["p", "s"]
        assert table.texts("shared_with") == ["", "p"]
        with queue.store.read() as connection:
            assert queue_cluster.used(connection) == {"a": 1, "b": 0}
            assert [a["host"] for a in queue_jobs.history(connection, "s")] == ["p"]


def test_what_a_pair_costs(tmp_path: Path) -> None:
    """A dollar a second, at least 60 s. The primary job is done after 10 s and leaves the GPU to
    its secondary job: 10 dollars. That one is done after 10 s more: 60. Stretches between two books
    add up, wherever they are cut."""
    pools = (
        "pool,gpu_type,gpus,memory_gb,sharing,market,price_per_gpu_hour,min_billing_s\n"
        "a,A,2,40,any,on_demand,3600,60\nb,B,0,,,,,\n"
    )
    source = cluster(
        **{"pools.csv": pools, "rates.csv": "model,gpu_type,gpus,work_per_s\nm,A,1,1\n"}
    )
    with fresh("sqlite", tmp_path, source, Clock()) as queue:
        for name, tenant in (("g", "red"), ("h", "blue"), ("x", "red")):
            queue.submit(job_id=name, model="m", total_work=100, max_gpus=1, tenant=tenant)
        verbs = Controller(queue)
        verbs.want(h=("a", 1), g=("a", 1, "h"))
        verbs.starts()
        for name in "hg":
            verbs.say(name, "running")
        verbs.see(Seen("h", 1, NOW + 10, "finished"), Seen("g", 1, NOW + 20, "finished"))

        def cost(since_s: float, now_s: float) -> dict[str, float]:
            problem = replace(validate(queue.snapshot()), now_s=NOW + now_s)
            with queue.store.read() as connection:
                return spending.measure_costs(connection, problem, NOW + since_s)

        assert cost(0, 100) == pytest.approx({"blue": 10, "red": 60})
        assert sum(
            sum(cost(a, b).values()) for a, b in itertools.pairwise((0, 7, 10, 15, 33, 70, 99))
        ) == pytest.approx(70)


PRICED = (
    "pool,gpu_type,gpus,memory_gb,sharing,market,price_per_gpu_hour,price_per_gb_hour\n"
    "a,A,2,40,any,on_demand,3600,360\nb,B,0,40,none,on_demand,1,\n"
)


def dollars(rig: Rig) -> dict[str, float]:
    """What each job of the queue cost so far."""
    with rig.queue.store.read() as connection:
        names = [job.job_id for job in rig.queue.jobs()]
        found = read_job_costs(connection, names, rig.clock.now())
    return {name: cost.dollars for name, cost in found.items()}


def test_bills_are_the_price_of_the_plan_times_time(tmp_path: Path) -> None:
    """A GPU at one dollar a second, and a GB of it at a tenth: `small` needs 4 GB and pays 1.4 for
    200 s, `large` needs 20 GB and pays 3 for 300 s. The plans say so, the jobs have cost so, and
    the books of the long-run budget have it too."""
    rig = Rig(tmp_path, ControllerOptions(every_s=60.0, poll_s=10.0))
    with rig.queue.store.write() as connection:
        tables = {"pools.csv": PRICED, "config.toml": BUDGET}
        snapshots.replace_cluster(connection, cluster(**tables), NOW)
    rig.machines.set_gpus("a", 2)
    rig.machines.set_gpus("b", 0)
    rig.machines.truth = MachineBehaviour(rate=lambda o: RATES[o.gpu_type, o.gpus])
    submit(rig, "small", work=200, memory_gb=4.0, max_gpus=1)
    submit(rig, "large", work=300, memory_gb=20.0, max_gpus=1)
    rig.steps(30)
    with rig.queue.store.read() as connection:
        plan = read_plan(round_journal.read(connection, 1).plan or b"")
    per_hour = {job["job_id"]: job["cost_per_hour"] for job in plan["jobs"]}
    assert per_hour == {"small": 1.4 * 3600, "large": 3.0 * 3600}
    assert plan["budget"]["spent_per_hour"] == pytest.approx(4.4 * 3600)
    assert dollars(rig) == pytest.approx({"small": 30 * 1.4, "large": 30 * 3.0})
    rig.steps(370)
    held_s = {job.job_id: job.attained_gpu_s for job in rig.queue.jobs()}
    assert held_s == {"small": 200, "large": 300}
    paid = {name: per_hour[name] * held_s[name] / 3600 for name in held_s}
    assert dollars(rig) == pytest.approx(paid)
    assert dollars(rig) == pytest.approx({"small": 280, "large": 900})
    assert spent(rig) == pytest.approx(280 + 240 * 3)  # up to the last round
    rig.queue.close()


def test_of_a_pair_the_holder_pays_for_its_own_memory(tmp_path: Path) -> None:
    """The first job of a pair holds the GPU and pays 1.4 dollars a second for 250 s. The second one
    pays from then on, for its 9 GB: 1.9 dollars a second for 300 s."""
    rig = paired(tmp_path, "mip", PRICED.replace("a,A,2", "a,A,1"), (4.0, 9.0))
    rig.steps(600)
    one, two = rig.queue.jobs()
    assert (one.finished_s, two.finished_s) == (NOW + 250, NOW + 550)
    assert dollars(rig) == pytest.approx({"one": 250 * 1.4, "two": 300 * 1.9})
    assert spent(rig) == pytest.approx(250 * 1.4 + 290 * 1.9)  # up to the last round
    rig.queue.close()


def test_a_price_that_comes_later_counts_from_the_next_order(tmp_path: Path) -> None:
    """What runs when a pool gets its price of memory goes on at the price of its GPU alone."""
    rig = Rig(tmp_path, ControllerOptions(every_s=60.0, poll_s=10.0))
    submit(rig, "old", work=300, memory_gb=4.0, max_gpus=1)
    rig.steps(30)
    with rig.queue.store.write() as connection:
        snapshots.replace_cluster(connection, cluster(**{"pools.csv": PRICED}), NOW)
    submit(rig, "new", work=300, memory_gb=4.0, max_gpus=1)
    rig.steps(60)
    with rig.queue.store.read() as connection:
        assert queue_cluster.used(connection)["a"] == 2
    start_s = {job.job_id: job.first_started_s for job in rig.queue.jobs()}
    now = rig.clock.now()
    each = {"old": 1.0, "new": 1.4}
    assert dollars(rig) == pytest.approx(
        {name: (now - (start_s[name] or now)) * price for name, price in each.items()}
    )
    rig.queue.close()
