"""What allocations have cost, for the books of long-run budgets (market/books.py).

Books are kept up to a moment, the one of the round that wrote them, in the transaction that wrote it. The next round
charges the stretch from there to its own moment: every second of every allocation is in one stretch, so that it is
charged once, whatever crashes in between. An allocation counts from its order to its recorded end, at the price of its
pool at the end of the stretch, for min_billing_s at least; one whose end is recorded late was held until then. GPUs of
two jobs are charged to the host: a guest pays from the moment on at which it holds them, and who leaves them to the
other one owes no minimum.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.domain.problem import Problem
from allocator.domain.snapshot import Snapshot
from allocator.domain.validate import validate
from allocator.market import books
from allocator.queue import cluster
from allocator.queue.engine import Store
from allocator.queue.schema import allocations, jobs, meta, turns

KEY = "longrun"                 # of the table meta
HOUR = 3600.0
NOBODY = "default"              # tenant of jobs that name none
_FORGET = sa.delete(meta).where(meta.c.key == KEY)


def _stored(connection: Connection) -> dict[str, Any]:
    text = cluster.get_meta(connection, KEY)
    found: dict[str, Any] = {} if text is None else json.loads(text)
    return found


def charged(store: Store, snapshot: Snapshot, problem: Problem) -> tuple[Snapshot, Problem, str | None]:
    """The snapshot and its problem with the prices and limits of the long-run budgets, and what to write about them
    with the round; as they are, and None, where there are no such budgets."""
    asked = books.budgets(problem)
    if not asked:
        return snapshot, problem, None
    with store.read() as connection:
        found = _stored(connection)
        since_s = found.get("at_s")
        spent = {} if since_s is None else between(connection, problem, since_s)
    now = books.settled(books.of_json(found), problem, spent)
    told = books.told(snapshot, books.applied(problem, now))
    text = {"at_s": problem.now_s if since_s is None else max(since_s, problem.now_s), **books.to_json(now),
            "report": books.report(now, asked, problem.interval_s)}
    return told, validate(told), json.dumps(text, sort_keys=True)


def write(connection: Connection, text: str | None) -> None:
    """Keep what `charged` said, in the transaction of its round; None: there are no such budgets, and no books."""
    if text is None:
        connection.execute(_FORGET)
    else:
        cluster.put_meta(connection, KEY, text)


def report(connection: Connection) -> dict[str, dict[str, Any]]:
    """The budgets as of the last round, "" = that of the whole cluster (market/longrun.py)."""
    found: dict[str, dict[str, Any]] = _stored(connection).get("report", {})
    return found


def between(connection: Connection, problem: Problem, since_s: float) -> dict[str, float]:
    """Dollars that GPUs which are not reserved cost from since_s to the problem's now_s, by tenant."""
    pools, now_s = problem.pools, problem.now_s
    t = allocations
    longest = float(pools.min_billing_s.max(initial=0.0))
    rows = connection.execute(sa.select(
        t.c.job_id, t.c.generation, t.c.pool, t.c.gpus, t.c.ordered_s, t.c.ended_s, jobs.c.tenant).join(
        jobs, jobs.c.job_id == t.c.job_id).where(sa.or_(
            t.c.ended_s.is_(None), t.c.ended_s > since_s - longest))).all()
    number = {name: p for p, name in enumerate(pools.pool)}
    changes, left = _turns(connection, since_s - longest)
    out: dict[str, float] = {}
    for job_id, generation, pool, gpus, ordered_s, ended_s, tenant in rows:
        p = number.get(pool, -1)
        if p < 0:
            continue
        held_s = 0.0
        for begin, end, last in _paid(ordered_s, ended_s, changes.get((job_id, generation), ())):
            least_s = float(pools.min_billing_s[p]) if last and (job_id, ended_s) not in left else 0.0
            held_s += max(0.0, min(max(end, begin + least_s), now_s) - max(begin, since_s))
        name = tenant or NOBODY
        out[name] = out.get(name, 0.0) + held_s * gpus * float(pools.marginal_price[p]) / HOUR
    return out


def _turns(connection: Connection, after_s: float) -> tuple[dict[tuple[str, int], list[tuple[float, str]]],
                                                            set[tuple[str, float]]]:
    """When allocations that were open after a time got GPUs of another job, and which, or their own; and (job, time)
    of those who left their GPUs to their guest."""
    t, a = turns.c, allocations.c
    changes: dict[tuple[str, int], list[tuple[float, str]]] = {}
    left = set[tuple[str, float]]()
    for job_id, generation, at_s, host in connection.execute(sa.select(t.job_id, t.generation, t.at_s, t.host).join(
            allocations, sa.and_(a.job_id == t.job_id, a.generation == t.generation)).where(
            sa.or_(a.ended_s.is_(None), a.ended_s > after_s)).order_by(t.id)).all():
        before = changes.setdefault((job_id, generation), [])
        if before and not host:
            left.add((before[-1][1], at_s))
        before.append((at_s, host))
    return changes, left


def _paid(ordered_s: float, ended_s: float | None,
          changes: Sequence[tuple[float, str]]) -> Iterator[tuple[float, float, bool]]:
    """(from, to, whether it ends as the allocation does) of stretches in which an allocation held its GPUs itself."""
    since: float | None = ordered_s
    for at_s, host in changes:
        if host and since is not None:
            yield since, max(since, at_s), False
            since = None
        elif not host and since is None:
            since = at_s
    if since is not None:
        yield since, math.inf if ended_s is None else ended_s, ended_s is not None
