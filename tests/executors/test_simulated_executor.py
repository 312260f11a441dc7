"""The simulated cluster finds out who breaks its rules, and executors lie."""

from __future__ import annotations

from itertools import pairwise

from fakes.executor_faults import Unreliable
from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedExecutor,
    SimulatedMachines,
)

from allocator.loop.executor import ENDED, Executor, Observation, Order, Phase


def order(
    job: str, generation: int = 1, gpus: int = 2, work: float = 100.0, token: int = 1
) -> Order:
    return Order(job, generation, token, "a", gpus, "A", work)


def seen(cluster: SimulatedMachines) -> dict[str, tuple[str, float, float]]:
    """Phase, work and time by job."""
    return {o.job_id: (str(o.phase), o.work_done, o.at_s) for o in cluster.observe()}


def test_a_job_that_refuses_to_die_holds_its_gpus() -> None:
    """Told to stop at 10 s, it stops at 40 s with the work of 10 s; who gives its GPUs away before
    is found out, and so is who runs it twice."""
    cluster = SimulatedMachines({"a": 4}, truth=MachineBehaviour(stop_s=lambda o: 30.0))
    cluster.start(order("j", gpus=3))
    cluster.clock.sleep(10.0)
    cluster.stop("j", 1, 1)
    cluster.clock.sleep(20.0)
    cluster.stop("j", 1, 1)
    assert seen(cluster) == {"j": ("running", 10.0, 30.0)} and cluster.used == {"a": 3}
    cluster.start(order("j", 2, gpus=1))
    assert "starts again while its allocation 1 lives" in cluster.breaches[0]
    cluster.start(order("k"))
    assert "has 4 GPUs and gives 6" in cluster.breaches[1]
    cluster.clock.sleep(10.0)
    assert [o for o in cluster.observe() if o.generation == 1 and o.job_id == "j"] == [
        Observation("j", 1, 40.0, Phase.STOPPED, 10.0)
    ]


def test_lies_come_late_twice_and_in_any_order_but_the_truth_gets_through() -> None:
    """Over 100 calls something is missing, something is old, something follows what is newer; the
    greatest work per allocation is never more than the true one, and every end is heard. The same
    seed lies the same."""

    def told(seed: int) -> list[list[Observation]]:
        cluster = SimulatedMachines({"a": 100})
        executor: Executor = Unreliable(SimulatedExecutor(cluster), seed)
        for n in range(10):
            executor.start(order(f"j{n}", work=5.0 * (n + 1)))
        calls = []
        for _ in range(100):
            cluster.clock.sleep(1.0)
            said = list(executor.observe())
            true = {o.job_id: o.work_done for o in cluster.observe()}
            assert all(o.work_done <= true[o.job_id] for o in said)
            calls.append(said)
        return calls

    calls = told(3)
    jobs = [[o.job_id for o in c] for c in calls]
    assert any(len(set(c)) < 10 for c in jobs) and any(len(set(c)) < len(c) for c in jobs)
    assert any(a.at_s > b.at_s for c in calls for a, b in pairwise(c) if a.job_id == b.job_id)
    assert {o.job_id for c in calls for o in c if o.phase in ENDED} == {f"j{n}" for n in range(10)}
    assert told(3) == calls != told(4)
