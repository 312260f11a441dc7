"""A controller carries out jobs on the GPUs of several jobs, and idle ones: started, left by some
of them, moved, billed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from controller_rigs import Rig
from fakes.simulated_executor import SimulatedExecutor
from queues import BACKENDS, NOW, Clock, Seen, Story, cluster, fresh

from allocator.clusters.adapter import Capabilities
from allocator.controller.options import Stability
from allocator.controller.steadiness import jobs_left_alone, read_allocation_starts
from allocator.domain.rules.snapshot_rules import validate
from allocator.errors import UsageError
from allocator.loop.executor import Order
from allocator.performance.fit.learned_slowdowns import find_limiting_pairs
from allocator.queue.jobs.verbs import read_turns
from allocator.queue.queue import Queue

POOLS = (
    "pool,gpu_type,gpus,memory_gb,sharing,market,price_per_gpu_hour\n"
    "a,A,4,40,any,on_demand,3600\nb,B,0,40,none,on_demand,1\n"
)
RATES = "model,gpu_type,gpus,work_per_s\nm,A,1,1\nm,A,4,1\nn,A,1,1\nn,A,4,1\n"
SLOW = "model_a,model_b,gpu_type,gpus,slowdown_a,slowdown_b\n"
CONFIG = f"now_s = {NOW}\ninterval_s = 60\nmax_primaries = 3\n"
BUDGET = "[longrun]\naverage_per_hour = 1000000\n"


def load(rig: Rig, rates: str = RATES, slow: str = "m,n,A,1,2,1.25\n") -> None:
    """The tables of these tests: four GPUs at a dollar a second, and a budget."""
    rig.load(pools=POOLS, rates=rates, sharing=SLOW + slow, config=CONFIG + BUDGET)


@pytest.fixture
def grouped(make: Callable[..., Rig]) -> Rig:
    """Four GPUs at a dollar a second. Jobs one (400 units) and two (100) have one GPU each, job all
    (1000) takes four. Next to all the others do 0.5 a second, and all does 0.8 next to them.
    """
    rig = make(policy="ffs", gpus={"a": 4, "b": 0})
    load(rig)
    rig.behave(rate=lambda o: 1.0, colocated_rate=lambda o, other: 0.5 if o.gpus == 1 else 0.8)
    for name, work in (("one", 400), ("two", 100)):
        rig.submit(name, work=work, gpus=1, memory_gb=4)
    return rig


def submit_all(rig: Rig) -> None:
    rig.submit("all", model="n", work=1000, gpus=4, memory_gb=4)


@pytest.fixture
def joined(grouped: Rig) -> Rig:
    """After 60 s job all runs on the GPUs of both others and on two idle ones."""
    grouped.steps(60)
    submit_all(grouped)
    grouped.steps(20)
    return grouped


@pytest.mark.nightly
def test_a_group_from_its_start_to_the_end_of_all(joined: Rig, tmp_path: Path) -> None:
    """One and two have done 60 units when all joins them at 60 s. Two is done at 140 s (40 units at
    0.5), one at 740 s (340 units). All has done 544 by then, and the other 456 take 456 s alone. It
    holds two GPUs for 80 s, three for 600 s, four for 456 s. Every round is decided again the same.
    """
    rig = joined
    assert rig.column("jobs", "gpus") == ["1", "1", "4"] and rig.machines.used["a"] == 4
    with Queue.create(tmp_path / "copy.db", rig.queue.snapshot()) as copy:
        assert list(copy.snapshot().tables["jobs.csv"].texts("shared_with")) == ["", "", "one|two"]
    rig.steps(1200)
    assert rig.ends() == {"one": 740, "two": 140, "all": 1196}
    held = 2 * 80 + 3 * 600 + 4 * 456
    jobs = rig.queue.jobs()
    assert [(j.generation, j.attained_gpu_s) for j in jobs] == [(1, 740), (1, 140), (1, held)]
    assert rig.machines.used["a"] == 0
    # the last round is at 1140 s
    assert rig.spent() == 740 + 140 + held - 4 * 56
    rig.replay_all()


def test_jobs_are_told_of_who_joins_and_who_leaves(grouped: Rig) -> None:
    """A job of model m needs 30 of 40 GB in one pass and 15 in two, job all 20: one and two are
    told to run in two passes before all starts, and in one pass again when it has ended: they go on
    without a pause. A new controller repeats what holds."""
    rig, said = grouped, list[str]()
    rates = (
        "model,gpu_type,gpus,work_per_s,batch_size,accumulation,memory_gb,variant\n"
        "m,A,1,1,64,1,30,plain\nm,A,1,0.95,64,2,15,\nn,A,4,1,32,1,20,\n"
    )
    load(rig, rates)

    def note(name: str, settings: Mapping[str, str]) -> None:
        told = ("ACCUMULATION", "JOBS_PER_GPU", "BATCH_SIZE", "VARIANT")
        words = (settings.get(f"ALLOCATOR_{one}", "") for one in told)
        said.append(" ".join([name, *filter(None, words)]))

    class Noting(SimulatedExecutor):
        def start(self, order: Order) -> None:
            super().start(order)
            note(f"start {order.job_id}", order.environment)

        def write_settings(self, *told: Any) -> None:
            super().write_settings(*told)
            note(f"tell {told[0]}", told[2])

    rig.renew(Noting)
    rig.steps(60)
    submit_all(rig)
    rig.steps(20)
    rig.queue.cancel("all")
    rig.behave(stop_s=lambda o: 30.0)
    rig.controller.step()
    said.append("all stops, and still holds memory")
    rig.steps(100)
    said.append("job two has ended")
    rig.renew(Noting)
    rig.steps(10)
    assert said == [
        "start one 1 64 plain",
        "start two 1 64 plain",
        "tell one 1 64 plain",
        "tell two 1 64 plain",
        "tell one 2 2 64",
        "tell two 2 2 64",
        "start all 1 2 32",
        "tell all 1 2 32",
        "all stops, and still holds memory",
        "tell one 2 64",
        "tell two 2 64",
        "tell one 1 64 plain",
        "tell two 1 64 plain",
        "job two has ended",
        "tell one 1 64 plain",
    ]
    assert {j.generation for j in rig.queue.jobs()} == {1}


@pytest.mark.nightly
def test_the_pair_that_explains_the_speed_is_corrected(grouped: Rig) -> None:
    """Next to m and k the job n is believed 1.1 and 1.25 times as slow, and is seen to be 2.5 times
    as slow: the pair with k learns it, the pair with m does not. Where a job is faster than next to
    any of them, no pair is as slow as believed."""
    rig = grouped
    rig.queue.cancel("one", "two")
    rates = "model,gpu_type,gpus,work_per_s\nm,A,1,1\nk,A,1,1\nn,A,4,1\n"
    load(rig, rates, "m,n,A,1,1.25,1.1\nk,n,A,1,1.25,1.25\n")
    rig.behave(colocated_rate=lambda o, other: 0.4)
    for name, gpus in (("m", 1), ("k", 1), ("n", 4)):
        rig.submit(name, model=name, work=1e5, gpus=gpus, memory_gb=4)
        rig.steps(60)
    rig.steps(360)
    found = [*map(float, rig.column("sharing", "slowdown_b"))]
    assert found == pytest.approx([1.1, 2.5], rel=0.02)
    rig.replay_all()
    believed, observed = np.array([1.25, 2.0]), np.array([1.1, 1.1])
    assert find_limiting_pairs(np.zeros(2, int), believed, observed).all()


# ---- the rules of starts, without a policy
# ------------------------------------------------------------------------


GROUP = "want h=a/1 i=a/1 g=a/4/h|i"


class Groups(Story):
    """A story of groups: `held` is generation, primary jobs and GPUs of its own of each job."""

    def _carry_out(self, verb: str, *words: str) -> list[str]:
        if verb != "held":
            return super()._carry_out(verb, *words)
        columns = "job_id, generation, host, held_gpus"
        with self.queue.store.read() as connection:
            rows = connection.execute(
                sa.text(f"SELECT {columns} FROM allocations WHERE ended_s IS NULL ORDER BY job_id")
            )
            return [f"{name}.{number}/{host}/{own}" for name, number, host, own in rows]

    def group(self) -> None:
        """A group runs: g has four GPUs, one of h, one of i and two of its own."""
        self.play(f"""
            {GROUP}
            starts -> h.1 i.1 g.1
            starts -> h.1 i.1 g.1
            say h running
            say i running
            say g running
            held -> g.1/h|i/2 h.1//1 i.1//1
            used -> 4 0
        """)


@pytest.fixture
def verbs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Groups]:
    """Jobs g, h, i and x, submitted in this order; five GPUs in pool a."""
    pools = "pool,gpu_type,gpus,memory_gb,sharing\na,A,5,40,any\nb,B,0,,\n"
    source = cluster(**{"pools.csv": pools, "config.toml": CONFIG})
    backend = getattr(request, "param", "sqlite")
    with fresh(backend, tmp_path, source, Clock()) as queue:
        for name in ("g", "h", "i", "x"):
            queue.submit(job_id=name, model="m", total_work=100, max_gpus=4)
        yield Groups(queue)


def test_a_secondary_waits_for_all_of_its_primaries(verbs: Groups) -> None:
    """Job i holds four GPUs and has to leave them first; h starts, g waits for both."""
    verbs.play(f"""
        want i=a/4
        starts -> i.1
        say i running
        {GROUP}
        stops -> i.1
        starts -> h.1
        say h running
        say i stopped
        starts -> i.2 g.1
        held -> g.1/h|i/2 h.1//1 i.2//1
    """)


def test_a_secondary_waits_for_idle_gpus(verbs: Groups) -> None:
    """Job x still stops on two of the five GPUs: one is idle, and g needs two of its own."""
    verbs.play(f"""
        want x=a/2
        starts -> x.1
        say x running
        {GROUP}
        stops -> x.1
        starts -> h.1 i.1
        say x stopped
        starts -> h.1 i.1 g.1
        used -> 4 0
    """)


def test_a_secondary_waits_for_the_secondary_of_one_of_its_primaries(verbs: Groups) -> None:
    """Job x leaves the GPU of h first: never three jobs on one GPU."""
    verbs.play(f"""
        want h=a/1 i=a/1 x=a/1/h
        starts -> h.1 i.1 x.1
        say h running
        say i running
        say x running
        {GROUP}
        stops -> x.1
        starts ->
        say x stopped
        starts -> g.1
        held -> g.1/h|i/2 h.1//1 i.1//1
    """)


def test_gpus_of_its_own_for_a_primary_that_is_wanted_nowhere(verbs: Groups) -> None:
    """Job i is held before it starts: g takes one more idle GPU in its place. Released between two
    rounds it waits, as a round has to start g anew for it."""
    verbs.play(f"""
        {GROUP}
        hold i
        starts -> h.1 g.1
        held -> g.1/h/3 h.1//1
        used -> 4 0
        say h running
        say g running
        release i
        starts ->
        stops ->
    """)


def test_a_primary_leaves_and_the_secondary_keeps_its_gpus(verbs: Groups) -> None:
    """Job h moves to two GPUs: it stops, and g holds its GPU from the recorded end on; next to i
    nothing changes, and h has to wait until two GPUs are free."""
    verbs.group()
    verbs.play("""
        want h=a/2 i=a/1 g=a/4/i
        stops -> h.1
        used -> 4 0
    """)
    shared = verbs.queue.snapshot().tables["jobs.csv"].texts("shared_with")
    assert list(shared) == ["i", "", "", ""]
    verbs.play("""
        say h stopped
        held -> g.1/i/3 i.1//1
        used -> 4 0
        starts ->
        say g finished
        starts -> h.2
        used -> 3 0
    """)


def test_a_primary_that_failed_comes_back_by_a_round_only(verbs: Groups) -> None:
    """The round before still wants h in the group; g runs on, and h waits though GPUs are free. The
    next round wants g anew: it stops, and starts after h."""
    verbs.group()
    verbs.play(f"""
        say h failed
        wait 100
        held -> g.1/i/3 i.1//1
        starts ->
        stops ->
        {GROUP}/anew
        stops -> g.1
        starts -> h.2
        say h running
        say g stopped
        starts -> g.2
        held -> g.2/h|i/2 h.2//1 i.1//1
    """)


def test_a_secondary_moves_to_gpus_of_its_own(verbs: Groups) -> None:
    """It stops and starts anew when enough are free; the primary jobs run on."""
    verbs.group()
    verbs.play("""
        want h=a/1 i=a/1 g=a/3
        stops -> g.1
        stops -> g.1
        say g stopped
        starts -> g.2
        stops ->
        held -> g.2//3 h.1//1 i.1//1
    """)


def test_a_primary_comes_and_changes_places_with_its_secondary(verbs: Groups) -> None:
    """Job g runs alone for 10 s; h comes to its GPU and holds it from then on, and g does not
    pause. After 10 s more both change places: nobody stops, and g holds the GPU again."""
    verbs.play("""
        want g=a/1
        starts -> g.1
        say g running
        wait 10
        want h=a/1 g=a/1/h
        stops ->
        starts -> h.1
        held -> g.1/h/0 h.1//1
        say h running
        wait 10
        want g=a/1 h=a/1/g
        stops ->
        starts ->
        held -> g.1//1 h.1/g/0
    """)
    assert [verbs.queue.job(name).attained_gpu_s for name in "gh"] == [10, 10]


@pytest.mark.parametrize("verbs", BACKENDS, indirect=True)
def test_ends_in_any_order_and_every_turn_is_kept(verbs: Groups) -> None:
    """The ends of both primary jobs are told in one look, the later one first."""
    verbs.group()
    ends = {"i": 15, "h": 10, "g": 20}
    verbs.see(*(Seen(name, 1, NOW + at_s, "finished") for name, at_s in ends.items()))
    assert [verbs.queue.job(name).attained_gpu_s for name in "hig"] == [10, 15, 2 * 10 + 3 * 5 + 20]
    with verbs.queue.store.read() as connection:
        rows = read_turns(connection, "g")
    found = [(row["at_s"] - NOW, row["host"], row["held_gpus"]) for row in rows]
    assert found == [(0, "h|i", 2), (10, "i", 3), (15, "", 4)]


# ---- settings
# ------------------------------------------------------------------------


def test_settings_follow_what_runs(verbs: Groups) -> None:
    """While a group runs max_primaries may not fall below it, and its pool gets no nodes."""
    verbs.group()
    for most in (1, None):
        with pytest.raises(UsageError, match='max_primaries is 1: job "g" runs on the GPUs of'):
            verbs.queue.configure(max_primaries=most)
    verbs.queue.configure(max_primaries=2)
    with pytest.raises(UsageError, match='gets no nodes while job "g" runs'):
        verbs.queue.add_nodes("n1", pool="a", gpus=4)
    verbs.play("say i finished\nsay g finished")
    verbs.queue.configure(max_primaries=1)
    verbs.queue.add_nodes("n1", pool="a", gpus=4)


def test_settings_that_change_before_a_group_starts(verbs: Groups) -> None:
    """The round wants a group, and max_primaries is 1 when its primary jobs run: it waits for the
    next round."""
    verbs.play(GROUP)
    verbs.queue.configure(max_primaries=1)
    verbs.play("starts -> h.1 i.1")


def test_executors_that_cannot(grouped: Rig) -> None:
    """A controller does not begin with an executor that shares pairs only; if the setting comes
    later, the round fails and says which rule it is."""

    class Pairs(SimulatedExecutor):
        name = "pairs"
        capabilities = Capabilities(reports_progress=True)

    with pytest.raises(UsageError, match='max_primaries is 3: executor "pairs" runs a job on'):
        grouped.renew(Pairs)
    grouped.queue.configure(max_primaries=1)
    grouped.renew(Pairs)
    grouped.queue.configure(max_primaries=3)
    grouped.steps(10)
    [entry] = grouped.queue.rounds()
    assert entry.outcome == "failed" and "max_primaries is 3" in entry.detail


def test_no_job_of_a_group_is_left_alone(joined: Rig) -> None:
    """The cooldown does not protect a job on the GPUs of several jobs, nor those jobs: all of
    them have to stay preemptible."""
    with joined.queue.store.read() as connection:
        known = read_allocation_starts(connection)

    def left_alone() -> frozenset[str]:
        problem = validate(joined.queue.snapshot())
        return jobs_left_alone(problem, known, Stability(min_run_s=1e6))

    assert left_alone() == frozenset()
    joined.queue.cancel("all")
    joined.steps(20)
    assert left_alone() == {"one", "two"}
