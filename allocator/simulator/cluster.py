"""The simulated cluster behind the port of the loop (loop/rounds.py)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from allocator.domain.problem import Finished, Floats, Ints, Problem, State, usable_gpus
from allocator.domain.workload import Workload
from allocator.engine.decided import Decision
from allocator.loop.live_rental import LiveRental
from allocator.loop.rounds import latest_tick
from allocator.market import books
from allocator.market.history import History
from allocator.market.longrun import HOUR
from allocator.options.node_needs import as_placements, by_job
from allocator.simulator.loss_beliefs import LossBeliefs
from allocator.simulator.options import SimulationOptions
from allocator.simulator.slowdown_beliefs import SlowdownBeliefs
from allocator.simulator.speed_beliefs import SpeedBeliefs
from allocator.simulator.world import JobPlaces, World
from allocator.valuation.values import way_memory_gb

# rounds in a row without any running or coming job after which the run ends
STALLED = 3

_NONE = np.zeros(0, np.int64)


class TraceDrivenCluster:
    """A simulated cluster that implements the controller's port.

    Rounds are at every tick (the start plus multiples of interval_s) at which there are jobs. Where
    SimulationOptions.react_s allows, submissions, completions and changes of the pools cause early
    rounds.
    """

    def __init__(self, workload: Workload, options: SimulationOptions) -> None:
        self.world = World(workload, options)
        self._beliefs = None if options.speeds == "known" else SpeedBeliefs(self.world)
        self._slowdown_beliefs = (
            SlowdownBeliefs(self.world) if options.misjudged_slowdowns > 0 else None
        )
        noise = options.loss_noise
        self._loss_beliefs = None if noise is None else LossBeliefs(self.world, noise)
        self._problem = workload.problem
        self._start = self.last = workload.problem.now_s
        # books of the long-run budgets, as of the last round
        self.books: books.Books = {}
        # dollars of each tenant that are in the books already
        self._booked_dollars = self.world.rented.copy()
        # GPU-hours of the month by tenant, and the GPU-seconds of all jobs that are in them
        self._month = books.MonthlyUse()
        self._booked_gpu_s = self.world.attained.copy()
        self._rental = LiveRental()
        self._tick = 0  # number of the next tick
        # rounds in a row in which nothing ran
        self._idle = 0
        # a plan that takes effect later, and when
        self._pending: tuple[float, tuple[Ints, Ints, Ints, Ints, JobPlaces]] | None = None
        number = {name: j for j, name in enumerate(workload.problem.jobs.job_id)}
        self._after = {
            j: np.array([number[n] for n in names if n in number], np.int64)
            for j, names in enumerate(workload.problem.jobs.after)
            if names
        }

    def wait(self) -> bool:
        """Let time pass until the next round.

        Returns False if every job is done, nothing can change any more, or time is up.
        """
        world, o = self.world, self.world.options
        self._idle = 0 if self._can_continue() else self._idle + 1
        while not (world.is_over or self._idle >= STALLED):
            due = self._next_round_s()
            if due > o.until_s:
                self._advance(o.until_s)
                return False
            self._advance(due)
            self._tick = max(
                self._tick, latest_tick(world.now, self._start, self._problem.interval_s) + 1
            )
            if len(world.active):
                self.last = world.now
                return True
        return False

    def _next_round_s(self) -> float:
        """Return the time of the next round; ticks without any job are skipped."""
        world, interval = self.world, self._problem.interval_s
        tick = self._tick
        if not len(world.active):
            tick = max(tick, math.ceil((world.next_arrival() - self._start) / interval - 1e-9))
        due = self._start + tick * interval
        react_s = world.options.react_s
        if math.isfinite(react_s):
            event = min(
                world.next_arrival(),
                world.next_completion(),
                world.next_change(),
                world.next_phase_s(),
            )
            due = min(due, max(self.last + react_s, event))
        return max(due, self._pending[0]) if self._pending is not None else due

    def _advance(self, to: float) -> None:
        if self._pending is not None and self._pending[0] <= to:
            at, wanted = self._pending
            self._pending = None
            self.world.advance(at)
            self.world.apply_allocation(*wanted)
        self.world.advance(to)

    def observe(self) -> Problem:
        """Return the open jobs and the pools as they are now, with speeds and sizes as believed."""
        w, p, a = self.world, self._problem, self.world.active
        state = np.where(
            w.pool[a] >= 0,
            State.RUNNING,
            np.where(np.isnan(w.started_s[a]), State.QUEUED, State.PAUSED),
        )
        state[self._waits_for_unsubmitted()] = State.HELD
        by_loss: dict[str, Floats] = {}
        if self._loss_beliefs is not None:
            self._loss_beliefs.observe()
            of_work, error = self._loss_beliefs.work[a], self._loss_beliefs.error[a]
            by_loss = {"loss_work": of_work, "loss_error": error}
        total, left = w.ground_truth.believed_sizes(a, w.remaining[a])
        if not w.options.progress:
            left = np.where(p.jobs.preemptible[a], left, total)
        jobs = p.jobs.take(
            a,
            model=w.present_models(a),
            remaining_work=left,
            total_work=total,
            state=state,
            pool=w.pool[a],
            gpus=w.gpus[a],
            resizes_left=w.resizes_left[a],
            attained_gpu_s=w.attained[a],
            restarts=np.maximum(0, w.starts[a] - 1),
            largest_gpus=w.largest[a],
            primary=np.where(w.primary[a] < 0, -1, np.searchsorted(a, w.primary[a])),
            **by_loss,
            shared_by=np.where(w.secondary[a] < 0, -1, np.searchsorted(a, w.secondary[a])),
        )
        gpus, nodes, placed = w.capacity.copy(), p.nodes, p.placements
        if w.has_nodes.any():
            nodes = w.nodes.known(w.now, p.interval_s)
            placed = as_placements(
                {i: w.places[j] for i, j in enumerate(a.tolist()) if j in w.places}
            )
            pinned = (jobs.state == State.RUNNING) & ~jobs.preemptible
            usable = usable_gpus(nodes, placed, pinned, jobs.pool, jobs.held, len(gpus))
            gpus = np.where(w.has_nodes, usable, gpus)
        pools = dataclasses.replace(p.pools, gpus=gpus, price_per_gpu_hour=w.price.copy())
        problem = dataclasses.replace(
            p,
            now_s=w.now,
            jobs=jobs,
            pools=pools,
            received=w.received[a],
            nodes=nodes,
            placements=placed,
            announced=w.workload.changes.between(w.now, w.now + w.options.announce_s),
        )
        if p.sizes == "unknown":
            problem = dataclasses.replace(problem, finished=self._list_finished())
        if self._beliefs is not None:
            self._beliefs.observe()
            w.follow_training()
            rates, curves = self._beliefs.believed()
            problem = dataclasses.replace(problem, rates=rates, curves=curves)
        if self._slowdown_beliefs is not None:
            self._slowdown_beliefs.observe(dataclasses.replace(problem, jobs=p.jobs))
            problem = dataclasses.replace(problem, sharing=self._slowdown_beliefs.sharing)
        self.update_books(problem)
        problem = self._rental.apply(problem, self._read_history, self.books.get(books.WHOLE))
        return books.apply_books(self._with_gpu_hours(problem), self.books)

    def _with_gpu_hours(self, problem: Problem) -> Problem:
        """Return the problem with the GPU-hours of the month.

        Those since the last round count for the month in which they end.
        """
        if not books.limits_gpu_hours(problem):
            return problem
        gpu_s = self.world.attained - self._booked_gpu_s
        self._booked_gpu_s = self.world.attained.copy()
        own = np.bincount(self._problem.jobs.tenant, gpu_s, len(problem.tenants)) / HOUR
        gpu_hours = dict(zip(problem.tenants.tenant, own.tolist(), strict=True))
        self._month = books.add_gpu_hours(self._month, problem.now_s, gpu_hours)
        return books.with_gpu_hours(problem, self._month)

    def _read_history(self, since_s: float) -> History:
        """Return the jobs submitted since then, with their sizes as believed."""
        w, jobs = self.world, self._problem.jobs
        first = int(np.searchsorted(jobs.submitted_s, since_s, side="right"))
        came = np.arange(first, w.arrived)
        total, _ = w.ground_truth.believed_sizes(came, w.remaining[came])
        return History(
            self._problem.name,
            jobs.model[came],
            jobs.submitted_s[came],
            total,
            jobs.weight[came],
            jobs.max_gpus[came],
        )

    def _list_finished(self) -> Finished:
        """Return the jobs that are done, those before the workload first."""
        jobs, before = self._problem.jobs, self._problem.finished
        done = np.flatnonzero(~np.isnan(self.world.finished_s))
        return Finished(
            np.append(before.model, jobs.model[done]),
            np.append(before.total_work, jobs.total_work[done]),
        )

    def update_books(self, problem: Problem) -> None:
        """Bring the books of the long-run budgets up to the problem's time."""
        spent = self.world.rented - self._booked_dollars
        self._booked_dollars = self.world.rented.copy()
        self.books = books.update_books(
            self.books, problem, dict(zip(problem.tenants.tenant, spent.tolist(), strict=True))
        )

    def report(self) -> dict[str, dict[str, Any]]:
        """Return the long-run budgets as of now; "" is that of the whole cluster.

        The result is empty if there are none.
        """
        problem = dataclasses.replace(
            self._problem, now_s=self.world.now, jobs=self._problem.jobs.take(self.world.active)
        )
        self.update_books(problem)
        if self._rental.terms is not None:
            problem = dataclasses.replace(problem, dollar_price=self._rental.terms.dollar_price)
        return books.report(self.books, problem)

    def _waits_for_unsubmitted(self) -> Ints:
        """Return the places among the open jobs of those that come after an unsubmitted job."""
        w = self.world
        if not self._after:
            return _NONE
        return np.array(
            [
                i
                for i, j in enumerate(w.active.tolist())
                if j in self._after and (self._after[j] >= w.arrived).any()
            ],
            np.int64,
        )

    def apply(self, decision: Decision, took_s: float) -> int:
        """Start, resize, move and pause jobs as planned, now or after the latency of the plan.

        `took_s` is the seconds that the decision took. Returns how many jobs change.
        """
        w, o = self.world, self.world.options
        plan = decision.allocation
        jobs = w.active
        on = np.flatnonzero(plan.pool >= 0)
        w.planned_gb[jobs[on]] = way_memory_gb(
            decision.round.problem, on, plan.pool[on], plan.gpus[on]
        )
        secondary = np.where(plan.secondary < 0, -1, jobs[plan.secondary])
        places = {int(jobs[j]): tuple(sorted(at)) for j, at in by_job(plan.places).items()}
        wanted = jobs, plan.pool, plan.gpus, secondary, places
        late = o.latency_s + o.latency_factor * took_s
        if late > 0:
            self._pending = w.now + late, wanted
            return int(w.is_moved(*wanted).sum())
        return w.apply_allocation(*wanted)

    def _can_continue(self) -> bool:
        """Return whether anything can happen without another decision."""
        w = self.world
        return bool(
            len(w.running)
            or self._pending is not None
            or math.isfinite(w.next_arrival())
            or math.isfinite(w.next_return())
            or self._waits_for_month()
        )

    def _waits_for_month(self) -> bool:
        """Return whether an open job has to wait for the GPU-hours of the next month."""
        p, a = self._problem, self.world.active
        if not books.limits_gpu_hours(p):
            return False
        tenants = books.with_gpu_hours(p, self._month).tenants
        hours = np.array([tenants.gpu_hours_used, np.zeros(len(tenants))])  # used now, and then
        gpus = (tenants.gpu_hours_per_month - hours) * HOUR / p.interval_s
        now, then = np.pad(gpus, ((0, 0), (0, 1)), constant_values=np.inf)[
            :, tenants.ancestors[:, p.jobs.tenant[a]]
        ].min(axis=1)
        least = p.jobs.min_gpus[a]
        return bool(((now < least) & (least <= then)).any())
