"""A controller carries out pairs: two jobs on the same GPUs, started, moved, left by one of
them, billed once; with the price of memory, as the plans said.
"""

from __future__ import annotations

import copy
import itertools
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fakes.executor_faults import CrashHere
from fakes.simulated_executor import MachineBehaviour, SimulatedExecutor
from queues import BACKENDS, NOW, Clock, Controller, Seen, cluster, fresh
from service_worlds import Fate, FaultyExecutor, FaultyStore
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
from allocator.queue.database.schema import turns
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


@pytest.mark.parametrize("who", ["one", "two"])
def test_who_is_left_goes_on_without_a_pause(who: str, tmp_path: Path) -> None:
    """One of the two is cancelled after 100 s, with 80 units done: the other does one a second from
    then on, on the same GPU and in the same allocation; its GPU-seconds are its own from then on,
    whoever held the GPU before."""
    rig = paired(tmp_path)
    rig.steps(100)
    rig.queue.cancel(who)
    rig.steps(600)
    left = next(j for j in rig.queue.jobs() if j.job_id != who)
    assert left.finished_s == NOW + 100 + (left.total_work - 80) and left.generation == 1
    assert left.attained_gpu_s == (
        left.finished_s - NOW - 100 if who == "one" else left.finished_s - NOW
    )
    assert rig.machines.breaches == [] and rig.machines.used["a"] == 0
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


def test_a_running_job_is_told_of_who_joins_and_who_leaves(tmp_path: Path) -> None:
    """A batch in one pass needs 30 of 40 GB, in two passes 15. A job that runs alone in one pass
    is told to run in two passes next to another job, before that one starts. The other job is
    stopped: nothing changes while it still holds memory. A new controller repeats what holds.
    """
    rig = paired(tmp_path, "mip")
    rates = (
        "model,gpu_type,gpus,work_per_s,batch_size,accumulation,memory_gb\n"
        "m,A,1,1,64,1,30\nm,A,1,0.95,64,2,15\n"
    )
    files = {"pools.csv": POOLS, "sharing.csv": SLOW, "config.toml": BUDGET, "rates.csv": rates}
    with rig.queue.store.write() as connection:
        snapshots.replace_cluster(connection, cluster(**files), NOW)
    rig.queue.cancel("one")
    said: list[tuple[str, str, str]] = []

    def note(name: str, settings: Mapping[str, str]) -> None:
        passes = settings.get("ALLOCATOR_ACCUMULATION", "")
        said.append((name, passes, settings.get("ALLOCATOR_JOBS_PER_GPU", "")))

    class Noting(SimulatedExecutor):
        def start(self, order: Order) -> None:
            super().start(order)
            note(f"start {order.job_id}", order.environment)

        def write_settings(
            self, job_id: str, generation: int, settings: Mapping[str, str], token: int
        ) -> None:
            super().write_settings(job_id, generation, settings, token)
            note(f"tell {job_id}", settings)

    def run(executor: SimulatedExecutor, seconds: float) -> list[tuple[str, str, str]]:
        said.clear()
        rig.controller.stop()
        rig.controller = ServiceController(
            rig.queue.store, executor, rig.clock, rig.options, holder="me"
        )
        rig.steps(seconds)
        return list(said)

    noting = Noting(rig.machines)
    assert run(noting, 60) == [("start two", "1", ""), ("tell two", "1", "")]
    submit(rig, "three", work=500, memory_gb=4.0, max_gpus=1)
    assert run(noting, 60)[-3:] == [
        ("tell two", "2", "2"),
        ("start three", "2", "2"),
        ("tell three", "2", "2"),
    ]
    rig.queue.cancel("three")
    rig.machines.truth = replace(rig.machines.truth, stop_s=lambda o: 30.0)
    rig.controller.step()
    assert rig.machines.settings["two", 1]["ALLOCATOR_ACCUMULATION"] == "2"
    rig.steps(60)
    assert run(noting, 60) == [("tell two", "1", "")]
    assert rig.machines.settings == {
        ("two", 1): {"ALLOCATOR_BATCH_SIZE": "64", "ALLOCATOR_ACCUMULATION": "1"}
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


# ---- the rules of starts, without a policy
# ------------------------------------------------------------------------


class Verbs(Controller):
    """The verbs of a controller, and what there is: for every open allocation its generation,
    phase and primary job.
    """

    def there(self) -> dict[str, tuple[int, str, str]]:
        with self.queue.store.read() as connection:
            found = [queue_jobs.history(connection, j.job_id) for j in self.queue.jobs()]
        return {
            a["job_id"]: (a["generation"], a["phase"], a["host"])
            for rows in found
            for a in rows
            if a["ended_s"] is None
        }

    def used(self) -> int:
        with self.queue.store.read() as connection:
            return queue_cluster.used(connection)["a"]

    def both(self, **first: Any) -> None:
        """A pair runs: h holds a GPU of pool a, g runs on it."""
        self.want(**{"h": ("a", 1), "g": ("a", 1, "h"), **first})
        self.starts()
        for name in ("h", "g", *first):
            self.say(name, "running")


@pytest.fixture(params=BACKENDS)
def verbs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Verbs]:
    """Jobs g, h and x, submitted in this order; two GPUs in pool a."""
    source = cluster(
        **{"pools.csv": "pool,gpu_type,gpus,memory_gb,sharing\na,A,2,40,any\nb,B,0,,\n"}
    )
    with fresh(request.param, tmp_path, source, Clock()) as queue:
        for name in ("g", "h", "x"):
            queue.submit(job_id=name, model="m", total_work=100, max_gpus=2)
        yield Verbs(queue)


