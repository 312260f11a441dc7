"""GPUs of a pool that reservations.csv keeps from a time on, and their rows (R73).

Of the reservations of pool p that are in force T seconds from now, each is for a holder: a job, the
jobs of a tenant, or nobody. For every set H of holders with jobs,

    sum_{o in p, not of H} there_o x_o <= GPUs_p - GPUs that are kept for H and for nobody

where there_o are the GPUs of an option that still holds them then. So a holder has what is kept for
it, and may use what is kept for no other. T is 0 for reservations that begin before the next round,
and from then on all options are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import SAME, Bools, Floats, Ints, Problem, State
from allocator.options.kept.leaving import needed_s
from allocator.options.kept.reservations import ends_after, option_ends
from allocator.options.node_needs import UP
from allocator.options.option_table import OptionTable
from formulations.model import linear
from formulations.model.block import Block


@dataclass(frozen=True)
class Moment:
    """A time at which reservations of a pool are in force.

    Attributes
    ----------
    pool : int
        Index into Problem.pools.
    after_s : float
        Seconds from now.
    rows : (k,)
        Indices into Problem.reservations.
    holder : (J,)
        Number of the holder of each job, 0 = none.
    kept : (H,)
        GPUs that are kept for each holder; the first is nobody.
    there : (n,)
        Options that hold GPUs of the pool then.
    """

    pool: int
    after_s: float
    rows: Ints
    holder: Ints
    kept: Ints
    there: Bools


def find_moments(problem: Problem, m: OptionTable) -> Iterator[Moment]:
    """Yield, of each pool, the next round and every later begin of a reservation."""
    r = problem.reservations
    if not len(r):
        return
    begin_s = r.at_s - problem.now_s
    begin_s = np.where(begin_s <= problem.interval_s * (1 + SAME), 0.0, begin_s)
    lasts = np.array([not name or name in problem.jobs.job_id for name in r.job_id])
    lasts &= problem.now_s < r.until_s
    bound = m.keep & ~problem.jobs.preemptible[m.job]
    end_s = np.where(bound, option_ends(problem, m), needed_s(problem, m))
    for p in np.unique(r.pool[lasts]).tolist():
        mine = lasts & (r.pool == p)
        for at in np.unique(begin_s[mine]).tolist():
            in_force = mine & (begin_s <= at) & (problem.now_s + at < r.until_s)
            there = (m.pool == p) & ((at == 0) | ends_after(end_s, at))
            rows = np.flatnonzero(in_force)
            yield Moment(p, at, rows, *_find_holders(problem, rows), there)


def _find_holders(problem: Problem, rows: Ints) -> tuple[Ints, Ints]:
    """Return `holder` and `kept` of reservations.

    A job is for its own reservation, then for that of its tenant, then for that of the next tenant
    above.
    """
    r, jobs, above = problem.reservations, problem.jobs, problem.tenants.ancestors
    depth = np.append((above >= 0).sum(axis=0), 0)[r.tenant]
    holder, kept, number = np.zeros(len(jobs), np.int64), [0], {("", -1): 0}
    for n in sorted(rows.tolist(), key=lambda n: (r.job_id[n], depth[n])):
        of = np.flatnonzero((above[:, jobs.tenant] == r.tenant[n]).any(axis=0) & (r.tenant[n] >= 0))
        if r.job_id[n]:
            of = np.array([jobs.job_id.index(r.job_id[n])])
        whose = (r.job_id[n], int(r.tenant[n])) if len(of) else ("", -1)
        holder[of] = h = number.setdefault(whose, len(number))
        kept += [0] * (len(number) - len(kept))
        kept[h] += int(r.gpus[n])
    return holder, np.array(kept)


def requested_rows(problem: Problem, mandatory: Bools, m: OptionTable) -> list[Block]:
    """Build the rows of reservations.csv over the options of a table; empty without any.

    Jobs that can only keep what they hold do so, all that run where max_changes is set.
    """
    if not len(problem.reservations):
        return []
    jobs = problem.jobs
    stay = mandatory | ((problem.max_changes >= 0) & (jobs.state == State.RUNNING))
    amount: Floats = m.held * problem.gpu_share(m.job, m.pool)
    rows, most, labels = list[Ints](), list[float](), list[str]()
    for x in find_moments(problem, m):
        name = problem.reservations.reservation[x.rows[0]]
        change = problem.nodes.change_until(problem.now_s + x.after_s)
        size = int(problem.pools.gpus[x.pool] + change[problem.nodes.pool == x.pool].sum())
        for own in range(1 << (len(x.kept) - 1)):  # a set of holders, as bits
            others = (own << 1) >> np.arange(len(x.kept)) & 1 == 0
            taken = x.there & others[x.holder[m.job]]
            stays: Floats = np.zeros(len(jobs))
            held = np.flatnonzero(taken & m.keep & stay[m.job])
            np.maximum.at(stays, m.job[held], amount[held])
            left = size - int(x.kept[0] + x.kept[~others].sum())
            if own or x.kept[0]:
                rows.append(np.where(taken & (amount > 0), len(rows), -1))
                most.append(max(0.0, left, float(stays.sum())))
                labels.append(f"{name} ({len(labels)})" if name in labels else name)
    if not rows:
        return []
    return [Block.at_most(linear.REQUESTED, labels, np.stack(rows), amount, np.array(most))]


def find_kept_nodes(
    problem: Problem, mandatory: Bools, m: OptionTable
) -> Iterator[tuple[Bools, tuple[tuple[int, int], ...]]]:
    """Yield the options (n,) that leave nodes to reservations, and the nodes with GPUs of each.

    Those are kept on which jobs that stay have the fewest GPUs, then those with the fewest to move.
    """
    nodes, placed = problem.nodes, problem.placements
    for x in find_moments(problem, m):
        stays = np.zeros(len(problem.jobs), bool)
        stays[m.job[x.there & m.keep]] = True
        own, stays = x.holder > 0, stays & mandatory & (x.holder == 0)
        bound, held, moved = (
            np.bincount(placed.node, placed.gpus * jobs[placed.job], len(nodes)).astype(int)
            for jobs in (stays, own, ~own)
        )
        left = int(x.kept.sum() - held[nodes.pool == x.pool].sum())
        gone = problem.now_s + x.after_s >= nodes.leaves_s
        kept = []
        for n in np.lexsort((moved, bound, (nodes.pool != x.pool) | (nodes.state != UP) | gone)):
            if left > 0 and nodes.pool[n] == x.pool:
                kept.append((int(n), min(left, int(nodes.gpus[n] - bound[n] - held[n]))))
                left -= kept[-1][1]
        yield x.there & (x.holder[m.job] == 0), tuple((n, k) for n, k in kept if k > 0)


def describe_reservation(problem: Problem, n: int, j: int) -> str:
    """Say to job j what reservation n keeps, for whom, since when and until when."""
    r, jobs = problem.reservations, problem.jobs
    whom = f'tenant "{problem.tenants.tenant[r.tenant[n]]}"' if r.tenant[n] >= 0 else "nobody"
    if r.job_id[n]:
        whom = "it" if r.job_id[n] == jobs.job_id[j] else f'job "{r.job_id[n]}"'
    begin_s, end_s = r.at_s[n] - problem.now_s, r.until_s[n] - problem.now_s
    since = f"after {begin_s:g} s" if begin_s > 0 else f"since {-begin_s:g} s"
    until = f" until {end_s:g} s from now" if end_s < np.inf else ""
    return (
        f'{r.gpus[n]} GPUs of pool "{problem.pools.pool[r.pool[n]]}" are kept for {whom}'
        f' {since}{until} (reservation "{r.reservation[n]}")'
    )
