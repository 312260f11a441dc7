"""Static first come, first served: what clusters do without an elastic scheduler, and the baseline
of most papers.

Source: design page systems.md section 2.3 ("static FIFO"); the FIFO policy of the schedulers in
peers.md. A job gets the size it asked for (the nearest it may have), keeps it to its end, and waits
in strict order of submission: while the job at the head does not fit, nobody overtakes it. Knows
neither speeds nor lengths; speeds only choose among pools.

Stated for one kind of GPU. With several pools there is one queue per pool; a job stands in the
queues of all pools it may use, starts in the fastest where it is first and fits, and blocks all of
them where it fits in none. Who is stopped by a budget or quota, not by GPUs, holds up nobody: that
wait may have no end. A guarantee goes before the order.
"""

from __future__ import annotations

from allocator.policies.base import Decision, Task
from allocator.policies.room import Room
from allocator.policies.steps import (
    Wishes,
    at_requested,
    decide,
    oldest_first,
    serve_owed,
    serve_pinned,
    wishes,
)
from formulations.linear import Ints


def static(task: Task) -> Decision:
    """Running jobs keep what they hold; waiting jobs start in order of submission at the
    requested size.
    """
    return in_order(task, wishes(task.round, at_requested(task.round)))


def in_order(task: Task, liked: Wishes) -> Decision:
    """Running jobs keep what they hold; waiting jobs start in order of submission with an option
    they like.
    """
    round_ = task.round
    order = oldest_first(round_)

    def steps(room: Room) -> None:
        serve_pinned(round_, room, order, round_.instance.must)
        serve_owed(round_, room, order, liked)
        _queue(room, order[room.choice[order] < 0], liked, round_.instance.pool)

    return decide(task, steps, start=round_.stay(), guaranteed=False)


def _queue(room: Room, waiting: Ints, liked: Wishes, pool: Ints) -> None:
    """Start waiting jobs, first in the order first, in pools whose queue nobody before them
    blocks.
    """
    open_ = {p for p, free in enumerate(room.free) if free > 0}
    for j in waiting.tolist():
        if not open_:
            return
        able = [(o, int(pool[o])) for o in liked.of(j)]
        if not room.take_first(j, (o for o, p in able if p in open_)):
            open_ -= {p for o, p in able if room.affords(j, o)}
