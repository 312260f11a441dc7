"""The audit's own account of what exploring adds to options ([profiling] of config.toml), written
apart from allocator/options/exploring.py, which says what is added and why."""

from __future__ import annotations

import math

import numpy as np

from allocator.audit.scene import Scene
from allocator.domain.problem import Floats, Ints
from allocator.performance.profiling import LEAST, NOISE, REACH


def extra(
    s: Scene, job: Ints, pool: Ints, gpus: Ints, rate: Floats, value: Floats
) -> dict[tuple[int, int, int], float]:
    """{(job, GPU type, GPUs): worth on top}, from all options (n,) and their values without it."""
    problem, asked = s.problem, s.problem.settings.get("profiling", {})
    room = asked.get("share", 0.0) * float(problem.pools.gpus.sum())
    if room < 1.0:
        return {}
    rounds, rates = asked.get("rounds", 6.0), problem.rates
    best = {j: max(0.0, float(value[job == j].max())) for j in np.unique(job).tolist()}
    found: list[tuple[float, int, int, int, int, float]] = []
    for m, t, parameters in zip(
        problem.curves.model.tolist(),
        problem.curves.gpu_type.tolist(),
        problem.curves.parameters,
        strict=True,
    ):
        own = (problem.jobs.model[job] == m) & (problem.pools.gpu_type[pool] == t)
        error = parameters.get("error", 0.0)
        if not error > 0 or not own.any():
            continue
        seen = sorted(set(rates.gpus[(rates.model == m) & (rates.gpu_type == t)].tolist()))
        speeds: dict[int, float] = {}
        for k, r in zip(gpus[own].tolist(), rate[own].tolist(), strict=True):
            # memory of pools may allow different ones
            speeds[k] = max(r, speeds.get(k, 0.0))
        y = {k: 0.5 * math.log(k) - math.log(r) for k, r in sorted(speeds.items())}
        per_gpu = {
            k: round(_gain(y, k, 0.0 if k in seen else error * _left(k, seen, error)) / k, 12)
            for k in y
        }
        size = max(y, key=lambda k: (per_gpu[k], -k))
        gain = _gain(y, size, 0.0 if size in seen else error * _left(size, seen, error))
        if gain > LEAST:
            here = np.flatnonzero(own & (gpus == size))
            who = min(
                here.tolist(), key=lambda o: (round(best[int(job[o])] - float(value[o]), 12), o)
            )
            worth = rounds * gain * sum(best[j] for j in sorted(set(job[own].tolist())))
            found.append((-round(worth / size, 12), len(found), int(job[who]), t, size, worth))
    out = {}
    for _, _, j, t, size, worth in sorted(found):
        if size <= room:
            room -= size
            out[j, t, size] = worth
    return out


def _gain(y: dict[int, float], k: int, deviation: float) -> float:
    """E max(0, least of the others or of what k itself is believed to be - y_k) for normal y_k."""
    ranked = sorted(y, key=lambda size: (y[size], size))
    if len(ranked) < 2 or deviation <= 0:
        return 0.0
    z = (y[k] - y[ranked[0]] if k != ranked[0] else y[ranked[1]] - y[k]) / deviation
    return deviation * (
        math.exp(-z * z / 2) / math.sqrt(2 * math.pi) - z * math.erfc(z / math.sqrt(2)) / 2
    )


def _left(k: int, seen: list[int], error: float) -> float:
    """Deviation at k that the sizes seen leave, as a share of the error: the conditional variance
    of a normal variable is a ratio of determinants."""
    sizes = [*seen, k]
    cover = [
        [
            math.exp(-abs(math.log2(a) - math.log2(b)) / REACH)
            + ((NOISE / error) ** 2 if a == b and a != k else 0.0)
            for a in sizes
        ]
        for b in sizes
    ]
    whole, part = (
        np.linalg.slogdet(np.array(cover))[1],
        np.linalg.slogdet(np.array(cover)[:-1, :-1])[1],
    )
    return math.sqrt(min(1.0, math.exp(float(whole - part))))
