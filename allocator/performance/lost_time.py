"""Time that jobs lose: to workers out of step, pauses, revocations and checkpoints.

A job keeps its workers in step in one of the modes that its column `modes` allows, or else as its
column `synchronous` says. The modes of one job at one pool and size cost the same and use the same
GPUs. So the one with the most useful work per second is better than the others under every
objective, and an option has that one: its pace (formulations/transient/synchronisation.py) times
what revocations and checkpoints leave of it. Equal modes count in the order of the job's list.

Speeds of rates.csv are those of even workers. A pool says by `straggler_cv` how uneven they are.

A running job whose allocation changes loses restart_s, or what a row of pauses.csv says: sizes that
were set up in advance may cost nothing, others a checkpoint and a new start. A row of the GPU type
that the job changes to takes precedence over a row of any type. startup_s of the pool is added in
both cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.domain.problem import Floats, Ints, Market, Problem
from allocator.domain.schema.cells import name_mode
from formulations.model.linear import begins_run
from formulations.transient.lifetimes import useful_fraction
from formulations.transient.revocations import (
    HOUR_S,
    best_interval_s,
    mean_hazard,
    synchronous_share,
)
from formulations.transient.synchronisation import ASYNCHRONOUS, BULK, Mode, long_run, pace

# smallest share, because work and money are divided by it
LEAST = 1e-9
SIZES = 1 << 20  # more than any number of GPUs
SHORT = 1e-3  # least share of time by which the length of a run is divided


@dataclass(frozen=True)
class ChosenModes:
    """The modes of n options.

    Attributes
    ----------
    modes : tuple of Mode
        The distinct modes of the problem.
    which : (n,)
        Index of each option's mode.
    pace : (n,)
        Speed as a share of that of rates.csv; 0 where no mode of the job admits so many workers.
    """

    modes: tuple[Mode, ...]
    which: Ints
    pace: Floats

    def names(self) -> list[str]:
        """Return the names of the modes, (n,)."""
        names = list(map(name_mode, self.modes))
        return [names[k] for k in self.which.tolist()]


def choose_modes(problem: Problem, job: Ints, pool: Ints, gpus: Ints) -> ChosenModes:
    """Choose the mode of each option (job, pool, gpus), (n,).

    It does not depend on how much work is left: hard lifetimes count as those of a job without end.
    """
    jobs = problem.jobs
    which = np.where(jobs.synchronous[job], 0, 1).astype(np.int64)
    if not ((jobs.modes >= 0).any() or (problem.pools.straggler_cv > 0).any()):
        return ChosenModes((BULK, ASYNCHRONOUS), which, np.ones(len(job)))
    lists = ((BULK,), (ASYNCHRONOUS,), *problem.mode_sets)
    modes = tuple(dict.fromkeys(mode for listed in lists for mode in listed))
    speed = np.zeros(len(job))
    code = np.where(jobs.modes[job] < 0, which, jobs.modes[job] + 2)
    for s, listed in enumerate(lists):
        rows = np.flatnonzero(code == s)
        place = pool[rows], gpus[rows]
        best = np.full(len(rows), -1.0)
        for mode in listed if len(rows) else ():
            fast = _paces(problem, mode, *place)
            useful = fast
            if len(listed) > 1:
                useful = fast * mode_share(problem, mode, job[rows], *place, np.inf)
            better = (fast > 0) & (useful > best)
            to = rows[better]
            which[to], speed[to], best[better] = modes.index(mode), fast[better], useful[better]
    return ChosenModes(modes, which, speed)


def number_rows(*columns: np.ndarray[Any, Any]) -> Ints:
    """Number the rows of some columns in ascending order, equal rows alike, (n,)."""
    order = np.lexsort(columns[::-1])
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(begins_run(*(x[order] for x in columns))) - 1
    return number


def mode_share(
    problem: Problem, mode: Mode, job: Ints, pool: Ints, gpus: Ints, work_s: Floats | float
) -> Floats:
    """Return the share phi of the speed that options in one mode keep (`useful_share`), (n,).

    A mode with spare workers counts as bulk in pools with a hard lifetime, or whose revocations
    depend on age, which is less than it does. work_s (n,) is the useful seconds that the rest of
    the job takes. Where revocations depend on age, their mean over that time on new servers counts,
    then that over the time that the job takes with so many.
    """
    seconds = np.broadcast_to(np.asarray(work_s, np.float64), pool.shape)
    ageing = problem.pools.is_ageing[pool]
    share = _share_at(problem, mode, job, pool, gpus, seconds, _hazard(problem, pool, seconds))
    again = np.flatnonzero(ageing & np.isfinite(seconds))
    if len(again):
        where = pool[again]
        lasting = seconds[again] / np.maximum(share[again], SHORT)
        hazard = _hazard(problem, where, lasting)
        share[again] = _share_at(
            problem, mode, job[again], where, gpus[again], seconds[again], hazard
        )
    return share


def _hazard(problem: Problem, pool: Ints, seconds: Floats) -> Floats:
    """Return the revocations per GPU-hour, in the mean over so many seconds of new GPUs, (n,)."""
    pools = problem.pools
    out = np.zeros(len(pool))
    for p in np.unique(pool).tolist():
        rows = np.flatnonzero(pool == p)
        alive = np.minimum(seconds[rows], pools.lifetime_s[p])
        out[rows] = mean_hazard(pools.hazards[p], alive / HOUR_S)
    return out


def _share_at(
    problem: Problem,
    mode: Mode,
    job: Ints,
    pool: Ints,
    gpus: Ints,
    work_s: Floats,
    hazard: Floats,
) -> Floats:
    """Return phi of options in one mode, (n,), at `hazard` (n,) revocations per GPU-hour."""
    jobs = problem.jobs
    pools = problem.pools
    spot = pools.market[pool] == Market.SPOT
    lifetime_s = np.where(spot, pools.lifetime_s[pool], np.inf)
    delta, every, again = (
        x[job] for x in (jobs.checkpoint_s, jobs.checkpoint_every_s, jobs.restart_s)
    )
    away_s = pools.startup_s[pool]
    share = useful_fraction(
        gpus.astype(np.float64),
        hazard,
        checkpoint_s=delta,
        checkpoint_every_s=every,
        replace_s=away_s + again,
        lifetime_s=lifetime_s,
        synchronous=mode.kind != "asynchronous",
        work_s=work_s,
    )
    simple = np.isinf(lifetime_s) & ~pools.is_ageing[pool]
    spared = np.flatnonzero(mode.has_spares & simple & (hazard > 0))
    for p, n, rows in _places(pool[spared], gpus[spared]):
        if not mode.admits(n):
            continue
        at = spared[rows]
        per_s = float(hazard[at[0]]) / HOUR_S
        left, stops = long_run(
            mode, n, float(pools.straggler_cv[p]), per_s, float(pools.startup_s[p])
        )
        given = every[at]
        tau = np.where(np.isnan(given), best_interval_s(stops, delta[at]), given)
        share[at] = left * synchronous_share(stops, delta[at], tau, again[at])
    return share


def _paces(problem: Problem, mode: Mode, pool: Ints, gpus: Ints) -> Floats:
    """Return the pace of a mode at each place, (n,), 0 where it does not admit the workers."""
    out = np.zeros(len(pool))
    for p, n, rows in _places(pool, gpus):
        if mode.admits(n):
            out[rows] = pace(mode, n, float(problem.pools.straggler_cv[p]))
    return out


def _places(pool: Ints, gpus: Ints) -> Iterator[tuple[int, int, Ints]]:
    """Yield every pool and size with the options (k,) there."""
    key = pool * SIZES + gpus
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(begins_run(key[order]))
    for options in np.split(order, first[1:]) if len(order) else ():
        yield int(pool[options[0]]), int(gpus[options[0]]), options


def useful_share(problem: Problem, job: Ints, pool: Ints, gpus: Ints, rate: Floats) -> Floats:
    """Return the expected share phi of the speed that options keep beside what they lose, (n,).

    They lose time by revocations and by the writing of checkpoints. The inputs are the hazard and
    lifetime_s of the pool, startup_s and restart_s as the time to replace a worker, and the job's
    checkpoints (without them: the best interval); see formulations/transient/lifetimes.py. rate
    (n,) is the work per second without losses. It determines how many lifetimes of new servers the
    rest of the job takes. The result is at least LEAST.
    """
    jobs = problem.jobs
    pools = problem.pools
    out = np.ones(len(job))
    saves = (jobs.checkpoint_s > 0) & ~np.isnan(jobs.checkpoint_every_s)
    if not (pools.is_lossy.any() or saves.any()):
        return out
    at = np.flatnonzero(pools.is_lossy[pool] | saves[job])
    job, pool, gpus = job[at], pool[at], gpus[at]
    work_s = jobs.remaining_work[job] / np.maximum(rate[at], 1e-300)
    chosen = choose_modes(problem, job, pool, gpus)
    for k in np.unique(chosen.which).tolist():
        rows = np.flatnonzero(chosen.which == k)
        out[at[rows]] = mode_share(
            problem, chosen.modes[k], job[rows], pool[rows], gpus[rows], work_s[rows]
        )
    return np.maximum(out, LEAST)


def restart_s(
    problem: Problem, job: Ints, pool: Ints, gpus: Ints, held: Ints | None = None
) -> Floats:
    """Return the seconds that jobs lose when they change to gpus of pool, (n,), without start-up.

    held (n,) are the GPUs that they change from; the default is what they hold. 0 means none, and
    no row counts.
    """
    restart = problem.jobs.restart_s[job]
    if not len(problem.pauses.pause_s):
        return restart
    before = problem.jobs.gpus[job] if held is None else held
    pause_s = problem.pauses.look_up(
        problem.jobs.model[job], problem.pools.gpu_type[pool], before, gpus
    )
    return np.where(np.isnan(pause_s), restart, pause_s)
