"""Dominance against exhaustive search, and the choices of a round."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, replace

import numpy as np
import pytest
from builders import problem
from examples import seeds
from rounds import best, random_instance

from allocator.options.instance_building import compile_round
from formulations.model import linear
from formulations.model.choices import choices
from formulations.model.linear import Block
from formulations.model.single_round import build_model, find_needed_options


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
    jobs = [{"max_gpus": 2}, {"max_gpus": 1}]
    round_ = compile_round(problem(jobs, [{"gpus": 3}], {1: 1.0, 2: 2.0}), prunes=False)
    late = np.array([1, 0, 1])
    rows = Block.at_most(linear.RESERVATION, ["p"], np.zeros(3, np.int64), late, np.array([1.0]))
    one = replace(round_.instance, value=np.array([1.0, 1.0, 5.0]), rules=(rows,))
    assert one.gpus.tolist() == [1, 2, 1]
    assert find_needed_options(one).tolist() == [True, True, True]
    assert best(build_model(one), one.start) == 6.0
    assert find_needed_options(replace(one, rules=())).tolist() == [True, False, True]


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
