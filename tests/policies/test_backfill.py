"""EASY and conservative backfill: by hand, and against a simulator written from the definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from builders import problem
from examples import count
from slurm_cluster import FakeNodes, SlurmCluster
from text_tables import given
from waiting import wait_for
from worlds import workload

import allocator
from allocator.engine.decision import decide

LINEAR = {k: float(k) for k in range(1, 17)}


@dataclass(frozen=True)
class Ask:
    """A job: seconds of its submission, GPUs, seconds that it runs, and that its user allows."""

    at_s: int
    gpus: int
    run_s: int
    limit_s: int | None = None
    weight: float = 1.0

    @property
    def said_s(self) -> int:
        """Seconds that it is expected to run."""
        return self.limit_s or self.run_s


def test_by_hand_on_one_pool() -> None:
    """8 GPUs. a takes 4 until 10. At 1 come: b, 6 GPUs for 10 s, which begins at 10; c, all 8 for
    5 s, which could begin when b ends, at 20; d, 2 for 9 s, over when b begins; e, 2 for 30 s.

    EASY knows b only, which leaves 2: d and e start at once, and c waits for e until 31. With a
    reservation for c as well e has to come after it. Without backfill d and e come last.
    """
    asks = [Ask(0, 4, 10), Ask(1, 6, 10), Ask(1, 8, 5), Ask(1, 2, 9), Ask(1, 2, 30)]
    assert starts(asks, 8, "easy") == [0, 10, 31, 1, 1]
    assert starts(asks, 8, "conservative") == [0, 10, 20, 1, 25]
    assert starts(asks, 8, "static") == [0, 10, 20, 25, 25]


def test_slurm_expects_large_jobs_later() -> None:
    """4 GPUs. a has 2 until 10, b has 1 until 35, which is within 30 s of the first end. So Slurm
    expects c, 3 GPUs, at 35 and not at 10, and lets d, 1 GPU for 20 s, overtake it.
    """
    asks = [Ask(0, 2, 10), Ask(0, 1, 35), Ask(1, 3, 5), Ask(2, 1, 20)]
    assert starts(asks, 4, "conservative") == [0, 0, 10, 15]
    assert starts(asks, 4, "slurm") == [0, 0, 22, 2]


def test_weights_come_before_submission() -> None:
    """A heavier job that came last is the head of the queue; equal ones keep their order."""
    asks = [Ask(0, 4, 10), Ask(1, 4, 10), Ask(1, 4, 10), Ask(2, 4, 10, weight=2)]
    assert starts(asks, 4, "easy") == [0, 20, 30, 10]


def test_by_hand_on_nodes() -> None:
    """Two nodes of 4. a has 3 of the first until 10, b of the second until 20. At 1 come: c, 2 GPUs
    for 5 s, for which no node has room before 10; d and e, 1 each for 30 s, which leave it room;
    f, all 8, from 31; g, 1 for 20 s, on the first node beside d after c: f does not wait for it.
    """
    asks = [Ask(0, 3, 10), Ask(0, 3, 20), Ask(1, 2, 5), Ask(1, 1, 30), Ask(1, 1, 30)]
    asks += [Ask(1, 8, 9), Ask(1, 1, 20)]
    nodes = [{"node": n, "pool": "p", "gpus": 4} for n in "xy"]
    pools = [{"pool": "p", "gpus": 8, "gpus_per_node": 4}]
    for policy in ("easy", "conservative", "slurm"):
        assert starts(asks, 8, policy, nodes=nodes, pools=pools) == [0, 0, 10, 1, 1, 31, 10]
        assert starts(asks, 8, policy)[2] == 1


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_a_quota_reserves_nothing_and_the_pool_that_is_free_first_is_taken(policy: str) -> None:
    """A job behind its tenant's quota keeps no GPUs from others. Of two pools a job is reserved
    in the one that is free first, and the other one is left to whom it delays not.
    """
    four, eight = (f"min_gpus={k} max_gpus={k} requested_gpus={k}" for k in (4, 8))
    long = f"{four} remaining_work=1e9"
    small = f"""jobs: {four} tenant=small; {long} submitted_s=1 / pools: gpus=4 /
        tenants: tenant=small max_gpus=1"""
    assert decide(problem(**given(small)), policy=policy).jobs["gpus"] == [0, 4]
    two = f"""pools: gpus=8; gpus=8 / jobs: {four} state=running pool=p0 gpus=4 remaining_work=100;
        {four} state=running pool=p1 gpus=4 remaining_work=500;
        {eight} submitted_s=1; {long} submitted_s=2"""
    plan = decide(problem(**given(two)), policy=policy)
    assert plan.jobs["pool"] == ["p0", "p1", None, "p1"]


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_a_running_job_of_another_size_gets_nodes_anew(policy: str) -> None:
    """A job holds 2 GPUs of a node for 2 $ an hour, and its tenant may pay 1: it goes on with 1."""
    tables = """pools: gpus=2 price_per_gpu_hour=1 gpus_per_node=2 / nodes: node=x pool=p0 gpus=2 /
        tenants: tenant=t budget_per_hour=1 / placements: job_id=j0 node=x gpus=2 /
        jobs: tenant=t min_gpus=1 max_gpus=2 requested_gpus=2 state=running pool=p0 gpus=2"""
    assert decide(problem(**given(tables)), policy=policy).jobs["gpus"] == [1]


def random_asks(rng: np.random.Generator, jobs: int, gpus: int) -> list[Ask]:
    """Random jobs in the order of their submission."""
    at = np.sort(rng.integers(0, 40 * jobs, jobs)).tolist()
    width = np.minimum(2 ** rng.integers(0, 5, jobs), gpus).tolist()
    run = rng.integers(1, 400, jobs).tolist()
    limit = [None if k == 0 else k * s for k, s in zip(rng.integers(0, 4, jobs), run, strict=True)]
    return [Ask(*ask) for ask in zip(at, width, run, limit, strict=True)]


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_a_second_account_agrees(policy: str) -> None:
    """The whole simulator and one written from the definition start every job at the same time;
    the schedules differ from plain first come, first served, and mostly from each other.
    """
    differ = 0
    for seed in range(3, 3 + count(2, 50)):
        rng = np.random.default_rng(seed)
        gpus = int(rng.choice([8, 12, 16]))
        asks = random_asks(rng, 25, gpus)
        second = easy_by_definition if policy == "easy" else conservative_by_definition
        got = starts(asks, gpus, policy)
        assert got == second(asks, gpus), seed
        differ += got != easy_by_definition(asks, gpus) if policy != "easy" else 1
    assert differ > 0


def easy_by_definition(asks: Sequence[Ask], gpus: int) -> list[int]:
    """EASY as Mu'alem and Feitelson state it: shadow time and extra nodes of the first job."""
    start: list[int] = [-1] * len(asks)
    now = 0
    while -1 in start:
        running = [
            (start[k] + a.said_s, a.gpus)
            for k, a in enumerate(asks)
            if start[k] >= 0 and start[k] + a.run_s > now
        ]
        free = gpus - sum(width for _, width in running)
        queue = [k for k, a in enumerate(asks) if start[k] < 0 and a.at_s <= now]
        while queue and asks[queue[0]].gpus <= free:
            k = queue.pop(0)
            start[k] = now
            free -= asks[k].gpus
            running.append((now + asks[k].said_s, asks[k].gpus))
        if queue:
            head, have, shadow = asks[queue[0]].gpus, free, now
            for end, width in sorted(running):
                if have >= head and end > shadow:
                    break
                have, shadow = have + width, end
            extra = have - head
            for k in queue[1:]:
                ask = asks[k]
                if ask.gpus > free:
                    continue
                if now + ask.said_s > shadow:
                    if ask.gpus > extra:
                        continue
                    extra -= ask.gpus
                start[k] = now
                free -= ask.gpus
        now = next_event(asks, start, now)
    return start


