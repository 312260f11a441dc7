"""Speeds that policies learn while jobs run (simulator/speed_beliefs.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from text_tables import columns
from worlds import workload

from allocator.performance.table import RateTable
from allocator.simulator import SimulationOptions, slowdown_beliefs, speed_beliefs
from allocator.simulator.cluster import TraceDrivenCluster

RATES = {1: 1.0, 2: 1.8, 4: 3.0, 8: 4.0}


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Observations without noise, so that beliefs can be checked by hand."""
    monkeypatch.setattr(speed_beliefs, "OBSERVATION_NOISE", 0.0)
    monkeypatch.setattr(speed_beliefs, "PROFILE_NOISE", 1e-6)


def believed(cluster: TraceDrivenCluster, sizes: list[int]) -> list[float]:
    """What the policy believes of the only model at these sizes; nan where nothing is offered."""
    p = cluster.observe()
    k = np.array(sizes)
    zero = np.zeros(len(k), dtype=np.int64)
    rate, _ = RateTable.of(p).rate(zero, zero, k)
    return [float(r) for r in rate]


def give(cluster: TraceDrivenCluster, gpus: int, seconds: float) -> None:
    """Let the only job hold so many GPUs for a while."""
    world = cluster.world
    world.apply_allocation(np.array([0]), np.array([0]), np.array([gpus]))
    world.advance(world.now + seconds)


def running(**options: Any) -> TraceDrivenCluster:
    """A cluster of 8 GPUs with one job that has arrived."""
    w = workload(jobs=[{"total_work": 1e6, "max_gpus": 8, "restart_s": 0}], gpus=8, rates=RATES)
    cluster = TraceDrivenCluster(w, SimulationOptions(**options))
    assert cluster.wait()
    return cluster


def test_a_new_model_is_known_at_its_smallest_size_and_believed_up_to_twice_that() -> None:
    one, two, four = believed(running(speeds="learned"), [1, 2, 4])
    assert one == pytest.approx(1.0, rel=1e-4)
    assert two == pytest.approx(2 / 1.05, rel=1e-4)  # the usual overhead: c = 0.05
    assert np.isnan(four)


def test_sizes_that_ran_have_their_speed_and_the_next_ones_follow_the_fit() -> None:
    """After rounds on 2 GPUs: 1.8 x 2^-0.1 there, as training has just begun (k^(0.1 (2 f - 1))).
    Then 4 GPUs are believed to be faster, but not twice as fast, and 8 are not offered.
    """
    cluster = running(speeds="learned")
    believed(cluster, [1])
    for _ in range(5):
        give(cluster, 2, 60.0)
        believed(cluster, [2])
    two, four, eight = believed(cluster, [2, 4, 8])
    assert two == pytest.approx(1.8 * 2**-0.1, rel=1e-2)
    assert 1.3 * two < four < 2.0 * two
    assert np.isnan(eight)


def test_training_changes_the_speed_of_many_gpus_and_not_of_one() -> None:
    """At the beginning 8 GPUs are 19 % slower than in rates.csv, at the end 23 % faster."""
    truth = running(speeds="learned").world.ground_truth
    growth = truth.growth(np.array([1, 1, 8, 8, 8]), np.array([0.0, 1.0, 0.0, 0.5, 1.0]))
    assert growth.tolist() == pytest.approx([1.0, 1.0, 8**-0.1, 1.0, 8**0.1])
    known = running().world.ground_truth
    assert known.growth(np.array([8]), np.array([0.0])).tolist() == [1.0]


def test_a_wrong_profile_is_corrected_where_jobs_run() -> None:
    """Before the first round the profile is wrong by one factor at all sizes. After some rounds on
    2 GPUs the speed there is right. That of 4 GPUs follows by as much of the logarithm as the two
    share: (.5^2 + .2^2 e^(-1/1.5)) of .5^2 + .2^2.
    """
    cluster = running(speeds="noisy", misjudged=1.0, seed=3)
    before = believed(cluster, [1, 2, 4])
    wrong = before[0] / RATES[1]
    assert abs(np.log(wrong)) > 0.3
    assert before == pytest.approx([wrong * RATES[k] for k in (1, 2, 4)])
    for _ in range(10):
        give(cluster, 2, 60.0)
        believed(cluster, [2])
    two, four = believed(cluster, [2, 4])
    assert two == pytest.approx(1.8 * 2**-0.1, rel=0.05)
    share = (0.25 + 0.04 * np.exp(-1 / 1.5)) / 0.29
    assert np.log(four / before[2]) == pytest.approx(share * np.log(two / before[1]))


def test_wrong_slowdowns_are_corrected_where_jobs_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs on the same GPU: before the first round slowdowns are wrong, after some rounds those
    of the two models are right, of others as before. The truth does not change."""
    monkeypatch.setattr(slowdown_beliefs, "OBSERVATION_NOISE", 0.0)
    w = workload(
        [{"model": model, "memory_gb": 1, "total_work": 1e6} for model in "mn"],
        pools=[{"pool": "p", "gpus": 1, "memory_gb": 9, "sharing": "any"}],
        rates=columns("model gpu_type gpus work_per_s: m A 1 1; n A 1 1; o A 1 1"),
        sharing=columns(
            "model_a model_b gpu_type gpus slowdown_a slowdown_b: m n A 1 1.5 1.3; m o A 1 1.4 1.6"
        ),
    )
    cluster = TraceDrivenCluster(w, SimulationOptions(misjudged_slowdowns=0.5, seed=2))
    world, truth = cluster.world, np.array([[1.5, 1.4], [1.3, 1.6]])
    assert cluster.wait()

    def seen() -> Any:
        rows = cluster.observe().sharing
        return np.array([rows.slowdown_a, rows.slowdown_b])

    begin = seen()
    assert np.abs(np.log(begin / truth)).min() > 0.05 and begin.min() >= 1.0
    both = np.arange(2)
    world.apply_allocation(both, 0 * both, 0 * both + 1, np.array([1, -1]))
    for _ in range(12):
        world.advance(world.now + 20.0)
        now = seen()
    assert now[:, 0] == pytest.approx(truth[:, 0], rel=0.05)
    assert now[:, 1].tolist() == begin[:, 1].tolist()
    assert cluster.world.problem.sharing is w.problem.sharing
