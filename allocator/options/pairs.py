"""Pairs of jobs that may share GPUs: candidates for options of guests (guests.py).

A pair is two jobs, a pool and a size that is an option of both. It is a candidate if

    the pool lets them       isolation of the pool: any two jobs, jobs of one tenant, nobody
    their slowdowns are known                       (performance/interference.py)
    both fit                 memory of both + headroom <= that of the GPU, at the accumulation that together loses
                             least speed (performance/footprint.py)
    it pays                  mean completion time together < one after the other (formulations/sharing.py). The first of
                             the two is the one that may not be moved, else the one with less left: the better order
    it is among the best     at most so many partners per job, pool and size, by the share of the mean that it saves

For given slowdowns what is saved falls with the ratio of longer to shorter, so only neighbours in length are looked at,
of every model the nearest on either side, more where few models can share: J jobs cost J log J, not J^2.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Isolation, Problem
from allocator.options.menu import Menu, locked
from allocator.performance.beside import beside
from allocator.performance.footprint import SPAN
from allocator.performance.interference import Slowdowns
from formulations import sharing
from formulations.ragged import ragged

PARTNERS = 4              # per job, pool and size


@dataclass(frozen=True)
class Pairs:
    """Candidates, arrays (n,), by job_a, job_b, pool, gpus; job_a < job_b.

    rate_a, rate_b: work per second of each beside the other; row_a, row_b: of rates.csv, -1 = none; accumulation_a,
    accumulation_b: passes per step, 0 = unknown; memory_gb: of both on a GPU; saved: share of their mean completion
    time that sharing saves.
    """

    job_a: Ints
    job_b: Ints
    pool: Ints
    gpus: Ints
    rate_a: Floats
    rate_b: Floats
    row_a: Ints
    row_b: Ints
    accumulation_a: Ints
    accumulation_b: Ints
    memory_gb: Floats
    saved: Floats

    def __len__(self) -> int:
        return len(self.job_a)


def pairs(problem: Problem, menu: Menu, slowdowns: Slowdowns, headroom_gb: float = 0.0, most: int = PARTNERS) -> Pairs:
    """The candidates of a round. menu: ordinary options only. most: partners per job, pool and size. Raises nothing;
    empty where nothing is known about sharing, or no pool lets jobs share."""
    cells = _cells(problem, menu, slowdowns, problem.pools.sharing)
    near = _beside(problem, cells, menu, slowdowns, headroom_gb)
    pair, one, two = _neighbours(cells, near, most)
    fixed = locked(problem)[cells.job]
    swap = np.where(fixed[one] == fixed[two], cells.alone_s[one] < cells.alone_s[two], fixed[one])
    a, b = np.where(swap, two, one), np.where(swap, one, two)              # b goes first if they do not share
    xi_a = np.where(swap, near.slow_v[pair], near.slow_u[pair])
    xi_b = np.where(swap, near.slow_u[pair], near.slow_v[pair])
    saved = sharing.saved(cells.alone_s[a], cells.alone_s[b], xi_a, xi_b)
    other = sharing.saved(cells.alone_s[a], cells.alone_s[b], xi_b, xi_a)
    turned = near.alike[pair] & (other > saved)                          # two of one model may exchange their ways
    one, two, saved = np.where(turned, two, one), np.where(turned, one, two), np.where(turned, other, saved)
    pays = np.flatnonzero((saved > 0) & ~(fixed[one] & fixed[two]))
    pays = pays[_best(one[pays], two[pays], saved[pays], most)]
    pair, one, two, saved = pair[pays], one[pays], two[pays], saved[pays]
    turn = cells.job[one] > cells.job[two]

    def of(u: Any, v: Any) -> tuple[Any, Any]:
        """Values of the pair's two sides in the order of the jobs' numbers."""
        return np.where(turn, v, u), np.where(turn, u, v)

    job, rate = of(cells.job[one], cells.job[two]), of(near.rate_u[pair], near.rate_v[pair])
    row = of(near.row_u[pair], near.row_v[pair])
    passes = of(near.accumulation_u[pair], near.accumulation_v[pair])
    found = Pairs(*job, cells.pool[one], cells.gpus[one], *rate, *row, *passes, near.memory_gb[pair], saved)
    order = np.lexsort((found.gpus, found.pool, found.job_b, found.job_a))
    return Pairs(*(getattr(found, f.name)[order] for f in fields(found)))


@dataclass(frozen=True)
class _Cells:
    """Options that may be shared, by cell: one pool, size, model, memory and (where pools isolate tenants) tenant;
    within a cell by seconds left alone. start (C+1,); place (C,): pool and size of the cell; others: of the options."""

    start: Ints
    place: Ints
    tenant: Ints              # (C,) -1 = any
    option: Ints              # (C,) one option of the cell, number in the menu
    job: Ints
    pool: Ints
    gpus: Ints
    alone_s: Floats


def _cells(problem: Problem, menu: Menu, slowdowns: Slowdowns, isolation: Ints) -> _Cells:
    jobs, pools = problem.jobs, problem.pools
    use = slowdowns.known(len(problem.models))[jobs.model[menu.job]] & (menu.rate > 0)
    use &= (pools.memory_gb[menu.pool] > 0) & (isolation[menu.pool] != Isolation.NONE)
    o = np.flatnonzero(use)
    job, pool, gpus = menu.job[o], menu.pool[o], menu.gpus[o]
    alone = jobs.remaining_work[job] / menu.rate[o]
    place = pool * SPAN + gpus
    memory = np.unique(jobs.memory_gb[job], return_inverse=True)[1]
    tenant = np.where(isolation[pool] == Isolation.TENANT, jobs.tenant[job], -1)
    order = np.lexsort((alone, memory, tenant, jobs.model[job], place))
    kinds = np.stack([place, jobs.model[job], tenant, memory.reshape(-1)])[:, order]
    first = np.flatnonzero(np.append(True, (np.diff(kinds, axis=1) != 0).any(axis=0))[:len(o)])
    o, job, pool, gpus, alone = o[order], job[order], pool[order], gpus[order], alone[order]
    return _Cells(np.append(first, len(o)), kinds[0, first], kinds[2, first], o[first], job, pool, gpus, alone)


@dataclass(frozen=True)
class _Beside:
    """Pairs of cells u <= v whose jobs can share, arrays (K,). slow: seconds beside / seconds alone. alike: of one
    model, so that what is said of u may as well hold for v and the other way round."""

    u: Ints
    v: Ints
    alike: Bools
    slow_u: Floats
    slow_v: Floats
    rate_u: Floats
    rate_v: Floats
    row_u: Ints
    row_v: Ints
    accumulation_u: Ints
    accumulation_v: Ints
    memory_gb: Floats


def _beside(problem: Problem, c: _Cells, menu: Menu, slowdowns: Slowdowns, headroom_gb: float) -> _Beside:
    first = c.start[:-1]
    job, pool, gpus, usual = c.job[first], c.pool[first], c.gpus[first], menu.rate[c.option]
    model = problem.jobs.model[job]
    u, v = ragged(np.arange(len(first)), np.searchsorted(c.place, c.place, side="right"))
    u, v = u[c.tenant[u] == c.tenant[v]], v[c.tenant[u] == c.tenant[v]]
    b = beside(problem, job[u], job[v], pool[u], gpus[u], slowdowns, headroom_gb)
    fits = np.flatnonzero(b.possible)
    u, v, b = u[fits], v[fits], b.take(fits)
    slow_u, slow_v = usual[u] / b.rate_host, usual[v] / b.rate_guest
    frozen = np.logical_or.reduceat(np.append(locked(problem)[c.job], False), c.start)[:-1] if len(first) else \
        np.zeros(0, dtype=bool)
    one = np.ones(len(u))
    may = np.flatnonzero(sharing.shares(one, one, slow_u, slow_v) | frozen[u] | frozen[v])
    u, v, b = u[may], v[may], b.take(may)
    return _Beside(u, v, model[u] == model[v], slow_u[may], slow_v[may], b.rate_host, b.rate_guest, b.row_host,
                   b.row_guest, b.accumulation_host, b.accumulation_guest, b.memory_gb)


def _neighbours(c: _Cells, beside: _Beside, most: int) -> tuple[Ints, Ints, Ints]:
    """(pair of cells, option of u, option of v) of options near in length, every pair of options once."""
    n = len(c.job)
    rank = np.empty(n, dtype=np.int64)
    rank[np.argsort(c.alone_s, kind="stable")] = np.arange(n)
    cell = np.repeat(np.arange(len(c.start) - 1), np.diff(c.start))
    key = cell * (n + 1) + rank
    partners = np.bincount(beside.u, minlength=len(c.place)) + np.bincount(
        beside.v[beside.u != beside.v], minlength=len(c.place))                # cells to look for neighbours in
    reach = -(-most // np.maximum(partners, 1))
    near = np.arange(-int(reach[partners > 0].max(initial=0)), int(reach[partners > 0].max(initial=0)) + 1)
    found = []
    for u, v, forward in ((beside.u, beside.v, True), (beside.v, beside.u, False)):
        pair, i = ragged(c.start[u], c.start[u + 1])
        at = np.searchsorted(key, v[pair] * (n + 1) + rank[i])[:, None] + near
        inside = (at >= c.start[v[pair]][:, None]) & (at < c.start[v[pair] + 1][:, None])
        inside &= np.abs(near) <= reach[u[pair]][:, None]
        inside &= (c.job[i][:, None] != c.job[np.minimum(np.maximum(at, 0), n - 1)])
        which, column = np.nonzero(inside)
        mine, theirs = i[which], at[which, column]
        one, two = (mine, theirs) if forward else (theirs, mine)
        same = beside.u[pair[which]] == beside.v[pair[which]]
        low, high = np.minimum(one, two), np.maximum(one, two)
        found.append((pair[which], np.where(same, low, one), np.where(same, high, two)))
    pair, one, two = (np.concatenate(part) for part in zip(*found, strict=True))
    _, once = np.unique(one * n + two, return_index=True)
    return pair[once], one[once], two[once]


def _best(one: Ints, two: Ints, saved: Floats, most: int) -> Ints:
    """Pairs by what they save, so that no option is in more than `most`: those that are among the best of both, again
    for what is left until nothing is added."""
    order = np.argsort(-saved, kind="stable")
    one, two = one[order], two[order]
    taken: Bools = np.zeros(len(order), dtype=bool)
    room = np.full(int(max(one.max(initial=-1), two.max(initial=-1))) + 1, most)
    open_ = np.arange(len(order))
    while len(open_):
        ends = np.stack([one[open_], two[open_]], axis=1).reshape(-1)           # best pairs first, both ends in turn
        good = (_rank(ends) < room[ends]).reshape(-1, 2).all(axis=1)
        if not good.any():
            break
        taken[open_[good]] = True
        room -= np.bincount(ends.reshape(-1, 2)[good].reshape(-1), minlength=len(room))
        open_ = open_[~good]
        open_ = open_[(room[one[open_]] > 0) & (room[two[open_]] > 0)]
    return np.sort(order[taken])


def _rank(ends: Ints) -> Ints:
    """How many equal entries are in front of each."""
    order = np.argsort(ends.astype(np.min_scalar_type(int(ends.max(initial=0)))), kind="stable")   # 16 bits: by radix
    new = np.flatnonzero(np.append(True, np.diff(ends[order]) != 0)[:len(ends)])
    rank = np.empty(len(ends), dtype=np.int64)
    rank[order] = np.arange(len(ends)) - np.repeat(new, np.diff(np.append(new, len(ends))))
    return rank
