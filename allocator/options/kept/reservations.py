"""GPUs of a pool that are kept from a time on, or leave, and their rows: R68, R70, R73.

Of the reservations of pool p that are in force T seconds from now, each is for a holder: a job, the
jobs of a tenant, or nobody. For every set H of holders with jobs,

    sum_{o in p, not of H} there_o x_o <= GPUs_p - GPUs that are kept for H and for nobody

where there_o are the GPUs of an option that still holds them then. So a holder has what is kept for
it, and may use what is kept for no other. T is 0 for rows of reservations.csv that begin before the
next round, and from then on all options are there.

A reservation that a large job gets (policies/reserving.py) is one of a moment T of its own. If the
job is due, it must get an option. Else only options of jobs that may not be stopped are there. So a
job that ends before T, or that can be stopped at T, delays nobody. Where sizes are estimates, ends
are expected at twice the time: else short jobs, each with some chance to take longer, would fill
the gap for ever.

Nodes leave at announced times (R70). An option needs its nodes until its job is done, or may have
been moved after a full interval if it can be stopped. It may not be on nodes that leave before. Of
the nodes of pool p that leave after T seconds or earlier,

    sum_{o in p} there_o x_o <= GPUs_p - GPUs of these nodes

where there_o are the GPUs of an option that needs its nodes beyond T, or of a job that keeps them
on other nodes only and may not be moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import SAME, Bools, Floats, Ints, Problem, State
from allocator.options.node_needs import UP
from allocator.options.option_table import OptionTable
from formulations.model import linear
from formulations.model.linear import Block

TIMES = 8  # most times of a pool that have rows; nodes tell all apart


def ends_after(end_s: Floats, after_s: float) -> Bools:
    """Return whether jobs that end at `end_s` (n,) still hold GPUs at `after_s`, (n,)."""
    return end_s > after_s * (1 + SAME)


def option_ends(problem: Problem, m: OptionTable, which: Ints | slice = slice(None)) -> Floats:
    """Return in how many seconds the jobs of options would be done with them, (n,)."""
    return m.pause_s[which] + problem.jobs.remaining_work[m.job[which]] / m.rate[which]


def needed_s(problem: Problem, m: OptionTable, which: Ints | slice = slice(None)) -> Floats:
    """Return for how many seconds from now options need nodes to stay, (n,).

    It is 0 for jobs that keep their GPUs: they are there already.
    """
    jobs, job, pause_s = problem.jobs, m.job[which], m.pause_s[which]
    end_s = option_ends(problem, m, which)
    move_s = jobs.restart_s[job] + problem.pools.startup_s[m.pool[which]]
    moved_s = np.minimum(end_s, pause_s + problem.interval_s + move_s)
    return np.where(m.keep[which], 0.0, np.where(jobs.preemptible[job], moved_s, end_s))


def seconds_left(problem: Problem) -> Floats:
    """Return the seconds until each node leaves, (N,); inf = it stays, or is not up now."""
    nodes = problem.nodes
    return np.where(nodes.state == UP, nodes.leaves_s - problem.now_s, np.inf)


def forbidden_nodes(
    problem: Problem, m: OptionTable, until: Callable[[Problem, OptionTable], Floats] = needed_s
) -> dict[int, frozenset[int]]:
    """Return, for each option that some nodes leave too early for, these nodes.

    `until` gives the seconds from now until which each option is to have its nodes, (n,).
    """
    after_s = seconds_left(problem)
    order = np.argsort(after_s, kind="stable")[: np.isfinite(after_s).sum()]
    if not len(order):
        return {}
    until_s = until(problem, m)
    out: dict[int, frozenset[int]] = {}
    for p in np.unique(problem.nodes.pool[order]).tolist():
        here = order[problem.nodes.pool[order] == p]
        count = np.searchsorted(after_s[here] * (1 + SAME), until_s)
        count[(m.pool != p) | (m.primary >= 0)] = 0
        for k in np.unique(count[count > 0]).tolist():
            nodes = frozenset(here[:k].tolist())
            out |= dict.fromkeys(np.flatnonzero(count == k).tolist(), nodes)
    return out


def leaving_rows(problem: Problem, m: OptionTable) -> Iterator[Block]:
    """Yield the rows of nodes that leave over the options of a table, each a block."""
    after_s = seconds_left(problem)
    leaves = np.isfinite(after_s)
    if not leaves.any():
        return
    nodes, placed = problem.nodes, problem.placements
    until_s, firm = needed_s(problem, m), ~problem.jobs.preemptible
    whole = np.where(problem.gpu_share(m.job, m.pool) < 1, 0, m.held)
    for p in np.unique(nodes.pool[leaves]).tolist():
        here = np.unique(after_s[leaves & (nodes.pool == p)])
        some = np.unique(np.linspace(0, len(here) - 1, TIMES).astype(int))
        for n, at in enumerate(here[some].tolist()):
            gone = (nodes.pool == p) & (after_s <= at)
            stays = firm & np.isin(np.arange(len(firm)), placed.job)
            stays[placed.job[gone[placed.node]]] = False
            there = np.where(m.keep, stays[m.job], ends_after(until_s, at)) & (m.pool == p)
            row = np.where(there & (whole > 0), 0, -1)
            most = np.array([problem.pools.gpus[p] - nodes.gpus[gone].sum()], float)
            name = f"{problem.pools.pool[p]} ({n})" if n else problem.pools.pool[p]
            yield Block.at_most(linear.LEAVING, [name], row, whole, most)


OVERRUN = 2  # times the rest that is expected where sizes are estimated


def due_jobs(problem: Problem) -> Bools:
    """Find the jobs that have to start now, (J,)."""
    out = np.zeros(len(problem.jobs), bool)
    out[[r.job for r in problem.kept if problem.is_due(r)]] = True
    return out


@dataclass(frozen=True)
class Moment:
    """A time at which reservations of a pool are in force.

    Attributes
    ----------
    pool : int
        Index into Problem.pools.
    after_s : float
        Seconds from now.
    rows, whose : (k,)
        Indices into Problem.asked, and the holder of each; none of a reservation that a large job
        gets.
    holder : (J,)
        Number of the holder of each job, 0 = none.
    kept : (H,)
        GPUs that are kept for each holder; the first is nobody.
    there : (n,)
        Options that hold GPUs of the pool then.
    nodes : tuple of (int, int), optional
        The nodes that are kept, and the GPUs of each, where they are known.
    """

    pool: int
    after_s: float
    rows: Ints
    whose: Ints
    holder: Ints
    kept: Ints
    there: Bools
    nodes: tuple[tuple[int, int], ...] = ()

    def list_others(self) -> Iterator[Bools]:
        """Yield the holders (H,) that each row of the moment is for: all but those of a set."""
        count = len(self.kept)
        for own in range(int(self.kept[0] == 0), 1 << (count - 1)):  # the set, as bits
            yield (own << 1) >> np.arange(count) & 1 == 0


def find_moments(problem: Problem, m: OptionTable) -> Iterator[Moment]:
    """Yield, of each pool, that of a large job, the next round, and every later begin of a row."""
    r, jobs = problem.asked, problem.jobs
    if not (problem.kept or len(r)):
        return
    firm, end_s = ~jobs.preemptible[m.job], option_ends(problem, m)
    overrun = 1 if problem.left_error is None else OVERRUN
    for x in problem.kept:
        if not problem.is_due(x):
            there = firm & (m.pool == x.pool) & ends_after(end_s, x.after_s / overrun)
            holder, none = (np.arange(len(jobs)) == x.job).astype(np.int64), np.zeros(0, np.int64)
            yield Moment(
                x.pool, x.after_s, none, none, holder, np.array([0, x.gpus]), there, x.nodes
            )
    begin_s = r.at_s - problem.now_s
    begin_s = np.where(begin_s <= problem.interval_s * (1 + SAME), 0.0, begin_s)
    end_s = np.where(m.keep & firm, end_s, needed_s(problem, m))
    for p, at in sorted({*zip(r.pool.tolist(), begin_s.tolist(), strict=True)}):
        in_force = (r.pool == p) & (begin_s <= at) & (problem.now_s + at < r.until_s)
        there = (m.pool == p) & ((at == 0) | ends_after(end_s, at))
        rows = np.flatnonzero(in_force)
        yield Moment(p, at, rows, *_find_holders(problem, rows), there)


def _find_holders(problem: Problem, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Return `whose`, `holder` and `kept` of reservations.

    A job is for its own reservation, then for that of its tenant, then for that of the next tenant
    above.
    """
    r, jobs, above = problem.asked.select(rows), problem.jobs, problem.tenants.ancestors
    depth = np.append((above >= 0).sum(axis=0), 0)
    names = list(zip(r.job_id, r.tenant.tolist(), strict=True))
    holder, whose, count = np.zeros(len(jobs), np.int64), np.zeros(len(rows), np.int64), 0
    for name, q in sorted(set(names), key=lambda pair: (pair[0], depth[pair[1]])):
        of = (above[:, jobs.tenant] == q).any(axis=0) & (q >= 0)
        if name:
            of = np.array(jobs.job_id) == name
        if of.any():
            count += 1
            holder[of] = count
            whose[[pair == (name, q) for pair in names]] = count
    return whose, holder, np.bincount(whose, r.gpus, count + 1).astype(np.int64)