def conservative_by_definition(asks: Sequence[Ask], gpus: int) -> list[int]:
    """Each waiting job, in order, is put at the first second from which it fits all the time."""
    start: list[int] = [-1] * len(asks)
    now = 0
    horizon = asks[-1].at_s + sum(a.said_s for a in asks) + 1
    while -1 in start:
        used = np.zeros(horizon, dtype=int)
        for k, a in enumerate(asks):
            if start[k] >= 0 and start[k] + a.run_s > now:
                used[start[k] : start[k] + a.said_s] += a.gpus
        for k, a in enumerate(asks):
            if start[k] < 0 and a.at_s <= now:
                at = now
                while (blocked := np.flatnonzero(used[at : at + a.said_s] + a.gpus > gpus)).size:
                    at += int(blocked[-1]) + 1
                used[at : at + a.said_s] += a.gpus
                start[k] = now if at == now else -1
        now = next_event(asks, start, now)
    return start


def next_event(asks: Sequence[Ask], start: Sequence[int], now: int) -> int:
    """The next submission or end."""
    times = [a.at_s for a in asks] + [
        start[k] + a.run_s for k, a in enumerate(asks) if start[k] >= 0
    ]
    return int(min((t for t in times if t > now), default=now))


def starts(asks: Sequence[Ask], gpus: int, policy: str, **tables: Any) -> list[int]:
    """When the simulator starts each job, in whole seconds."""
    rows = [
        {
            "submitted_s": a.at_s,
            "total_work": a.gpus * a.run_s,
            **dict.fromkeys(("requested_gpus", "min_gpus", "max_gpus"), a.gpus),
            "sizes": [a.gpus],
            "time_limit_s": a.limit_s,
            "weight": a.weight,
        }
        for a in asks
    ]
    run = allocator.simulate(
        workload(rows, gpus, rates=LINEAR, **tables),
        policy=policy,
        options=allocator.SimulationOptions(react_s=1.0, prove_every=0),
    )
    frame = run.jobs.set_index("job_id").loc[[f"j{k}" for k in range(len(asks))]]
    assert (frame["restarts"] == 0).all()
    assert np.allclose(frame["finished_s"] - frame["started_s"], [a.run_s for a in asks])
    return [round(s) for s in frame["started_s"]]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("policy", "seed", "unit_s", "reserves"),
    [
        ("easy", 8, 60, "bf_job_part_count_reserve=1,bf_window=2880"),
        ("conservative", 9, 600, "bf_window_linear=1,bf_window=43200"),
    ],
)
def test_the_order_is_that_of_a_real_slurm(
    policy: str, seed: int, unit_s: int, reserves: str
) -> None:
    """A real Slurm starts 61 rigid jobs of 1 to 16 GPUs in the order of the simulated policy.

    Jobs that start within 5 s of each other in the simulation may start in either order. Slurm's
    backfill plugin reserves nodes for one waiting job only (`easy`), or for all (`conservative`).
    A job runs for 15 to 74 s, and no two jobs have the same time limit.
    """
    rng, gpus = np.random.default_rng(seed), 16
    width = np.minimum(2 ** rng.integers(0, 5, 60), gpus).tolist()
    limit = (unit_s * rng.permutation(np.arange(3, 63))).tolist()
    run = rng.integers(15, 75, 60)
    asks = [Ask(0, gpus, 30, 120), *map(Ask, [0] * 60, width, run, limit)]
    config = (
        f"SchedulerParameters={reserves},sched_interval=1,bf_interval=1,bf_resolution=1,"
        "bf_continue,sched_min_interval=0,batch_sched_delay=0,default_queue_depth=1000\n"
        "MinJobAge=7200\n"
    )
    with SlurmCluster((FakeNodes("a100", "n", gpus, "a100", 1),), config=config) as slurm:
        for a in asks:
            more = f"--time={a.said_s // 60}"
            slurm.submit(f"--nodes={a.gpus}", "--gres=gpu:1", more, wrap=f"sleep {a.run_s}")
        wait_for(lambda: not slurm.run("squeue", "-h"), 3600.0, 5.0)
        slurm.environment["SLURM_TIME_FORMAT"] = "%s"
        shown = slurm.run("squeue", "-h", "--states=all", "--sort=i", "--format=%S")
        began = np.array(shown.split(), int)
    expected = np.array(starts(asks, gpus, policy))
    is_later = expected[:, None] > expected + 5
    assert (began[:, None] >= began)[is_later].all()
