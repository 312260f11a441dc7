"""Shortest job first on shared GPUs, without preemption: `bsbf` where sharing pays, `ffs` always.

Source: Luo et al., "Scheduling deep learning jobs in multi-tenant GPU clusters via wise resource
sharing" (SJF-BSBF and its baseline SJF-FFS), IWQoS 2024, and the authors' simulator. Gang jobs of
fixed size, here the size asked for. Every round the waiting jobs are served by the time they have
left alone, the shortest first; who does not fit is skipped. A job takes idle GPUs if there are
enough; else it joins a job that runs alone: of those with which the mean completion time of the two
is less together than one after the other (formulations/sharing), the one where it is least. `ffs`
joins whom it can, the first by submission. Nobody is ever paused, moved or resized; a GPU has two
jobs at most.

Simplified: a job joins one other that holds as many GPUs as it wants of the pool; the published one
may take GPUs of several others, and idle ones with them. What that is worth is measured in
docs/sharing.md (column "equal"). Several pools: idle GPUs in the fastest pool first; among partners
of all pools the best.
"""

from __future__ import annotations

import numpy as np

from allocator.options.round import Round
from allocator.policies.base import Decision, Task
from allocator.policies.room import Room
from allocator.policies.srtf import shortest_first
from allocator.policies.steps import (
    Wishes,
    at_requested,
    decide,
    rates,
    serve_owed,
    serve_pinned,
    wishes,
)
from formulations import sharing
from formulations.linear import Floats, Ints


def bsbf(task: Task) -> Decision:
    """Waiting jobs, shortest first, on idle GPUs, else beside the partner that shortens the mean
    of both most.
    """
    round_ = task.round
    o, guest_s, host_s, xi_guest, xi_host = _couples(round_)
    pays = sharing.shares(guest_s, host_s, xi_guest, xi_host)
    mean_s = sharing.together(guest_s, host_s, xi_guest, xi_host)
    return _without_preemption(task, wishes_by(round_, o[pays], mean_s[pays]))


def ffs(task: Task) -> Decision:
    """Waiting jobs, shortest first, on idle GPUs, else beside any job that runs alone, first
    submitted first.
    """
    round_ = task.round
    o = _couples(round_)[0]
    jobs, host = round_.problem.jobs, round_.instance.job[round_.instance.host[o]]
    return _without_preemption(task, wishes_by(round_, o, jobs.submitted_s[host]))


def _without_preemption(task: Task, partners: Wishes) -> Decision:
    round_ = task.round
    asked = at_requested(round_)
    asked = asked[round_.instance.host[asked] < 0]
    order, liked = shortest_first(round_, asked), wishes(round_, asked)

    def steps(room: Room) -> None:
        serve_pinned(round_, room, order, round_.instance.must)
        serve_owed(round_, room, order, liked)
        for j in order[room.choice[order] < 0].tolist():
            if not room.take_first(j, liked.of(j)):
                room.take_first(j, partners.of(j))

    return decide(task, steps, start=round_.stay(), guaranteed=False)


def _couples(round_: Round) -> tuple[Ints, Floats, Floats, Floats, Floats]:
    """(columns of guests, seconds that guest and host have left alone, slowdowns of guest and host
    beside each other), arrays (k,), of guests at the size they asked for. Alone: at the fastest
    ordinary option of that pool and size."""
    i, m, jobs = round_.instance, round_.menu, round_.problem.jobs
    asked = at_requested(round_)
    o = asked[i.host[asked] >= 0]
    rate, own = rates(round_), np.flatnonzero(i.host < 0)
    span = int(i.gpus.max(initial=0)) + 1
    key = (i.job * len(i.capacity) + i.pool) * span + i.gpus
    # of equals the last one is the fastest
    order = own[np.lexsort((rate[own], key[own]))]
    at = (
        np.searchsorted(key[order], key[o], side="right") - 1
        if len(order)
        else np.zeros(0, np.int64)
    )
    alone = order[np.maximum(at, 0)] if len(order) else o
    o, alone = o[key[alone] == key[o]], alone[key[alone] == key[o]]
    host = i.host[o]
    return (
        o,
        jobs.remaining_work[i.job[o]] / rate[alone],
        jobs.remaining_work[i.job[host]] / rate[host],
        rate[alone] / rate[o],
        rate[host] / m.host_rate[round_.option[o]],
    )


def wishes_by(round_: Round, options: Ints, key: Floats) -> Wishes:
    """The options (k,) job by job, smallest key (k,) first, of equals the first column."""
    job = round_.instance.job[options]
    order = np.lexsort((options, key, job))
    start = np.searchsorted(job[order], np.arange(len(round_.problem.jobs) + 1))
    return Wishes(start.tolist(), options[order].tolist())
