"""A controller carries out pairs: two jobs on the same GPUs, started, moved, left by one of
them, billed once; with the price of memory, as the plans said.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from controller_rigs import Rig, believed
from fakes.simulated_executor import SimulatedExecutor
from queues import NOW, Clock, Seen, Story, cluster, fresh

from allocator.controller import spending
from allocator.domain.rules.snapshot_rules import validate
from allocator.queue import cluster_tables as queue_cluster
from allocator.queue.costs import read_job_costs

MakeRig = Callable[..., Rig]
POOLS = (
    "pool,gpu_type,gpus,memory_gb,sharing,market,price_per_gpu_hour,price_per_gb_hour\n"
    "a,A,1,40,any,on_demand,3600,\nb,B,0,40,none,on_demand,1,\n"
)
PRICED = POOLS.replace("3600,", "3600,360")
TWO_PRICED = PRICED.replace("a,A,1", "a,A,2")
SLOW = "model_a,model_b,gpu_type,gpus,slowdown_a,slowdown_b\nm,m,A,1,1.25,1.25\n"
BUDGET = f"now_s = {NOW}\ninterval_s = 60\n[longrun]\naverage_per_hour = 1000000\n"


def load(rig: Rig, pools: str = POOLS, sharing: str = SLOW, **more: str) -> None:
    """The tables of these tests: one GPU at a dollar a second, and a budget."""
    rig.load(pools=pools, sharing=sharing, config=BUDGET, **more)


def pair_up(rig: Rig, pools: str = POOLS, memory_gb: tuple[float, float] = (4, 4)) -> Rig:
    """One GPU, on which two jobs run at 0.8 each: jobs one (200 units) and two (500)."""
    load(rig, pools)
    rig.behave(colocated_rate=lambda order, other: 0.8 * believed(order))
    for name, work, memory in (("one", 200, memory_gb[0]), ("two", 500, memory_gb[1])):
        rig.submit(name, work=work, memory_gb=memory, gpus=1)
    return rig


@pytest.fixture
def paired(make: MakeRig) -> Callable[..., Rig]:
    """Makes a rig with two jobs on one GPU."""

    def make_pair(policy: str = "bsbf", *tables: Any, **options: Any) -> Rig:
        return pair_up(make(policy=policy, gpus={"a": 1, "b": 0}, **options), *tables)

    return make_pair


def test_speeds_of_colocated_jobs_correct_nothing(paired: MakeRig) -> None:
    """Machines are twice as fast as believed. Two jobs on the same GPUs teach nothing; alone, from
    the second look after the other's end on, the job does."""
    rig = paired()
    rig.behave(rate=lambda o: 2.0, colocated_rate=lambda o, other: 0.5)
    rig.steps(360)
    assert rig.queue.counts()["running"] == 2 and rig.learned() == []
    rig.queue.cancel("one")
    rig.steps(130)
    here = [r for r in rig.learned() if (r["gpu_type"], r["gpus"]) == ("A", 1)]
    assert [r["work_per_s"] is not None for r in here] == [True]


def slowdowns(rig: Rig) -> list[float]:
    """Both slowdowns of the last row of sharing.csv as the next round reads it."""
    return [float(rig.column("sharing", name)[-1]) for name in ("slowdown_a", "slowdown_b")]


@pytest.mark.nightly
@pytest.mark.parametrize(("gpus", "rows"), [(4, 2), pytest.param(1, 1, marks=pytest.mark.nightly)])
def test_observed_slowdowns_are_used_in_decisions(gpus: int, rows: int, paired: MakeRig) -> None:
    """Both jobs do 0.4 a second together, not 0.8: a slowdown of 2.5 where 1.25 was given, for
    their one GPU or for four. After some rounds the next snapshot says so, and two new jobs no
    longer share. Another controller knows it, a replay decides the same, `allocator status` says
    it, and the owner's row stays as it was given."""
    rig = paired()
    load(rig, sharing=SLOW.replace("A,1,", f"A,{gpus},"))
    rig.behave(colocated_rate=lambda o, other: 0.4)
    rig.steps(120)
    assert slowdowns(rig) == [1.25, 1.25]
    rig.steps(360)
    assert slowdowns(rig) == pytest.approx([2.5, 2.5], rel=0.02)
    words = rig.said("corrected   m next to m on")
    assert len(rig.column("sharing", "gpus")) == len(words) == rows
    rig.queue.cancel("one", "two")
    rig.steps(60)
    rig.renew()
    rig.submit("three", "four", memory_gb=4.0, gpus=1)
    rig.steps(120)
    assert rig.queue.counts()["running"] == 1 and rig.replay_all()
    with rig.queue.store.read() as connection:
        given = queue_cluster.read_stored_columns(connection, "sharing.csv")
    assert given["slowdown_a"] == [1.25] and rig.learned() == []


