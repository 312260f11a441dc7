"""Free capacity under every hard rule while a plan is filled job by job.

`keeps_rules` checks whether a complete plan keeps all rules. Heuristics read single numbers
thousands of times in a round. They read them through `array.data`, whose items are plain Python
numbers. That costs a tenth of numpy scalars, and options that are never read are not converted.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable

import numpy as np

from allocator.domain.problem import State
from allocator.options.instance_building import CompiledRound
from allocator.policies.kept import KeptGpusLeft, leaves_kept_gpus
from formulations.model.instance import Instance
from formulations.model.linear import Floats, Ints

ROUNDING = 1e-9  # GPUs that sums of shares may miss by
_NONE: set[int] = set()


class FreeCapacity:
    """What is left under every `at most` rule and the limit on changes, and the plan so far.

    The limit on changes counts only if the plan starts from another plan. A plan from nothing is
    checked when it is complete.

    Attributes
    ----------
    choice : (J,)
        Columns of the round's instance, -1 = nothing.
    free : (P,)
        Free GPUs.
    owed : (K,)
        GPUs that a guarantee still lacks (negative: above it). A job never gives up GPUs that its
        tenant is owed.
    """

    def __init__(self, round_: CompiledRound, start: Ints | None = None) -> None:
        i = round_.instance
        J = len(i.mandatory)
        P = len(i.capacity)
        self.choice: Ints = np.full(J, -1) if start is None else start.copy()
        job = np.flatnonzero(self.choice >= 0)
        held = self.choice[job]
        gpus = i.usage(held, i.held[held])
        cost = i.cost[held]
        load = np.bincount(i.pool[held], i.load[held], P)
        self.free: list[float] = (
            i.capacity - (load if i.share is not None else load.astype(np.int64))
        ).tolist()
        self._load = i.load.data
        self.owed: list[int] = (i.guarantee - gpus.astype(np.int64)).tolist()
        self._quota: list[float] = (i.quota - gpus).tolist()
        self._budget = float(i.budget) - float(cost.sum())
        self._tenant_budget: list[float] = (i.tenant_budget - i.usage(held, cost)).tolist()
        self._accounts = [np.ascontiguousarray(row).data for row in i.account]
        self._exposed = i.exposed.data
        self._exposure: list[float] = _remaining_exposure(i, held).tolist()
        self._now = self.choice.data
        self._kept = KeptGpusLeft(i, held) if i.kept else None
        self._pool = i.pool.data
        self._gpus = i.held.data
        self._cost = i.cost.data
        self._keep = i.keep.data
        self._colocation = _ColocationRules(i, self.choice)
        running = round_.problem.jobs.state == State.RUNNING
        limit = round_.repairs.max_changes
        limited = limit >= 0 and start is not None
        self._counts = (running & limited).data
        self._changes = limit - int(running.sum()) + int(i.keep[held].sum()) if limited else J

    def assign(self, j: int, o: int) -> bool:
        """Give job j the option o instead of its present one.

        Return False, without a change, on a conflict.
        """
        old = self._now[j]
        if old == o:
            return o >= 0
        if not self._colocation.allows(old, o):
            return False
        if old >= 0:
            taken = self._replace(j, old, o)
        else:
            pool = self._pool[o]
            load = self._load[o]
            taken = load <= self.free[pool] + ROUNDING and self.can_afford(j, o)
            if taken:
                self._changes += self._keep[o] if self._counts[j] else 0
                self.free[pool] -= load
                self._replace_usage(j, -1, o)
        if taken:
            self._colocation.change(old, o)
        return taken

    def can_afford(self, j: int, o: int) -> bool:
        """Return whether quota and budgets allow option o of a job that has nothing.

        GPUs of the pool are not checked.
        """
        zone = self._exposed[o]
        return bool(
            (zone < 0 or self._gpus[o] <= self._exposure[zone])
            and _is_within(self._cost[o], self._budget)
            and self._keeps_quotas(-1, o)
            and (self._kept is None or self._kept.allows(-1, o))
        )

    def owes(self, o: int) -> bool:
        """Return whether option o counts for a guarantee that is not met."""
        return any(row[o] >= 0 and self.owed[row[o]] > 0 for row in self._accounts)

    def needs(self, o: int) -> bool:
        """Return whether a guarantee would not be met without option o of the plan."""
        gpus = self._gpus[o]
        return any(row[o] >= 0 and self.owed[row[o]] > -gpus for row in self._accounts)

    def _keeps_quotas(self, old: int, o: int) -> bool:
        """Return whether quotas allow option o in place of old (-1 = nothing).

        No GPUs are given up that a guarantee needs.
        """
        gpus = self._gpus[o]
        cost = self._cost[o]
        for row in self._accounts:
            k = row[o]
            before = -1 if old < 0 else row[old]
            if before >= 0 and before != k and self.owed[before] > -self._gpus[old]:
                return False
            if k < 0:
                continue
            extra = gpus - self._gpus[old] if before == k else gpus
            dollars = cost - self._cost[old] if before == k else cost
            if (
                extra > self._quota[k]
                or not _is_within(dollars, self._tenant_budget[k])
                or (extra < 0 and self.owed[k] > extra)
            ):
                return False
        return True

    def _replace(self, j: int, old: int, o: int) -> bool:
        pool = self._pool[o]
        before = self._pool[old]
        extra = self._gpus[o] - self._gpus[old]
        changes = self._keep[o] - self._keep[old] if self._counts[j] else 0
        load = self._load[o] - (self._load[old] if pool == before else 0)
        zone = self._exposed[o]
        previous_zone = self._exposed[old]
        if (
            load > self.free[pool] + ROUNDING
            or self._changes + min(0, changes) < 0
            or (
                zone >= 0
                and (extra if zone == previous_zone else self._gpus[o]) > self._exposure[zone]
            )
            or not _is_within(self._cost[o] - self._cost[old], self._budget)
            or not self._keeps_quotas(old, o)
            or (self._kept is not None and not self._kept.allows(old, o))
        ):
            return False
        self._changes += changes
        self.free[before] += self._load[old]
        self.free[pool] -= self._load[o]
        self._replace_usage(j, old, o)
        return True

    def _replace_usage(self, j: int, old: int, o: int) -> None:
        """Count option o of job j in place of old in all limits but the GPUs of pools."""
        for option, sign in ((old, -1), (o, 1)):
            if option >= 0:
                self._deduct_usage(option, sign * self._gpus[option], sign * self._cost[option])
        if self._kept is not None:
            self._kept.replace_option(self._now[j], o)
        self._now[j] = o

    def _deduct_usage(self, o: int, gpus: int, cost: float) -> None:
        self._budget -= cost
        for row in self._accounts:
            k = row[o]
            if k >= 0:
                self._quota[k] -= gpus
                self.owed[k] -= gpus
                self._tenant_budget[k] -= cost
        if self._exposed[o] >= 0:
            self._exposure[self._exposed[o]] -= gpus

    def copy(self) -> FreeCapacity:
        """Return the same state with a plan of its own."""
        other = copy.copy(self)
        other.choice = self.choice.copy()
        other._now = other.choice.data
        other.free, other.owed = list(self.free), list(self.owed)
        other._quota, other._exposure = list(self._quota), list(self._exposure)
        other._tenant_budget = list(self._tenant_budget)
        other._kept = None if self._kept is None else self._kept.copy()
        other._colocation = self._colocation.copy()
        return other

    def withdraw(self, j: int) -> bool:
        """Take from job j what it has; return False, without a change, if a rule forbids it."""
        old = self._now[j]
        if old < 0:
            return True
        lost = self._keep[old] if self._counts[j] else 0
        if self._changes < lost or self.needs(old) or not self._colocation.allows(old, -1):
            return False
        self._changes -= lost
        self.free[self._pool[old]] += self._load[old]
        self._replace_usage(j, old, -1)
        self._colocation.change(old, -1)
        return True

    def has_secondary(self, o: int) -> bool:
        """Return whether a job runs on the GPUs of option o of the plan."""
        return self._colocation.has_secondary(o)

    def assign_first(self, j: int, options: Iterable[int]) -> bool:
        """Give job j the first of the options that fits; return False if none does."""
        return any(self.assign(j, o) for o in options)


class _ColocationRules:
    """Rules of colocation while a plan is filled.

    A secondary job needs its primary job's option and is the only one there; an option and its
    conflicting option exclude each other. Nothing is checked if no option is that of a secondary
    job.
    """

    def __init__(self, i: Instance, choice: Ints) -> None:
        self._has_colocation = bool((i.primary >= 0).any() or (i.conflicting_option >= 0).any())
        if not self._has_colocation:
            return
        self._primaries: dict[int, set[int]] = {}
        for o, primary in zip(*(x.tolist() for x in i.colocations), strict=True):
            self._primaries.setdefault(o, set()).add(primary)
        self._excluded: dict[int, set[int]] = {}
        for o, other in zip(*(x.tolist() for x in i.takeovers), strict=True):
            self._excluded.setdefault(o, set()).add(other)
            self._excluded.setdefault(other, set()).add(o)
        self._chosen = {int(o) for o in choice[choice >= 0]}
        self._taken_primaries = set[int]().union(*map(self._needed, self._chosen))

    def has_secondary(self, o: int) -> bool:
        """Return whether a job runs on the GPUs of option o of the plan."""
        return self._has_colocation and o in self._taken_primaries

    def _needed(self, o: int) -> set[int]:
        """Return the options of primary jobs that an option needs."""
        return self._primaries.get(o, _NONE)

    def copy(self) -> _ColocationRules:
        """Return the same rules with a plan of their own."""
        other = copy.copy(self)
        if self._has_colocation:
            other._chosen, other._taken_primaries = set(self._chosen), set(self._taken_primaries)
        return other

    def allows(self, old: int, o: int) -> bool:
        """Return whether a job may go from option old to o (-1 = nothing)."""
        if not self._has_colocation or o < 0:
            return not self._has_colocation or old not in self._taken_primaries
        primaries = self._needed(o)
        return (
            old not in self._taken_primaries
            and primaries <= self._chosen
            and primaries.isdisjoint(self._taken_primaries)
            and self._chosen.isdisjoint(self._excluded.get(o, _NONE))
        )

    def change(self, old: int, o: int) -> None:
        """Record that a job went from old to o (-1 = nothing)."""
        if self._has_colocation:
            self._chosen.discard(old)
            self._taken_primaries -= self._needed(old)
            if o >= 0:
                self._chosen.add(o)
            self._taken_primaries |= self._needed(o)


def _remaining_exposure(i: Instance, held: Ints) -> Floats:
    """Return the GPUs that each tenant may still get in each zone, (Q Z,)."""
    zone = i.exposed[held]
    limit = np.repeat(i.exposure, len(i.zones))
    on = zone >= 0
    return np.asarray(limit - np.bincount(zone[on], i.held[held][on], len(limit)))


def _is_within(cost: float, left: float) -> bool:
    """Return whether a cost is at most what is left, apart from rounding."""
    return cost <= left or cost <= left + 1e-9 * max(1.0, abs(left))


def keeps_rules(i: Instance, choice: Ints, guarantees: bool = True) -> bool:
    """Return whether a choice (J,) keeps every hard rule, without building the model.

    With guarantees=False guarantees are not checked.
    """
    job = np.flatnonzero(choice >= 0)
    held = choice[job]
    if (i.mandatory & (choice < 0)).any() or (i.job[held] != job).any():
        return False
    gpus = i.usage(held, i.held[held])
    cost = i.cost[held]
    if (i.primary[held] >= 0).any() or (i.conflicting_option[held] >= 0).any():
        on = np.isin(np.arange(len(i.job)), held)
        secondary, primary = i.colocations
        primary = primary[on[secondary]]
        option, other = i.takeovers
        if (
            not on[primary].all()
            or len(np.unique(primary)) < len(primary)
            or (on[option] & on[other]).any()
        ):
            return False
    return bool(
        (np.bincount(i.pool[held], i.load[held], len(i.capacity)) <= i.capacity + ROUNDING).all()
        and _is_within(math.fsum(cost), i.budget)
        and (gpus <= i.quota).all()
        and (
            i.usage(held, cost)
            <= i.tenant_budget
            + 1e-9 * np.maximum(1.0, np.where(np.isfinite(i.tenant_budget), i.tenant_budget, 1.0))
        ).all()
        and (_remaining_exposure(i, held) >= 0).all()
        and leaves_kept_gpus(i, held)
        and (not guarantees or (gpus >= i.guarantee).all())
        and i.keep[held].sum() >= i.least_kept
    )
