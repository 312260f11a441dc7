"""Dominance against exhaustive search, and the choices of a round."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, replace

import numpy as np
import pytest
from examples import seeds
from rounds import best, random_instance

from formulations.model import linear
from formulations.model.choices import choices
from formulations.model.dominance import find_needed_options
from formulations.model.instance import Instance
from formulations.model.kept_gpus import KeptGpus
from formulations.model.single_round import build_model

INF = np.inf


def two_jobs(**changes: object) -> Instance:
    """Job 0 of tenant 0: 1 or 2 GPUs of pool 0 (holds 1). Job 1 of tenant 1: 2 GPUs of pool 0,
    or 4 of pool 1.
    """
    base = Instance(
        value=np.array([1.0, 1.5, 2.0, 3.0]),
        start=np.array([0, 2, 4]),
        job=np.array([0, 0, 1, 1]),
        pool=np.array([0, 0, 0, 1]),
        gpus=np.array([1, 2, 2, 4]),
        cost=np.array([2.0, 4.0, 4.0, 0.0]),
        keep=np.array([True, False, False, False]),
        primary=np.full(4, -1),
        conflicting_option=np.full(4, -1),
        mandatory=np.array([False, False]),
        tenant=np.array([0, 1]),
        capacity=np.array([3, 4]),
        budget=6.0,
        quota=np.array([INF, 4.0]),
        tenant_budget=np.array([3.0, INF]),
        guarantee=np.array([0, 2]),
        zone=np.array([-1, 0]),
        exposure=np.array([INF, 4.0]),
        least_kept=1,
        jobs=["a", "b"],
        pools=["p", "s"],
        tenants=["x", "y"],
        zones=["west"],
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def dense(i: Instance) -> tuple[np.ndarray, linear.LinearModel]:
    model = build_model(i)
    a = np.zeros((model.m, model.n))
    a[model.index, model.entry_column] = model.coef
    return a, model


def test_every_rule_is_the_row_it_should_be() -> None:
    """The matrix of a two-job round, written out: kinds, labels, coefficients and bounds."""
    a, model = dense(two_jobs())
    assert [(f.kind, list(f.labels)) for f in model.families] == [
        ("at_most_one", ["a", "b"]),
        ("capacity", ["p", "s"]),
        ("idle_headroom", []),
        ("headroom", []),
        ("reservation", []),
        ("budget", [""]),
        ("quota", ["y"]),
        ("tenant_budget", ["x"]),
        ("guarantee", ["y"]),
        ("churn", [""]),
        ("exposure", ['y" in region "west']),
        ("lending", []),
        ("colocation", []),
        ("takeover", []),
    ]
    assert a.tolist() == [
        [1, 1, 0, 0],
        [0, 0, 1, 1],  # one option each
        [1, 2, 2, 0],
        [0, 0, 0, 4],  # GPUs of p and s
        [2, 4, 4, 0],  # dollars
        [0, 0, 2, 4],
        [2, 4, 0, 0],  # GPUs of y, dollars of x
        [0, 0, 2, 4],
        [1, 0, 0, 0],  # guarantee of y, jobs kept
        [0, 0, 0, 4],
    ]  # GPUs of y in the spot pool
    assert model.upper.tolist() == [1, 1, 3, 4, 6, 4, 3, INF, INF, 4]
    assert model.lower.tolist() == [-INF] * 7 + [2, 1, -INF]
    assert model.row_name(5) == 'quota of "y"' and model.row_name(8) == "churn"


@pytest.mark.parametrize("seed", seeds(14, 150))
def test_dominance_never_changes_the_optimum(seed: int) -> None:
    """Exhaustive search finds the same best value, or the same infeasibility, with and without
    dominated options, of which there are some; in every second round jobs may share."""
    i = random_instance(np.random.default_rng(seed), secondaries=3 * (seed % 2))
    pruned = i.take(np.flatnonzero(find_needed_options(i)))
    assert seed or len(pruned.job) < len(i.job)
    whole, less = best(build_model(i), i.start), best(build_model(pruned), pruned.start)
    assert (whole is None) == (less is None)
    assert whole is None or less == pytest.approx(whole, abs=1e-12)


def test_more_gpus_that_end_in_time_are_not_dominated() -> None:
    """A reservation leaves one GPU to options that end after it begins. Job 0 ends after it on one
    GPU and before it on two, with the same value. Job 1 ends after it, on one GPU. So both jobs run
    only if job 0 gets two GPUs, and that option must not be dropped as dominated."""
    one = two_jobs(
        value=np.array([1.0, 1.0, 5.0]),
        start=np.array([0, 2, 3]),
        job=np.array([0, 0, 1]),
        pool=np.zeros(3, dtype=np.int64),
        gpus=np.array([1, 2, 1]),
        cost=np.zeros(3),
        keep=np.zeros(3, dtype=bool),
        primary=np.full(3, -1),
        conflicting_option=np.full(3, -1),
        guarantee=np.zeros(2, dtype=np.int64),
        least_kept=0,
        kept=(KeptGpus(linear.RESERVATION, np.array([1, 0, 1]), np.array([1.0, INF])),),
    )
    assert find_needed_options(one).tolist() == [True, True, True]
    assert best(build_model(one), one.start) == 6.0
    assert find_needed_options(replace(one, kept=())).tolist() == [True, False, True]


@pytest.mark.parametrize("seed", range(6))
def test_a_round_is_the_same_choices_as_its_rows(seed: int) -> None:
    """The choices of a round, made with it, are those that are read from the rows of its model;
    copies of the model have the same rows."""
    model = build_model(random_instance(np.random.default_rng(seed), secondaries=3 * (seed % 2)))
    columns = {field.name: getattr(model, field.name) for field in fields(linear.LinearModel)}
    found, read = vars(choices(model)), vars(choices(linear.LinearModel(**columns)))
    for name in ("start", "group", "mandatory", "rows", "low", "high"):
        assert found[name].tolist() == read[name].tolist(), name
    for name in ("data", "indices", "indptr", "shape"):
        a, b = getattr(found["matrix"], name), getattr(read["matrix"], name)
        assert np.array_equal(a, b), name
    for copied in (replace(model), deepcopy(model), model.take(np.arange(model.n))):
        assert copied.index.tolist() == model.index.tolist()
        assert copied.coef.tolist() == model.coef.tolist()
