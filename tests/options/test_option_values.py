"""Objectives and the price of money, by hand: numbers that fit on the back of an envelope."""

from __future__ import annotations

import numpy as np
import pytest
from builders import problem

from allocator.options.option_table import OptionTable, option_table
from allocator.performance.table import RateTable
from allocator.performance.useful import useful_share

SQRT = {k: float(k) ** 0.5 for k in (1, 2, 4, 9, 16)}


def offers(**kwargs: object) -> OptionTable:
    p = problem(**kwargs)  # type: ignore[arg-type]
    return option_table(p, RateTable.of(p))


def test_a_job_that_ends_early_is_billed_until_then_and_a_start_for_the_shortest_bill() -> None:
    """600 s of work on one GPU: 600 s at $6 per hour are $1; with an hour as the shortest bill
    $6, but not to keep.
    """

    def value(**job: object) -> float:
        return offers(
            jobs=[{"remaining_work": 600, "sizes": [1], **job}],
            rates={1: 1.0},
            pools=[{"market": "spot", "price_per_gpu_hour": 6, "min_billing_s": bill}],
            config={"interval_s": 3600, "dollar_price": 0.1},
        ).value.item()

    bill = 0
    assert value() == pytest.approx(1 - 0.1)
    bill = 3600
    assert value() == pytest.approx(1 - 0.6)
    assert value(state="running", pool="p0", gpus=1) == pytest.approx(1 - 0.1)


@pytest.mark.parametrize(("mu", "width"), [(1 / 1.2, 1), (1 / 4, 4), (1 / 9, 9), (1 / 20, 16)])
def test_response_is_best_at_the_rental_width(mu: float, width: int) -> None:
    """Square-root speed-up: the fixed-width optimum is k = 1/mu, whatever is left; there an hour of
    running has the value of the hour of waiting that it
    saves."""
    for remaining in (1e5, 1e6, 500.0):
        m = offers(
            jobs=[{"remaining_work": remaining, "sizes": list(SQRT), "max_gpus": 16}],
            rates=SQRT,
            pools=[{"gpus": 16, "market": "on_demand", "price_per_gpu_hour": 1}],
            config={"interval_s": 3600, "objective": "response", "dollar_price": mu},
        )
        assert m.gpus[np.argmax(m.value)] == width
        assert m.value.max() == pytest.approx(1.0)


def cost_of(hours_left: float | None, spot: float | None = 1.0, **job: object) -> OptionTable:
    """Two hours of work at one per second; a GPU on demand for $3, one on spot for `spot`;
    rounds of half an hour.
    """
    pools = [{"market": "on_demand", "price_per_gpu_hour": 3}]
    pools += [{"market": "spot", "price_per_gpu_hour": spot}] if spot is not None else []
    due = None if hours_left is None else 3600 * hours_left
    return offers(
        jobs=[{"remaining_work": 7200, "sizes": [1], "restart_s": 0, "deadline_s": due, **job}],
        rates={1: 1.0},
        pools=pools,
        config={"interval_s": 1800, "objective": "cost", "now_s": 0},
    )


def test_cost_with_time_to_spare_waits_for_spot() -> None:
    """Ten hours for two hours of work. An hour to spare has value $.15 (L/200, L = 10 x $3), spot
    can be had for .4 of the time: work has value 1 + .15/.4 = $1.375 an hour. Half an hour: .6875 -
    1.5 on demand, .6875 - .5 on spot."""
    assert cost_of(10).value.tolist() == pytest.approx([-0.8125, 0.1875])


def test_cost_without_time_to_spare_runs_on_demand() -> None:
    """Two hours for two: half an hour not worked is half an hour too late, $15, expected and at
    worst. On spot it is made good as expected, for $1 less than on demand; at worst the GPUs are
    gone and nothing is done."""
    assert cost_of(2).value.tolist() == pytest.approx([15.0 + 15.0, 15.0 + 1.0])


def test_cost_of_a_job_without_deadline_keeps_the_pace_that_was_asked_for() -> None:
    """Half an hour of the requested size has the value of the $15 that half an hour behind would
    cost, and spot saves $1.
    """
    assert cost_of(None).value.tolist() == pytest.approx([15.0, 16.0])


def test_revocations_count_in_cost_and_response_and_not_in_progress_and_throughput() -> None:
    """Asynchronous, one revocation an hour, an hour to replace: half of the time is useful."""

    def value(objective: str) -> float:
        return offers(
            jobs=[{"remaining_work": 7200, "sizes": [1], "synchronous": False, "restart_s": 0}],
            rates={1: 1.0},
            config={"interval_s": 1800, "objective": objective},
            pools=[{"market": "spot", "revocations_per_gpu_hour": 2, "startup_s": 0}],
        ).value.item()

    assert value("progress") == pytest.approx(0.25)
    lossy = problem(
        jobs=[{"synchronous": False, "restart_s": 3600}],
        pools=[{"market": "spot", "revocations_per_gpu_hour": 1}],
    )
    one = np.array([0])
    assert useful_share(lossy, one, one, np.array([4]), np.ones(1)).tolist() == [0.5]
    # nothing to replace: nothing is lost
    assert value("response") == pytest.approx(0.5)


def test_kept_shares_are_those_of_the_same_jobs_and_pools() -> None:
    """A share does not depend on the work that is left, so it is kept from round to round. It is
    computed anew where the pool, the job or the size differs: 1 / (1 + hazard x hours to replace).
    """

    def share(hazard: float, restart_s: float, work: float, gpus: int = 4) -> float:
        lossy = problem(
            jobs=[{"synchronous": False, "restart_s": restart_s, "remaining_work": work}],
            pools=[{"market": "spot", "revocations_per_gpu_hour": hazard}],
        )
        one = np.array([0])
        found = useful_share(lossy, one, one, np.array([gpus]), np.ones(1))
        found *= 2.0  # what is kept is not the array that is returned
        return float(found[0]) / 2.0

    for _ in range(2):
        assert share(1, 3600, 100) == share(1, 3600, 5) == share(1, 3600, 5, gpus=1) == 0.5
        assert share(3, 3600, 100) == share(1, 3 * 3600, 100) == 0.25
