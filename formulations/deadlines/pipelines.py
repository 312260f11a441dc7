"""Deadlines of pipelines: the deadline of the last job in terms of the jobs that come before it.

    t_j        shortest seconds that job j still needs
    b_j        = t_j + max over predecessors i of b_i        longest path from now through j
    stretch_j  = max(1, (due_j - now) / b_j)
    due_i      = min(deadline_i,  min over successors j of  due_j - t_j stretch_j)

The shortest time of every stage on the longest path to a deadline is stretched by the same factor:
spare time is split in proportion to the times that stages need. ESG splits a latency objective over
the stages of a pipeline in this way (Hui et al., HPDC 2024, section 3), there along dominators;
here all predecessors of a stage are due when its share begins. If the deadline can no longer be
met, the factor is 1: due_i is then the classical latest finish of the critical path, and every
stage is as late as the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from formulations.model.linear import Floats, Ints


def split_deadlines(
    after: Mapping[int, Sequence[int]], need_s: Floats, deadline_s: Floats, now_s: float
) -> tuple[Floats, Ints]:
    """Return when each job is due, and whose deadline that is.

    Parameters
    ----------
    after : mapping of int to sequence of int
        Predecessors of each job, without cycles.
    need_s : (J,)
        t_j >= 0.
    deadline_s : (J,)
        Own deadlines, nan = none.
    now_s : float
        Present time, seconds.

    Returns
    -------
    due_s : (J,)
        Seconds on the same clock, nan = never.
    whose : (J,)
        The job whose deadline it is, -1 = none.
    """
    due = deadline_s.astype(np.float64)
    whose = np.where(np.isnan(due), -1, np.arange(len(due)))
    order = _sort_topologically(after)
    way = dict.fromkeys(order, 0.0)
    for j in order:
        way[j] = float(need_s[j]) + max((way[i] for i in after.get(j, ())), default=0.0)
    for j in reversed(order):
        if not after.get(j) or np.isnan(due[j]):
            continue
        stretch = max(1.0, (due[j] - now_s) / way[j]) if way[j] > 0 else 1.0
        begin = due[j] - float(need_s[j]) * stretch
        for i in after[j]:
            if not due[i] <= begin:
                due[i], whose[i] = begin, whose[j]
    return due, whose


def _sort_topologically(after: Mapping[int, Sequence[int]]) -> list[int]:
    """Return all jobs, each after its predecessors."""
    out: list[int] = []
    done: set[int] = set()
    for root in after:
        path = [root]
        while path:
            j = path[-1]
            ahead = [i for i in after.get(j, ()) if i not in done]
            if j in done or not ahead:
                path.pop()
                if j not in done:
                    done.add(j)
                    out.append(j)
            else:
                path.extend(ahead)
    return out
