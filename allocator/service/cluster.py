"""The queue and an executor as a cluster behind the controller's ports (control/ports.py).

The database says what is wanted and what is known; the executor says what is. Every method may be
cut off anywhere: calling it again heals what was left, because nothing is done that the database
does not ask for, and everything it asks for is done again until the executor confirms it.

    order of writes      the journal and the wants -> orders (stop, start) -> the executor's calls
                         -> what it observed
    order of machines    GPUs are given out only when the end of who held them is recorded
                         (queue/allocations.py)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.control.executor import (
    Beside,
    Clock,
    Executor,
    Observation,
    Order,
    StaleOrder,
    WrongState,
)
from allocator.control.stability import leave_alone
from allocator.control.ticks import tick_at
from allocator.decision import Decided
from allocator.domain.columns import INTERVAL_S
from allocator.domain.problem import Problem
from allocator.domain.snapshot import Snapshot
from allocator.domain.validate import validate
from allocator.executors.errors import NotNow
from allocator.policies.memory import Memory
from allocator.queue import allocations, cluster, forgotten, lease, observing, periodic, wants
from allocator.queue import snapshot as snapshots
from allocator.queue.engine import Store
from allocator.queue.observing import Change
from allocator.queue.schema import ACTIVE, jobs, rounds
from allocator.service import belonging, deciding, journal, learning, spending, steadiness
from allocator.service.charge import Charge
from allocator.service.options import Options
from allocator.service.telemetry import Telemetry

T = TypeVar("T")
MEMORY = "memory"  # key of meta: prices that the last round left
# times that stops confirmed at once are followed up within one step
AT_ONCE = 4
# rounds between two observations of mere progress that are kept
HISTORY_EVERY = 20
# a last round so far in the future was written by a clock that jumped
JUMP_S = 1.0


# statements of every look, built once
_FIRST = sa.select(rounds.c.at_s).where(rounds.c.number == 1).scalar_subquery()
_LAST = sa.select(rounds.c.at_s).order_by(rounds.c.number.desc()).limit(1).scalar_subquery()
# of the journal: when its first and its last round were; NULL: there is none
_ENDS = sa.select(_FIRST, _LAST)
_NEWEST = sa.select(sa.func.max(jobs.c.seq)).where(
    jobs.c.state.in_(ACTIVE), jobs.c.submitted_s <= sa.bindparam("now_s"), jobs.c.request == ""
)
_WAITING = (
    sa.select(jobs.c.job_id)
    .where(jobs.c.state.in_(("queued", "paused")), jobs.c.want_gpus > 0)
    .limit(1)
)


@dataclass(frozen=True)
class Believed:
    """What a round decides about. content: the snapshot as the journal keeps it; alone: jobs it
    leaves alone; books: what is to be kept of long-run budgets."""

    snapshot: Snapshot
    content: bytes
    problem: Problem
    memory: Memory | None
    alone: frozenset[str]
    books: str | None = None


class QueueCluster:
    """A queue, an executor and a lease. wait() is one look at everything; it does not sleep:
    True, a round is due.
    """

    def __init__(
        self,
        store: Store,
        executor: Executor,
        clock: Clock,
        options: Options,
        telemetry: Telemetry,
        holder: str | None = None,
    ) -> None:
        self.store, self.executor, self.clock, self.options, self.log = (
            store,
            executor,
            clock,
            options,
            telemetry,
        )
        with store.read() as connection:
            self.interval_s = self._interval(connection)
            belonging.check(connection, store.name, executor)
        self.charge = Charge(store, options.lease_s(self.interval_s), holder)
        self.believed: Believed | None = None
        # rules of stability are off for the round to come
        self.thawed = False
        self.again = False  # decide at once
        # under the present lease queue and state know each other
        self._is_bound = False
        # a round now, whatever the clock says (--once)
        self.force = False
        self._round = 0  # rounds of this controller so far
        # something happened that --react reacts to
        self._event = False
        self._mark: tuple[Any, ...] | None = None
        self._mark_now: tuple[Any, ...] | None = None
        # the last round with the outcome to come and its detail, until all that it wants is so
        self._unsettled: tuple[int, str, str] | None = None

    def _interval(self, connection: Connection) -> float:
        if self.options.every_s is not None:
            return self.options.every_s
        return float(cluster.config(connection).get("interval_s", INTERVAL_S))

    # ---- one look
    # ----------------------------------------------------------------------------------------------

    def wait(self) -> bool:
        """Take or keep the lease, record what the executor observed, order and give out starts and
        stops; True: a round is due. Raises Standby, LeaseLost, QueueUnavailable."""
        now = self.clock.now()
        if self.charge.take(now):
            self._take_up()
            self.log.event("lease_taken", token=self.charge.token, holder=self.charge.holder)
        # also after a look that was cut short before it
        if not self._is_bound:
            words = belonging.bind(self.store, self.executor, self.charge.token)
            self._is_bound = True
            if words:
                self.log.event("state_recorded", detail=words)
        seen = self._look()
        ended = any(one.phase != "running" for one in seen)
        due = self._due(now, ended)
        self._record(seen, due)
        if due and ended:
            due = self._due(now, ended)  # perhaps those were the last
        if not due:
            self.reconcile({(one.job_id, one.generation) for one in seen})
        return due

    def _look(self) -> list[Observation]:
        """Return what the executor observed. A time in the future, which an actor may write, counts
        as now: it would make every later observation of the allocation look old."""
        seen = list(self._ask("observe", self.executor.observe))
        now = self.clock.now()
        return [one if one.at_s <= now else replace(one, at_s=now) for one in seen]

    def _capacity(self) -> Mapping[str, int]:
        """GPUs by pool, as the executor counts them."""
        return self._ask("capacity", self.executor.capacity)

    def _ask(self, name: str, verb: Callable[[], T]) -> T:
        """Ask the executor. When its disk fails there is no answer, which is not the same as an
        empty one. Raises NotNow."""
        try:
            return verb()
        except OSError as error:
            raise NotNow(f"{name}: {type(error).__name__}: {error}") from error

    def _take_up(self) -> None:
        """What the controller before may have left unfinished."""
        self._is_bound = False
        with self.store.read() as connection:
            last = connection.execute(
                sa.select(rounds.c.number, rounds.c.outcome, rounds.c.detail)
                .order_by(rounds.c.number.desc())
                .limit(1)
            ).first()
        self._unsettled = (
            (int(last.number), "applied", last.detail)
            if last is not None and last.outcome == "decided"
            else None
        )

    def _record(self, seen: Sequence[Observation], progress: bool) -> None:
        """Write what was observed; mere progress only when a round needs it."""
        news, strange = list[Observation](), list[Observation]()
        with self.store.write() as connection:
            known = observing.marks(connection, {one.job_id for one in seen})
            for one in seen:
                mark = known.get(one.job_id)
                if mark is None or mark.generation != one.generation:
                    strange.append(one)
                elif one.phase != "running":
                    news.append(learning.judged(one, mark.detail))
                elif progress or mark.phase == "ordered":
                    news.append(one)
            changes = (
                observing.observe(
                    connection,
                    self.charge.token,
                    news,
                    self.options.retries,
                    known,
                    self._round % HISTORY_EVERY == 0,
                )
                if news
                else []
            )
            self._refuse_unknown(connection, strange)
        self._tell(changes, news)
        for one in seen:
            if one.phase != "running":
                self._call("acknowledge", self.executor.acknowledge, one.job_id, one.generation)
        for one in strange:
            if one.phase == "running":
                self.log.event("stranger", job_id=one.job_id, generation=one.generation)
                self._call("stop", self._stop_stranger, one.job_id, one.generation)

    def _stop_stranger(self, job_id: str, generation: int) -> None:
        # it had ended and was acknowledged, and was said once more
        with suppress(StaleOrder):
            self.executor.stop(job_id, generation, self.charge.token)

    def _refuse_unknown(self, connection: Connection, strange: Sequence[Observation]) -> None:
        """Raise WrongState where the executor speaks of an allocation that the queue has never
        ordered (any order is written before it is given): then the queue was set back, and to stop
        those jobs would be to lose them."""
        newest = forgotten.newest(connection, {one.job_id for one in strange}) if strange else {}
        for one in strange:
            if one.generation > newest.get(one.job_id, 0):
                raise WrongState(
                    belonging.set_back(
                        self.store.name,
                        self.executor,
                        f'job "{one.job_id}" has allocation {one.generation}, the last '
                        f"that the queue ordered is {newest.get(one.job_id, 0)}",
                    )
                )

    def _tell(self, changes: Sequence[Change], seen: Sequence[Observation]) -> None:
        ended = [
            c
            for c in changes
            if c.state != "running" or c.phase in ("finished", "failed", "lost", "stopped")
        ]
        words = {(one.job_id, one.generation): one.detail for one in seen} if ended else {}
        for change in ended:
            # a stop that a round ordered is no news to it
            self._event |= change.phase != "stopped" or change.state not in (
                "queued",
                "paused",
                "running",
            )
            self.log.event(
                "ended",
                job_id=change.job_id,
                generation=change.generation,
                phase=change.phase,
                state=change.state,
                detail=words[change.job_id, change.generation],
            )

    def _due(self, now: float, ended: bool) -> bool:
        """Whether a round is due: a tick, an event with --react, or nobody ever decided; never
        without jobs. ended: an end was observed just now."""
        self._repeat(now)
        with self.store.read() as connection:
            self.interval_s = self._interval(connection)
            first, last = connection.execute(_ENDS).one()
            mark = self._what_matters(connection, now)
        if not mark[0]:
            return False
        event = self._event or ended or (self._mark is not None and mark != self._mark)
        self._mark_now = mark
        if self.force or self.again or last is None or last > now + JUMP_S:
            return True
        return tick_at(now, first, self.interval_s) > tick_at(last, first, self.interval_s) or (
            event and now >= last + self.options.react_s
        )

    def _repeat(self, now: float) -> None:
        """Submit the periodic jobs whose time has come."""
        with self.store.read() as connection:
            if not periodic.is_due(connection, now):
                return
        with self.store.write() as connection:
            repeated = periodic.submit_due(connection, now)
        for one in repeated:
            self.log.event("repeated", job_id=one.job_id, series=one.series, missed=one.missed)

    def _what_matters(self, connection: Connection, now: float) -> tuple[Any, ...]:
        """Things that a new round may answer to, beside ends of allocations."""
        newest = connection.execute(_NEWEST, {"now_s": now}).scalar()
        return (
            newest,
            tuple(cluster.gpus(connection).items()),
            tuple(sorted(self._capacity().items())),
        )

    # ---- one round
    # ----------------------------------------------------------------------------------------------

    def observe(self) -> Problem:
        """The problem of now, exactly as the journal will keep it. Raises InvalidInput."""
        now = self.clock.now()
        with self.store.read() as connection:
            built = snapshots.build(connection, now)
            stored = cluster.get_meta(connection, MEMORY) if self.options.warm else None
            since = (
                steadiness.since(connection) if self.options.stability.rests else steadiness.NOTHING
            )
        built = replace(
            built, config={**built.config, "interval_s": self.interval_s, **snapshots.ACCEPTED}
        )
        if self.options.horizon is not None:
            seen = {**built.config.get("horizon", {}), "rounds": self.options.horizon}
            built = replace(built, config={**built.config, "horizon": seen})
        built = _with_capacity(built, self._capacity())
        built, problem, kept = spending.charged(self.store, built, validate(built))
        alone = (
            frozenset[str]()
            if self.thawed
            else steadiness.alone(problem, since, self.options.stability)
        )
        if alone:
            built = leave_alone(built, alone)
            problem = validate(built)
        memory = deciding.memory_of(journal.loads(stored))
        self.believed = Believed(built, snapshots.packed(built), problem, memory, alone, kept)
        return problem

    def apply(self, decided: Decided, took_s: float) -> int:
        """Write the round and what it wants in one transaction, then have it carried out. Returns
        how many jobs change. Raises LeaseLost: then nothing was written and nothing will be done.
        """
        believed = self.believed
        assert believed is not None
        problem = believed.problem
        told = deciding.result(decided, problem, policy=self.options.policy, seed=self.options.seed)
        entry = replace(
            self._entry(believed, took_s),
            status=told.status,
            value=told.objective_value,
            bound=told.bound,
            gap=told.gap,
            plan=journal.squeezed(deciding.plan_text(told)),
            outcome="decided",
            detail=_left_alone(believed.alone),
        )
        wanted, changes = deciding.wanted(problem, decided.allocation)
        token = self.charge.token
        with self.store.write() as connection:
            number = wants.append(connection, token, entry, wanted)
            spending.write(connection, believed.books)
            if self.options.warm:
                cluster.put_meta(
                    connection,
                    MEMORY,
                    journal.dumps(deciding.memory_json(deciding.remembered(decided))),
                )
        self._unsettled = (number, "applied", entry.detail)
        self._over()
        self.log.round(number, problem, told, took_s, changes)
        return changes

    def fail(self, error: Exception, took_s: float = 0.0) -> int:
        """Write a round without a plan: what runs and what is wanted stays. Returns its number."""
        believed = self.believed
        base = (
            wants.Round(self.clock.now(), "", None, self.options.policy, "none")
            if believed is None
            else self._entry(believed, took_s)
        )
        words = (
            str(error)
            if isinstance(error, deciding.RoundFailed)
            else f"{type(error).__name__}: {error}"
        )
        with self.store.write() as connection:
            number = wants.append(
                connection,
                self.charge.token,
                replace(base, outcome="failed", status="none", detail=words),
                None,
            )
            if believed is not None:
                spending.write(connection, believed.books)
        # rules that cannot hold with jobs left alone may well hold without
        self.again = self.thawed = believed is not None and bool(believed.alone)
        self._mark, self._event, self.believed, self.force = self._mark_now, False, None, False
        self.log.failed(number, words, took_s)
        return number

    def _entry(self, believed: Believed, took_s: float) -> wants.Round:
        options: dict[str, Any] = {
            **self.options.decision(),
            "time_limit_s": _finite(self.options.limit_s(self.interval_s)),
            "memory": deciding.memory_json(believed.memory),
        }
        return wants.Round(
            believed.problem.now_s,
            believed.snapshot.digest,
            believed.content,
            self.options.policy,
            "none",
            options=options,
            seconds={"decide": round(took_s, 6)},
        )

    def _over(self) -> None:
        self._mark, self._event, self.again, self.thawed, self.force = (
            self._mark_now,
            False,
            False,
            False,
            False,
        )
        self.believed = None
        self._round += 1

    # ---- carrying it out
    # ------------------------------------------------------------------------------------------

    def carry_out(self) -> None:
        """Stop and start what the last round wants, and record what comes of it at once: since when
        jobs run, and where stops are confirmed, start what waited for them."""
        for _ in range(AT_ONCE):
            ordered = self.reconcile()
            if not ordered:
                return
            seen = [one for one in self._look() if (one.job_id, one.generation) in ordered]
            if seen:
                self._record(seen, False)
            if all(one.phase == "running" for one in seen):
                return

    def reconcile(self, known: set[tuple[str, int]] | None = None) -> set[tuple[str, int]]:
        """Order the stops and starts that the wants ask for and that are safe by now, and give all
        that is ordered to the executor (again). known: allocations it spoke of; one that is open
        and not among them is given again. Returns the allocations that were told to stop or to
        start."""
        now, token = self.clock.now(), self.charge.token
        capacity = self._capacity()
        with self.store.write() as connection:
            stops = allocations.order_stops(connection, token, now)
            starts = allocations.order_starts(connection, token, now, capacity)
            if known is not None:
                starts = starts + self._forgotten(
                    connection, known, {s.allocation.job_id for s in starts}
                )
            if (
                self._unsettled is not None
                and not stops
                and not starts
                and not _waiting(connection)
            ):
                wants.mark(connection, token, *self._unsettled)
                self._unsettled = None
            # ordered before machines went and never given out: kept back until a round has made
            # room for it
            room = allocations.free(connection, capacity) if starts else {}
        for held in stops:
            self._call("stop", self.executor.stop, held.job_id, held.generation, token)
        for start in starts:
            if room.get(start.allocation.pool, 0) < 0:
                continue
            self._call("start", self.executor.start, _order(start, token))
        return {(a.job_id, a.generation) for a in (*stops, *(start.allocation for start in starts))}

    @staticmethod
    def _forgotten(
        connection: Connection, known: set[tuple[str, int]], given: set[str]
    ) -> list[allocations.Start]:
        """Allocations that run as far as the database knows, and of which the executor says
        nothing.
        """
        if all(
            (name, held.generation) in known or name in given or held.phase != "running"
            for name, held in observing.marks(connection).items()
        ):
            return []
        return [
            one
            for one in allocations.starts(connection, "running")
            if (one.allocation.job_id, one.allocation.generation) not in known
            and one.allocation.job_id not in given
        ]

    def _call(self, name: str, verb: Callable[..., None], *arguments: Any) -> None:
        """One call of the executor. What it cannot do now is asked of it again at the next look.
        Raises LeaseLost, WrongState."""
        try:
            verb(*arguments)
        except NotNow as error:
            self.log.event("not_now", call=name, detail=str(error))
        except StaleOrder as error:
            with self.store.read() as connection:
                # LeaseLost: it is this controller that is stale
                lease.check(connection, self.charge.token)
            self.log.event("stale_order", call=name, detail=str(error))
            raise WrongState(
                belonging.set_back(self.store.name, self.executor, str(error))
            ) from error
        except OSError as error:
            self.log.event("executor_failed", call=name, detail=f"{type(error).__name__}: {error}")


def _order(start: allocations.Start, token: int) -> Order:
    a = start.allocation
    return Order(
        a.job_id,
        a.generation,
        token,
        a.pool,
        a.gpus,
        a.gpu_type,
        a.work_at_start,
        start.command,
        start.environment,
        start.workdir,
        None if start.partner is None else Beside(*start.partner),
        start.first_generation,
    )


def _waiting(connection: Connection) -> bool:
    """Whether a job wants GPUs that it does not hold yet."""
    return connection.execute(_WAITING).first() is not None


def _with_capacity(snapshot: Snapshot, capacity: Mapping[str, int]) -> Snapshot:
    """The snapshot with no more GPUs than are there."""
    table = snapshot.tables["pools.csv"]
    cells = [
        str(min(int(cell), capacity.get(pool, int(cell))))
        for pool, cell in zip(table.columns["pool"], table.columns["gpus"], strict=True)
    ]
    if cells == list(table.columns["gpus"]):
        return snapshot
    return replace(
        snapshot,
        tables={
            **snapshot.tables,
            "pools.csv": replace(table, columns={**table.columns, "gpus": cells}),
        },
    )


def _left_alone(names: frozenset[str]) -> str:
    some = sorted(names)
    return f"left alone: {', '.join(some[:5])}{' ...' if len(some) > 5 else ''}" if some else ""


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None
