"""The controller: it repeats the loop of a round (loop/rounds.py) over a queue and an executor.

It has two kinds of steps:

    poll     every poll_s seconds: renew the lease, read observations, order starts and stops
    round    when one is due: observe, decide, audit, write the plan to the journal, order starts
             and stops, learn rates

A round that finds no plan changes nothing: what was wanted stays wanted, the journal says why there
is no plan, and the next round tries again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlalchemy import Connection

from allocator.controller import guarded_decision, learning, spending, steadiness
from allocator.controller.options import ControllerOptions
from allocator.controller.queue_cluster import QueueCluster, RoundInput
from allocator.controller.reporting.telemetry import LONGRUN, MONTHS, Telemetry
from allocator.domain.plan import Plan
from allocator.domain.problem import Problem
from allocator.engine.decided import Decision
from allocator.engine.decision import decide_round
from allocator.engine.results import build_result
from allocator.errors import AllocatorError, Infeasible, NoPlanInTime
from allocator.loop.executor import Clock, Executor, NotNow, WrongState
from allocator.loop.rounds import RoundOutcome, run_rounds
from allocator.queue import cluster_tables, observations, round_journal
from allocator.queue.database.connection import QueueDatabase
from allocator.queue.errors import LeaseLost, QueueUnavailable
from allocator.queue.jobs import verbs
from allocator.queue.lease import Standby
from allocator.queue.round_journal import Want
from allocator.solvers.base import SolveLimits

LONGEST_PAUSE_S = 10.0  # between two looks while something outside is away
PRUNE_EVERY = 20  # number of rounds after which old rounds and observations are dropped


class Controller:
    """Run a queue with an executor.

    Everything that a controller needs to go on is in the database. After a crash, make a new one.

    Parameters
    ----------
    store : QueueDatabase
        The queue.
    executor : Executor
        Starts, stops and observes jobs.
    clock : Clock
        The time in unix seconds.
    options : ControllerOptions, optional
        How the controller works.
    telemetry : Telemetry, optional
        Where events and metrics go.
    holder : str, optional
        Name of this controller in the lease.
    decide : callable, optional
        The function that decides a round.
    """

    def __init__(
        self,
        store: QueueDatabase,
        executor: Executor,
        clock: Clock,
        options: ControllerOptions | None = None,
        *,
        telemetry: Telemetry | None = None,
        holder: str | None = None,
        decide: Callable[..., Decision] | None = None,
    ) -> None:
        self.options = options or ControllerOptions()
        self.store, self.executor, self.clock = store, executor, clock
        self.log = telemetry or Telemetry(clock.now)
        self.cluster = QueueCluster(store, executor, clock, self.options, self.log, holder)
        self.stopping = False
        self.has_plan = True  # whether the last round has a plan
        # for signal handlers: they may interrupt a decision, but not a write
        self.deciding = False
        self._decide_function = decide or decide_round
        self._rounds = 0

    # ---- one step
    # ----------------------------------------------------------------------------------------------

    def step(self) -> RoundOutcome | None:
        """Poll once, and make one round if it is due.

        Returns
        -------
        RoundOutcome or None
            The round; None: no round was due, or it was not possible to decide.

        Raises
        ------
        Standby, LeaseLost, QueueUnavailable, NotNow
            What was not done is done by the next step of the leading controller.
        WrongState
            Queue and executor do not belong together; no later step can succeed either.
        """
        begin = time.perf_counter()
        try:
            turn = next(run_rounds(self.cluster, self._decide, self._rounds), None)
        except (Standby, QueueUnavailable, WrongState, NotNow):
            raise
        except LeaseLost:
            self.cluster.lease_holder.drop()
            raise
        # the snapshot breaks rules, so that nothing can be decided
        except AllocatorError as error:
            self.has_plan = False
            self.cluster.fail(error)
            self.cluster.carry_out()
            return None
        if turn is None:
            return None
        self.has_plan = turn.failure is None
        if turn.failure is not None:
            self.cluster.fail(turn.failure, turn.decision_s)
        self._rounds += 1
        self.cluster.carry_out()
        self._learn()
        self.log.metrics.set("overhead_seconds", time.perf_counter() - begin - turn.decision_s)
        self.log.write()
        return turn

    def decide_dry_run(self) -> tuple[Plan, Mapping[str, Want]]:
        """Decide the round of now, and return its plan and what it wants of jobs.

        It reads the queue, writes nothing, and needs no lease. Raises InvalidInput, Infeasible and
        NoPlanInTime.
        """
        try:
            decision = self._decide(self.cluster.observe())
        except Infeasible:
            round_input = self.cluster.round_input
            if round_input is None or not round_input.jobs_left_alone:
                raise
            self.cluster.ignores_stability = (
                True  # as the next round of the controller, which follows at once
            )
            decision = self._decide(self.cluster.observe())
        round_input = self.cluster.round_input
        assert round_input is not None
        plan = build_result(
            round_input.problem, decision, policy=self.options.policy, seed=self.options.seed
        )
        return plan, guarded_decision.compute_wants(round_input.problem, decision.allocation)[0]

    def _decide(self, problem: Problem) -> Decision:
        round_input = self.cluster.round_input
        assert round_input is not None
        limit_s = self.options.limit_s(self.cluster.interval_s)
        end = time.monotonic() + limit_s
        self.deciding = True
        try:
            decision = self._decide_problem(problem, round_input, limit_s)
            names = frozenset[str]()
            if self.options.stability.payback and not self.cluster.ignores_stability:
                with self.store.read() as connection:
                    names = steadiness.find_changes_to_hold_back(connection, problem, decision)
            return (
                self._decide_with_jobs_left_alone(
                    round_input, names, decision, end - time.monotonic()
                )
                if names
                else decision
            )
        finally:
            self.deciding = False

    def _decide_with_jobs_left_alone(
        self, round_input: RoundInput, names: frozenset[str], decision: Decision, left_s: float
    ) -> Decision:
        """Decide again with these jobs left alone; without a plan, return the first decision."""
        built, problem = steadiness.make_non_preemptible(
            round_input.snapshot, round_input.problem, names
        )
        try:
            second = self._decide_problem(problem, round_input, max(left_s, 0.05))
        except (Infeasible, NoPlanInTime):
            return decision
        self.cluster.round_input = replace(
            round_input,
            snapshot=built,
            problem=problem,
            jobs_left_alone=round_input.jobs_left_alone | names,
        )
        return second

    def _decide_problem(
        self, problem: Problem, round_input: RoundInput, limit_s: float
    ) -> Decision:
        o = self.options
        return guarded_decision.decide_safely(
            problem,
            round_input.memory,
            policy=o.policy,
            solver=o.solver,
            limits=SolveLimits(limit_s, o.gap, o.threads, o.seed),
            decide=self._decide_function,
        )

    def _learn(self) -> None:
        o, token, now = self.options, self.cluster.lease_holder.token, self.clock.now()
        patience_s = o.patience_s(self.cluster.interval_s)
        with self.store.write() as connection:
            stuck = learning.learn(
                connection,
                token,
                now,
                self.cluster.rows,
                patience_s=patience_s,
                interval_s=self.cluster.interval_s,
                corrects=o.learn,
                reports=self.executor.capabilities.reports_progress,
                beliefs=self.cluster.beliefs,
            )
            if self._rounds % PRUNE_EVERY == 0:
                round_journal.prune(connection, token, o.keep_rounds)
                observations.prune(connection, token, o.keep_observations)
            self._set_metrics(connection)
        for job_id in stuck:
            self.log.event("stuck", job_id=job_id, patience_s=patience_s)

    def _set_metrics(self, connection: Connection) -> None:
        gpus, used = cluster_tables.gpus(connection), cluster_tables.used(connection)
        self.log.cluster(verbs.counts(connection), {p: (n, used[p]) for p, n in gpus.items()})
        self.log.tenants(LONGRUN, spending.report(connection))
        self.log.tenants(MONTHS, spending.report_months(connection))
        self.log.metrics.set("learned_rates", cluster_tables.count_corrected_rates(connection))
        self.log.metrics.set("in_charge", 1)

    # ---- running
    # ----------------------------------------------------------------------------------------------

    def run(self, *, once: bool = False) -> int:
        """Repeat steps until `self.stopping` is set, and return the number of rounds.

        Parameters
        ----------
        once : bool
            Make one round only. Then poll until all that it wants is carried out, for at most
            options.settle_s seconds.

        Raises
        ------
        WrongState
            If queue and executor do not belong together; the lease is given back first.
        """
        rounds, wait_s = 0, self.options.poll_interval_s(self.cluster.interval_s)
        # a third of its length leaves the lease time to be renewed
        third_s = self.options.lease_s(self.cluster.interval_s) / 3
        longest_s, pause_s = max(wait_s, min(LONGEST_PAUSE_S, third_s)), wait_s
        self.cluster.is_round_forced = once
        try:
            while not self.stopping:
                turn = self.try_step(once)
                rounds += turn is not None
                if once:
                    if turn is not None:
                        self._await_pending_round(wait_s)
                    break
                pause_s = min(2 * pause_s, longest_s) if self.log.is_away() else wait_s
                if not self.stopping:
                    self.clock.sleep(pause_s)
        except WrongState as error:
            self.log.event("wrong_state", detail=str(error))
            self.stop()
            raise
        self.stop()
        return rounds

    def _await_pending_round(self, wait_s: float) -> None:
        """Poll without another round while starts of the last round wait for its stops."""
        for _ in range(1 + math.ceil(self.options.settle_s / wait_s)):
            try:
                if self.cluster.wait():
                    self.cluster.carry_out()
            except NotNow as error:
                self.log.fault("not_now", str(error))
            except (Standby, LeaseLost) as error:
                self.log.event("lease_lost", detail=str(error))
                self.cluster.lease_holder.drop()
                return
            if self.stopping or not self.has_plan or self.cluster.pending_round is None:
                return
            self.clock.sleep(wait_s)

    def try_step(self, once: bool = False) -> RoundOutcome | None:
        """Make one step; log a fault from outside and return None, as a later step tries again.

        A fault that goes on is logged once, and its end with how long it lasted. With `once`,
        QueueUnavailable and NotNow are raised.
        """
        try:
            turn = self.step()
        except guarded_decision.Stopped:
            return None
        except Standby as error:
            self.log.fault("standby", str(error))
            self.log.metrics.set("in_charge", 0)
        except LeaseLost as error:
            self.log.event("lease_lost", detail=str(error))
            self.log.metrics.set("in_charge", 0)
        except (QueueUnavailable, NotNow) as error:
            name = "not_now" if isinstance(error, NotNow) else "database_unavailable"
            self.log.fault(name, str(error))
            if once:
                raise
        else:
            return turn
        finally:
            self.log.end_faults()
        return None

    def stop(self) -> None:
        """Give the lease back; jobs go on running."""
        try:
            self.cluster.lease_holder.release()
            self.log.event("stopped")
        except QueueUnavailable as error:
            self.log.event("stopped", detail=str(error))
        self.log.metrics.set("in_charge", 0)
        self.log.write()
