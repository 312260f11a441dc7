"""Nodes that leave at announced times: which options may not be on them, and their rows (R70).

An option needs its nodes until its job is done, or may have been moved after a full interval if it
can be stopped. It may not be on nodes that leave before. Of the nodes of pool p that leave after T
seconds or earlier,

    sum_{o in p} there_o x_o <= GPUs_p - GPUs of these nodes

where there_o are the GPUs of an option that needs its nodes beyond T, or of a job that keeps them
on other nodes only and may not be moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from allocator.domain.problem import SAME, Bools, Floats, Ints, Problem
from allocator.options.node_needs import UP
from allocator.options.option_table import OptionTable
from formulations.model import linear
from formulations.model.linear import Block

TIMES = 8  # most times of a pool that have rows; nodes tell all apart


def ends_after(end_s: Floats, after_s: float) -> Bools:
    """Return whether jobs that end then still hold GPUs at a time, (n,)."""
    return end_s > after_s * (1 + SAME)


def option_ends(problem: Problem, m: OptionTable, which: Ints | slice = slice(None)) -> Floats:
    """Return the seconds from now until options (n,) are done with their jobs, (n,)."""
    return m.pause_s[which] + problem.jobs.remaining_work[m.job[which]] / m.rate[which]


def needed_s(problem: Problem, m: OptionTable, which: Ints | slice = slice(None)) -> Floats:
    """Return the seconds from now until which options (n,) need nodes to stay, (n,).

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
