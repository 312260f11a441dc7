"""Servers that start together reach their hard lifetime together: formulas against runs played loss
by loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from builders import problem
from cases.transient import simulate_runs
from examples import count
from test_spot import one

from allocator.domain.problem import Floats
from allocator.market.spot import forecast_run
from allocator.performance.lost_time import useful_share
from formulations.transient.lifetimes import event_rate, lifetime_seconds, useful_fraction
from formulations.transient.revocations import HOUR_S

RUNS = count(10, 30)
Lives = Callable[[int], Floats]


def draw(random: np.random.Generator, per_hour: float, life_s: float) -> Lives:
    """Lives of servers with a constant hazard and a hard lifetime."""

    def lives(count: int) -> Floats:
        drawn = random.exponential(HOUR_S / per_hour, count) if per_hour else np.full(count, np.inf)
        return np.minimum(drawn, life_s)

    return lives


def played(
    work_s: float, n: int, lives: Lives, delta: float, tau: float, pause: float
) -> tuple[float, int]:
    """Seconds of one synchronous run and how often it was stopped: every server has a death of its
    own; the job goes on `pause` after the last loss, from its last checkpoint; replacements begin a
    life of their own."""
    dies, ready, left, stops = lives(n), 0.0, work_s, 0
    while True:
        first = float(dies.min())
        end = ready + left + (math.ceil(left / tau - 1e-12) - 1) * delta
        if end <= first:
            return end, stops
        left -= tau * max(0, math.floor((first - ready) / (tau + delta) + 1e-12))
        lost, ready, stops = dies <= first, first + pause, stops + 1
        dies[lost] = ready + lives(int(lost.sum()))


def cases() -> list[tuple[int, float, float, float, float, float]]:
    """(n, per_hour, life_s, delta, tau, work_s) in which a stretch and a pause take an eighth of
    the lifetime at most and not much more than the time between two losses, and which are quickly
    played."""
    return [
        (n, h, life, delta, tau, share * life)
        for n, h, life, (delta, tau), share in product(
            (1, 2, 8, 64, 512),
            (0.0, 0.002, 0.02, 0.2),
            (3600.0, 21_600.0, 86_400.0),
            ((20.0, 300.0), (60.0, 1800.0)),
            (0.7, 3.3, 10.6),
        )
        if tau + delta + 90 <= life / 8
        and n * h * share * life <= 60 * HOUR_S
        and n * min(2 * h * (1 + share), h + HOUR_S / life) * (tau + delta + 90) <= 1.2 * HOUR_S
    ]


def test_time_with_lifetimes() -> None:
    """1 to 512 workers, lifetimes of 1 to 24 h, no to many random losses, two intervals, less than
    one to ten lifetimes of work: the expectation within 2 % of the mean of runs, exact where
    nothing is random."""
    random, seen = np.random.default_rng(1), cases()
    assert len(seen) > 150 and {n for n, *_ in seen} == {1, 2, 8, 64, 512}
    for n, h, life, delta, tau, work in seen:
        lives, turns = draw(random, h, life), RUNS if h else 1
        runs = np.array([played(work, n, lives, delta, tau, 90.0)[0] for _ in range(turns)])
        expected = float(lifetime_seconds(work, n, h, life, delta, tau, 90.0))
        slack = 0.02 * runs.mean() + 4 * runs.std() / math.sqrt(len(runs)) if h else 1e-6
        assert expected == pytest.approx(runs.mean(), abs=slack), (n, h, life, delta, tau, work)


@pytest.mark.parametrize(("n", "hours", "true"), [(64, 6, 64.672), (512, 24, 64.041)])
def test_sixty_hours_everywhere(tmp_path: Path, n: int, hours: int, true: float) -> None:
    """60 h of work, a checkpoint of 20 s every 300 s, 84 s to replace: ten lifetimes of 6 h cost
    244 s each, two of a day 124 s. The plan, the round's share and the simulator say the same."""
    spot = {"market": "spot", "lifetime_s": hours * HOUR_S, "startup_s": 84}
    saves = {"checkpoint_s": 20, "checkpoint_every_s": 300}
    work = 60 * HOUR_S * n
    seen = forecast_run(one(tmp_path, workers=n, **spot, **saves, replace_s=84), work)
    assert (seen.seconds - 84) / HOUR_S == pytest.approx(true, abs=1e-3)
    assert simulate_runs(seen, 2, work=work).seconds == pytest.approx(seen.seconds, rel=0.002)
    given = problem([saves | {"remaining_work": work, "restart_s": 0}], [spot])
    phi = useful_share(given, np.array([0]), np.array([0]), np.array([n]), np.array([float(n)]))
    assert phi[0] == pytest.approx(seen.useful)


