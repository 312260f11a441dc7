"""Options of guests: a job runs as a second one on the GPUs of another, its host
(performance/beside.py).

A guest's option takes no GPUs and costs nothing: all that is charged to its host. It needs its
host's option and is worth what both have of it,

    value = value of the guest at its rate beside - (value of the host alone - value of the host at
    its rate beside)

so a plan's options add up to what its jobs are worth, and every rule stays a row
(formulations/rows.guest).

Which pairs a round offers is for its caller to say (round.py); those that run now are always among
them. A guest pauses like any job that changes, unless it runs on these very GPUs already: beside
this host, or as the host of it. Where a host leaves, its guest's own option at that pool and size
keeps it running: it then holds the GPUs itself; a row sees to it that this is not chosen where the
host stays. To leave such a host for other GPUs of the pool is a change.
"""

from __future__ import annotations

from dataclasses import fields
from enum import IntEnum

import numpy as np

from allocator.domain.problem import Bools, Ints, Problem, State
from allocator.options.colocation import indifferent
from allocator.options.menu import Menu, locked, may_get
from allocator.performance.beside import beside
from allocator.performance.pauses import restart_s
from allocator.performance.table import RateTable
from allocator.valuation import context_of, option_values
from formulations.objectives import interval
from formulations.objectives.context import Offer

Pairs = tuple[Ints, Ints, Ints, Ints]
"""(host, guest, pool, gpus) of pairs, arrays (n,)."""


class Guests(IntEnum):
    """Which pairs of jobs a round offers."""

    RUNNING = 0  # those that run, so that they may stay
    WORTHWHILE = 1  # and all others that a best plan may need (colocation.py)
    # and those that policies of sharing look at (residents.py), whatever they are worth
    ALL = 2


def with_guests(
    problem: Problem, ordinary: Menu, table: RateTable, offered: Guests, pairs: Pairs
) -> Menu:
    """The menu with options of guests behind the ordinary ones of their job, by pool, size and
    host.

    pairs: offered beside those that run, where they are worth something or all are offered.
    """
    now = _running(problem)
    new = ~_there(problem, *pairs)
    host, guest, pool, gpus = (np.append(a, b[new]) for a, b in zip(now, pairs, strict=True))
    if not len(host):
        return ordinary
    whole = context_of(problem, table, ordinary.offer)
    at = option_at(ordinary, host, pool, gpus)
    found = beside(problem, host, guest, pool, gpus)
    fine = np.flatnonzero(
        (at >= 0)
        & found.possible
        & (_there(problem, host, guest, pool, gpus) | may_get(problem, guest, pool, gpus))
    )
    host, guest, pool, gpus, at, found = (
        host[fine],
        guest[fine],
        pool[fine],
        gpus[fine],
        at[fine],
        found.take(fine),
    )
    keep = _there(problem, host, guest, pool, gpus)
    running = problem.jobs.state[guest] == State.RUNNING
    pause = interval.pause_s(
        keep, running, restart_s(problem, guest, pool, gpus), problem.pools.startup_s[pool]
    )

    by_guest, by_host = np.argsort(guest, kind="stable"), np.argsort(host, kind="stable")
    value = np.empty(len(host))
    as_guest = _offer(problem, guest, pool, gpus, found.rate_guest, pause, keep, by_guest)
    lost, same = ordinary.pause_s[at], ordinary.keep[at]
    as_host = _offer(problem, host, pool, gpus, found.rate_host, lost, same, by_host)
    value[by_guest] = option_values(problem, whole.of(as_guest, pays=False))
    value[by_host] += option_values(problem, whole.of(as_host))
    value -= ordinary.value[at]

    stays = np.flatnonzero(keep | (value > 0) | (offered == Guests.ALL))
    guests = Menu(
        ordinary.start,
        guest,
        pool,
        gpus,
        found.row_guest,
        found.rate_guest,
        pause,
        value,
        np.zeros(len(host)),
        keep,
        host,
        found.rate_host,
        found.row_host,
    )
    apart = _apart(problem, ordinary, table)
    both = {
        f.name: np.concatenate(
            [getattr(ordinary, f.name), getattr(apart, f.name), getattr(guests, f.name)[stays]]
        )
        for f in fields(Menu)
        if f.name != "start"
    }
    order = np.lexsort(
        (both["host"], ~both["keep"], both["gpus"], both["pool"], both["host"] >= 0, both["job"])
    )
    sorted_ = {name: x[order] for name, x in both.items()}
    return Menu(np.searchsorted(sorted_["job"], np.arange(len(problem.jobs) + 1)), **sorted_)


