"""Slowdowns, memory and the pairs of a round: by hand, and against trying every pair."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from builders import problem
from examples import seeds
from text_tables import columns

from allocator.domain.problem import Isolation, Problem
from allocator.options.colocation.pairs import Colocations, find_colocations
from allocator.options.colocation.secondary_jobs import PairOffer, add_colocated_options
from allocator.options.instance_building import compile_round
from allocator.options.option_table import OptionTable, option_table
from allocator.performance.colocated_speed import colocated_speeds
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


def offered(m: OptionTable) -> dict[Pair, float]:
    """The value of each pair of a table of options."""
    return {
        (int(m.primary[o]), int(m.job[o]), int(m.pool[o]), int(m.gpus[o])): float(m.value[o])
        for o in np.flatnonzero(m.primary >= 0).tolist()
    }


def found(p: Problem) -> dict[Pair, float]:
    """The value of the pairs that a round offers."""
    return offered(compile_round(p).option_table)


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
    s, number = MeasuredSlowdowns.of(p), {name: i for i, name in enumerate(p.models)}
    m, n, o = (np.array(number[name]) for name in "mno")
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
    names, linked = "mno", [(0, 0), (0, 1), (1, 2), (1, 1), (0, 2)]
    rows = [
        row(names[a], names[b], 1 + alpha[a] * beta[b], 1 + alpha[b] * beta[a]) for a, b in linked
    ]
    p = problem(jobs(("m", 1)), rates=speeds(*"mnopq"), sharing=[*rows, row("p", "p", 1.7, 1.7)])
    f, number = fit(p), {name: i for i, name in enumerate(p.models)}
    code = np.array([number[name] for name in "mnopq"])
    a, b = code[:3][:, None], code[:3][None, :]
    one, other = f.slowdown(a, b, np.array(0), np.array(4))
    assert one == pytest.approx(1 + alpha[:, None] * beta[None, :]) and other == pytest.approx(
        one.T
    )
    assert f.error[0] == pytest.approx(0, abs=1e-9)
    for x, y in (("m", "p"), ("p", "m"), ("q", "m"), ("m", "q")):
        assert np.isnan(
            f.slowdown(code["mnopq".index(x)], code["mnopq".index(y)], np.array(0), np.array(1))
        ).all()
    noisy = [{**r, "slowdown_a": float(r["slowdown_a"]) * 1.05} for r in rows[:1]]
    noisy = fit(problem(jobs(("m", 1)), rates=speeds(*"mno"), sharing=[*noisy, *rows[1:]]))
    assert 0 < noisy.error[0] < 0.3 and noisy.slowdown(code[0], code[0], np.array(0), np.array(1))[
        0
    ] == pytest.approx(1.05 * 1.08)


def test_a_pair_by_hand() -> None:
    """Two jobs of 1000 s on one GPU, intervals of 300 s: alone 0.3 of one is done, together 0.3 /
    xi of each. At 1.6 the second adds 0.1875 and costs the first 0.1125; at 2 and more
    a pair has no value."""
    two = jobs(("m", 1000), ("m", 1000))
    p = problem(two, [POOL], speeds("m"), sharing=[row("m", "m", 1.6, 1.6)])
    assert found(p) == {(0, 1, 0, 1): pytest.approx(0.1875 - 0.1125)}
    assert not found(problem(two, [POOL], speeds("m"), sharing=[row("m", "m", 2.0, 2.0)]))


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


def test_memory() -> None:
    """6 GB each do not fit 10 GB. In two passes each needs 3.5 GB, and m is less slow then than n:
    m in two passes together with n in one fits in 9.5 GB, not with 0.6 GB of headroom; then both
    take two. Unknown memory of job or pool, or too little for all that: no pair."""
    way = {"accumulation": 1, "memory_gb": 6.0}, {"accumulation": 2, "memory_gb": 3.5}
    rates = [
        {"model": m, "gpu_type": "A", "gpus": 1, "work_per_s": r, **w}
        for m, slow in (("m", 1.1), ("n", 1.2))
        for r, w in zip((1.0, 1 / slow), way, strict=True)
    ]
    share = [row("m", "n", 1.1, 1.2)]
    two = jobs(("n", 1000), ("m", 1000))
    p = problem(two, [POOL], rates, sharing=share)
    for headroom, passes, memory in ((0.0, [1, 2], 9.5), (0.6, [2, 2], 7.0)):
        b = colocated_speeds(p, *(np.array([x]) for x in (0, 1, 0, 1)), headroom_gb=headroom)
        assert [int(b.accumulation_primary[0]), int(b.accumulation_secondary[0])] == passes
        assert b.memory_gb.tolist() == [memory]
    (pair,) = found(p)
    m = compile_round(p).option_table
    at = int(np.flatnonzero(m.primary >= 0)[0])
    assert pair == (0, 1, 0, 1)
    assert (m.primary_rate[at], m.rate[at]) == pytest.approx((1 / 1.2, 1 / 1.21))
    assert not found(problem(two, [POOL | {"memory_gb": 6.9}], rates, sharing=share))
    assert not found(problem(two, [{"sharing": "any"}], rates, sharing=share))
    assert not found(
        problem(jobs(("m", 9), ("n", 9), memory_gb=None), [POOL], speeds("m", "n"), sharing=share)
    )


def test_isolation() -> None:
    """Three jobs, two of tenant x: any two, two of one tenant, nobody; one rule for each pool."""
    three = [j | {"tenant": t} for j, t in zip(jobs(*[("m", 1000)] * 3), "xyx", strict=True)]
    pools = [POOL | {"sharing": who} for who in ("any", "tenant", "none")]
    q = found(problem(three, pools, speeds("m"), sharing=[row("m", "m", 1.1, 1.1)]))
    got = [sorted((i, j) for i, j, pool, _ in q if pool == k) for k in range(3)]
    assert got == [[(0, 1), (0, 2), (1, 2)], [(0, 2)], []]


def drawn(seed: int, who: str = "any") -> Problem:
    """Twelve jobs of three models on two pools, some running, some not to be moved, with several
    ways to fit.
    """
    r = np.random.default_rng(seed)
    rates = [
        {
            "model": m,
            "gpu_type": t,
            "gpus": k,
            "work_per_s": k**0.8 / (1 + 0.1 * i),
            "accumulation": 2**i,
            "memory_gb": 2 + float(r.integers(1, 9)) / 2**i,
        }
        for m in "mno"
        for t in "AB"
        for k in (1, 2)
        for i in range(2)
    ]
    share = [
        row(a, b, r.uniform(1, 3), r.uniform(1, 3), k, t)
        for a, b in itertools.combinations_with_replacement("mno", 2)
        for t in "AB"
        for k in (1, 2)
        if r.random() < 0.8
    ]
    some = [
        {
            "model": str(r.choice(list("mno"))),
            "remaining_work": float(10 ** r.uniform(1, 4)),
            "max_gpus": 2,
            "tenant": str(r.choice(["x", "y"])),
            "memory_gb": float(r.integers(1, 8)),
        }
        for _ in range(12)
    ]
    for j in some[:3]:
        held, moves = str(r.choice(["p0", "p1"])), bool(r.random() < 0.5)
        j |= {"state": "running", "pool": held, "gpus": 1, "preemptible": moves}
    pools = [
        {"gpu_type": "A", "gpus": 8, "memory_gb": 9.0, "sharing": who},
        {"gpu_type": "B", "gpus": 8, "memory_gb": 9.0, "sharing": "any"},
    ]
    return problem(
        some,
        pools,
        rates,
        sharing=share,
        tenants=[{"tenant": "x", "max_gpus": 9}, {"tenant": "y"}],
        config={"objective": ("progress", "completion", "flow", "cost")[seed % 4]},
    )


def every(p: Problem) -> set[Pair]:
    """(primary job, secondary job, pool, gpus) of all pairs that the rules let share, by trying
    everything."""
    m, rates, out = option_table(p, RateTable.of(p)), p.rates, set()
    known = {
        (int(x), int(y), int(t))
        for a, b, t in zip(p.sharing.model_a, p.sharing.model_b, p.sharing.gpu_type, strict=True)
        for x, y in ((a, b), (b, a))
    }
    fixed = (p.jobs.state == 1) & ~p.jobs.preemptible
    for o, w in itertools.permutations(range(len(m)), 2):
        i, j, q, k = int(m.job[o]), int(m.job[w]), int(m.pool[o]), int(m.gpus[o])
        t = int(p.pools.gpu_type[q])
        need = [
            min(
                float(rates.memory_gb[r])
                for r in range(len(rates.rate))
                if (rates.model[r], rates.gpu_type[r], rates.gpus[r]) == (p.jobs.model[x], t, k)
            )
            for x in (i, j)
        ]
        rule, alien = p.pools.sharing[q], p.jobs.tenant[i] != p.jobs.tenant[j]
        allows_sharing = rule == Isolation.ANY or (rule == Isolation.TENANT and not alien)
        if (
            i != j
            and (q, k) == (m.pool[w], m.gpus[w])
            and allows_sharing
            and not fixed[j]
            and sum(need) <= p.pools.memory_gb[q]
            and (int(p.jobs.model[i]), int(p.jobs.model[j]), t) in known
        ):
            out.add((i, j, q, k))
    return out


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


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_all_pairs_against_trying_everything(seed: int) -> None:
    """The pairs are exactly those that the rules allow, and the sum of the two terms is the value
    of the secondary job's option; the round offers all of positive value."""
    p = drawn(seed, ("any", "tenant", "none")[seed % 3])
    got, truth = whole(p)[2], every(p)
    assert set(got) == truth and truth
    table = RateTable.of(p)
    pairs = tuple(np.array(x) for x in zip(*sorted(got), strict=True))
    m = add_colocated_options(p, option_table(p, table), table, PairOffer.ALL, pairs)
    told = offered(m)
    assert told == {key: pytest.approx(value, abs=1e-9) for key, (_, _, value) in got.items()}
    assert {key for key, value in told.items() if value > 1e-9} <= set(found(p))


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_pricing_of_all_pairs_against_trying_everything(seed: int) -> None:
    """At drawn prices: u is raised where a pair breaks the inequality, then none does; a matching
    takes the best pair first and no job twice; `within` gives exactly the pairs of a small loss."""
    p, rng = drawn(seed), np.random.default_rng(seed)
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
