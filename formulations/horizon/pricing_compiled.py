"""The pricing of plans in plain loops, job by job; compiled by numba.

`table` is the recursion of formulations/horizon/pricing.py, backwards in time. `search` then goes
forwards with the exact work done. It prunes by the table, which never promises too little, and so
finds the best plan itself (branch and bound). In `table` and `search` all arrays are those of one
job with k options and H intervals; h is an interval, m the length of a run, b the units done.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from formulations.horizon.intervals import ENOUGH

# In units: a difference that counts as 0, and a rest of work that counts as done. The second is
# larger than the sum of all differences in a plan.
SNAP, NEAR = 1e-9, 1e-6
NEVER = -1e300


def price(
    start: Any,
    rate: Any,
    pause: Any,
    remaining: Any,
    units: Any,
    reach: Any,
    current: Any,
    mandatory: Any,
    D: float,
    work: Any,
    later: Any,
    finish: Any,
    slope: Any,
    held: Any,
    rent: Any,
    slack: Any,
    nodes: int,
    jobs: Any,
    best: Any,
    plan: Any,
) -> None:
    """Fill best (J,) and plan (J, H) of the given jobs.

    best is at least the value of the best plan. The plan has at least the value best - slack,
    unless `nodes` were too few. rent (n, H) is the price of holding an option; the other arguments
    are those of `Pricing`.
    """
    H = work.shape[1]
    for j in jobs:
        own = slice(start[j], start[j + 1])
        states = max(1, units[j])
        F = np.zeros((H + 1, 2, states + 1))
        now = current[j] - start[j] if current[j] >= 0 else -1
        unit = remaining[j] / states
        table(
            F,
            rate[own],
            pause[own],
            remaining[j],
            units[j],
            unit,
            reach[j],
            mandatory[j],
            D,
            work[j],
            later[j],
            finish[j],
            slope[j],
            held[own],
            rent[own],
        )
        best[j] = search(
            F,
            rate[own],
            pause[own],
            remaining[j],
            units[j],
            unit,
            now,
            mandatory[j],
            D,
            work[j],
            later[j],
            finish[j],
            slope[j],
            held[own],
            rent[own],
            slack[j],
            nodes,
            plan[j],
        )
        for h in range(H):
            if plan[j, h] >= 0:
                plan[j, h] += start[j]


def table(
    F: Any,
    rate: Any,
    pause: Any,
    remaining: float,
    B: int,
    unit: float,
    reach: Any,
    mandatory: bool,
    D: float,
    work: Any,
    later: Any,
    finish: Any,
    slope: Any,
    held: Any,
    rent: Any,
) -> None:
    """Fill F (H + 1, 2, B + 1) with the most that may still be gained from each interval on.

    The second index is 0 if the job was idle before, 1 if it was running.
    """
    H = len(work)
    states = F.shape[2] - 1
    for h in range(1, H):
        # the job is done at the end of the previous interval
        F[h, :, states] = finish[h - 1] + slope[h - 1] * D
    for h in range(H - 1, 0, -1):
        top = min(reach[h], states - 1) + 1
        for s in range(2):
            into = F[h, s]
            for b in range(top):
                into[b] = NEVER if mandatory else F[h + 1, 0, b]
            for k in range(len(rate)):
                a = pause[k, s]
                V, W, finished = 0.0, 0.0, top
                for m in range(1, H - h + 1):
                    i = h + m - 1
                    did = rate[k] * (max(0.0, m * D - a) - max(0.0, (m - 1) * D - a))
                    low = finished
                    if B > 0:
                        low = min(finished, max(0, math.ceil(B - (W + did) / unit - NEAR)))
                    for b in range(low, finished):
                        left = max(0.0, remaining - b * unit - W)
                        t = min(D, max(0.0, a - (m - 1) * D) + left / rate[k])
                        v = (
                            V
                            - rent[k, i]
                            + work[i] * left
                            + held[k, i] * t
                            + finish[i]
                            + slope[i] * t
                        )
                        into[b] = max(into[b], v)
                    V += work[i] * did + held[k, i] * D - rent[k, i]
                    W += did
                    finished = low
                    if low == 0:
                        break
                    c, lost = 0, 0.0
                    if B > 0 and h + m < H:
                        c = math.ceil(W / unit - SNAP)
                        lost = max(0.0, later[i + 1] * (c * unit - W))
                    for b in range(low):
                        into[b] = max(into[b], V + lost + F[i + 1, 1, b + c])


def search(
    F: Any,
    rate: Any,
    pause: Any,
    remaining: float,
    B: int,
    unit: float,
    now: int,
    mandatory: bool,
    D: float,
    work: Any,
    later: Any,
    finish: Any,
    slope: Any,
    held: Any,
    rent: Any,
    slack: float,
    nodes: int,
    plan: Any,
) -> float:
    """Fill plan (H,) with the best plan, and return a bound on all plans.

    The plan has places of the job's options, -1 = none. The search is depth first, the most
    promising run first. It skips runs that promise at most `slack` more than the best plan so far.
    After `nodes` decisions it stops, and the promises of all other runs count for the bound.

    Parameters
    ----------
    now : int
        Place of the option held before the first interval, -1 = none.
    """
    H, K = len(work), len(rate)
    # run m of option k has index k H + m - 1; the last index is one interval without an option
    width = K * H + 1
    promise = np.full((H, width), NEVER)
    to, works, gains = (
        np.zeros((H, width), np.int64),
        np.zeros((H, width)),
        np.zeros((H, width)),
    )
    at, taken = np.zeros(H, np.int64), np.zeros(H, np.int64)
    known, bound, depth, seen, fresh = NEVER, NEVER, 0, 0, True
    h, s, d, v = 0, 1 if now >= 0 else 0, 0.0, 0.0
    while depth >= 0:
        due = promise[depth]
        if fresh:
            seen += 1
            at[depth] = h
            due[:] = NEVER
            if not mandatory:
                to[depth, width - 1], works[depth, width - 1], gains[depth, width - 1] = h + 1, d, v
                due[width - 1] = v + most_after(F, h + 1, 0, d, B, unit, later)
            for k in range(K):
                a = 0.0 if h == 0 and k == now else pause[k, s]
                V, W = v, d
                for m in range(1, H - h + 1):
                    i, c = h + m - 1, k * H + m - 1
                    did = rate[k] * (max(0.0, m * D - a) - max(0.0, (m - 1) * D - a))
                    left = remaining - W
                    V -= rent[k, i]
                    if did >= left * ENOUGH:
                        t = max(0.0, a - (m - 1) * D) + left / rate[k]
                        V += work[i] * left + held[k, i] * t + finish[i] + slope[i] * t
                        to[depth, c], gains[depth, c], due[c] = H, V, V
                        break
                    V += work[i] * did + held[k, i] * D
                    W += did
                    to[depth, c], works[depth, c], gains[depth, c] = h + m, W, V
                    due[c] = V + most_after(F, h + m, 1, W, B, unit, later)
        c = int(np.argmax(due))
        most = due[c]
        fresh = False
        if most <= max(known + slack, NEVER) or (seen > nodes and known > NEVER):
            bound = max(bound, most)
            depth -= 1
            continue
        due[c] = NEVER
        taken[depth] = c
        if to[depth, c] < H:
            h, s, d, v = to[depth, c], 0 if c == width - 1 else 1, works[depth, c], gains[depth, c]
            depth += 1
            fresh = True
        elif gains[depth, c] > known:
            known = gains[depth, c]
            plan[:] = -1
            for e in range(depth + 1):
                if taken[e] < width - 1:
                    plan[at[e] : at[e] + taken[e] % H + 1] = taken[e] // H
    return max(known, bound)


def most_after(F: Any, h: int, s: int, d: float, B: int, unit: float, later: Any) -> float:
    """Return the table at the exact work done: rounded up, plus the value of the work left out."""
    if h >= F.shape[0] - 1:
        return 0.0
    if B == 0:
        nothing: float = F[h, s, 0]
        return nothing
    c = min(B, math.ceil(d / unit - SNAP))
    most: float = F[h, s, c] + max(0.0, later[h] * (c * unit - d))
    return most
