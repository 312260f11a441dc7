"""Slowdowns, memory and the candidates of sharing: by hand, and against trying every pair."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from builders import problem

from allocator.domain.problem import Isolation, Problem
from allocator.options.menu import menu
from allocator.options.pairs import Pairs, pairs
from allocator.performance.interference import Measured, fit
from allocator.performance.table import RateTable

POOL = {"memory_gb": 10.0, "sharing": "any"}


def row(a: str, b: str, xi_a: float, xi_b: float, gpus: int = 1, gpu_type: str = "A") -> dict[str, Any]:
    """A row of sharing.csv."""
    return {"model_a": a, "model_b": b, "gpu_type": gpu_type, "gpus": gpus, "slowdown_a": float(xi_a),
            "slowdown_b": float(xi_b)}


def speeds(*models: str, **more: Any) -> list[dict[str, Any]]:
    """Rates of these models on 1 and 2 GPUs of type A: 1 and 2 work per second."""
    return [{"model": m, "gpu_type": "A", "gpus": k, "work_per_s": float(k), **more} for m in models for k in (1, 2)]


def found(p: Problem, **options: Any) -> Pairs:
    return pairs(p, menu(p, RateTable.of(p)), Measured.of(p), **options)


def jobs(*parts: tuple[str, float], **more: Any) -> list[dict[str, Any]]:
    """Jobs of one GPU with 4 GB: model and remaining work."""
    return [{"model": m, "remaining_work": w, "max_gpus": 1, "memory_gb": 4.0, **more} for m, w in parts]


def test_measured_slowdowns() -> None:
    """Both ways round; linear between sizes, the nearest beyond; the worse of two rows; nan where nothing is known, by
    pair, by type or by model. Two of one model: the larger of the row's two."""
    p = problem(jobs(("m", 1)), rates=speeds("m", "n", "o"), sharing=[
        row("m", "n", 1.2, 1.6), row("n", "m", 2.0, 1.4, gpus=5), row("m", "n", 1.1, 1.5), row("m", "m", 1.3, 1.7)])
    s, number = Measured.of(p), {name: i for i, name in enumerate(p.models)}
    m, n, o = (np.array(number[name]) for name in "mno")
    t, size = np.array(0), np.array([1, 2, 3, 5, 64])
    of_m, of_n = s.slowdown(m, n, t, size)
    assert of_m == pytest.approx([1.2, 1.25, 1.3, 1.4, 1.4]) and of_n == pytest.approx([1.6, 1.7, 1.8, 2.0, 2.0])
    assert s.slowdown(n, m, t, size)[0] == pytest.approx(of_n)
    assert s.slowdown(m, m, t, np.array([1]))[0] == pytest.approx([1.7])
    assert np.isnan(s.slowdown(m, o, t, size)).all() and np.isnan(s.slowdown(n, n, t, size)).all()
    assert s.known(3).tolist() == [True, True, False]


def test_no_slowdowns_no_pairs() -> None:
    """Without sharing.csv nothing is known and nothing is shared."""
    p = problem(jobs(("m", 9), ("m", 9)), [POOL], speeds("m"))
    assert not Measured.of(p).known(1).any() and len(found(p)) == 0
    assert np.isnan(fit(p).slowdown(np.array([0]), np.array([0]), np.array(0), np.array([1]))).all()


