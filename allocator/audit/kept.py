"""The audit's own reading of what pools keep: headroom (interactive.csv), and reservations.

With N ~ Poisson(sessions_per_hour x (session_s + interval_s) / 3600) a pool keeps GPUs for the
least number of sessions c with P(N >= c) <= late_share. If headroom_gpus is given, it keeps that
number. It never keeps more than the jobs that may not be moved leave.

A job that is due holds GPUs. Any other reservation of k GPUs keeps them from the jobs that hold
GPUs of its pool when it begins, because they may not be stopped and are not done by then at the
speed that they have on their GPUs alone, or, where sizes are estimates, in half of that time. The
same holds on each of its nodes. Jobs that may not be moved keep what they hold. No job comes to a
node that leaves before it is done, or, if it can be stopped, before it had a full interval and
could be moved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from allocator.audit.context import AuditContext
from allocator.performance.lost_time import restart_s

ROUNDING = 1e-9  # relative, of times


def faults(s: AuditContext) -> Iterator[str]:
    """Yield the jobs and pools that do not leave what is kept."""
    yield from _find_headroom_faults(s)
    yield from _find_reservation_faults(s)


def _find_headroom_faults(s: AuditContext) -> Iterator[str]:
    """Yield the pools in which jobs that are not interactive hold too much."""
    rows = s.problem.interactive
    pools = s.problem.pools
    jobs = s.problem.jobs
    gpus = s.allocation.held
    stay = s.can_be_kept & ~jobs.interactive & (jobs.primary < 0)
    stay &= ~jobs.preemptible & ~s.repairs.released
    gives = jobs.shrinkable & jobs.preemptible & (jobs.resizes_left != 0)
    for r, p in enumerate(rows.pool.tolist()):
        size = int(pools.gpus[p])
        here = s.has_gpus & (s.pool == p) & ~jobs.interactive
        stays = int(jobs.gpus[stay & (jobs.pool == p)].sum())
        held = int(gpus[here].sum())
        firm = int(np.where(gives, np.minimum(gpus, jobs.min_gpus), gpus)[here].sum())
        kept = max(0, min(_wanted_headroom(s, r), size - stays))
        share = float(rows.shrinkable_share[r])
        idle = math.ceil((1.0 - share) * kept - 1e-9)
        name = f'pool "{pools.pool[p]}" with {size} GPUs'
        if idle > 0 and held > size - idle:
            yield f"{name}: other jobs get {held}, {idle} are kept idle for interactive ones"
        if share > 0 and kept > 0 and firm > size - kept:
            yield (
                f"{name}: other jobs get {firm} that they cannot give back, {kept} are kept for"
                " interactive ones"
            )


def _wanted_headroom(s: AuditContext, row: int) -> int:
    rows = s.problem.interactive
    size = int(s.problem.pools.gpus[rows.pool[row]])
    if rows.headroom_gpus[row] >= 0:
        return min(size, int(rows.headroom_gpus[row]))
    mean = (
        float(rows.sessions_per_hour[row])
        * (float(rows.session_s[row]) + s.problem.interval_s)
        / 3600.0
    )
    each = int(rows.session_gpus[row])
    enough = 1.0 - float(rows.late_share[row])
    c = 0
    below = 0.0
    while mean > 0 and below < enough and c * each < size:
        below += math.exp(c * math.log(mean) - mean - math.lgamma(c + 1))
        c += 1
    return min(size, c * each)


def _find_reservation_faults(s: AuditContext) -> Iterator[str]:
    """Yield reservations for which GPUs are not left, and jobs that come to leaving nodes."""
    yield from _come_to_leaving_nodes(s)
    yield from _take_requested_gpus(s)
    pools, nodes, places = s.problem.pools, s.problem.nodes, s.allocation.places
    jobs = len(s.gpus)
    for r in s.problem.kept:
        if s.problem.is_due(r):
            if not s.has_gpus[r.job]:
                yield f"{s.name(r.job)} gets nothing, and {r.gpus} GPUs are kept for it from now on"
            continue
        sure_s = r.after_s / (1 if s.problem.left_error is None else 2)
        then = np.array([_held_then(s, j, r.pool, sure_s)[0] for j in range(jobs)])
        late = ~s.problem.jobs.preemptible & (then > 0)
        late[r.job] = False
        stays = late & s.running & s.is_kept
        size = _size_then(s, r.pool, s.problem.now_s + r.after_s)
        rooms = [(f'pool "{pools.pool[r.pool]}"', size, r.gpus, then)]
        for n, kept in r.nodes:
            on = np.bincount(places.job, places.gpus * (places.node == n), jobs)
            rooms.append((f'node "{nodes.node[n]}"', int(nodes.gpus[n]), kept, on))
        for room, size, kept, held in rooms:
            taken = held[late].sum()
            if taken > max(size - kept, held[stays].sum()) + ROUNDING:
                yield (
                    f"{room} with {size} GPUs: jobs that may not be stopped still hold {taken:g}"
                    f" after {r.after_s:g} s, {kept} are kept for {s.name(r.job)}"
                )


def _come_to_leaving_nodes(s: AuditContext) -> Iterator[str]:
    nodes = s.problem.nodes
    for j, spot in s.nodes.given.items() if np.isfinite(nodes.leaves_s).any() else ():
        if s.is_kept[j] or s.is_secondary[j] or not s.has_gpus[j]:
            continue
        until_s = _needs_until_s(s, j)
        for n in sorted({n for n, _ in spot}):
            if until_s > (nodes.leaves_s[n] - s.problem.now_s) * (1 + ROUNDING):
                yield (
                    f'{s.name(j)} comes to node "{nodes.node[n]}", which leaves at'
                    f" {nodes.leaves_s[n]:g}: it needs the node for {until_s:g} s"
                )


def _take_requested_gpus(s: AuditContext) -> Iterator[str]:
    """Yield where others hold GPUs that reservations.csv keeps, now or at the begin of one."""
    p, r = s.problem, s.problem.asked
    begin_s = np.where(r.at_s <= p.now_s + p.interval_s * (1 + ROUNDING), p.now_s, r.at_s)
    for pool, at in sorted({*zip(r.pool.tolist(), begin_s.tolist(), strict=True)}):
        rows = np.flatnonzero((r.pool == pool) & (begin_s <= at) & (at < r.until_s))
        whose = [f"job {r.job_id[n]}" if r.job_id[n] else f"tenant {r.tenant[n]}" for n in rows]
        holder = np.array([_find_right(s, j, whose) for j in range(len(s.gpus))])
        then = np.array([_held_then(s, j, pool, at - p.now_s) for j in range(len(holder))])
        then = then.reshape(-1, 2)  # there may be no jobs
        size = _size_then(s, pool, at)
        holders = sorted(set(whose).intersection(holder))
        for own in (x for k in range(len(holders) + 1) for x in combinations(holders, k)):
            least = int(r.gpus[rows][np.isin(whose, own) | ~np.isin(whose, holders)].sum())
            taken, stay = then[~np.isin(holder, own)].sum(axis=0)
            if least and taken > max(size - least, stay) + ROUNDING:
                yield (
                    f'pool "{p.pools.pool[pool]}" with {size} GPUs: other jobs hold {taken:g} at'
                    f" {at:g}, {least} are kept by reservations"
                )


def _size_then(s: AuditContext, pool: int, at_s: float) -> int:
    """Return the GPUs that a pool has at a time."""
    nodes = s.problem.nodes
    return int(s.problem.pools.gpus[pool] + nodes.change_until(at_s)[nodes.pool == pool].sum())


def _find_right(s: AuditContext, j: int, whose: list[str]) -> str:
    """Return the holder of the reservation that job j may use: a job or a tenant, "" = none."""
    line = s.problem.tenants.ancestors[:, s.problem.jobs.tenant[j]]
    names = [f"job {s.problem.jobs.job_id[j]}", *(f"tenant {t}" for t in line if t >= 0)]
    return next((name for name in names if name in whose), "")


def _held_then(s: AuditContext, j: int, p: int, after_s: float) -> tuple[float, float]:
    """Return the GPUs of a pool that job j of the plan has then, and those it may not leave."""
    jobs, firm = s.problem.jobs, not s.problem.jobs.preemptible[j]
    is_there = s.has_gpus[j] and s.pool[j] == p
    if is_there and after_s > 0:
        kept_s = _done_s(s, j, 0.0) if firm else 0.0
        until_s = kept_s if s.is_kept[j] else _needs_until_s(s, j)
        is_there = until_s > after_s * (1 + ROUNDING)
    may_leave = jobs.preemptible & (s.problem.max_changes < 0)
    stays = s.can_be_kept & ~s.repairs.released & ~may_leave
    bound = stays[j] and jobs.pool[j] == p and (is_there if firm else after_s == 0)
    share = float(s.problem.gpu_share(np.array([j]), np.array([p]))[0])
    beside = np.append(stays, False)[jobs.primary[j]]  # on the GPUs of a job that stays
    held = jobs.held if beside else jobs.gpus
    return s.allocation.held[j] * share * bool(is_there), held[j] * share * bool(bound)


def _needs_until_s(s: AuditContext, j: int) -> float:
    """Return for how many seconds a job needs new GPUs: until it is done, or can move again."""
    place = np.array([j]), s.pool[[j]], s.gpus[[j]]
    startup_s = float(s.problem.pools.startup_s[s.pool[j]])
    pause_s = startup_s + float(restart_s(s.problem, *place)[0]) * bool(s.running[j])
    until_s = _done_s(s, j, pause_s)
    if s.problem.jobs.preemptible[j]:
        move_s = startup_s + float(s.problem.jobs.restart_s[j])
        until_s = min(until_s, pause_s + s.problem.interval_s + move_s)
    return until_s


def _done_s(s: AuditContext, j: int, pause_s: float) -> float:
    """Return the seconds until a job is done at the speed of its GPUs without a second job."""
    every = s.every
    same = (every.job == j) & (every.pool == s.pool[j]) & (every.gpus == s.gpus[j])
    rate = float(every.rate[same].max(initial=0.0))
    return pause_s + float(s.problem.jobs.remaining_work[j]) / rate if rate > 0 else math.inf