def test_primaries_start_before_their_secondaries(verbs: Verbs) -> None:
    """In one step, the primary job first though it was submitted later; said again until they are
    seen; one GPU.
    """
    verbs.want(h=("a", 1), g=("a", 1, "h"))
    assert verbs.starts() == [("h", 1), ("g", 1)] == verbs.starts()
    assert (
        verbs.there() == {"h": (1, "ordered", ""), "g": (1, "ordered", "h")} and verbs.used() == 1
    )


def test_a_secondary_waits_for_its_primary(verbs: Verbs) -> None:
    """The primary job holds other GPUs and has to leave them first; then both start."""
    verbs.want(h=("a", 2))
    verbs.starts()
    verbs.say("h", "running")
    verbs.want(h=("a", 1), g=("a", 1, "h"))
    assert verbs.stops() == [("h", 1)] and verbs.starts() == []
    verbs.say("h", "stopped")
    assert verbs.starts() == [("h", 2), ("g", 1)] and verbs.used() == 1


def test_a_secondary_waits_for_the_secondary_before_it(verbs: Verbs) -> None:
    """g is to leave and x to come: never three jobs on one GPU, whatever takes long to stop."""
    verbs.both()
    verbs.want(h=("a", 1), x=("a", 1, "h"))
    assert verbs.stops() == [("g", 1)] and verbs.starts() == []
    verbs.say("g", "stopped")
    assert verbs.starts() == [("x", 1)] and verbs.there()["x"][2] == "h" and verbs.used() == 1


def test_a_secondary_whose_primary_is_wanted_nowhere_gets_gpus_of_its_own(verbs: Verbs) -> None:
    """The primary job was held before it started: the secondary job need not wait for the next
    round."""
    verbs.want(h=("a", 1), g=("a", 1, "h"))
    verbs.queue.hold("h")
    assert verbs.starts() == [("g", 1)] and verbs.there() == {"g": (1, "ordered", "")}


def test_the_primary_leaves_and_its_secondary_keeps_the_gpus(verbs: Verbs) -> None:
    """h moves to two GPUs: it stops, g holds the GPU from the recorded end on, h has to wait
    until there are two.
    """
    verbs.both()
    verbs.want(h=("a", 2), g=("a", 1))
    assert (
        verbs.stops() == [("h", 1)]
        and verbs.used() == 1
        and verbs.there()["g"] == (1, "running", "h")
    )
    assert verbs.queue.snapshot().tables["jobs.csv"].columns["state"] == [
        "running",
        "paused",
        "queued",
    ]
    verbs.say("h", "stopped")
    assert verbs.there() == {"g": (1, "running", "")} and verbs.used() == 1
    assert verbs.stops() == [] and verbs.starts() == []
    verbs.say("g", "finished")
    assert verbs.starts() == [("h", 2)]


def test_a_secondary_moves_to_other_gpus_of_the_same_pool(verbs: Verbs) -> None:
    """Pool and size stay the same, the primary job stays: it has to stop and to start anew,
    once."""
    verbs.both()
    verbs.want(h=("a", 1), g=("a", 1, "", True))
    assert verbs.stops() == [("g", 1)] == verbs.stops()
    verbs.say("g", "stopped")
    assert verbs.starts() == [("g", 2)] and verbs.stops() == [] and verbs.used() == 2
    assert verbs.there() == {"h": (1, "running", ""), "g": (2, "ordered", "")}


def test_the_primary_comes_to_its_secondary(verbs: Verbs) -> None:
    """g runs alone; h comes to its GPU and holds it from then on, and g does not pause."""
    verbs.want(g=("a", 1))
    verbs.starts()
    verbs.say("g", "running")
    verbs.queue.clock.now += 10  # type: ignore[attr-defined]
    verbs.want(h=("a", 1), g=("a", 1, "h"))
    assert verbs.stops() == [] and verbs.starts() == [("h", 1)] and verbs.used() == 1
    assert verbs.there() == {"g": (1, "running", "h"), "h": (1, "ordered", "")}
    assert verbs.queue.job("g").attained_gpu_s == 10