def test_no_job_joins_one_that_could_not_be_told(paired: MakeRig) -> None:
    """While the executor cannot tell the running job, the other one does not start."""

    class Mute(SimulatedExecutor):
        def write_settings(self, *arguments: Any) -> None:
            raise OSError(28, "disk full")

    rig = paired()
    rig.queue.hold("two")
    rig.steps(60)
    rig.queue.release("two")
    rig.renew(Mute)
    rig.steps(120)
    assert rig.machines.orders == 1
    rig.renew()
    rig.steps(20)
    assert rig.machines.orders == 2
    assert rig.machines.settings["one", 1] == {"ALLOCATOR_JOBS_PER_GPU": "2"}


def test_what_a_pair_costs(tmp_path: Path) -> None:
    """A dollar a second, at least 60 s. The primary job is done after 10 s and leaves the GPU to
    its secondary job: 10 dollars. That one is done after 10 s more: 60. Stretches between two books
    add up, wherever they are cut."""
    pools = (
        "pool,gpu_type,gpus,memory_gb,sharing,market,price_per_gpu_hour,min_billing_s\n"
        "a,A,2,40,any,on_demand,3600,60\nb,B,0,,,,,\n"
    )
    rates = "model,gpu_type,gpus,work_per_s\nm,A,1,1\n"
    source = cluster(**{"pools.csv": pools, "rates.csv": rates})
    with fresh("sqlite", tmp_path, source, Clock()) as queue:
        for name, tenant in (("g", "red"), ("h", "blue"), ("x", "red")):
            queue.submit(job_id=name, model="m", total_work=100, max_gpus=1, tenant=tenant)
        story = Story(queue)
        story.play("want h=a/1 g=a/1/h\nstarts -> h.1 g.1\nsay h running\nsay g running")
        story.see(Seen("h", 1, NOW + 10, "finished"), Seen("g", 1, NOW + 20, "finished"))

        def cost(since_s: float, now_s: float) -> dict[str, float]:
            problem = replace(validate(queue.snapshot()), now_s=NOW + now_s)
            with queue.store.read() as connection:
                return spending.measure_costs(connection, problem, NOW + since_s)

        assert cost(0, 100) == pytest.approx({"blue": 10, "red": 60})
        stretches = itertools.pairwise((0, 7, 10, 15, 33, 70, 99))
        assert sum(sum(cost(a, b).values()) for a, b in stretches) == pytest.approx(70)


def dollars(rig: Rig) -> Any:
    """What each job of the queue cost so far, nearly."""
    with rig.queue.store.read() as connection:
        names = [job.job_id for job in rig.queue.jobs()]
        found = read_job_costs(connection, names, rig.clock.now())
    return pytest.approx({name: cost.dollars for name, cost in found.items()})


def test_of_a_pair_the_holder_pays_for_its_own_memory(paired: MakeRig) -> None:
    """Both run at 0.8. The first job holds the GPU and pays 1.4 dollars a second for 250 s; then
    the second one has 200 of its 500 units, and pays for its 9 GB: 1.9 dollars a second for 300 s.
    """
    rig = paired("mip", PRICED, (4.0, 9.0))
    rig.steps(600)
    assert rig.ends() == {"one": 250, "two": 550}
    assert dollars(rig) == {"one": 250 * 1.4, "two": 300 * 1.9}
    jobs = rig.queue.jobs()
    assert [(j.restarts, j.attained_gpu_s) for j in jobs] == [(0, 250), (0, 300)]
    assert [j.received for j in jobs] == [{"A": 250.0}, {"A": 550.0}]
    assert rig.spent() == pytest.approx(250 * 1.4 + 290 * 1.9)  # up to the last round


def test_a_price_that_comes_later_counts_from_the_next_order(rig: Rig) -> None:
    """What runs when a pool gets its price of memory goes on at the price of its GPU alone."""
    rig.submit("old", memory_gb=4.0, gpus=1)
    rig.steps(30)
    rig.load(pools=TWO_PRICED)
    rig.submit("new", memory_gb=4.0, gpus=1)
    rig.steps(60)
    with rig.queue.store.read() as connection:
        assert queue_cluster.used(connection)["a"] == 2
    ran_s = {j.job_id: rig.clock.now() - (j.first_started_s or 0) for j in rig.queue.jobs()}
    assert dollars(rig) == {"old": ran_s["old"], "new": ran_s["new"] * 1.4}
