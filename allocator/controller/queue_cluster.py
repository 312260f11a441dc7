"""The queue and an executor, as a cluster behind the port of the loop (loop/rounds.py).

The database knows what is wanted and what was observed. The executor knows what exists. A method
may be interrupted at any point, and calling it again completes the work: nothing is done that the
database does not ask for, and everything that it asks for is repeated until the executor confirms
it.

A round, its wants and their orders (stop, start) are written at once, then come the calls of the
executor, then what the executor observed. GPUs are given out only after the end of the allocation
that held them is recorded (queue/allocations.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection

from allocator.controller import (
    belonging,
    guarded_decision,
    learning,
    profiling,
    spending,
    steadiness,
)
from allocator.controller.learned_slowdowns import Beliefs, compute_beliefs
from allocator.controller.observed_nodes import add_new_nodes, limit_snapshot
from allocator.controller.options import ControllerOptions
from allocator.controller.reporting.telemetry import Telemetry
from allocator.controller.users_jobs import UsersJobs
from allocator.domain.plan import Plan
from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.columns import INTERVAL_S
from allocator.domain.settings import has_trials
from allocator.domain.snapshot import Snapshot
from allocator.engine.decided import Decision
from allocator.engine.results import build_result
from allocator.io.plans import pack_plan
from allocator.loop.executor import (
    Clock,
    Executor,
    JobSource,
    NodePart,
    NodeStatus,
    NodeWatcher,
    NotNow,
    Observation,
    Order,
    Phase,
    SettingsWriter,
    StaleOrder,
    WrongState,
    refuse_several_primaries,
)
from allocator.loop.live_rental import LiveRental
from allocator.loop.rounds import EXACT, latest_tick
from allocator.objects import Record
from allocator.policies.base import Memory
from allocator.queue import (
    allocations,
    cluster_tables,
    lease,
    observations,
    round_journal,
    snapshot as snapshots,
)
from allocator.queue.database.connection import QueueDatabase
from allocator.queue.database.rows import query, read_version
from allocator.queue.database.schema import ACTIVE
from allocator.queue.jobs import periodic, purged_names
from allocator.queue.lease import LeaseHolder
from allocator.queue.observations import Ended

T = TypeVar("T")
MEMORY = "memory"  # key of the table meta: prices of the last round
# how often starts follow confirmed stops within one step
MOST_FOLLOW_UPS = 4
# number of rounds after which progress is added to the table observations
HISTORY_EVERY = 20
# seconds: a last round so far in the future was written by a clock that jumped
JUMP_S = 1.0


# statements that run at every poll, built once
# times of the first and the last round of the journal; NULL: there is none
_ROUND_TIMES = (
    "SELECT (SELECT at_s FROM rounds WHERE number = 1), "
    "(SELECT at_s FROM rounds ORDER BY number DESC LIMIT 1)"
)
_NEWEST = f"SELECT MAX(seq) FROM jobs WHERE state IN {ACTIVE} AND submitted_s <= ? AND request = ''"
# the next time at which a job is repeated, tried again or submitted
_NEXT = (
    "SELECT COALESCE(MIN(at_s), 1e300) FROM (SELECT next_s AS at_s FROM jobs"
    f" UNION ALL SELECT retry_at_s FROM jobs WHERE state IN {ACTIVE}"
    f" UNION ALL SELECT submitted_s FROM jobs WHERE state IN {ACTIVE}) AS times WHERE at_s > ?"
)
# a job that wants GPUs and does not hold them yet
_UNMET = "SELECT job_id FROM jobs WHERE state IN ('queued', 'paused') AND want_gpus > 0 LIMIT 1"


@dataclass(frozen=True)
class RoundInput:
    """What a round decides about.

    `memory` is what the round before handed on. `jobs_left_alone` are the jobs that the rules of
    stability leave alone. `books` are those of long-run budgets, None if there are none. `trials`
    are what jobs run to learn speeds, None where [profiling] does not ask for it.
    """

    snapshot: Snapshot
    problem: Problem
    memory: Memory | None
    jobs_left_alone: frozenset[str]
    books: Record | None = None
    trials: profiling.ProfiledRound | None = None


class _Recorded(NamedTuple):
    """What observations ended, and those of allocations that the queue does not know."""

    ended: list[Ended]
    unknown: list[Observation]


class _QuietPoll(NamedTuple):
    """A poll that had nothing to do, as every later one until `until_s` while nothing changes.

    `version` is that of the database, and `look` what the executor reported and counted.
    """

    version: Any
    look: Any
    since_s: float
    until_s: float


class _Orders(NamedTuple):
    """Stops and starts to give to the executor, and how running jobs are wanted to run.

    `pending` is the number of a round that is not yet carried out completely.
    """

    stops: list[allocations.Allocation]
    starts: list[Order]
    settings: Mapping[tuple[str, int], Mapping[str, str] | None]
    pending: int | None


class QueueCluster:
    """A queue, an executor and a lease, as the cluster of the controller.

    `wait()` polls everything once and does not sleep. It returns whether a round is due.
    """

    def __init__(
        self,
        store: QueueDatabase,
        executor: Executor,
        clock: Clock,
        options: ControllerOptions,
        telemetry: Telemetry,
        holder: str | None = None,
    ) -> None:
        self.store, self.executor, self.clock = store, executor, clock
        self.options, self.log = options, telemetry
        with store.read() as connection:
            self.interval_s = self._read_interval_s(connection)
            belonging.check(connection, store.name, executor)
            refuse_several_primaries(executor, cluster_tables.read_max_primaries(connection))
        self.lease_holder = LeaseHolder(store, options.lease_s(self.interval_s), holder)
        # what the last round believes of the speeds of colocated jobs
        self.beliefs: Beliefs = {}
        # what running jobs were told under the present lease
        self._settings: dict[tuple[str, int], Mapping[str, str]] = {}
        self._untold = set[tuple[str, int]]()  # allocations that could not be told
        self._users_jobs = (
            UsersJobs(store, executor, telemetry) if isinstance(executor, JobSource) else None
        )
        self._rental = LiveRental()
        self.rows = snapshots.PreviousRows()
        self.round_input: RoundInput | None = None
        # the next round is due at once, and the rules of stability do not apply to it
        self.ignores_stability = False
        # queue and state were linked under the present lease
        self._is_bound = False
        # a round is due at any time (--once)
        self.is_round_forced = False
        self._rounds_decided = 0  # rounds that this controller has decided
        # an event happened that causes an early round (--react)
        self._has_event = False
        self._decided_triggers: tuple[Any, ...] | None = None
        self._observed_triggers: tuple[Any, ...] | None = None
        self.pending_round: int | None = None  # the last one until that is done completely
        self._orders: _Orders | None = None  # of the last round, until they are given
        self._quiet: _QuietPoll | None = None
        self._next_round_s = -math.inf  # no round is due before that unless something changes

    def _read_interval_s(self, connection: Connection) -> float:
        if self.options.every_s is not None:
            return self.options.every_s
        return float(cluster_tables.config(connection).get("interval_s", INTERVAL_S))

    # ---- one poll
    # ----------------------------------------------------------------------------------------------

    def wait(self) -> bool:
        """Poll once, and return whether a round is due.

        A poll takes or renews the lease, records what the executor observed, and orders starts and
        stops.

        Raises
        ------
        Standby
            If another controller leads.
        LeaseLost
            If another controller took over.
        QueueUnavailable
            If the database cannot be used right now.
        NotNow
            If the executor cannot answer right now.
        WrongState
            If the queue and the state of the executor do not belong together.
        """
        now = self.clock.now()
        if self.lease_holder.take(now):
            self._resume_last_round()
            self.log.event(
                "lease_taken", token=self.lease_holder.token, holder=self.lease_holder.holder
            )
        # not only after taking the lease: an earlier poll may have been cut short
        if not self._is_bound:
            words = belonging.link_state(self.store, self.executor, self.lease_holder.token)
            self._is_bound = True
            if words:
                self.log.event("state_recorded", detail=words)
        seen = self._observe_executor()
        look = (
            {
                (observation.job_id, observation.generation, observation.phase)
                for observation in seen
            },
            sorted(self._read_capacity().items()),
            sorted((status.node, status.state) for status in self._read_nodes()),
        )
        due = not self._is_quiet(now, look) and self._poll(now, seen, look)
        if (users_jobs := self._users_jobs) is not None:
            token = self.lease_holder.token
            self._query_executor("users_jobs", lambda: users_jobs.take(token, self.clock.now()))
        return due

    def _is_quiet(self, now: float, look: Any) -> bool:
        """Return whether a poll would do nothing: all is as at the last one, which did nothing."""
        quiet = self._quiet
        if quiet is None or quiet.look != look or not quiet.since_s <= now < quiet.until_s:
            return False
        with self.store.read() as connection:
            return bool(read_version(connection) == quiet.version)

    def _poll(self, now: float, seen: Sequence[Observation], look: Any) -> bool:
        """Do what is to be done after an observation, and return whether a round is due."""
        self._quiet, gpus = None, look[1:]
        ended = any(observation.phase != "running" for observation in seen)
        with self.store.write() as connection:
            version = read_version(connection)
            repeated = periodic.submit_due(connection, now)
            due = self._is_round_due(connection, now, ended, gpus)
            # mere progress is written for a round only
            recorded = self._write_observations(connection, seen, due)
            if due and ended:
                due = self._is_round_due(connection, now, ended, gpus)  # perhaps no job is left
            on_down_nodes = allocations.find_on_down_nodes(connection)
            if not due:
                until_s = min(self._next_round_s, query(connection, _NEXT, now)[0][0])
        for run in repeated:
            self.log.event("repeated", job_id=run.job_id, series=run.series, missed=run.missed)
        self._acknowledge(seen, recorded)
        has_news = self._add_observed_nodes() or bool(on_down_nodes or recorded.unknown)
        if on_down_nodes:
            self._lose_on_down_nodes()
        if not due:
            given = self.reconcile({observation.key for observation in seen})
            if not (has_news or ended or given or self._untold or self.pending_round):
                self._quiet = _QuietPoll(version, look, now, until_s)
        return due

    def _observe_executor(self) -> list[Observation]:
        """Return what the executor observed; a time in the future counts as now.

        An actor may write such a time, and it would make every later observation of the allocation
        look old.
        """
        seen = list(self._query_executor("observe", self.executor.observe))
        now = self.clock.now()
        return [
            observation if observation.at_s <= now else replace(observation, at_s=now)
            for observation in seen
        ]

    def _read_capacity(self) -> Mapping[str, int]:
        """Return the GPUs of each pool as the executor counts them."""
        return self._query_executor("capacity", self.executor.capacity)

    def _read_nodes(self) -> Sequence[NodeStatus]:
        """Return the nodes that the executor observes; none if it observes no nodes."""
        if not isinstance(self.executor, NodeWatcher):
            return ()
        return self._query_executor("observe_nodes", self.executor.observe_nodes)

    def _query_executor(self, name: str, verb: Callable[[], T]) -> T:
        """Ask the executor. Raises NotNow if its disk fails, as this is not an empty answer."""
        try:
            return verb()
        except OSError as error:
            raise NotNow(f"{name}: {type(error).__name__}: {error}") from error

    def _resume_last_round(self) -> None:
        """Take up the last round of an earlier controller if it was not carried out completely."""
        self._is_bound = False
        self._settings, self.rows.wants = {}, None
        with self.store.read() as connection:
            last = round_journal.history(connection, limit=1)
        self.pending_round = next(
            (entry.number for entry in last if entry.outcome == "decided"), None
        )

    def _add_observed_nodes(self) -> bool:
        """Add nodes that the executor observes in pools whose nodes it lists; return if any."""
        new = add_new_nodes(self.store, self.lease_holder.token, self._read_nodes())
        for status, refusal in new.items():
            name, detail = "node_added", f"{status.gpus} GPUs"
            if refusal:
                name, detail = "node_refused", refusal
            self.log.event(name, node=status.node, pool=status.pool, detail=detail)
        return bool(new)

    def _lose_on_down_nodes(self) -> None:
        """Record as lost what the executor has not ended itself on nodes that are down.

        The executor is told to stop it first. So it cannot start again there once its job has got
        other GPUs.
        """
        token = self.lease_holder.token
        with self.store.write() as connection:
            stops = allocations.order_stops_on_down_nodes(connection, token, self.clock.now())
        stopped = [
            allocation
            for allocation in stops
            if self._command_executor("stop", self.executor.stop, *allocation.key, token)
        ]
        seen = {observation.key: observation for observation in self._observe_executor()}
        ends = [_end_on_down_node(allocation, seen, self.clock.now()) for allocation in stopped]
        with self.store.write() as connection:
            recorded = self._write_observations(connection, ends, False)
        self._log_ended(recorded.ended)

    def _write_observations(
        self, connection: Connection, seen: Sequence[Observation], progress: bool
    ) -> _Recorded:
        """Write what was observed in a transaction; mere progress only if `progress` is set."""
        news, unknown = [], list[Observation]()
        known = allocations.read_held(connection, {observation.job_id for observation in seen})
        for observation in seen:
            mark = known.get(observation.job_id)
            if mark is None or mark.generation != observation.generation:
                unknown.append(observation)
            elif observation.phase != "running":
                news.append((learning.mark_stuck_as_failed(observation, mark.detail), mark))
            elif progress or mark.phase == "ordered":
                news.append((observation, mark))
        is_history = self._rounds_decided % HISTORY_EVERY == 0
        token, retries = self.lease_holder.token, self.options.retries
        ended = observations.record(connection, token, news, retries, is_history) if news else []
        if unknown:
            self._refuse_unknown(connection, unknown)
        return _Recorded(ended, unknown)

    def _acknowledge(self, seen: Sequence[Observation], recorded: _Recorded) -> None:
        """Acknowledge the recorded ends, and stop running allocations that nobody ordered."""
        self._log_ended(recorded.ended)
        for observation in seen:
            if observation.phase != "running":
                self._command_executor("acknowledge", self.executor.acknowledge, *observation.key)
        for observation in recorded.unknown:
            if observation.phase == "running":
                self.log.event(
                    "stranger", job_id=observation.job_id, generation=observation.generation
                )
                self._command_executor("stop", self._stop_unknown_allocation, *observation.key)

    def _stop_unknown_allocation(self, job_id: str, generation: int) -> None:
        # its end was acknowledged, and the executor reported it once more
        with suppress(StaleOrder):
            self.executor.stop(job_id, generation, self.lease_holder.token)

    def _refuse_unknown(self, connection: Connection, unknown: Sequence[Observation]) -> None:
        """Raise WrongState if the executor has an allocation that the queue has never ordered.

        Every order is written before it is given. So the queue was set back, and stopping those
        jobs would lose them.
        """
        names = {observation.job_id for observation in unknown}
        newest = purged_names.read_newest_generations(connection, names)
        for observation in unknown:
            last = newest.get(observation.job_id, 0)
            if observation.generation > last:
                why = (
                    f'job "{observation.job_id}" has allocation {observation.generation}, the last'
                    f" that the queue ordered is {last}"
                )
                raise WrongState(belonging.describe_set_back(self.store.name, self.executor, why))

    def _log_ended(self, ended: Sequence[Ended]) -> None:
        for end in ended:
            # a stop that a round ordered is no event
            self._has_event |= end.phase != "stopped" or end.state not in ("queued", "paused")
            self.log.event("ended", **end._asdict())

    def _is_round_due(self, connection: Connection, now: float, ended: bool, gpus: Any) -> bool:
        """Return whether a round is due: at a tick, after an event (--react), or as the first one.

        Without jobs no round is due. `ended`: an end was observed just now. `gpus`: the GPUs of
        pools and the states of nodes as the executor sees them.
        """
        self.interval_s = self._read_interval_s(connection)
        [(first, last)] = query(connection, _ROUND_TIMES)
        [(newest,)] = query(connection, _NEWEST, now)
        self._next_round_s = math.inf
        if not newest:
            return False
        # a change of these may cause an early round, as an end does
        mark = (
            newest,
            cluster_tables.gpus(connection),
            cluster_tables.count_node_changes(connection),
            gpus,
        )
        event = (
            self._has_event
            or ended
            or (self._decided_triggers is not None and mark != self._decided_triggers)
        )
        self._observed_triggers = mark
        if self.is_round_forced or self.ignores_stability or last is None or last > now + JUMP_S:
            return True
        tick = latest_tick(last, first, self.interval_s) + 1
        self._next_round_s = min(
            first + (tick - EXACT) * self.interval_s,
            last + self.options.react_s if event else math.inf,
        )
        return now >= self._next_round_s

    # ---- one round
    # ----------------------------------------------------------------------------------------------

    def observe(self) -> Problem:
        """Return the problem of now, exactly as the journal will keep it. Raises InvalidInput."""
        options, left_alone, self._orders = self.options, frozenset[str](), None
        capacity, nodes, trials = self._read_capacity(), self._read_nodes(), None
        with self.store.read() as connection:
            built = snapshots.build_snapshot(connection, self.clock.now(), self.rows)
            refuse_several_primaries(self.executor, int(built.config.get("max_primaries", 1)))
            config = {**built.config, "interval_s": self.interval_s, **snapshots.ACCEPTED}
            if options.horizon is not None:
                config["horizon"] = {**config.get("horizon", {}), "rounds": options.horizon}
            built = limit_snapshot(replace(built, config=config), capacity, nodes)
            problem = validate(built)
            if options.learn and has_trials(problem.settings):
                known = profiling.read(connection)
                trials = profiling.profile(built, problem, known, self.interval_s)
                built, problem = trials.snapshot, trials.problem
            built, problem, books = spending.apply_budgets(connection, built, problem, self._rental)
            if options.stability.has_rest_rules and not self.ignores_stability:
                starts = steadiness.read_allocation_starts(connection)
                left_alone = steadiness.jobs_left_alone(problem, starts, options.stability)
            stored = cluster_tables.read_meta(connection, MEMORY) if options.warm else None
        if self.pending_round or self._untold:
            self.rows.wants = None
        if left_alone:
            built, problem = steadiness.make_non_preemptible(built, problem, left_alone)
        memory = guarded_decision.memory_from_json(stored)
        self.round_input = RoundInput(built, problem, memory, left_alone, books, trials)
        return problem

    def apply(self, decision: Decision, took_s: float) -> int:
        """Write the round, what it wants and its orders in one transaction.

        Where all of that is as after the round before, only the round is written. The next poll, or
        `carry_out`, carries it out. Returns how many jobs change. Raises LeaseLost; then nothing
        was written.
        """
        round_input = self.round_input
        assert round_input is not None
        problem = round_input.problem
        plan = build_result(problem, decision, policy=self.options.policy, seed=self.options.seed)
        entry = self._build_journal_entry(
            took_s,
            status=plan.status,
            value=plan.objective_value,
            bound=plan.bound,
            gap=plan.gap,
            plan=pack_plan(plan),
            detail=_describe_round(round_input.jobs_left_alone, plan),
        )
        wants, changes = guarded_decision.compute_wants(problem, decision.allocation)
        chosen = decision.allocation
        self.beliefs = compute_beliefs(problem, chosen) if (chosen.primary >= 0).any() else {}
        token, trials = self.lease_holder.token, round_input.trials
        if trials is not None:
            wants = profiling.restart_jobs(wants, trials.restarts)
        capacity, before, self.rows.wants = self._read_capacity(), self.rows.wants, None
        with self.store.write() as connection:
            is_settled = wants == before and self.rows.list_present(connection) is not None
            number = round_journal.append(connection, token, entry, None if is_settled else wants)
            spending.write(connection, round_input.books)
            if trials is not None:
                profiling.write(connection, trials.trials)
            if self.options.warm:
                round_, task = decision.round, decision.task
                handed_on = Memory.of(
                    round_.problem.objective,
                    round_.model,
                    task.dual.prices,
                    decision.proposal.plans,
                )
                value = guarded_decision.memory_to_json(handed_on)
                cluster_tables.write_meta(connection, MEMORY, value)
            if is_settled:
                round_journal.mark_applied(connection, token, number)
                orders = _Orders([], [], self._settings, None)
                self.rows.version = read_version(connection)  # no job was changed here
            else:
                orders = self._write_orders(connection, capacity, pending=number)
        # only now, because a transaction may fail at its end
        self._orders, self.pending_round, self.rows.wants = orders, orders.pending, wants
        self._finish_round()
        self._rounds_decided += 1
        self.log.round(number, problem, plan, took_s, changes)
        return changes

    def fail(self, error: Exception, took_s: float = 0.0) -> int:
        """Write a round without a plan, and return its number.

        What runs and what is wanted stays as before.
        """
        round_input = self.round_input
        words = (
            str(error)
            if isinstance(error, guarded_decision.RoundFailed)
            else f"{type(error).__name__}: {error}"
        )
        entry = self._build_journal_entry(took_s, outcome="failed", status="none", detail=words)
        with self.store.write() as connection:
            number = round_journal.append(connection, self.lease_holder.token, entry, None)
            if round_input is not None:
                spending.write(connection, round_input.books)
        # if jobs were left alone: without that, there may be a plan that keeps every hard rule
        self._finish_round(round_input is not None and bool(round_input.jobs_left_alone))
        self.log.failed(number, words, took_s)
        return number

    def _build_journal_entry(self, took_s: float, **facts: Any) -> round_journal.JournalRound:
        """Return the round for the journal; one that failed early has no snapshot."""
        policy, round_input = self.options.policy, self.round_input
        if round_input is None:
            return round_journal.JournalRound(self.clock.now(), "", None, policy, **facts)
        limit_s = self.options.limit_s(self.interval_s)
        return round_journal.JournalRound(
            round_input.problem.now_s,
            round_input.snapshot.digest,
            snapshots.pack_snapshot(round_input.snapshot),
            policy,
            options={
                **self.options.decision(),
                "time_limit_s": limit_s if math.isfinite(limit_s) else None,
                "memory": guarded_decision.memory_to_json(round_input.memory),
            },
            seconds={"decide": round(took_s, 6)},
            **facts,
        )

    def _finish_round(self, ignores_stability: bool = False) -> None:
        """Forget what caused the round; the next one may be due at once, without stability."""
        self._decided_triggers = self._observed_triggers
        self._has_event = self.is_round_forced = False
        self.ignores_stability = ignores_stability
        self.round_input = None

    # ---- carrying it out
    # ------------------------------------------------------------------------------------------

    def carry_out(self) -> None:
        """Give the stops and starts that the last round wants, and record at once what follows.

        So the time since which jobs run is recorded early, and starts that waited for stops are
        ordered as soon as the stops are confirmed.
        """
        ordered = self._give_orders(self._orders) if self._orders else self.reconcile()
        self._orders = None
        for left in reversed(range(MOST_FOLLOW_UPS)):
            seen = (
                [
                    observation
                    for observation in self._observe_executor()
                    if observation.key in ordered
                ]
                if ordered
                else []
            )
            if not seen:
                return
            is_over = left == 0 or all(observation.phase == "running" for observation in seen)
            # the follow-up orders are in the transaction that records why they are safe
            capacity = self._read_capacity()
            with self.store.write() as connection:
                recorded = self._write_observations(connection, seen, False)
                orders = None if is_over else self._write_orders(connection, capacity)
            self._acknowledge(seen, recorded)
            if orders is None:
                return
            ordered = self._give_orders(orders)

    def reconcile(self, known: set[tuple[str, int]] | None = None) -> set[tuple[str, int]]:
        """Order the wanted stops and starts that are safe, and give all orders to the executor.

        Parameters
        ----------
        known : set of (str, int), optional
            Allocations that the executor reported. A running allocation that is not among them is
            given to the executor again.

        Returns
        -------
        set of (str, int)
            The allocations that the executor was asked to stop or start.
        """
        capacity = self._read_capacity()
        with self.store.write() as connection:
            orders = self._write_orders(connection, capacity, known)
        return self._give_orders(orders)

    def _write_orders(
        self,
        connection: Connection,
        capacity: Mapping[str, int],
        known: set[tuple[str, int]] | None = None,
        pending: int | None = None,
    ) -> _Orders:
        """Write the stops and starts that are wanted and safe; return all that have to be given."""
        now, token = self.clock.now(), self.lease_holder.token
        pending = pending or self.pending_round
        stops = allocations.order_stops(connection, token, now)
        starts = allocations.order_starts(connection, token, now, capacity)
        settings = allocations.read_wanted_settings(connection)
        # what the queue knows as running, and the executor did not report
        if known is not None and not known.issuperset(settings):
            starts += [
                start
                for start in allocations.list_starts(connection, token, "running")
                if start.key not in known
            ]
        if pending and not stops and not starts and not query(connection, _UNMET):
            round_journal.mark_applied(connection, token, pending)
            pending = None
        # a start that was ordered before machines were lost waits until a round has made
        # free capacity for it
        free_gpus = allocations.count_free_gpus(connection, capacity) if starts else {}
        starts = [start for start in starts if free_gpus.get(start.pool, 0) >= 0]
        return _Orders(stops, starts, settings, pending)

    def _give_orders(self, orders: _Orders) -> set[tuple[str, int]]:
        """Give written orders to the executor, and return their allocations.

        A job starts on GPUs of a running job only after that job was told of it.
        """
        token, self.pending_round = self.lease_holder.token, orders.pending
        for stop in orders.stops:
            self._command_executor("stop", self.executor.stop, *stop.key, token)
        self._tell_jobs(orders.settings)
        starts = [
            start
            for start in orders.starts
            if self._untold.isdisjoint(other.key for other in start.beside)
        ]
        for start in starts:
            self._command_executor("start", self.executor.start, start)
        return {*(order.key for order in orders.stops), *(order.key for order in starts)}

    def _tell_jobs(self, wanted: Mapping[tuple[str, int], Mapping[str, str] | None]) -> None:
        """Tell running jobs how to run where that has changed."""
        executor, known = self.executor, self._settings
        if not isinstance(executor, SettingsWriter):
            return
        self._settings, self._untold = {}, set()
        for key, settings in wanted.items():
            if settings is None:
                continue
            if known.get(key) != settings:
                order = (*key, settings, self.lease_holder.token)
                if not self._command_executor("write_settings", executor.write_settings, *order):
                    self._untold.add(key)
                    continue
            self._settings[key] = settings

    def _command_executor(self, name: str, verb: Callable[..., None], *arguments: Any) -> bool:
        """Call the executor once, and return whether it did what it was told.

        What it cannot do now is repeated at the next poll. Raises LeaseLost and WrongState.
        """
        try:
            verb(*arguments)
            return True
        except NotNow as error:
            self.log.fault("not_now", str(error), call=name)
        except StaleOrder as error:
            with self.store.read() as connection:
                # raises LeaseLost if this controller is out of date
                lease.check(connection, self.lease_holder.token)
            self.log.event("stale_order", call=name, detail=str(error))
            raise WrongState(
                belonging.describe_set_back(self.store.name, self.executor, str(error))
            ) from error
        except OSError as error:
            self.log.event("executor_failed", call=name, detail=f"{type(error).__name__}: {error}")
        return False


def _end_on_down_node(
    allocation: allocations.Allocation, seen: Mapping[tuple[str, int], Observation], now_s: float
) -> Observation:
    """Return the observed end of an allocation, or else that it is lost with its node."""
    known = seen.get(allocation.key)
    if known is not None and known.phase != Phase.RUNNING:
        return known
    nodes = " ".join(map(str, allocation.parts))
    work = 0.0 if known is None else known.work_done
    return Observation(*allocation.key, now_s, Phase.LOST, work, f"a node of it is down: {nodes}")


def _describe_round(left_alone: frozenset[str], plan: Plan) -> str:
    """Return which jobs are left alone, and which move to other nodes; "" if there are none."""
    columns = (plan.jobs[name] for name in ("job_id", "action", "nodes"))
    moves = [
        f"{job_id} to {'|'.join(str(NodePart(**part)) for part in nodes)}"
        for job_id, action, nodes in zip(*columns, strict=True)
        if action == "move" and nodes
    ]
    return "; ".join(
        f"{words}: {', '.join(some[:5])}{' ...' if len(some) > 5 else ''}"
        for words, some in (("left alone", sorted(left_alone)), ("moved", moves))
        if some
    )