def count_kept(problem: Problem, rows: Ints, j: int, held: Ints) -> int:
    """Return the GPUs that rows of Problem.asked keep from a job, beside those that jobs hold.

    held (J,) are GPUs of their pool. What a holder has already is not kept once more.
    """
    if not len(rows):
        return 0
    _, holder, kept = _find_holders(problem, rows)
    used = np.bincount(holder, held, len(kept))
    used[holder[j]], used[0] = np.inf, 0
    return int(np.maximum(0, kept - used).sum())


def reservation_rows(problem: Problem, mandatory: Bools, m: OptionTable) -> Iterator[Block]:
    """Yield the rows of reservations over the options of a table, each a block.

    Jobs that can only keep what they hold do so, all that run where max_changes is set. Where they
    hold more than a reservation leaves, it begins late.
    """
    pools, nodes, seen = problem.pools, problem.nodes, Counter[tuple[str, str]]()
    stay = mandatory | ((problem.max_changes >= 0) & (problem.jobs.state == State.RUNNING))
    amount: Floats = m.held * problem.gpu_share(m.job, m.pool)
    beside = np.append(stay, False)[problem.jobs.primary]  # on the GPUs of a job that stays
    stays_as = m.keep & stay[m.job] & ((m.primary >= 0) | ~beside[m.job])
    for x in find_moments(problem, m):
        kind, name = linear.RESERVATION, pools.pool[x.pool]
        if len(x.rows):
            kind, name = linear.REQUESTED, problem.asked.reservation[x.rows[0]]
        change = nodes.change_until(problem.now_s + x.after_s)[nodes.pool == x.pool]
        size = int(pools.gpus[x.pool] + change.sum())
        for others in x.list_others():
            taken = x.there & others[x.holder[m.job]] & (amount > 0)
            stays: Floats = np.zeros(len(stay))
            staying = np.flatnonzero(taken & stays_as)
            np.maximum.at(stays, m.job[staying], amount[staying])
            most = max(size - x.kept[0] - x.kept[~others].sum(), stays.sum(), 0)
            label = f"{name} ({seen[kind, name]})" if seen[kind, name] else name
            seen[kind, name] += 1
            row, upper = np.where(taken, 0, -1), np.array([most], float)
            yield Block.at_most(kind, [label], row, amount, upper)


