"""Correct given slowdowns of colocated jobs by the speeds that they are observed to have.

The learned quantity is x = log(slowdown / given slowdown) of one model next to another one, for
each GPU type and size. One sample of the slowdown is the believed speed of a job alone over its
observed speed in a colocation. A job with several primary jobs is as slow as next to the one that
slows it down most: its sample corrects that pair, and every pair that is believed to be slower than
it. What becomes of samples, and which corrections are applied, is the same as for speeds
(feedback.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Problem, Sharing
from allocator.performance.colocated_speed import speeds_with_several
from allocator.performance.fit import feedback
from allocator.performance.interference import MeasuredSlowdowns

Key = tuple[int, int, int, int]  # model, model of the other job, GPU type, GPUs


class LearnedSlowdowns:
    """Estimates of x, by model, model of the other job, GPU type and GPUs.

    Parameters
    ----------
    given : Sharing
        The rows of sharing.csv without any correction.
    models, gpu_types : int
        Numbers of models and of GPU types.
    estimates : mapping, optional
        Estimates from before.
    """

    def __init__(
        self,
        given: Sharing,
        models: int,
        gpu_types: int,
        estimates: Mapping[Key, feedback.Estimate] | None = None,
    ) -> None:
        self.given = given
        self._counts = models, gpu_types
        self._prior = MeasuredSlowdowns(given, models, gpu_types)
        self.estimates = dict(estimates or {})

    def observe(
        self,
        model: Ints,
        other: Ints,
        gpu_type: Ints,
        gpus: Ints,
        alone: Floats,
        observed: Floats,
        at_s: float,
        sample: Ints | None = None,
    ) -> None:
        """Take one sample of each pair, arrays (n,); of pairs of one key the median counts.

        Parameters
        ----------
        model, other : (n,)
            Models of the job and of the other job on its GPUs.
        gpu_type, gpus : (n,)
            Where the two run.
        alone, observed : (n,)
            Believed speed alone, with the passes that it has in the colocation, and observed speed;
            both above 0.
        at_s : float
            Time of the samples, seconds.
        sample : (n,), optional
            The pairs of a job with several primary jobs are one sample, with the same number.
            Default: each pair is a sample.
        """
        if sample is not None and len(np.unique(sample)) < len(sample):
            now = MeasuredSlowdowns(self.corrected(at_s), *self._counts)
            believed, _ = now.slowdown(model, other, gpu_type, gpus)
            which = find_limiting_pairs(sample, believed, alone / observed)
            model, other, gpu_type, gpus = (x[which] for x in (model, other, gpu_type, gpus))
            alone, observed = alone[which], observed[which]
        given, _ = self._prior.slowdown(model, other, gpu_type, gpus)
        keys = zip(*(x.tolist() for x in (model, other, gpu_type, gpus)), strict=True)
        feedback.update_all(self.estimates, keys, np.log(alone / observed / given), at_s)

    def corrected(self, now_s: float) -> Sharing:
        """Return the rows of sharing.csv with the corrections that the samples prove.

        A size that was observed and has no row gets one, after the given rows.
        """
        g = self.given
        learned = self._find_slowdowns(now_s)
        columns = (g.model_a, g.model_b, g.gpu_type, g.gpus)
        rows: list[Key] = list(zip(*(x.tolist() for x in columns), strict=True))
        known = {*rows, *map(_swap, rows)}
        new = dict.fromkeys(min(key, _swap(key)) for key in learned if key not in known)
        rows += new
        sides = (rows, list(map(_swap, rows)))
        given = (g.slowdown_a.tolist(), g.slowdown_b.tolist())
        slowdowns = [
            [*(learned.get(key, xi) for key, xi in zip(side, of, strict=False))]
            + [learned.get(key, self._given_slowdown(key)) for key in side[len(of) :]]
            for side, of in zip(sides, given, strict=True)
        ]
        models_types_gpus = np.array(rows, np.int64).reshape(len(rows), 4)
        return Sharing(*models_types_gpus.T, *(np.array(xi, np.float64) for xi in slowdowns))

    def _given_slowdown(self, key: Key) -> float:
        return float(self._prior.slowdown(*(np.array([x]) for x in key))[0][0])

    def _find_slowdowns(self, now_s: float) -> dict[Key, float]:
        """Return the corrected slowdowns of one model next to another one."""
        g = self.given
        groups: dict[tuple[int, int, int], dict[int, feedback.Estimate]] = {}
        for (model, other, kind, k), estimate in self.estimates.items():
            groups.setdefault((model, other, kind), {})[k] = estimate
        out: dict[Key, float] = {}
        for (model, other, kind), seen in groups.items():
            of_pair = ((g.model_a == model) & (g.model_b == other)) | (
                (g.model_a == other) & (g.model_b == model)
            )
            sizes = sorted({*g.gpus[of_pair & (g.gpu_type == kind)].tolist(), *seen})
            for k, x in feedback.correct_sizes(seen, sizes, now_s).items():
                key = (model, other, kind, k)
                out[key] = max(1.0, self._given_slowdown(key) * math.exp(x))
        return out


def _swap(key: Key) -> Key:
    """Return the key of the other one of the two models."""
    model, other, gpu_type, gpus = key
    return other, model, gpu_type, gpus


def find_limiting_pairs(sample: Ints, believed: Floats, observed: Floats) -> Bools:
    """Find the pairs that an observed slowdown corrects, (n,).

    The slowdown of a job is the largest of its pairs. So the observed one is that of the pair that
    is believed to be its slowest, and no other pair has more.

    Parameters
    ----------
    sample : (n,)
        Pairs of the same number belong to the same job.
    believed, observed : (n,)
        The believed slowdown of each pair, and the observed one of its job.
    """
    largest = np.full(int(sample.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(largest, sample, believed)
    return np.asarray((believed == largest[sample]) | (believed > observed))


def speeds_alone(
    problem: Problem, primary: Ints, secondary: Ints, pool: Ints, gpus: Ints
) -> tuple[Floats, Floats]:
    """Return the believed speeds of colocated jobs alone, with the passes of the colocation.

    Parameters
    ----------
    primary, secondary : (n,)
        The jobs of each pair. A secondary job with several primary jobs has a pair with each.
    pool : (n,)
        Where they run.
    gpus : (J,)
        GPUs of every job of the problem.

    Returns
    -------
    (n,), (n,)
        Work per second of primary and of secondary jobs, nan where the pair is impossible.
    """
    slowdowns, model = MeasuredSlowdowns.of(problem), problem.jobs.model
    order = np.argsort(secondary, kind="stable")
    h, g, p = primary[order], secondary[order], pool[order]
    _, group = np.unique(g, return_inverse=True)
    speeds = speeds_with_several(problem, group, h, g, p, gpus[h], gpus[g])
    kind = problem.pools.gpu_type[p]
    xi_primary, xi_secondary = slowdowns.slowdown(model[h], model[g], kind, gpus[h])
    # the given slowdown of the pair that sets the speed, as that of a pair is without isolation
    slowest = np.lexsort((np.nan_to_num(speeds.pairs.slowdown_secondary, nan=np.inf), group))
    last = slowest[np.append(np.flatnonzero(np.diff(group)), len(g) - 1)] if len(g) else slowest
    alone = np.full((2, len(order)), np.nan)
    fine = (speeds.rate > 0)[group]
    alone[0, order[fine]] = (speeds.pairs.rate_primary * xi_primary)[fine]
    alone[1, order[fine]] = (speeds.rate * xi_secondary[last])[group][fine]
    return alone[0], alone[1]