def test_fitted_slowdowns() -> None:
    """alpha_a beta_b is found exactly from a part of the table and fills the rest with no error; a pair of models that
    no measurement links stays unknown, and so does a model without a row; measured values stay."""
    alpha, beta = np.array([0.2, 0.5, 1.0]), np.array([0.4, 1.0, 1.5])
    names, linked = "mno", [(0, 0), (0, 1), (1, 2), (1, 1), (0, 2)]
    rows = [row(names[a], names[b], 1 + alpha[a] * beta[b], 1 + alpha[b] * beta[a]) for a, b in linked]
    p = problem(jobs(("m", 1)), rates=speeds(*"mnopq"), sharing=[*rows, row("p", "p", 1.7, 1.7)])
    f, number = fit(p), {name: i for i, name in enumerate(p.models)}
    code = np.array([number[name] for name in "mnopq"])
    a, b = code[:3][:, None], code[:3][None, :]
    one, other = f.slowdown(a, b, np.array(0), np.array(4))
    assert one == pytest.approx(1 + alpha[:, None] * beta[None, :]) and other == pytest.approx(one.T)
    assert f.error[0] == pytest.approx(0, abs=1e-9)
    for x, y in (("m", "p"), ("p", "m"), ("q", "m"), ("m", "q")):
        assert np.isnan(f.slowdown(code["mnopq".index(x)], code["mnopq".index(y)], np.array(0), np.array(1))).all()
    noisy = [{**r, "slowdown_a": r["slowdown_a"] * 1.05} for r in rows[:1]]
    noisy = fit(problem(jobs(("m", 1)), rates=speeds(*"mno"), sharing=[*noisy, *rows[1:]]))
    assert 0 < noisy.error[0] < 0.3 and noisy.slowdown(code[0], code[0], np.array(0), np.array(1))[0] == pytest.approx(
        1.05 * 1.08)


def test_a_pair_by_hand() -> None:
    """Two jobs of 10 s on one GPU, slowdown 1.4 both: together 14 s, one after the other 15 s on average: 1/15 is
    saved. Each does 1/1.4 of its work per second. At 1.5 nothing is gained, and there is no pair."""
    p = problem(jobs(("m", 10), ("m", 10)), [POOL], speeds("m"), sharing=[row("m", "m", 1.4, 1.4)])
    q = found(p)
    assert (q.job_a.tolist(), q.job_b.tolist(), q.pool.tolist(), q.gpus.tolist()) == ([0], [1], [0], [1])
    assert q.saved == pytest.approx([1 / 15]) and q.rate_a == q.rate_b == pytest.approx([1 / 1.4])
    assert q.memory_gb.tolist() == [8.0] and q.accumulation_a.tolist() == [0]
    tie = problem(jobs(("m", 10), ("m", 10)), [POOL], speeds("m"), sharing=[row("m", "m", 1.5, 1.5)])
    assert len(found(tie)) == 0


def test_who_may_not_move_goes_first() -> None:
    """Slowdown 1.8, lengths 10 and 2 s. Either may go first: the short one does, and nothing beats that. If the long
    one may not be moved, it goes first, 11 s on average; together it is 5 + 3.6 - 1 = 7.6 s."""
    share = [row("m", "m", 1.8, 1.8)]
    free = jobs(("m", 10), ("m", 2))
    assert len(found(problem(free, [POOL], speeds("m"), sharing=share))) == 0
    free[0] |= {"state": "running", "pool": "p0", "gpus": 1}
    assert len(found(problem(free, [POOL], speeds("m"), sharing=share))) == 0
    free[0] |= {"preemptible": False}
    q = found(problem(free, [POOL], speeds("m"), sharing=share))
    assert q.saved == pytest.approx([1 - 7.6 / 11])
    free[1] |= {"state": "running", "pool": "p0", "gpus": 1, "preemptible": False}
    assert len(found(problem(free, [POOL], speeds("m"), sharing=share))) == 0


