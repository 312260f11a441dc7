"""What policies believe of speeds that nobody knows in advance, corrected while jobs run.

Between two rounds every running job that holds GPUs of its own gives one observation of its speed,
with noise. All jobs of one model, GPU type, size and spread shape count together, by their median.
`feedback` makes an estimate of each from them, forgets old ones and rejects outliers, as it does
for the controller. All policies get the same speeds.

    speeds    before the first observation         between and beyond the observed sizes
    learned   the speed at the smallest size, by   the form "overhead", fitted to the estimates
              a short profiling run on each type   (performance/fit/forms.py)
    noisy     the speed at every size times a      the Gaussian process of `feedback`
              factor, wrong by `misjudged` for
              each model and type

A spread shape whose speed the workload states has estimates of its own. They say nothing about
other shapes, and `learned` offers such a shape once it was seen.

In the fit of `learned` all GPU types inform each other: an estimate on one type counts on another
one, times the ratio of the speeds at the smallest size, with a smaller weight. Scaling beyond what
was seen is assumed to be good, but no size above twice the largest one that any job of the model
has held is believed (Jayaram Subramanya et al., "Sia", SOSP 2023, section 3.2, limits each job so).
"""

from __future__ import annotations

import math

import numpy as np

from allocator.domain.problem import Curves, Floats, Ints, Rates
from allocator.performance.fit import feedback
from allocator.performance.fit.forms import USUAL_C, overhead
from allocator.performance.lost_time import choose_modes
from allocator.performance.table import RateTable
from allocator.simulator import random_numbers
from allocator.simulator.world import World

OBSERVATION_NOISE = 0.05  # standard deviation of the logarithm of one observation
PROFILE_NOISE = 0.05  # the same of the profiling run
ELSEWHERE = 0.3  # weight of an estimate on another GPU type
GROWTH = 2  # sizes up to so many times the largest one held are believed


Key = tuple[int, int, int, int]  # model, GPU type, GPUs, nodes of a spread shape or 0
Shape = tuple[int, int]  # GPU type, nodes of a spread shape or 0


