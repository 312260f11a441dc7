"""What policies believe of the slowdowns of colocated jobs, corrected while jobs run.

The slowdowns of sharing.csv are the truth. Policies begin with slowdowns that are wrong by a factor
for each two models and GPU type. Between two rounds every colocated job gives one observation of
its speed, with noise; `LearnedSlowdowns` corrects the slowdowns by them, as for the controller.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from allocator.domain.problem import Floats, Ints, Problem, Sharing
from allocator.performance.fit.learned_slowdowns import LearnedSlowdowns, speeds_alone
from allocator.simulator import random_numbers
from allocator.simulator.speed_beliefs import OBSERVATION_NOISE
from allocator.simulator.world import World


class SlowdownBeliefs:
    """Believed slowdowns, updated round by round; `sharing` has them."""

    def __init__(self, world: World) -> None:
        self._world, self._round = world, 0
        problem, options = world.problem, world.options
        s, models = problem.sharing, len(problem.models)

        def wrong(model: Ints, other: Ints, slowdown: Floats) -> Floats:
            place = (model * models + other) * len(problem.gpu_types) + s.gpu_type
            factor = random_numbers.lognormal(
                options.misjudged_slowdowns, options.seed, random_numbers.SLOWDOWN, place
            )
            return np.maximum(1.0, slowdown * factor)

        self.sharing: Sharing = dataclasses.replace(
            s,
            slowdown_a=wrong(s.model_a, s.model_b, s.slowdown_a),
            slowdown_b=wrong(s.model_b, s.model_a, s.slowdown_b),
        )
        self._learned = LearnedSlowdowns(self.sharing, models, len(problem.gpu_types))

    def observe(self, believed: Problem) -> None:
        """Take one observation of every job that works in a colocation.

        `believed` is the whole workload with the speeds that policies believe.
        """
        w = self._world
        self._round += 1
        h = w.running[w.secondary[w.running] >= 0]
        g = w.secondary[h]
        works = w.from_s[h] < w.now
        # a secondary job works next to all of its primary jobs, or gives no observation
        is_idle = np.unique(g[~works | (w.from_s[g] >= w.now)])
        h = h[works & ~np.isin(g, is_idle)]
        if not len(h):
            return
        g, pool, gpus = w.secondary[h], w.pool[h], w.gpus[h]
        view = dataclasses.replace(believed, sharing=self.sharing)
        jobs, other = np.append(h, g), np.append(g, h)
        alone = np.concatenate(speeds_alone(view, h, g, pool, w.gpus))
        observed = w.rate[jobs] * random_numbers.lognormal(
            OBSERVATION_NOISE, w.options.seed, random_numbers.OBSERVED, jobs, self._round
        )
        model, kind = view.jobs.model, np.tile(view.pools.gpu_type[pool], 2)
        known = np.flatnonzero((alone > 0) & (observed > 0))
        self._learned.observe(
            model[jobs[known]],
            model[other[known]],
            kind[known],
            np.tile(gpus, 2)[known],
            alone[known],
            observed[known],
            w.now,
            jobs[known],
        )
        self.sharing = self._learned.corrected(w.now)
