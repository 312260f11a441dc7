"""The best plan of a tiny round on nodes, by trying every option of every job on every node."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from allocator.domain.problem import Problem
from allocator.engine.decided import Decision
from allocator.engine.decision import decide_round
from allocator.errors import Infeasible
from allocator.options.instance_building import CompiledRound, compile_round
from allocator.policies.free_capacity import keeps_rules
from allocator.solvers.base import SolveLimits
from formulations.placement.holes import Holes, Need

Spot = tuple[tuple[int, int, int], ...]  # node, GPUs, number of the GPU (-1 = whole GPUs)
EPS = 1e-9


def best_value(problem: Problem) -> float:
    """Return the largest value of a plan that keeps every rule, -inf if there is none."""
    return _Search(compile_round(problem, prunes=False).with_moves()).find()


def decide_best(problem: Problem, seed: int) -> Decision | None:
    """Decide a tiny round with gap 0, and check that its plan is the best one and proven to be.

    Return None if the round has no plan, and every combination of options agrees. Jobs that are due
    (R67) have to get something.
    """
    try:
        decision = decide_round(problem, limits=SolveLimits(gap=0.0))
    except Infeasible:
        assert best_value(problem) == -math.inf, seed
        return None
    best = best_value(replace(problem, kept=decision.round.problem.kept))
    assert decision.value == pytest.approx(best, rel=1e-7, abs=1e-9), seed
    assert decision.proof[2] <= 1e-6, seed
    return decision


def most_gpus(problem: Problem, tenant: str) -> int:
    """Return the most GPUs that nodes hold for the jobs of a tenant that is alone (R18)."""
    q = problem.tenants.tenant.index(tenant)
    goal = int(problem.tenants.guaranteed_gpus[q])
    search = _Search(compile_round(problem, prunes=False).with_moves())
    return search.most(np.flatnonzero(problem.jobs.tenant == q).tolist(), goal)


class _Search:
    def __init__(self, round_: CompiledRound) -> None:
        i = round_.instance
        rules = tuple(k for k in i.rules if k.kind != "leaving")  # `_stops` has the rule itself
        self.round = round_ = replace(round_, instance=replace(i, rules=rules))
        self.problem = round_.problem
        self.best, self.choice = -math.inf, np.full(len(self.problem.jobs), -1)
        nodes, jobs = self.problem.nodes, self.problem.jobs
        # nothing new may be placed on a node that is not up: its pool is -1
        pools = np.where(np.array(nodes.state) == 0, nodes.pool, -1).tolist()
        limits = (list(map(float, x)) for x in (nodes.cpus, nodes.host_memory_gb))
        self.holes = Holes(pools, list(map(int, nodes.gpus)), *limits)
        shares = np.nan_to_num(jobs.gpu_fraction, nan=1.0).tolist()
        needs = zip(jobs.cpus_per_gpu, jobs.host_memory_gb_per_gpu, shares, strict=True)
        self.needs = [Need(-1, 0, 0, *map(float, need)) for need in needs]
        top = [
            float(max([0.0, *i.value[i.start[j] : i.start[j + 1]]]))
            for j in range(len(i.mandatory))
        ]
        # running jobs first, so that what stays is not in the way
        running = {int(j) for j in self.problem.placements.job}
        self.order = sorted(range(len(top)), key=lambda j: j not in running)
        self.rest = [sum(top[j] for j in self.order[at:]) for at in range(len(top) + 1)]

    def find(self) -> float:
        self._next(0, 0.0)
        return self.best

    def _next(self, at: int, value: float) -> None:
        if value + self.rest[at] <= self.best + EPS:
            return
        i = self.round.instance
        if at == len(self.order):
            if keeps_rules(self.round, self.choice):
                self.best = value
            return
        j = self.order[at]
        for o in sorted(range(i.start[j], i.start[j + 1]), key=lambda o: -i.value[o]):
            self.choice[j] = o
            for spot in self._spots(j, o):
                self.holes.take(spot, self.needs[j])
                self._next(at + 1, value + float(i.value[o]))
                self.holes.release(spot, self.needs[j])
        self.choice[j] = -1
        self._next(at + 1, value)

    def most(self, jobs: list[int], goal: int) -> int:
        """Return the largest sum of GPUs, at most `goal`, of one option or none of each job."""
        if not jobs or goal == 0:
            return 0
        best, i, j = 0, self.round.instance, jobs[0]
        for o in range(i.start[j], i.start[j + 1]):
            k = int(i.gpus[o])
            for spot in self._spots(j, o) if k <= goal and i.primary[o] < 0 else ():
                self.holes.take(spot, self.needs[j])
                best = max(best, k + self.most(jobs[1:], goal - k))
                self.holes.release(spot, self.needs[j])
                if best == goal:
                    return best
        return max(best, self.most(jobs[1:], goal))

    def _spots(self, j: int, o: int) -> Iterator[Spot]:
        """Yield every place of an option that is free now."""
        i, p, placed = self.round.instance, self.problem, self.problem.placements
        pool, k = int(i.pool[o]), int(i.gpus[o])
        rows = np.flatnonzero(placed.job == j)
        columns = (placed.node, placed.gpus, placed.gpu)
        held = tuple(zip(*(column[rows].tolist() for column in columns), strict=True))
        if not p.has_nodes[pool] or i.primary[o] >= 0:  # a secondary job is where its primary is
            yield ()
        elif i.keep[o] and held:
            if self.holes.can_take(held, self.needs[j]):
                yield held
        else:
            mine = [n for n, at in enumerate(self.holes.pool) if at == pool]
            mine = [n for n in mine if not self._stops(n, j, o)]
            for spot in self._fresh(j, k, pool, mine, int(self.round.nodes[o])):
                if self.holes.can_take(spot, self.needs[j]):
                    yield spot

    def _stops(self, n: int, j: int, o: int) -> bool:
        """Whether a job that comes to a node would be there when the node leaves: one that can be
        stopped needs its pause, a round, and the pause of a move."""
        p, m, at = self.problem, self.round.option_table, self.round.option[o]
        need_s = m.pause_s[at] + p.jobs.remaining_work[j] / m.rate[at]
        if p.jobs.preemptible[j]:
            move_s = p.jobs.restart_s[j] + p.pools.startup_s[m.pool[at]]
            need_s = min(need_s, m.pause_s[at] + p.interval_s + move_s)
        return bool(p.now_s < p.nodes.returns_s[n] and need_s > p.nodes.leaves_s[n] - p.now_s)

    def _fresh(self, j: int, k: int, pool: int, mine: list[int], nodes: int) -> Iterator[Spot]:
        p, wish = self.problem, self.problem.jobs.placement[j]
        if not math.isnan(p.jobs.gpu_fraction[j]):
            for n in mine:
                split = self.holes.shares.get(n, {})
                new = [g for g in range(p.nodes.gpus[n]) if g not in split]
                yield from (((n, 1, g),) for g in (*sorted(split), *new))
            return
        rows = (p.rates.model == p.jobs.model[j]) & (p.rates.gpus == k) & (p.rates.nodes > 0)
        has_shapes = bool((rows & (p.rates.gpu_type == p.pools.gpu_type[pool])).any())
        pod = int(p.jobs.gpus_per_pod[j])
        pod = pod if k % pod == 0 else 1
        pods = k // pod
        packed = math.ceil(pods / max(1, p.pools.gpus_per_node[pool] // pod))
        most = packed if wish == "packed" or has_shapes else len(mine)
        counts = [nodes] if nodes else list(range(1, min(most, len(mine), pods) + 1))
        for count in counts:
            for chosen in itertools.combinations(mine, count):
                labels = [level.label for level in p.levels if wish == f"same_{level.name}"]
                if labels and len({labels[0][n] for n in chosen}) > 1:
                    continue
                for cuts in itertools.combinations(range(1, pods), count - 1):
                    sizes = (pod * np.diff([0, *cuts, pods])).tolist()
                    yield tuple(zip(chosen, sizes, [-1] * count, strict=True))
