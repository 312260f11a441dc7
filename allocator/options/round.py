"""One round, compiled: from a Problem to the model that policies and solvers work on, and from a choice back.

    Problem -> Menu (with options of guests) -> Repairs -> Instance (dominated options removed) -> LinearModel
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from allocator.domain.allocation import Allocation, Repairs
from allocator.domain.problem import Ints, Problem, State
from allocator.options.guests import Guests, option_at, with_guests
from allocator.options.headroom import of_options
from allocator.options.menu import Menu, menu
from allocator.options.repairs import must_run, repairs
from allocator.performance.sizes import believed
from allocator.performance.table import RateTable
from formulations.assignment import formulate
from formulations.dominance import needed
from formulations.instance import Instance
from formulations.linear import LinearModel


@dataclass(frozen=True)
class Round:
    """Everything a policy may look at. Columns of `instance` and `model` are the options `option` of `menu`.

    option (n,): index into menu. A choice is (J,) columns, -1 = nothing.
    """

    problem: Problem
    menu: Menu
    repairs: Repairs
    instance: Instance
    option: Ints

    @cached_property
    def model(self) -> LinearModel:
        """The round's MIP, made when it is first asked for."""
        return formulate(self.instance)

    def allocation(self, choice: Ints) -> Allocation:
        """The choice as pools, sizes and rate rows."""
        m, o = self.menu, self.chosen(choice)
        row, host = np.append(m.row, -1)[o], np.append(m.host, -1)[o]
        guest = np.flatnonzero(host >= 0)
        row[host[guest]] = m.host_row[o[guest]]
        return Allocation(np.append(m.pool, -1)[o], np.append(m.gpus, 0)[o], row, host)

    def chosen(self, choice: Ints) -> Ints:
        """The choice (J,) as options of the whole menu, -1 = nothing."""
        return np.append(self.option, -1)[choice]

    def stay(self) -> Ints:
        """The choice that changes nothing: running jobs keep, all others wait; -1 too where keeping is impossible.

        Guests stay with their host; where they cannot, they keep the GPUs themselves."""
        i = self.instance
        choice = np.full(len(self.problem.jobs), -1)
        kept = np.flatnonzero(i.keep)
        present = np.append(i.job, -1)[i.host[kept]] == self.problem.jobs.host[i.job[kept]]
        kept = kept[np.argsort(present, kind="stable")]                 # the last of a job counts
        choice[i.job[kept]] = kept
        return choice

    def insisting(self, job: int, columns: Ints) -> Round:
        """The round in which `job` must get one of `columns`, and nothing else is changed."""
        i = self.instance
        stays = (i.job != job) | np.isin(np.arange(len(i.job)), columns)
        stays[i.host >= 0] &= stays[i.host[i.host >= 0]]                # guests go with their hosts
        must = i.must.copy()
        must[job] = True
        forced = replace(i.take(np.flatnonzero(stays)), must=must)
        return replace(self, instance=forced, option=self.option[stays])


def compile_round(problem: Problem, prunes: bool = True, shares: Guests = Guests.WORTHWHILE) -> Round:
    """Build the round: menu, repairs, instance, model. Pure and deterministic.

    prunes: leave out options that no best plan needs (formulations/dominance); baselines that follow other rules
    than the objective, and the analysis of conflicts, look at all of them. shares: which guests are offered, where
    pools let jobs share. The round's problem has the sizes that are believed where they are not known.
    """
    problem = believed(problem)
    table = RateTable.of(problem)
    ordinary = menu(problem, table)
    full = with_guests(problem, ordinary, table, shares)
    mended = repairs(problem, full)
    whole = _instance(problem, full, mended)
    option = np.flatnonzero(needed(whole)) if prunes else np.arange(len(full))
    pruned = whole if len(option) == len(full) else whole.take(option)
    return Round(problem, full, mended, pruned, option)


def _instance(problem: Problem, full: Menu, mended: Repairs) -> Instance:
    jobs, tenants = problem.jobs, problem.tenants
    running = int((jobs.state == State.RUNNING).sum())
    least_kept = 0 if mended.max_changes < 0 else max(0, running - mended.max_changes)
    must = must_run(problem, full, mended.released)
    host, guest = np.full(len(full), -1), np.flatnonzero(full.host >= 0)
    host[guest] = option_at(full, full.host[guest], full.pool[guest], full.gpus[guest])
    rival, heir = np.full(len(full), -1), np.flatnonzero(full.keep & (full.host < 0) & (jobs.host[full.job] >= 0))
    rival[heir] = option_at(full, jobs.host[full.job[heir]], full.pool[heir], full.gpus[heir])
    return Instance(
        value=full.value, start=full.start, job=full.job, pool=full.pool, gpus=full.gpus, cost=full.cost,
        keep=full.keep, host=host, rival=rival, must=must, tenant=jobs.tenant,
        capacity=problem.pools.gpus, budget=problem.budget_per_hour, quota=tenants.max_gpus,
        tenant_budget=tenants.budget_per_hour, guarantee=mended.usable,
        zone=problem.pools.zone, exposure=tenants.exposure, least_kept=least_kept,
        jobs=jobs.job_id, pools=problem.pools.pool, tenants=tenants.tenant, zones=problem.pools.zones,
        headroom=of_options(problem, must, full.job, np.where(full.host < 0, full.gpus, 0)))
