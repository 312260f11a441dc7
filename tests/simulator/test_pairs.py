"""Slowdowns and the pairs of a round: by hand, and prices of all pairs against trying every one."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from builders import problem
from examples import seeds
from text_tables import columns

from allocator.bench.workloads.sharing import sharing
from allocator.domain.problem import Problem
from allocator.options.colocation.pairs import Colocations, find_colocations
from allocator.options.instance_building import compile_round
from allocator.options.option_table import OptionTable, option_table
from allocator.performance.interference import MeasuredSlowdowns, fit
from allocator.performance.table import RateTable

# primary job, secondary job, pool, GPUs
Pair = tuple[int, int, int, int]
POOL = {"memory_gb": 10.0, "sharing": "any"}


def row(
    a: str, b: str, xi_a: float, xi_b: float, gpus: int = 1, gpu_type: str = "A"
) -> dict[str, Any]:
    """A row of sharing.csv."""
    names = "model_a model_b gpu_type gpus slowdown_a slowdown_b"
    return columns(f"{names}: {a} {b} {gpu_type} {gpus} {xi_a} {xi_b}")[0]


def speeds(*models: str, **more: Any) -> list[dict[str, Any]]:
    """Rates of these models on 1 and 2 GPUs of type A: 1 and 2 work per second."""
    return [
        {"model": m, "gpu_type": "A", "gpus": k, "work_per_s": float(k), **more}
        for m in models
        for k in (1, 2)
    ]


def found(p: Problem) -> dict[Pair, float]:
    """The value of the pairs that a round offers."""
    m = compile_round(p).option_table
    return {
        (int(m.primary[o]), int(m.job[o]), int(m.pool[o]), int(m.gpus[o])): float(m.value[o])
        for o in np.flatnonzero(m.primary >= 0).tolist()
    }


def pair_of(m: OptionTable, o: int, w: int) -> Pair:
    """The pair of the options of two jobs."""
    return int(m.job[o]), int(m.job[w]), int(m.pool[o]), int(m.gpus[o])


def jobs(*parts: tuple[str, float], **more: Any) -> list[dict[str, Any]]:
    """Jobs of one GPU with 4 GB: model and remaining work."""
    return [
        {"model": m, "remaining_work": w, "max_gpus": 1, "memory_gb": 4.0, **more} for m, w in parts
    ]


def test_measured_slowdowns() -> None:
    """Both ways round; linear between sizes, the nearest beyond; the worse of two rows; nan where
    nothing is known, by pair, by type or by model. Two of one model: the larger of the row's two.
    """
    p = problem(
        jobs(("m", 1)),
        rates=speeds("m", "n", "o"),
        sharing=[
            row("m", "n", 1.2, 1.6),
            row("n", "m", 2.0, 1.4, gpus=5),
            row("m", "n", 1.1, 1.5),
            row("m", "m", 1.3, 1.7),
        ],
    )
    s, (m, n, o) = MeasuredSlowdowns.of(p), (np.array(p.models.index(name)) for name in "mno")
    t, size = np.array(0), np.array([1, 2, 3, 5, 64])
    of_m, of_n = s.slowdown(m, n, t, size)
    assert of_m == pytest.approx([1.2, 1.25, 1.3, 1.4, 1.4]) and of_n == pytest.approx(
        [1.6, 1.7, 1.8, 2.0, 2.0]
    )
    assert s.slowdown(n, m, t, size)[0] == pytest.approx(of_n)
    assert s.slowdown(m, m, t, np.array([1]))[0] == pytest.approx([1.7])
    assert np.isnan(s.slowdown(m, o, t, size)).all() and np.isnan(s.slowdown(n, n, t, size)).all()
    assert s.known(3).tolist() == [True, True, False]


def test_no_slowdowns_no_pairs() -> None:
    """Without sharing.csv nothing is known and nothing is shared."""
    p = problem(jobs(("m", 9), ("m", 9)), [POOL], speeds("m"))
    assert not MeasuredSlowdowns.of(p).known(1).any() and len(found(p)) == 0
    assert np.isnan(fit(p).slowdown(np.array([0]), np.array([0]), np.array(0), np.array([1]))).all()


def test_fitted_slowdowns() -> None:
    """alpha_a beta_b is found exactly from a part of the table and fills the rest with no error; a
    pair of models that no measurement links stays unknown, and so does a model without a row;
    measured values stay."""
    alpha, beta = np.array([0.2, 0.5, 1.0]), np.array([0.4, 1.0, 1.5])
    rows = [
        row("mno"[a], "mno"[b], 1 + alpha[a] * beta[b], 1 + alpha[b] * beta[a])
        for a, b in [(0, 0), (0, 1), (1, 2), (1, 1), (0, 2)]
    ]
    p = problem(jobs(("m", 1)), rates=speeds(*"mnopq"), sharing=[*rows, row("p", "p", 1.7, 1.7)])
    f, code = fit(p), np.array([p.models.index(name) for name in "mnopq"])
    xi, other = f.slowdown(code[:, None], code, np.array(0), np.array(4))
    assert xi[:3, :3] == pytest.approx(1 + alpha[:, None] * beta)
    assert other[:3, :3] == pytest.approx(xi[:3, :3].T) and xi[3, 3] == 1.7
    assert f.error[0] == pytest.approx(0, abs=1e-9)
    assert np.isnan(xi[[0, 3, 4, 0], [3, 0, 0, 4]]).all()
    rows[0] |= {"slowdown_a": 1.2}
    noisy = fit(problem(jobs(("m", 1)), rates=speeds(*"mno"), sharing=rows))
    assert 0 < noisy.error[0] < 0.3
    assert noisy.slowdown(code[0], code[0], np.array(0), np.array(1))[0] == pytest.approx(1.2)


def test_either_may_be_primary_where_that_matters() -> None:
    """Whichever job pays: one way round where nothing tells the two apart, both where a quota or
    money does, or where one of them holds the GPUs. Who may not be moved joins nobody."""
    two, share = jobs(("m", 1000), ("m", 1000)), [row("m", "m", 1.2, 1.2)]
    assert set(found(problem(two, [POOL], speeds("m"), sharing=share))) == {(0, 1, 0, 1)}
    for more in (
        {"tenants": [{"tenant": "default", "max_gpus": 4}]},
        {"config": {"dollar_price": 0.1}},
    ):
        p = problem(two, [POOL], speeds("m"), sharing=share, **more)
        assert set(found(p)) == {(0, 1, 0, 1), (1, 0, 0, 1)}
    holds = [two[0], two[1] | {"state": "running", "pool": "p0", "gpus": 1, "restart_s": 60}]
    assert found(problem(holds, [POOL], speeds("m"), sharing=share)) == {
        (1, 0, 0, 1): pytest.approx(0.5 - 0.3),
        (0, 1, 0, 1): pytest.approx(0.25 + 0.2 - 0.3),
    }
    holds[1] |= {"preemptible": False}
    assert set(found(problem(holds, [POOL], speeds("m"), sharing=share))) == {(1, 0, 0, 1)}


def whole(
    p: Problem,
) -> tuple[Colocations, OptionTable, dict[Pair, tuple[int, int, float]]]:
    """The pairs of a problem, its ordinary options, and of every pair the two options and what
    it has.
    """
    table = RateTable.of(p)
    m = option_table(p, table)
    c = find_colocations(p, m, table)
    first, second = (
        {
            (int(k), int(o)): float(t)
            for k, o, t in zip(side.pair, side.option, side.term, strict=True)
        }
        for side in (c.primary, c.secondary)
    )
    out = {
        pair_of(m, o, w): (o, w, value + more)
        for (k, o), value in first.items()
        for (other, w), more in second.items()
        if k == other and m.job[o] != m.job[w] and more > -math.inf
    }
    return c, m, out


@pytest.mark.parametrize("seed", seeds(2, 12))
def test_pricing_of_all_pairs_against_trying_everything(seed: int) -> None:
    """At drawn prices: u is raised where a pair breaks the inequality, then none does; a matching
    takes the best pair first and no job twice; `within` gives exactly the pairs of a small loss."""
    # a quota: it matters who pays
    p = sharing(seed=seed, load=1.5, jobs=12, gpus=32).workload().problem
    p = dataclasses.replace(p, tenants=dataclasses.replace(p.tenants, max_gpus=np.array([99.0])))
    rng = np.random.default_rng(seed)
    c, m, pairs = whole(p)
    reduced = m.value - rng.uniform(0, 0.5) * float(np.abs(m.value).mean()) * m.gpus
    u = np.zeros(len(p.jobs))
    np.maximum.at(u, m.job, reduced)
    over = {key: reduced[o] + v - u[key[0]] - u[key[1]] for key, (o, _, v) in pairs.items()}
    found_ = c.price(reduced, u)
    assert (found_.least.sum() > 0) == (max(over.values()) > 0)
    raised = u + found_.least
    loss = {
        key: raised[key[0]] + raised[key[1]] - reduced[o] - v for key, (o, _, v) in pairs.items()
    }
    assert min(loss.values()) >= -1e-12 * float(np.abs(u).sum())
    # at the prices of rights that caused this, no pair is left that breaks it
    paid = u + c.at_rights(reduced, u, found_.right)
    assert c.price(reduced, np.maximum(raised, paid)).least.sum() == 0
    matched = list(zip(*(x.tolist() for x in c.match(reduced, u)), strict=True))
    each = [int(m.job[o]) for both in matched for o in both]
    assert len(each) == len(set(each))
    gains = [over[pair_of(m, o, w)] for o, w in matched]
    assert gains == sorted(gains, reverse=True) and all(gain > 0 for gain in gains)
    assert bool(gains) == (max(over.values()) > 0)
    assert not gains or gains[0] == pytest.approx(max(over.values()))
    limit = float(np.median(list(loss.values())))
    primary, secondary, least = c.within(reduced, raised, limit, len(pairs))
    near = {pair_of(m, o, w) for o, w in zip(primary, secondary, strict=True)}
    # of two that wait one way round stands for both
    alike = {(j, i, q, k) for i, j, q, k in near}
    assert least == limit and near <= {key for key, x in loss.items() if x <= limit + 1e-9} | alike
    assert {key for key, x in loss.items() if x < limit - 1e-9} <= near | alike
    few = c.within(reduced, raised, limit, 3)
    assert len(few[0]) <= 3 and few[2] < limit