def find_kept_nodes(
    problem: Problem, mandatory: Bools, m: OptionTable
) -> Iterator[tuple[Bools, tuple[tuple[int, int], ...]]]:
    """Yield the options (n,) that leave nodes to reservations, and the nodes with GPUs of each.

    Those are kept on which jobs that stay have the fewest GPUs, then those with the fewest to move.
    """
    nodes, placed = problem.nodes, problem.placements
    for x in find_moments(problem, m):
        kept = x.nodes
        if len(x.rows):
            stays = np.zeros(len(problem.jobs), bool)
            stays[m.job[x.there & m.keep]] = True
            own, stays = x.holder > 0, stays & mandatory & (x.holder == 0)
            bound, held, moved = (
                np.bincount(placed.node, placed.gpus * jobs[placed.job], len(nodes)).astype(int)
                for jobs in (stays, own, ~own)
            )
            left = int(x.kept.sum() - held[nodes.pool == x.pool].sum())
            away = (nodes.state != UP) | (problem.now_s + x.after_s >= nodes.leaves_s)
            order = np.lexsort((moved, bound, away))
            order = order[nodes.pool[order] == x.pool]
            room = np.cumsum(np.maximum(0, nodes.gpus - bound - held)[order])
            gpus = np.diff(np.clip(room, 0, max(0, left)), prepend=0).tolist()
            kept = tuple(zip(order.tolist(), gpus, strict=True))
        yield x.there & (x.holder[m.job] == 0), tuple((n, k) for n, k in kept if k > 0)


def describe_reservation(problem: Problem, n: int, j: int) -> str:
    """Describe to job j which GPUs reservation n keeps, for whom, from when and until when."""
    r, jobs = problem.asked, problem.jobs
    whom = f'tenant "{problem.tenants.tenant[r.tenant[n]]}"' if r.tenant[n] >= 0 else "nobody"
    if r.job_id[n]:
        whom = "it" if r.job_id[n] == jobs.job_id[j] else f'job "{r.job_id[n]}"'
    begin_s, end_s = r.at_s[n] - problem.now_s, r.until_s[n] - problem.now_s
    since = f"after {begin_s:.0f} s" if begin_s > 0 else f"since {-begin_s:.0f} s ago"
    until = f" until {end_s:.0f} s from now" if end_s < np.inf else ""
    return (
        f'{r.gpus[n]} GPUs of pool "{problem.pools.pool[r.pool[n]]}" are kept for {whom}'
        f' {since}{until} (reservation "{r.reservation[n]}")'
    )