def test_losses_that_stop_a_job() -> None:
    """Per lifetime of n servers that only end: one stop, not n; before any ends, those of chance;
    with both, within 10 % of the mean of runs."""
    assert event_rate(64, 0.0, 21_600.0, 216_000.0) * 21_600 == pytest.approx(1.0)
    assert event_rate(64, 0.02, 21_600.0, 3600.0) * HOUR_S == pytest.approx(64 * 0.02)
    n, h, life, work = 8, 0.05, 6 * HOUR_S, 30 * HOUR_S
    lives = draw(np.random.default_rng(2), h, life)
    stops = [played(work, n, lives, 0.0, 1.0, 0.0)[1] for _ in range(400)]
    assert float(event_rate(n, h, life, work)) * work == pytest.approx(np.mean(stops), rel=0.1)


def test_ends_of_lifetimes() -> None:
    """A stretch longer than the lifetime is never saved; short work is done before the first
    lifetime ends; one server begins a whole new life at each loss; the share for ever is that of
    one life."""
    whole = {"checkpoint_s": 0.0, "checkpoint_every_s": 4000.0, "lifetime_s": 3600.0}
    for work, share in ((math.inf, 0.0), (4000.0, 0.0), (3500.0, 1.0)):
        assert useful_fraction(8, 0.0, **whole, work_s=work) == share
    saves = {"checkpoint_s": 20.0, "checkpoint_every_s": 300.0, "replace_s": 84.0}
    ever = float(useful_fraction(64, 0.0, **saves, lifetime_s=21_600.0))
    assert ever == pytest.approx(67 * 300 / 21_684)  # 67 stretches of 320 s in 21,600 s
    h, life = 0.5 / HOUR_S, 7200.0
    saved = 300 * sum(math.exp(-h * k * 320) for k in range(1, 23))
    alone = float(useful_fraction(1, 0.5, **saves, lifetime_s=life))
    assert alone == pytest.approx(saved / ((1 - math.exp(-h * life)) / h + 84))


@pytest.mark.parametrize("hours", [6, 24])
def test_sorts_of_one_cluster_end_together(tmp_path: Path, hours: int) -> None:
    """Two sorts with one lifetime are one loss per lifetime; a sort without any ends with none."""
    from test_spot import HEAD, known

    rows = [HEAD + ",market,lifetime_s,replace_s,checkpoint_s,checkpoint_every_s"]
    rows += [f"both,{t},4,1,1,spot,{hours * 3600},84,20,300" for t in "AB"]
    rows += [f"mixed,A,4,1,1,spot,{hours * 3600},84,20,300", "mixed,B,4,1,1,on_demand,,84,20,300"]
    both, mixed = (
        forecast_run(c, 8 * 60 * HOUR_S).seconds for c in known("\n".join(rows) + "\n", tmp_path)
    )
    life = hours * HOUR_S
    alone = played(60 * HOUR_S, 8, lambda count: np.full(count, life), 20.0, 300.0, 84.0)[0]
    assert both == pytest.approx(alone) and mixed == pytest.approx(alone)
