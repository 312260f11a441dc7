"""The controller: the one loop of every round (control/loop.py) over a queue and an executor, for
ever.

    look      lease, observations, starts and stops: every poll_s seconds
    round     when one is due: observe, decide, audit (control.loop.turns), journal with wants,
              starts and stops, learn

A round without a plan changes nothing: what is wanted stays wanted, the journal says why, the next
one tries again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from allocator.control.executor import Clock, Executor, WrongState
from allocator.control.loop import Turn, turns
from allocator.control.stability import leave_alone
from allocator.decision import Decided, decide_round
from allocator.domain.problem import Problem
from allocator.domain.result import Result
from allocator.domain.validate import validate
from allocator.errors import AllocatorError, Infeasible, NoPlanInTime
from allocator.executors.errors import NotNow
from allocator.queue import cluster, jobs, observing, wants
from allocator.queue import snapshot as snapshots
from allocator.queue.engine import Store
from allocator.queue.errors import LeaseLost, QueueUnavailable
from allocator.queue.wants import Want
from allocator.service import deciding, learning, spending, steadiness
from allocator.service.charge import Standby
from allocator.service.cluster import Believed, QueueCluster
from allocator.service.options import Options
from allocator.service.telemetry import Telemetry
from allocator.solvers.base import Limits

PRUNE_EVERY = 20  # rounds between two times that what is old is dropped
SURE = ("local", "simulated")  # executors whose jobs are known to report


class Controller:
    """Runs a queue. Everything it needs to go on is in the database: after a crash, make a new one.

    decide: the function that decides (for tests). telemetry: what it tells.
    """

    def __init__(
        self,
        store: Store,
        executor: Executor,
        clock: Clock,
        options: Options | None = None,
        *,
        telemetry: Telemetry | None = None,
        holder: str | None = None,
        decide: Callable[..., Decided] = decide_round,
    ) -> None:
        self.options = options or Options()
        self.store, self.executor, self.clock = store, executor, clock
        self.log = telemetry or Telemetry(clock.now)
        self.cluster = QueueCluster(store, executor, clock, self.options, self.log, holder)
        self.stopping = False
        self.last_ok = True  # the last round has a plan
        # for signal handlers: a decision may be cut off, a write not
        self.deciding = False
        self._decide_round = decide
        self._rounds = 0
        self._standing_by = ""

    # ---- one step
    # ----------------------------------------------------------------------------------------------

    def step(self) -> Turn | None:
        """One look, and one round if it is due; None: none was. Raises Standby, LeaseLost,
        QueueUnavailable: what was not done is done by the next step of whoever is in charge then.
        Raises WrongState: no step can do anything."""
        begin = time.perf_counter()
        try:
            turn = next(turns(self.cluster, self._decide, self._rounds), None)
        except (Standby, QueueUnavailable, WrongState, NotNow):
            raise
        except LeaseLost:
            self.cluster.charge.drop()
            raise
        # the snapshot breaks rules: nothing could be decided
        except AllocatorError as error:
            self.last_ok = False
            self.cluster.fail(error)
            self.cluster.carry_out()
            return None
        if turn is None:
            return None
        self.last_ok = turn.failure is None
        if turn.failure is not None:
            self.cluster.fail(turn.failure, turn.decision_s)
        self._rounds += 1
        self.cluster.carry_out()
        self._learn()
        self._tell(time.perf_counter() - begin - turn.decision_s)
        return turn

    def decide_only(self) -> tuple[Result, Mapping[str, Want]]:
        """The round of now and what it wants of jobs, for a dry run: reads the queue, writes
        nothing, needs no lease. Raises InvalidInput, Infeasible, NoPlanInTime."""
        try:
            found = self._decide(self.cluster.observe())
        except Infeasible:
            believed = self.cluster.believed
            if believed is None or not believed.alone:
                raise
            self.cluster.thawed = True  # as the controller's next round, at once, does
            found = self._decide(self.cluster.observe())
        believed = self.cluster.believed
        assert believed is not None
        told = deciding.result(
            found, believed.problem, policy=self.options.policy, seed=self.options.seed
        )
        return told, deciding.wanted(believed.problem, found.allocation)[0]

    def _decide(self, problem: Problem) -> Decided:
        believed = self.cluster.believed
        assert believed is not None
        limit_s = self.options.limit_s(self.cluster.interval_s)
        end = time.monotonic() + limit_s
        self.deciding = True
        try:
            found = self._decided(problem, believed, limit_s)
            names = frozenset[str]()
            if self.options.stability.payback and not self.cluster.thawed:
                with self.store.read() as connection:
                    names = steadiness.held_back(connection, problem, found)
            return self._again(believed, names, found, end - time.monotonic()) if names else found
        finally:
            self.deciding = False

    def _again(
        self, believed: Believed, names: frozenset[str], found: Decided, left_s: float
    ) -> Decided:
        """The decision with jobs left alone whose change would not pay; the first one where
        there is none.
        """
        built = leave_alone(believed.snapshot, names)
        problem = validate(built)
        try:
            second = self._decided(problem, believed, max(left_s, 0.05))
        except (Infeasible, NoPlanInTime):
            return found
        self.cluster.believed = replace(
            believed,
            snapshot=built,
            content=snapshots.packed(built),
            problem=problem,
            alone=believed.alone | names,
        )
        return second

    def _decided(self, problem: Problem, believed: Believed, limit_s: float) -> Decided:
        o = self.options
        return deciding.decided(
            problem,
            believed.memory,
            policy=o.policy,
            solver=o.solver,
            limits=Limits(limit_s, o.gap, o.threads, o.seed),
            decide=self._decide_round,
        )

    def _learn(self) -> None:
        o, token, now = self.options, self.cluster.charge.token, self.clock.now()
        patience_s = o.patience_s(self.cluster.interval_s)
        with self.store.write() as connection:
            stuck, corrected = learning.learn(
                connection,
                token,
                now,
                patience_s=patience_s,
                interval_s=self.cluster.interval_s,
                corrects=o.learn,
                reports=self.executor.name in SURE,
            )
            if self._rounds % PRUNE_EVERY == 0:
                wants.prune(connection, token, o.keep_rounds)
                observing.prune(connection, token, o.keep_observations)
        for job_id in stuck:
            self.log.event("stuck", job_id=job_id, patience_s=patience_s)
        self.log.metrics.set("learned_rates", corrected)

    def _tell(self, overhead_s: float) -> None:
        with self.store.read() as connection:
            gpus, used = cluster.gpus(connection), cluster.used(connection)
            self.log.cluster(jobs.counts(connection), {p: (n, used[p]) for p, n in gpus.items()})
            self.log.longrun(spending.report(connection))
        self.log.metrics.set("overhead_seconds", overhead_s)
        self.log.metrics.set("in_charge", 1)
        self.log.write()

    # ---- running
    # ----------------------------------------------------------------------------------------------

    def run(self, *, once: bool = False) -> int:
        """Step until told to stop (self.stopping); or make one round and go on looking until all
        that it wants is so, at most options.settle_s (once). Returns how many rounds there were.
        Raises WrongState, with the lease given back: it would be the same at every try."""
        rounds, wait_s = 0, self.options.looks_s(self.cluster.interval_s)
        self.cluster.force = once
        try:
            while not self.stopping:
                turn = self.attempt(once)
                rounds += turn is not None
                if once:
                    if turn is not None:
                        self._settle(wait_s)
                    break
                if not self.stopping:
                    self.clock.sleep(wait_s)
        except WrongState as error:
            self.log.event("wrong_state", detail=str(error))
            self.stop()
            raise
        self.stop()
        return rounds

    def _settle(self, wait_s: float) -> None:
        """Look on, without another round, while stops of the last one are under way and starts
        wait for them.
        """
        for _ in range(1 + math.ceil(self.options.settle_s / wait_s)):
            try:
                if self.cluster.wait():
                    self.cluster.carry_out()
            except NotNow as error:
                self.log.event("not_now", detail=str(error))
            except (Standby, LeaseLost) as error:
                self.log.event("lease_lost", detail=str(error))
                self.cluster.charge.drop()
                return
            with self.store.read() as connection:
                last = wants.history(connection, limit=1)
            if self.stopping or not last or last[0].outcome != "decided":
                return
            self.clock.sleep(wait_s)

    def attempt(self, once: bool = False) -> Turn | None:
        """One step; what comes from outside is told and tried again later."""
        try:
            turn = self.step()
        except deciding.Stopped:
            return None
        except Standby as error:
            if str(error) != self._standing_by:
                self.log.event("standby", detail=str(error))
                self._standing_by = str(error)
            self.log.metrics.set("in_charge", 0)
        except LeaseLost as error:
            self.log.event("lease_lost", detail=str(error))
            self.log.metrics.set("in_charge", 0)
        except QueueUnavailable as error:
            self.log.event("database_unavailable", detail=str(error))
            if once:
                raise
        except NotNow as error:
            self.log.event("not_now", detail=str(error))
            if once:
                raise
        else:
            self._standing_by = ""
            return turn
        return None

    def stop(self) -> None:
        """Give the lease back; jobs run on."""
        try:
            self.cluster.charge.release()
            self.log.event("stopped")
        except QueueUnavailable as error:
            self.log.event("stopped", detail=str(error))
        self.log.metrics.set("in_charge", 0)
        self.log.write()