class SpeedBeliefs:
    """Estimates of the speeds of all M models on T GPU types, updated round by round.

    Attributes
    ----------
    profile : (M, T)
        Speed at the smallest size, by the profiling run; nan where the model cannot run.
    estimates : dict
        `feedback.Estimate` of the logarithm of the speed by (model, type, GPUs, nodes of a spread
        shape or 0); where speeds are noisy, of observed over believed speed.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        problem, seed = world.problem, world.options.seed
        models, types = len(problem.models), len(problem.gpu_types)
        self._table = RateTable.of(problem)
        self._least = np.full(models, 1 << 30, np.int64)
        np.minimum.at(self._least, problem.jobs.model, problem.jobs.min_gpus)
        self._largest = self._least.copy()
        m, t = np.divmod(np.arange(models * types), types)
        rate, _ = self._table.rate(m, t, self._least[m])
        noise = random_numbers.lognormal(PROFILE_NOISE, seed, random_numbers.PROFILE, m * types + t)
        self.profile = (rate * noise).reshape(models, types)
        least = self._least[:, None]
        self._overhead = np.full((models, types), USUAL_C)
        self._rate_1 = self.profile / least * (1.0 + USUAL_C * (least - 1.0))
        self.estimates: dict[Key, feedback.Estimate] = {}
        self._offered = self._wrong_profile() if world.options.speeds == "noisy" else None
        self._round = 0

    def _wrong_profile(self) -> dict[Key, float]:
        """Return the believed speeds of all sizes that jobs may have, wrong by `misjudged`."""
        problem, o = self._world.problem, self._world.options
        most = int(min(problem.jobs.max_gpus.max(), problem.pools.gpus.max()))
        node = int(problem.pools.gpus_per_node.min())
        powers = [2**i for i in range(most.bit_length())]
        sizes = np.unique([*powers, *range(node, most + 1, node)])
        models, types = self.profile.shape
        m, t, k = (
            x.ravel()
            for x in np.meshgrid(np.arange(models), np.arange(types), sizes, indexing="ij")
        )
        n, shapes = np.zeros(len(k), np.int64), problem.rates.nodes > 0
        known = problem.rates.model, problem.rates.gpu_type, problem.rates.gpus, problem.rates.nodes
        m, t, k, n = (np.append(x, y[shapes]) for x, y in zip((m, t, k, n), known, strict=True))
        rate, _ = self._table.rate(m, t, k, nodes=n)
        wrong = random_numbers.lognormal(
            o.misjudged, o.seed, random_numbers.MISJUDGED, m * types + t
        )
        keys = zip(m.tolist(), t.tolist(), k.tolist(), n.tolist(), strict=True)
        believed = zip(keys, (rate * wrong).tolist(), strict=True)
        return {key: value for key, value in believed if value > 0}

    def observe(self) -> None:
        """Take one observation of every job that works alone, and fit the speeds of its model."""
        w = self._world
        self._round += 1
        r = w.running[w.colocated_job[w.running] < 0]
        r = r[w.from_s[r] < w.now]
        if not len(r):
            return
        problem = w.problem
        even = w.rate[r] / choose_modes(problem, r, w.pool[r], w.gpus[r]).pace
        rate = even * random_numbers.lognormal(
            OBSERVATION_NOISE, w.options.seed, random_numbers.OBSERVED, r, self._round
        )
        model, kind = w.present_models(r), problem.pools.gpu_type[w.pool[r]]
        np.maximum.at(self._largest, model, w.gpus[r])
        nodes = w.count_nodes(r)
        nodes = np.where(self._table.is_shape(model, kind, w.gpus[r], nodes), nodes, 0)
        columns = (model, kind, w.gpus[r], nodes)
        keys: list[Key] = list(zip(*(x.tolist() for x in columns), strict=True))
        offered = {} if self._offered is None else self._offered
        prior = {key: math.log(offered[key]) for key in keys if key in offered}
        feedback.update_all(self.estimates, keys, np.log(rate), w.now, math.inf, prior)
        if self._offered is None:
            self._fit(np.unique(model))

    def _fit(self, models: Ints) -> None:
        """Fit overhead and speed of one GPU of some models (n,) on every type, all at once."""
        n, types = len(models), self.profile.shape[1]
        place = {m: i for i, m in enumerate(models.tolist())}
        packed = [(key, e) for key, e in self.estimates.items() if key[3] == 0]
        seen = [(key, e) for key, e in packed if key[0] in place]
        column = types + np.arange(len(seen))
        k, rate = np.ones((n, types + len(seen))), np.ones((n, types + len(seen)))
        weight = np.zeros_like(k)
        kind = np.concatenate([np.arange(types), [key[1] for key, _ in seen]]).astype(np.int64)
        profile = self.profile[models]
        known = ~np.isnan(profile)
        k[:, :types] = self._least[models][:, None]
        rate[:, :types] = np.where(known, profile, 1.0)
        weight[:, :types] = np.where(known, 1.0 / PROFILE_NOISE, 0.0)
        for c, ((m, _, gpus, _), e) in zip(column.tolist(), seen, strict=True):
            i = place[m]
            k[i, c], rate[i, c] = gpus, math.exp(e.mean)
            weight[i, c] = 1.0 / math.sqrt(max(feedback.NOISE**2, e.variance) / max(1.0, e.weight))
        for t in range(types):
            scaled = rate * (profile[:, [t]] / profile[:, kind])
            counts = np.where(kind == t, weight, ELSEWHERE * weight)
            counts = np.where(np.isfinite(scaled), counts, 0.0)
            fitted = overhead(k, np.where(counts > 0, scaled, 1.0), counts)
            self._rate_1[models, t] = np.where(known[:, t], fitted["rate_1"], np.nan)
            self._overhead[models, t] = fitted["c"]

    def believed(self) -> tuple[Rates, Curves]:
        """Return the speeds of all models as a policy sees them."""
        if self._offered is not None:
            none = np.zeros(0, np.int64)
            return _rates(self._corrected()), Curves(none, none, (), ())
        m, t = np.nonzero(~np.isnan(self._rate_1))
        numbers = zip(
            self._rate_1[m, t].tolist(),
            self._overhead[m, t].tolist(),
            (GROWTH * self._largest[m]).tolist(),
            strict=True,
        )
        parameters = tuple({"rate_1": r, "c": c, "max_gpus": float(k)} for r, c, k in numbers)
        curves = Curves(m, t, ("overhead",) * len(m), parameters)
        return _rates({key: math.exp(e.mean) for key, e in self.estimates.items()}), curves

    def _corrected(self) -> dict[Key, float]:
        """Return the wrong profile times the corrections that observations prove."""
        assert self._offered is not None
        out = dict(self._offered)
        seen: dict[int, dict[Shape, dict[int, feedback.Estimate]]] = {}
        for (m, t, k, n), e in self.estimates.items():
            seen.setdefault(m, {}).setdefault((t, n), {})[k] = e
        offered: dict[int, dict[Shape, list[int]]] = {}
        for m, t, k, n in self._offered:
            offered.setdefault(m, {}).setdefault((t, n), []).append(k)
        for m, estimates in seen.items():
            corrections = feedback.correct_model(estimates, offered[m], self._world.now)
            for ((t, n), k), x in corrections.items():
                out[m, t, k, n] *= math.exp(x)
        return out


def _rates(speed: dict[Key, float]) -> Rates:
    """Return rows of rates.csv from speeds."""
    n = len(speed)
    key = np.array(list(speed), np.int64).reshape(n, 4)
    none: Ints = np.full(n, -1, np.int64)
    unknown: Floats = np.full(n, np.nan)
    return Rates(
        key[:, 0],
        key[:, 1],
        key[:, 2],
        np.array(list(speed.values()), np.float64),
        none,
        none,
        unknown,
        np.where(key[:, 3] > 0, key[:, 3], -1),
        ("",) * n,
        unknown,
        unknown,
        unknown,
        unknown,
        np.zeros(n, bool),
        key[:, 3],
    )
