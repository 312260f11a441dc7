"""Small random horizons, and the best plans of them by trying all, written from the definition
alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from scipy import sparse

from formulations.horizon.intervals import Horizon

D = 100.0


def random_horizon(
    rng: np.random.Generator,
    jobs: int = 3,
    intervals: int = 3,
    options: int = 2,
    rules: bool = False,
    long_pauses: bool = False,
    room: int = 1,
) -> Horizon:
    """A pool or two and a budget, `room` times as large as for three jobs; half of the jobs run.
    rules: some must run, and some use is asked for at first.
    """
    size = rng.integers(1, options + 1, jobs)
    start = np.concatenate([[0], np.cumsum(size)])
    n, pools, H = int(start[-1]), int(rng.integers(1, 3)), intervals
    gpus = rng.integers(1, 4, n).astype(float)
    use = np.zeros((n, pools + 1))
    use[np.arange(n), rng.integers(0, pools, n)] = gpus
    use[:, pools] = gpus * rng.integers(1, 4, n)
    current = np.where(rng.random(jobs) < 0.5, start[:-1], -1)
    mandatory = (current >= 0) & (rng.random(jobs) < 0.4) & rules
    high = np.concatenate(
        [room * rng.integers(1, 6, (H, pools)), room * rng.integers(4, 14, (H, 1))], axis=1
    ).astype(float)
    low = np.full(pools + 1, -np.inf)
    if rules and rng.random() < 0.5:
        low[0] = 1.0
    startup = rng.integers(0, 40, n).astype(float)
    more = rng.integers(0, 150 if long_pauses else 60, n).astype(float)
    w, d = rng.random(jobs), rng.uniform(0, 0.3)
    late = np.arange(H) * D
    # weighted completion time, some with work on top
    finish = -w[:, None] * late
    work = np.where(rng.random(jobs) < 0.5, rng.random(jobs), 0.0)[:, None] * (1 - d) ** np.arange(
        H
    )
    late_value = -w * H * D - rng.random(jobs)  # of a job that is not done after the horizon
    work += (w * rng.uniform(0, 1.5))[:, None]  # what its work left costs then
    return Horizon(
        start=start,
        rate=np.round(gpus**0.8 * rng.uniform(0.5, 2.0, n), 3),
        switch_s=startup + more,
        startup_s=startup,
        matrix=sparse.csr_matrix(use),
        high=high,
        low=low,
        current=current,
        mandatory=mandatory,
        remaining=rng.integers(30, 700, jobs).astype(float),
        interval_s=D,
        work=work,
        finish=finish - late_value[:, None],
        slope=np.repeat(-w[:, None], H, axis=1),
        held=-np.outer(gpus, np.ones(H)) * rng.uniform(0, 0.05),
        jobs=[f"j{j}" for j in range(jobs)],
        rows=[*(f"p{p}" for p in range(pools)), "budget"],
    )


def gain(x: Horizon, j: int, plan: tuple[int, ...]) -> tuple[float, tuple[int, ...]] | None:
    """(gain, options held per interval) of one plan of one job; None if it idles although it
    must not.
    """
    before, left, total, pause, held = int(x.current[j]), float(x.remaining[j]), 0.0, 0.0, []
    D = x.interval_s
    for h, o in enumerate(plan):
        if left <= 0:
            held.append(-1)
            continue
        if o < 0 and x.mandatory[j]:
            return None
        held.append(o)
        if o >= 0:
            if o != before:
                pause = float(x.startup_s[o] if before < 0 else x.switch_s[o])
            works = max(0.0, D - pause)
            seconds = left / x.rate[o]
            if seconds <= works + 1e-9:
                t = pause + seconds
                total += x.work[j, h] * left + x.held[o, h] * t
                total += x.finish[j, h] + x.slope[j, h] * t
                left = 0.0
            else:
                done = works * x.rate[o]
                total += x.work[j, h] * done + x.held[o, h] * D
                left -= done
            pause = max(0.0, pause - D)
        before = o
    return total, tuple(held)


def plans(x: Horizon, j: int) -> Iterator[tuple[float, tuple[int, ...]]]:
    """All plans of a job with their gains, each once."""
    seen = {}
    for plan in itertools.product([-1, *range(x.start[j], x.start[j + 1])], repeat=x.H):
        if (found := gain(x, j, plan)) is not None:
            seen[found[1]] = found[0]
    return ((value, held) for held, value in seen.items())


def best(x: Horizon) -> float | None:
    """The largest sum of gains of any plans that keep all rows; None if there are none."""
    dense = np.vstack([x.matrix.toarray(), np.zeros(x.R)])
    values, uses = np.zeros(1), np.zeros((1, x.H, x.R))
    for j in range(x.J):
        more = [(value, dense[list(held)]) for value, held in plans(x, j)]
        values = np.concatenate([values + value for value, _ in more] or [[]])
        uses = np.concatenate([uses + use for _, use in more] or [uses[:0]])
    fine = (uses <= x.high + 1e-9).all(axis=(1, 2)) & (uses[:, 0] >= x.low).all(axis=1)
    return float(values[fine].max()) if fine.any() else None