def test_memory() -> None:
    """6 GB each do not fit 10 GB. In two passes each needs 3.5 GB, and m is less slow then than n: m in two passes
    beside n in one fits in 9.5 GB, not with 0.6 GB of headroom; then both take two. Unknown memory of job or pool, or
    too little for all that: no pair."""
    way = {"accumulation": 1, "memory_gb": 6.0}, {"accumulation": 2, "memory_gb": 3.5}
    rates = [{"model": m, "gpu_type": "A", "gpus": 1, "work_per_s": r, **w}
             for m, slow in (("m", 1.1), ("n", 1.2)) for r, w in zip((1.0, 1 / slow), way, strict=True)]
    share = [row("m", "n", 1.1, 1.2)]
    two = jobs(("n", 10), ("m", 10))
    q = found(problem(two, [POOL], rates, sharing=share))
    assert (q.accumulation_a.tolist(), q.accumulation_b.tolist(), q.memory_gb.tolist()) == ([1], [2], [9.5])
    assert q.rate_a == pytest.approx([1 / 1.2]) and q.rate_b == pytest.approx([1 / 1.21])
    q = found(problem(two, [POOL], rates, sharing=share), headroom_gb=0.6)
    assert (q.accumulation_a.tolist(), q.accumulation_b.tolist(), q.memory_gb.tolist()) == ([2], [2], [7.0])
    assert len(found(problem(two, [POOL | {"memory_gb": 6.9}], rates, sharing=share))) == 0
    assert len(found(problem(two, [{"sharing": "any"}], rates, sharing=share))) == 0
    assert len(found(problem(jobs(("m", 9), ("n", 9), memory_gb=None), [POOL], speeds("m", "n"), sharing=share))) == 0


def test_isolation() -> None:
    """Three jobs, two of tenant x: any two, two of one tenant, nobody; one rule for each pool."""
    three = [j | {"tenant": t} for j, t in zip(jobs(*[("m", 10)] * 3), "xyx", strict=True)]
    pools = [POOL | {"sharing": who} for who in ("any", "tenant", "none")]
    q = found(problem(three, pools, speeds("m"), sharing=[row("m", "m", 1.1, 1.1)]))
    got = [list(zip(q.job_a[q.pool == i].tolist(), q.job_b[q.pool == i].tolist(), strict=True)) for i in range(3)]
    assert got == [[(0, 1), (0, 2), (1, 2)], [(0, 2)], []]


def drawn(seed: int, who: str = "any") -> Problem:
    """Twelve jobs of three models on two pools, some running, some not to be moved, with several ways to fit."""
    r = np.random.default_rng(seed)
    rates = [{"model": m, "gpu_type": t, "gpus": k, "work_per_s": k**0.8 / (1 + 0.1 * i), "accumulation": 2**i,
              "memory_gb": 2 + float(r.integers(1, 9)) / 2**i}
             for m in "mno" for t in "AB" for k in (1, 2) for i in range(2)]
    share = [row(a, b, r.uniform(1, 2), r.uniform(1, 2), k, t) for a, b in itertools.combinations_with_replacement(
        "mno", 2) for t in "AB" for k in (1, 2) if r.random() < 0.8]
    some = [{"model": str(r.choice(list("mno"))), "remaining_work": float(10 ** r.uniform(0, 2)), "max_gpus": 2,
             "tenant": str(r.choice(["x", "y"])), "memory_gb": float(r.integers(1, 8))} for _ in range(12)]
    for j in some[:3]:
        j |= {"state": "running", "pool": str(r.choice(["p0", "p1"])), "gpus": 1, "preemptible": bool(r.random() < .5)}
    pools = [{"gpu_type": "A", "gpus": 8, "memory_gb": 9.0, "sharing": who},
             {"gpu_type": "B", "gpus": 8, "memory_gb": 9.0, "sharing": "any"}]
    return problem(some, pools, rates, sharing=share)


