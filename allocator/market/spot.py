"""Forecast time and cost of one job on clusters with revocable servers, and choose a cluster.

    T = startup + steps / v + (checkpoints) T_ckpt + E[losses] (T_replace + T_redone)

The formula is that of Li et al., ICDCS 2020. Synchronous clusters use the expectation of the last
terms (formulations/transient: synchronous_seconds). With a hard lifetime they use lifetime_seconds:
servers that start together reach it together, as one loss. Asynchronous clusters use the expected
speed while lost workers are absent, under the cap. If the hazard depends on age, the mean hazard of
a run of that length on new servers is used. It is found by iterating until the length stays the
same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from allocator.domain.problem import Floats
from allocator.errors import Infeasible, Relaxation
from allocator.market.clusters import TransientCluster
from formulations.transient.lifetimes import event_rate, lifetime_seconds
from formulations.transient.parameter_servers import bottleneck, capped, expected_speed
from formulations.transient.revocations import HOUR_S, best_interval_s, losses, synchronous_seconds

ROUNDS = 100
SAME = 1e-7  # relative change of the length at which the iteration ends


@dataclass(frozen=True)
class RunForecast:
    """Forecast of one job on one cluster.

    Attributes
    ----------
    work, speed : float
        Work of the job, and work per second while nothing is lost.
    seconds, dollars : float
        From ordering the servers to the end, and their cost; inf = the job never ends.
    revocations : float
        Servers lost.
    useful : float
        Share of the time after start-up in which the job advances at that speed.
    every_s : float
        Useful seconds between checkpoints, inf = none.
    bound : bool
        Whether the speed is clearly below the sum of the workers' own.
    """

    cluster: TransientCluster
    work: float
    speed: float
    seconds: float
    dollars: float
    revocations: float
    useful: float
    every_s: float
    bound: bool

    @property
    def dollars_per_work(self) -> float:
        """Cost of one unit of useful work."""
        return self.dollars / self.work


def forecast_run(cluster: TransientCluster, work: float) -> RunForecast:
    """Return expected time and cost of `work` units.

    Servers are paid from the order to the end of the job.
    """
    speed = (
        float(capped(cluster.own_speed, cluster.cap, cluster.sharpness))
        if math.isnan(cluster.measured)
        else cluster.measured
    )
    startup = float(cluster.startup_s.max())
    alone = work / speed
    seconds = alone
    rates = np.zeros(len(cluster.workers))
    every = math.inf
    for _ in range(ROUNDS):
        before = seconds
        rates = np.array(
            [losses(h, (startup + before) / HOUR_S) / (startup + before) for h in cluster.hazards]
        )
        if cluster.synchronous:
            seconds, every = _synchronous_seconds(cluster, alone, (startup + before) / HOUR_S)
        else:
            every = (
                math.inf if math.isnan(cluster.every_s) else cluster.every_s
            )  # the parameter server has the state
            seconds = _asynchronous_seconds(cluster, alone, speed, rates, every)
        if not math.isfinite(seconds) or abs(seconds - before) <= SAME * before:
            break
    total = startup + seconds
    up = np.ones(len(rates)) if cluster.synchronous else _mean_up_share(cluster, rates)
    lost = float(cluster.workers @ (rates * up)) * seconds if math.isfinite(seconds) else math.inf
    return RunForecast(
        cluster,
        work,
        speed,
        total,
        total / HOUR_S * cluster.dollars_per_hour,
        lost,
        min(1.0, alone / seconds),
        every,
        bool(bottleneck(cluster.own_speed, speed)),
    )


def _synchronous_seconds(
    cluster: TransientCluster, alone: float, hours: float
) -> tuple[float, float]:
    """Return the expected seconds of a run of about so many hours, and seconds between checkpoints.

    The latter are useful seconds. Servers with the shortest lifetime end together. Those with a
    longer one count as losses at any time, one for all servers of the kind whenever it is over.
    """
    life_h = min(h.lifetime_h for h in cluster.hazards)
    once = [
        replace(h, lifetime_h=math.inf) for h in cluster.hazards
    ]  # random losses of a server, per hour
    random = np.array([losses(h, min(hours, life_h)) / min(hours, life_h) for h in once])
    ends = np.array([0.0 if math.isinf(h.lifetime_h) else h.lifetime_h for h in cluster.hazards])
    both = cluster.workers * (random + np.where(ends > 0, 1.0 / np.maximum(ends, 1e-300), 0.0))
    pause = float(both @ cluster.replace_s) / float(both.sum()) if both.any() else 0.0
    together = (ends == life_h) & (ends > 0)
    longer = ~together & (ends > 0)
    other = float((cluster.workers * random)[~together].sum())
    other = (other + float(np.floor(hours / ends[longer]).sum()) / hours) / HOUR_S
    n = float(cluster.workers[together].sum())
    hazard = float((cluster.workers * random)[together].sum()) / max(n, 1.0)
    rate = float(event_rate(n, hazard, life_h * HOUR_S, alone, other)) if n else other
    every = (
        float(best_interval_s(rate, cluster.checkpoint_s))
        if math.isnan(cluster.every_s)
        else cluster.every_s
    )
    if not n:
        return float(synchronous_seconds(alone, other, cluster.checkpoint_s, every, pause)), every
    return (
        float(
            lifetime_seconds(
                alone, n, hazard, life_h * HOUR_S, cluster.checkpoint_s, every, pause, other
            )
        ),
        every,
    )


def _asynchronous_seconds(
    cluster: TransientCluster, alone: float, speed: float, rates: Floats, every: float
) -> float:
    """Return the seconds at which the expected progress reaches the work.

    A measured speed shrinks like the calculated one.
    """
    whole = float(capped(cluster.own_speed, cluster.cap, cluster.sharpness))
    mean = (
        speed
        / whole
        * expected_speed(
            cluster.workers,
            cluster.work_per_s,
            _mean_up_share(cluster, rates),
            cluster.cap,
            cluster.sharpness,
        )
    )
    saves = 0.0 if math.isinf(every) else max(0, math.ceil(alone / every - 1e-12) - 1)
    return alone * speed / mean + saves * cluster.checkpoint_s


def _mean_up_share(cluster: TransientCluster, rates: Floats) -> Floats:
    return 1.0 / (1.0 + rates * cluster.replace_s)


@dataclass(frozen=True)
class ClusterChoice:
    """Indices of the best clusters.

    They are the cheapest and fastest of all, the fastest within the cost, and the cheapest by the
    deadline; None without such a limit.
    """

    cheapest: int
    fastest: int
    fastest_within_cost: int | None
    cheapest_by_deadline: int | None


def choose_clusters(
    outlooks: Sequence[RunForecast],
    cost: float | None = None,
    deadline_s: float | None = None,
    quality: float | None = None,
) -> ClusterChoice:
    """Choose the best clusters by cost and by time.

    Ties in time go to the cheaper cluster, ties in cost to the faster one, then to the earlier one.
    cost is in dollars and deadline_s in seconds, both at most; quality is the least quality, where
    it is known. Raises Infeasible with the smallest sufficient cost, deadline or quality.
    """
    good = [i for i, o in enumerate(outlooks) if quality is None or o.cluster.quality >= quality]
    if not good:
        best = max(
            (o.cluster.quality for o in outlooks if not math.isnan(o.cluster.quality)), default=0.0
        )
        raise _no_choice(
            "quality", float(quality or 0.0), best, "no cluster is known to train so well"
        )
    ends = [i for i in good if math.isfinite(outlooks[i].seconds)]
    if not ends:
        raise Infeasible(
            ["on no cluster does the job ever end: servers are lost faster than work is saved"], []
        )

    by_cost = sorted(ends, key=lambda i: (outlooks[i].dollars, outlooks[i].seconds))
    by_time = sorted(ends, key=lambda i: (outlooks[i].seconds, outlooks[i].dollars))
    cheapest, fastest = outlooks[by_cost[0]], outlooks[by_time[0]]
    if cost is not None and cheapest.dollars > cost:
        why = f"the cheapest cluster is {cheapest.cluster.name}"
        raise _no_choice("cost", cost, cheapest.dollars, why)
    if deadline_s is not None and fastest.seconds > deadline_s:
        why = f"the fastest cluster is {fastest.cluster.name}"
        raise _no_choice("deadline", deadline_s, fastest.seconds, why)
    paid = (i for i in by_time if cost is not None and outlooks[i].dollars <= cost)
    timely = (i for i in by_cost if deadline_s is not None and outlooks[i].seconds <= deadline_s)
    return ClusterChoice(by_cost[0], by_time[0], next(paid, None), next(timely, None))


def undominated_clusters(outlooks: Sequence[RunForecast]) -> list[int]:
    """Return indices of the clusters that no other beats in both time and cost, by time."""
    order = sorted(
        (i for i, o in enumerate(outlooks) if math.isfinite(o.seconds)),
        key=lambda i: (outlooks[i].seconds, outlooks[i].dollars),
    )
    kept: list[int] = []
    for i in order:
        if not kept or outlooks[i].dollars < outlooks[kept[-1]].dollars:
            kept.append(i)
    return kept


def _no_choice(rule: str, asked: float, needed: float, why: str) -> Infeasible:
    # rounded so that asking for what is printed succeeds: up for limits, down for a least quality
    away = math.floor if rule == "quality" else math.ceil
    return Infeasible([f"{rule}: {why}"], [Relaxation(rule, "", asked, away(needed * 1e4) / 1e4)])
