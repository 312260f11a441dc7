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
from allocator.policies.kept import HeadroomLeft, keeps_headroom
from formulations.model.instance import Instance
from formulations.model.linear import Floats, Ints

ROUNDING = 1e-9  # GPUs that sums of shares may miss by


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
    owed : (Q,)
        GPUs that the guarantee of a tenant still lacks (negative: above it). A job never gives up
        GPUs that its tenant is owed.
    """

    def __init__(self, round_: CompiledRound, start: Ints | None = None) -> None:
        i = round_.instance
        J, P, Q = len(i.mandatory), len(i.capacity), len(i.quota)
        self.choice: Ints = np.full(J, -1) if start is None else start.copy()
        job = np.flatnonzero(self.choice >= 0)
        held = self.choice[job]
        gpus, cost, tenant = i.held[held], i.cost[held], i.tenant[job]
        load = np.bincount(i.pool[held], i.load[held], P)
        self.free: list[float] = (
            i.capacity - (load if i.share is not None else load.astype(np.int64))
        ).tolist()
        self._load = i.load.data
        self.owed: list[int] = (
            i.guarantee - np.bincount(tenant, gpus, Q).astype(np.int64)
        ).tolist()
        self._quota: list[float] = (i.quota - np.bincount(tenant, gpus, Q)).tolist()
        self._budget = float(i.budget) - float(cost.sum())
        self._tenant_budget: list[float] = (i.tenant_budget - np.bincount(tenant, cost, Q)).tolist()
        self._exposed = i.exposed.data
        self._exposure: list[float] = _remaining_exposure(i, held).tolist()
        self._tenant, self._now = i.tenant.data, self.choice.data
        self._headroom = None if i.headroom is None else HeadroomLeft(i, held)
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
            gpus, pool, load = self._gpus[o], self._pool[o], self._load[o]
            taken = load <= self.free[pool] + ROUNDING and self.can_afford(j, o)
            if taken:
                self._changes += self._keep[o] if self._counts[j] else 0
                self.free[pool] -= load
                self._deduct_usage(j, self._tenant[j], o, gpus, self._cost[o])
        if taken:
            self._colocation.change(old, o)
        return taken

    def can_afford(self, j: int, o: int) -> bool:
        """Return whether quota and budgets allow option o of a job that has nothing.

        GPUs of the pool are not checked.
        """
        q, cost = self._tenant[j], self._cost[o]
        zone = self._exposed[o]
        return bool(
            self._gpus[o] <= self._quota[q]
            and (zone < 0 or self._gpus[o] <= self._exposure[zone])
            and _is_within(cost, self._budget)
            and _is_within(cost, self._tenant_budget[q])
            and (self._headroom is None or self._headroom.allows(-1, o))
        )

    def _replace(self, j: int, old: int, o: int) -> bool:
        q, pool, before = self._tenant[j], self._pool[o], self._pool[old]
        extra, cost = self._gpus[o] - self._gpus[old], self._cost[o] - self._cost[old]
        changes = self._keep[o] - self._keep[old] if self._counts[j] else 0
        load = self._load[o] - (self._load[old] if pool == before else 0)
        zone, previous_zone = self._exposed[o], self._exposed[old]
        if (
            load > self.free[pool] + ROUNDING
            or extra > self._quota[q]
            or self._changes + min(0, changes) < 0
            or (
                zone >= 0
                and (extra if zone == previous_zone else self._gpus[o]) > self._exposure[zone]
            )
            or not _is_within(cost, self._budget)
            or not _is_within(cost, self._tenant_budget[q])
            or (extra < 0 and self.owed[q] > extra)
            or (self._headroom is not None and not self._headroom.allows(old, o))
        ):
            return False
        self._changes += changes
        self.free[before] += self._load[old]
        if previous_zone >= 0:
            self._exposure[previous_zone] += self._gpus[old]
        self.free[pool] -= self._load[o]
        self._deduct_usage(j, q, o, extra, cost)
        return True

    def _deduct_usage(self, j: int, q: int, o: int, gpus: int, cost: float) -> None:
        self._quota[q] -= gpus
        self.owed[q] -= gpus
        self._budget -= cost
        self._tenant_budget[q] -= cost
        if o >= 0 and self._exposed[o] >= 0:
            self._exposure[self._exposed[o]] -= self._gpus[o]
        if self._headroom is not None:
            self._headroom.replace_option(self._now[j], o)
        self._now[j] = o

    def copy(self) -> FreeCapacity:
        """Return the same state with a plan of its own."""
        other = copy.copy(self)
        other.choice = self.choice.copy()
        other._now = other.choice.data
        other.free, other.owed = list(self.free), list(self.owed)
        other._quota, other._exposure = list(self._quota), list(self._exposure)
        other._tenant_budget = list(self._tenant_budget)
        other._headroom = None if self._headroom is None else self._headroom.copy()
        other._colocation = self._colocation.copy()
        return other

    def withdraw(self, j: int) -> bool:
        """Take from job j what it has; return False, without a change, if a rule forbids it."""
        old = self._now[j]
        if old < 0:
            return True
        lost = self._keep[old] if self._counts[j] else 0
        if (
            self._changes < lost
            or self.owed[self._tenant[j]] > -self._gpus[old]
            or not self._colocation.allows(old, -1)
        ):
            return False
        self._changes -= lost
        self.free[self._pool[old]] += self._load[old]
        if self._exposed[old] >= 0:
            self._exposure[self._exposed[old]] += self._gpus[old]
        self._deduct_usage(j, self._tenant[j], -1, -self._gpus[old], -self._cost[old])
        self._colocation.change(old, -1)
        return True

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
        self._primary, self._conflicting_option = i.primary.tolist(), i.conflicting_option.tolist()
        self._conflicting_options = {r: o for o, r in enumerate(self._conflicting_option) if r >= 0}
        self._chosen = {int(o) for o in choice[choice >= 0]}
        self._taken_primaries = {self._primary[o] for o in self._chosen if self._primary[o] >= 0}

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
        primary = self._primary[o]
        return (
            old not in self._taken_primaries
            and (primary < 0 or (primary in self._chosen and primary not in self._taken_primaries))
            and self._conflicting_option[o] not in self._chosen
            and self._conflicting_options.get(o) not in self._chosen
        )

    def change(self, old: int, o: int) -> None:
        """Record that a job went from old to o (-1 = nothing)."""
        if self._has_colocation:
            self._chosen.discard(old)
            if old >= 0:
                self._taken_primaries.discard(self._primary[old])
            if o >= 0:
                self._chosen.add(o)
            if o >= 0 and self._primary[o] >= 0:
                self._taken_primaries.add(self._primary[o])


def _remaining_exposure(i: Instance, held: Ints) -> Floats:
    """Return the GPUs that each tenant may still get in each zone, (Q Z,)."""
    zone, limit = i.exposed[held], np.repeat(i.exposure, len(i.zones))
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
    gpus, cost, tenant = i.held[held], i.cost[held], i.tenant[job]
    primary, conflicting_option = i.primary[held], i.conflicting_option[held]
    if (primary >= 0).any() or (conflicting_option >= 0).any():
        primary, on = primary[primary >= 0], np.append(np.isin(np.arange(len(i.job)), held), False)
        if (
            not on[primary].all()
            or len(np.unique(primary)) < len(primary)
            or on[conflicting_option].any()
        ):
            return False
    Q = len(i.quota)
    of_tenant = np.bincount(tenant, gpus, Q)
    return bool(
        (np.bincount(i.pool[held], i.load[held], len(i.capacity)) <= i.capacity + ROUNDING).all()
        and _is_within(math.fsum(cost), i.budget)
        and (of_tenant <= i.quota).all()
        and (
            np.bincount(tenant, cost, Q)
            <= i.tenant_budget
            + 1e-9 * np.maximum(1.0, np.where(np.isfinite(i.tenant_budget), i.tenant_budget, 1.0))
        ).all()
        and (_remaining_exposure(i, held) >= 0).all()
        and keeps_headroom(i, held)
        and (not guarantees or (of_tenant >= i.guarantee).all())
        and i.keep[held].sum() >= i.least_kept
    )
