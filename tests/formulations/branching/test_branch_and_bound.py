"""Branch and bound: against exhaustive search, and by hand."""

from __future__ import annotations

import fcntl
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from choice_models import best_choice, drawn_model, random_model, view
from examples import examples
from hypothesis import given, strategies as st

from formulations.branching import branch_and_bound, loops
from formulations.branching.branch_and_bound import search_plans
from formulations.model.choices import Choices, choices
from formulations.model.linear import Bools

FORMS = (False, True)


def everything(c: Choices) -> tuple[Bools, Bools]:
    """All columns, and nothing for every group that may go without one."""
    return np.ones(c.n, dtype=bool), ~c.mandatory


@pytest.mark.parametrize(("others", "gpus"), [(0, 29), (1, 30), (0, 99)])
def test_a_node_is_branched_on_what_is_held_of_a_pool(others: int, gpus: int):
    """Thirty equal jobs of one GPU for 2 dollars, 19 dollars: all pay for 9.5 of them.

    No job tells that only nine can run; the number of GPUs does, in one branch. Next to a job of
    another tenant the use of the whole pool is 10.5; that of the tenant is a row without bounds,
    and so is that of a pool which is never full.
    """
    jobs = [[(1.0 + 1e-3 * j, {0: 1, 1: 2.003})] for j in range(30)] + [[(9.0, {0: 1})]] * others
    c = view(jobs, [(-np.inf, gpus), (-np.inf, 19)])
    best = 9.0 * others + sum(1.0 + 1e-3 * j for j in range(21, 30))
    prices = np.append(np.zeros(31 + others), 1.0)
    asked = c, *everything(c), best - 1e-6, 0.0, prices
    found = search_plans(*asked, 1_000, False)
    assert found is not None and found.plan is not None
    assert c.value_of(found.plan) == pytest.approx(best) == found.bound
    assert found.steps < 100
    with mock.patch.object(branch_and_bound, "UNITS", ()):
        assert search_plans(*asked, 100, False).bound > best + 0.1


@examples(20, 400)
@given(
    seed=st.integers(0, 10**9),
    steps=st.sampled_from([0, 3, 10, 100_000]),
    waiting=st.sampled_from([1, 2, 20_000]),
    compiled=st.sampled_from(FORMS),
)
def test_the_best_plan_is_never_excluded(seed: int, steps: int, waiting: int, compiled: bool):
    """Rows of all kinds: the bound covers the best plan, however early the search ends.

    A search to the end finds the best plan and proves it.
    """
    rng = np.random.default_rng(seed)
    model = drawn_model(rng)
    c = choices(model)
    best = best_choice(c)
    if best is None:
        nothing_found = search_plans(c, *everything(c), -1e2, 0.0, np.zeros(model.m), 99, compiled)
        assert nothing_found is not None and nothing_found.plan is None
        return
    slack = 1e-9 * (1 + abs(best))
    value = best - float(rng.choice([0.0, 1e-6, 1.0, 100.0]))
    gap = float(rng.choice([0.0, 1e-3, 0.5]))
    with mock.patch.object(branch_and_bound, "WAITING", waiting):
        near, nothing = everything(c)
        prices = rng.normal(size=model.m) * (rng.random(model.m) < 0.5)
        found = search_plans(c, near, nothing, value, gap, prices, steps, compiled)
    assert found is not None
    assert found.bound >= best - slack
    known = value
    if found.plan is not None:
        assert c.feasible(found.plan)
        known = c.value_of(found.plan)
        assert value < known <= best + slack
    if steps == 100_000 and waiting == 20_000:
        assert found.bound <= known + gap * abs(known) + slack
        if gap == 0:
            assert known >= best - slack
    # where no row binds, too
    assert len(branch_and_bound.kernel(True).signatures) < 2


@examples(60, 2_000)
@given(seed=st.integers(0, 10**9))
def test_where_values_tie_a_closed_branch_is_no_other(seed: int):
    """No step gains there, so branches are looked at: the best plan is found and proven."""
    model = random_model(np.random.default_rng(seed), jobs=8, rows=4)
    c = choices(replace(model, value=np.sign(model.value)))
    best = best_choice(c)
    if best is not None:
        found = search_plans(c, *everything(c), best - 1e-6, 0.0, np.zeros(model.m), 100_000)
        assert found is not None and found.plan is not None
        assert c.value_of(found.plan) == best == pytest.approx(found.bound, 1e-6, 1e-8)


@pytest.mark.parametrize(("least", "allowed"), [(-np.inf, [0, 3]), (1.0, [0, 1, 3])])
def test_what_another_column_can_stand_for_is_not_searched(least: float, allowed: list[int]):
    """The second column uses more for the same value, the third has less value for the same use.

    Where a row asks for some use, the second one can serve where the first does not.
    """
    jobs = [
        [(2.0, {0: 1}), (2.0, {0: 2}), (1.0, {0: 1}), (1.0, {})],
        [(5.0, {0: 2}), (6.0, {0: 3})],
    ]
    c = view(jobs, [(least, 3.0)], (0, 1))
    field = branch_and_bound._Open.of(c, *everything(c), np.zeros(3))
    root = branch_and_bound._root(field.field, field.low, field.high, field.price)
    loops.ban_dominated(field.field, root, branch_and_bound._spare(root))
    assert np.flatnonzero(~root.banned[:4]).tolist() == allowed


@pytest.mark.parametrize("another", [False, True])
def test_one_process_at_a_time_compiles(another: bool, tmp_path: Path):
    """A process that finds another one at it has nothing to do."""
    search = SimpleNamespace(stats=SimpleNamespace(cache_path=str(tmp_path / "kept")))
    (tmp_path / "kept").mkdir()
    with (
        mock.patch.object(branch_and_bound, "kernel", lambda compiled: search),
        mock.patch.object(branch_and_bound, "is_kept", lambda search: False),
        mock.patch.object(branch_and_bound, "compile_search") as compile_search,
        (tmp_path / "kept" / "compiling").open("w") as lock,
    ):
        if another:
            fcntl.flock(lock, fcntl.LOCK_EX)
        branch_and_bound.compile_alone()
    assert compile_search.called is not another
