"""Revocable servers: formulas against published fractions, exact limits, and a small simulation
of single events.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from formulations.transient.lifetimes import useful_fraction
from formulations.transient.parameter_servers import bottleneck
from formulations.transient.revocations import (
    HOUR_S,
    Hazard,
    best_interval_s,
    loss_rate,
    losses,
    mean_life_h,
    synchronous_share,
)

BURST = Hazard(np.array([0.2, 0.02]), np.array([0.0, 1.0]), 24.0)


@pytest.mark.parametrize(
    ("hazard", "hours"),
    [
        (BURST, 0.5),
        (BURST, 60.0),
        (Hazard.constant(0.05, 24.0), 24.0),
        (Hazard.constant(0.0, 24.0), 50.0),
    ],
)
def test_losses_of_a_place(hazard: Hazard, hours: float) -> None:
    """The renewal equation against 10,000 places played one life after another."""
    random = np.random.default_rng(1)
    alive, lost = np.zeros(10_000), np.zeros(10_000)
    while (alive < hours).any():
        # the life at which the cumulative hazard reaches it
        need = random.exponential(size=len(alive))
        first = hazard.per_hour[0] * (hazard.start_h[1] if len(hazard.start_h) > 1 else 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            young = need / hazard.per_hour[0]
            old = hazard.start_h[-1] + (need - first) / hazard.per_hour[-1]
        life = np.minimum(
            np.where(need < first, young, old) if len(hazard.per_hour) > 1 else young,
            hazard.lifetime_h,
        )
        alive = alive + life
        lost += alive <= hours
    error = 4 * lost.std() / math.sqrt(len(lost)) + 1e-3
    assert losses(hazard, hours) == pytest.approx(lost.mean(), abs=error)


def test_survival_by_hand() -> None:
    """0.2 per hour in the first hour, 0.02 after, and an end after 24 h; a place loses a server in
    a mean life, also where nobody takes it back."""
    by_hand = (1 - math.exp(-0.2)) / 0.2 + math.exp(-0.2) * (1 - math.exp(-0.02 * 23)) / 0.02
    assert mean_life_h(BURST) == pytest.approx(by_hand)
    assert mean_life_h(Hazard.constant(0.0)) == math.inf
    assert loss_rate(0.0, 86_400.0) == pytest.approx(1 / 86_400)
    in_a_day = mean_life_h(Hazard.constant(0.05, 24.0))
    assert 1 / loss_rate(0.05, 86_400.0) == pytest.approx(in_a_day * HOUR_S)


@settings(max_examples=60)
@given(rate=st.floats(1e-9, 10.0), delta=st.floats(1e-6, 1e4))
def test_no_interval_is_better(rate: float, delta: float) -> None:
    """phi at the exact interval is at least phi anywhere else, however often servers are lost."""
    best = float(best_interval_s(rate, delta))
    others = best * np.array([0.2, 0.9, 0.99, 1.01, 1.1, 5.0])
    here = synchronous_share(rate, delta, best, 0.0)
    assert (
        0 <= here <= 1 and (here >= synchronous_share(rate, delta, others, 0.0) * (1 - 1e-12)).all()
    )


@settings(max_examples=60)
@given(
    n=st.integers(1, 4096),
    h=st.floats(0, 100),
    c=st.floats(0, 600),
    every=st.floats(1, 1e6) | st.just(math.nan),
    r=st.floats(0, 3600),
    life=st.floats(60, 1e6) | st.just(math.inf),
    together=st.booleans(),
)
def test_phi_is_a_share(
    n: int, h: float, c: float, every: float, r: float, life: float, together: bool
) -> None:
    """Never below 0 or above 1, never nan; more workers or more hazard never help. With a hard
    lifetime of synchronous servers the share is an estimate (tests/market/test_lifetimes.py says
    how good), so that they may seem to help by a few per cent of it."""
    rest = {
        "checkpoint_s": c,
        "checkpoint_every_s": every,
        "replace_s": r,
        "lifetime_s": life,
        "synchronous": together,
    }
    phi = useful_fraction(np.array([n, n, n + 1]), np.array([h, h + 0.1, h]), **rest)
    most = phi[0] * (1.05 if together and math.isfinite(life) else 1.0) + 1e-12
    assert (phi >= 0).all() and (phi <= 1).all() and phi[1] <= most and phi[2] <= most


def test_bottleneck() -> None:
    """Servers are the bottleneck where workers do clearly less than alone."""
    assert bottleneck([11.8, 47.2], [11.4, 40.8]).tolist() == [False, True]