def _apart(problem: Problem, ordinary: Menu, table: RateTable) -> Menu:
    """What guests that may move would have on other GPUs of their pool, as many as they run on.

    Rows of rates.csv that need more memory than the GPUs have count only for GPUs that are held
    already. The worth is that of the GPUs held by itself, less what the move costs.
    """
    jobs, pools = problem.jobs, problem.pools
    now = np.flatnonzero(
        ordinary.keep & (jobs.host[ordinary.job] >= 0) & ~locked(problem)[ordinary.job]
    )
    now = now[may_get(problem, ordinary.job[now], ordinary.pool[now], ordinary.gpus[now])]
    rate, _ = table.rate(
        jobs.model[ordinary.job[now]],
        pools.gpu_type[ordinary.pool[now]],
        ordinary.gpus[now],
        pools.memory_gb[ordinary.pool[now]],
    )
    now = now[rate > 0]
    here = {f.name: getattr(ordinary, f.name)[now] for f in fields(Menu) if f.name != "start"}
    job, pool, gpus = here["job"], here["pool"], here["gpus"]
    start, keep = np.searchsorted(job, np.arange(len(jobs) + 1)), np.zeros(len(job), dtype=bool)
    pause = interval.pause_s(
        keep, ~keep, restart_s(problem, job, pool, gpus), pools.startup_s[pool]
    )
    whole = context_of(problem, table, ordinary.offer)
    moved, stays = (
        option_values(problem, whole.of(Offer(start, job, pool, gpus, here["rate"], lost, same)))
        for lost, same in ((pause, keep), (here["pause_s"], ~keep))
    )
    return Menu(
        start, **here | {"keep": keep, "pause_s": pause, "value": here["value"] + moved - stays}
    )


def _running(problem: Problem) -> Pairs:
    """The pairs that run, with either of the two as host where that can matter."""
    jobs = problem.jobs
    guest = np.flatnonzero(jobs.host >= 0)
    host = jobs.host[guest]
    if not indifferent(problem):
        host, guest = np.append(host, guest), np.append(guest, host)
    return host, guest, jobs.pool[guest], jobs.gpus[guest]


def _there(problem: Problem, host: Ints, guest: Ints, pool: Ints, gpus: Ints) -> Bools:
    """(n,) whether the two run on these very GPUs now, whoever of them is the host."""
    jobs = problem.jobs
    paired = (jobs.host[guest] == host) | (jobs.host[host] == guest)
    there: Bools = paired & (jobs.pool[guest] == pool) & (jobs.gpus[guest] == gpus)
    return there


def option_at(m: Menu, job: Ints, pool: Ints, gpus: Ints) -> Ints:
    """(n,) the ordinary option of each job at that pool and size, -1 where it has none."""
    own = np.flatnonzero(m.host < 0)
    if not len(own):
        return np.full(len(job), -1)
    pools, span = (
        int(max(m.pool.max(), pool.max(initial=0))) + 1,
        int(max(m.gpus.max(), gpus.max(initial=0))) + 1,
    )
    key = (m.job[own] * pools + m.pool[own]) * span + m.gpus[own]
    wanted = (job * pools + pool) * span + gpus
    at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    return np.where(key[at] == wanted, own[at], -1)


def _offer(
    problem: Problem,
    job: Ints,
    pool: Ints,
    gpus: Ints,
    rate: object,
    pause: object,
    keep: Bools,
    order: Ints,
) -> Offer:
    start = np.searchsorted(job[order], np.arange(len(problem.jobs) + 1))
    return Offer(start, *(np.asarray(x)[order] for x in (job, pool, gpus, rate, pause, keep)))