def every(p: Problem) -> dict[tuple[int, int, int, int], tuple[float, float, float, float]]:
    """(job, job, pool, gpus) -> saved, rates beside each other, memory; by trying everything."""
    m, rates, out = menu(p, RateTable.of(p)), p.rates, {}
    xi = {(int(a), int(b), int(t), int(k)): (x, y) for a, b, t, k, x, y in zip(*(getattr(p.sharing, f) for f in (
        "model_a", "model_b", "gpu_type", "gpus", "slowdown_a", "slowdown_b")), strict=True)}
    xi |= {(b, a, t, k): (y, x) for (a, b, t, k), (x, y) in xi.items() if a != b}
    fixed = (p.jobs.state == 1) & ~p.jobs.preemptible

    def ways(job: int, t: int, k: int) -> list[tuple[float, float]]:
        return [(float(rates.rate[w]), float(rates.memory_gb[w])) for w in range(len(rates.rate))
                if (rates.model[w], rates.gpu_type[w], rates.gpus[w]) == (p.jobs.model[job], t, k)]

    for o, w in itertools.combinations(range(len(m)), 2):
        i, j, q, k = int(m.job[o]), int(m.job[w]), int(m.pool[o]), int(m.gpus[o])
        t = int(p.pools.gpu_type[q])
        pair = int(p.jobs.model[i]), int(p.jobs.model[j]), t
        slow = xi.get((*pair, k), xi.get((*pair, 3 - k)))            # of two sizes, the other where one is not there
        if i == j or (q, k) != (m.pool[w], m.gpus[w]) or slow is None or (fixed[i] and fixed[j]):
            continue
        alien = p.jobs.tenant[i] != p.jobs.tenant[j]
        rule = p.pools.sharing[q]
        if rule == Isolation.NONE or (rule == Isolation.TENANT and alien):
            continue
        if slow[0] != slow[1] and p.jobs.model[i] == p.jobs.model[j]:
            slow = (max(slow), max(slow))
        fits = [(x[0] / slow[0], y[0] / slow[1], x[1] + y[1]) for x in ways(i, t, k) for y in ways(j, t, k)
                if x[1] + y[1] <= p.pools.memory_gb[q]]
        if not fits:
            continue
        best = max(fits, key=lambda f: (f[0] / m.rate[o] + f[1] / m.rate[w], -f[2]))
        alone = [p.jobs.remaining_work[i] / m.rate[o], p.jobs.remaining_work[j] / m.rate[w]]
        first = int(fixed[j]) if fixed[i] != fixed[j] else int(alone[1] < alone[0])        # who goes first
        b, a = alone[first], alone[1 - first]
        for way in (best, (best[1], best[0], best[2]))[:1 + (p.jobs.model[i] == p.jobs.model[j])]:
            slower = [m.rate[o] / way[0], m.rate[w] / way[1]]
            xb, xa = slower[first], slower[1 - first]
            con = a / 2 + (1 - 1 / (2 * xa)) * xb * b if xa * a >= xb * b else b / 2 + (1 - 1 / (2 * xb)) * xa * a
            if con < b + a / 2:
                out[i, j, q, k] = max(out.get((i, j, q, k), (0.0,)), (1 - con / (b + a / 2), *way))
    return out


@pytest.mark.parametrize("seed", range(12))
def test_all_pairs_against_trying_everything(seed: int) -> None:
    """With as many partners as there are jobs the candidates are exactly the pairs that pay, fit and are allowed."""
    p = drawn(seed, ("any", "tenant", "none")[seed % 3])
    q, truth = found(p, most=10 * len(p.jobs)), every(p)
    got = list(zip(*(x.tolist() for x in (q.job_a, q.job_b, q.pool, q.gpus)), strict=True))
    assert got == sorted(truth) and (seed > 3 or got)
    for i, key in enumerate(got):
        assert (q.saved[i], q.rate_a[i], q.rate_b[i], q.memory_gb[i]) == pytest.approx(truth[key])


@pytest.mark.parametrize("most", [1, 2, 4])
def test_few_partners(most: int) -> None:
    """No job has more partners at a pool and size than asked for; the pair that saves most of all is among them."""
    for seed in range(6):
        p = drawn(seed)
        q, all_ = found(p, most=most), every(p)
        count: dict[tuple[int, int, int], int] = {}
        for i, j, pool, k in zip(*(x.tolist() for x in (q.job_a, q.job_b, q.pool, q.gpus)), strict=True):
            assert (i, j, pool, k) in all_
            for job in (i, j):
                count[job, pool, k] = count.get((job, pool, k), 0) + 1
        assert max(count.values(), default=0) <= most
        best = max((s for s, *_ in all_.values()), default=math.nan)
        fixed = (p.jobs.state == 1) & ~p.jobs.preemptible
        if not fixed.any():
            assert q.saved.max() == pytest.approx(best)