def test_primary_and_secondary_change_places(verbs: Verbs) -> None:
    """Nobody stops; from then on the GPU-seconds are those of g."""
    verbs.both()
    verbs.queue.clock.now += 10  # type: ignore[attr-defined]
    verbs.want(g=("a", 1), h=("a", 1, "g"))
    assert verbs.stops() == [] and verbs.starts() == []
    assert verbs.there() == {"h": (1, "running", "g"), "g": (1, "running", "")}
    assert verbs.queue.job("h").attained_gpu_s == 10 and verbs.queue.job("g").attained_gpu_s == 0


def test_both_ends_in_any_order_and_every_turn_is_kept(verbs: Verbs) -> None:
    """The end of the primary job is told after that of its secondary job, though it was before: g
    held the GPU for the 5 s between.
    """
    verbs.both()
    verbs.see(Seen("g", 1, NOW + 15, "finished"), Seen("h", 1, NOW + 10, "finished"))
    assert (verbs.queue.job("h").attained_gpu_s, verbs.queue.job("g").attained_gpu_s) == (10, 5)
    assert verbs.used() == 0 and verbs.there() == {}
    with verbs.queue.store.read() as connection:
        rows = connection.execute(
            sa.select(turns.c.job_id, turns.c.at_s, turns.c.host).order_by(turns.c.id)
        ).all()
    assert [tuple(r) for r in rows] == [("g", NOW, "h"), ("g", NOW + 10, "")]


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
        verbs = Verbs(queue)
        verbs.both()
        verbs.see(Seen("h", 1, NOW + 10, "finished"), Seen("g", 1, NOW + 20, "finished"))

        def cost(since_s: float, now_s: float) -> dict[str, float]:
            problem = replace(validate(queue.snapshot()), now_s=NOW + now_s)
            with queue.store.read() as connection:
                return spending.measure_costs(connection, problem, NOW + since_s)

        assert cost(0, 100) == pytest.approx({"blue": 10, "red": 60})
        assert sum(
            sum(cost(a, b).values()) for a, b in itertools.pairwise((0, 7, 10, 15, 33, 70, 99))
        ) == pytest.approx(70)


def test_the_database_itself_refuses_a_second_secondary(verbs: Verbs) -> None:
    """The last line of defence."""
    verbs.both(x=("a", 1))
    with pytest.raises(sa.exc.IntegrityError), verbs.queue.store.write() as connection:
        connection.execute(sa.text("UPDATE allocations SET host = 'h' WHERE job_id = 'x'"))


# ---- killed between two writes
# --------------------------------------------------------------------------------------


COPIES = itertools.count()


def resumed(folder: Path, before: Rig, fate: Fate) -> Rig:
    """The queue and the machines of a rig, copied, under a controller to which things happen."""
    rig = copy.copy(before)
    before.queue.store.engine.dispose()
    path = folder / f"{next(COPIES)}.db"
    shutil.copy(before.queue.store.name, path)
    rig.machines = copy.deepcopy(before.machines)
    rig.clock = rig.machines.clock
    rig.queue = Queue(path, clock=rig.clock.now)
    fate.quiet = True
    rig.controller = ServiceController(
        FaultyStore(rig.queue.store, fate),
        FaultyExecutor(SimulatedExecutor(rig.machines), fate),  # type: ignore[arg-type]
        rig.clock,
        before.options,
        holder="me",
    )
    fate.quiet = False
    return rig


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("at_s", [0, 250])
def test_killed_at_any_write_or_call(at_s: int, every: int, tmp_path: Path) -> None:
    """The step that starts the pair, and the one that sees the end of the primary job: the
    controller dies at every third or at each of its transactions, reads and calls in turn. Whoever
    comes after it finishes what it began: nothing is started twice, one GPU is held, and the jobs
    end and are credited as if nothing had happened."""
    before = paired(tmp_path)
    before.steps(at_s, 50.0)
    before.controller.stop()
    fate = Fate({})
    resumed(tmp_path, before, fate).controller.step()
    assert fate.points > 15
    for point in range(1, fate.points + 1, every):
        rig = resumed(tmp_path, before, Fate({point: "crash"}))
        with pytest.raises(CrashHere):
            rig.controller.step()
        rig.controller = rig.new()
        with rig.queue.store.write() as connection:  # its lease is over
            connection.execute(sa.text("UPDATE lease SET expires_s = 0"))
        rig.steps(650 - at_s, 100.0)
        assert rig.machines.breaches == [] and rig.machines.orders == 2, point
        one, two = rig.queue.jobs()
        assert (one.finished_s, two.finished_s) == (NOW + 250, NOW + 550), point
        assert (two.attained_gpu_s, one.generation, two.generation) == (300, 1, 1), point
        # counted from the look that sees it run
        assert one.attained_gpu_s in (250, 150), point
        # up to the last round that there was
        assert spent(rig) == {0: 500.0, 250: 450.0}[at_s], point
        rig.queue.close()
    before.queue.close()


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
