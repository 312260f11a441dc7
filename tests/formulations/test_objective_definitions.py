"""Every objective is defined once: its file, what it says about itself, and objectives of a user's
own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matrix import FEATURES
from places import ROOT

import allocator
from allocator.domain.objectives import REGISTRY
from formulations.objectives import BUILT_IN, Objective, get_objective
from formulations.objectives.context import Context

HELPERS = {"__init__", "combination", "context"}


def test_every_objective_has_a_file_that_states_its_formula() -> None:
    """A file is an objective or one of the helpers; its docstring gives v_o and its letters."""
    files = {p.stem: p for p in (ROOT / "formulations" / "objectives").glob("*.py")}
    assert set(files) == set(BUILT_IN) | HELPERS
    for name in BUILT_IN:
        assert get_objective(name).name == name
        assert f'"""Objective `{name}`: ' in files[name].read_text(encoding="utf-8")


def test_what_objectives_say_of_deadlines_dollars_and_losses_is_true() -> None:
    """The features of the matrix say which objectives look at what."""
    deadlines = FEATURES["deadlines"].acts
    assert {n for n in BUILT_IN if get_objective(n).counts_deadlines} == deadlines
    assert {n for n in BUILT_IN if get_objective(n).counts_dollars} == {"cost"}
    plain = {n for n in BUILT_IN if not get_objective(n).counts_losses}
    assert plain == {"progress", "throughput"}


@pytest.fixture
def _own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objectives that a test registers are gone after it."""
    monkeypatch.setattr(REGISTRY, "_added", {})


def thrift(c: Context) -> Any:
    """Weighted work per GPU: v_o = W_j min(done_o, R_j) / k_o."""
    return c.weight * np.minimum(c.done, c.remaining) / c.offer.gpus


@pytest.mark.usefixtures("_own")
def test_an_objective_of_one_s_own() -> None:
    """A registered objective takes part in ranks and under every policy; its plan is audited, and
    found optimal."""
    allocator.register_objective(Objective("thrift", thrift))
    snapshot = allocator.read_snapshot(ROOT / "data" / "snapshots" / "demo")
    result = allocator.solve(snapshot, objective="thrift > progress")
    assert (result.status, result.objective) == ("optimal", "thrift > progress")
    assert REGISTRY.names() == (*BUILT_IN, "thrift")
    for policy in ("mip", "greedy", "horizon", "srtf"):
        found = allocator.solve(snapshot, objective="thrift", policy=policy)
        assert found.objective_value > 0 and found.bound >= found.objective_value - 1e-9
