"""One round, compiled: from a Problem to the model that policies and solvers work on, and from a
choice back.

    Problem -> Menu (with options of guests) -> Repairs -> Instance (dominated options removed) ->
    LinearModel

Where jobs may share GPUs, a small round offers every pair. A large one begins with the pairs that
the prices of the round without them call best, and keeps the means to price all others
(`Round.rest`, colocation.py): who decides it adds those that are missing (policies/pairs.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from allocator.domain.allocation import Allocation, Repairs
from allocator.domain.problem import Floats, Ints, Isolation, Problem, State
from allocator.options.colocation import Colocations, colocations
from allocator.options.guests import Guests, Pairs, option_at, with_guests
from allocator.options.headroom import of_options
from allocator.options.menu import Menu, menu
from allocator.options.repairs import must_run, repairs
from allocator.options.residents import every
from allocator.performance.sizes import believed
from allocator.performance.table import RateTable
from formulations.assignment import formulate
from formulations.choices import choices
from formulations.dominance import needed
from formulations.instance import Instance
from formulations.linear import AT_MOST_ONE, GUEST, LinearModel
from formulations.pairing import best_prices

LISTED = 4000  # pairs of options up to which a round offers them all
# relative distance of the bound to the value at the prices that choose the first pairs
ROUGH = 1e-2


@dataclass(frozen=True)
class Round:
    """Everything a policy may look at. Columns of `instance` and `model` are the options `option`
    of `menu`.

    option (n,): index into menu. A choice is (J,) columns, -1 = nothing. rest: the pairs that are
    not among the options, None where all are or nobody asks for more. covers: whether options and
    rest are all that the rules allow.
    """

    problem: Problem
    menu: Menu
    repairs: Repairs
    instance: Instance
    option: Ints
    rest: Rest | None = None
    covers: bool = True

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
        """The choice that changes nothing: running jobs keep, all others wait; -1 too where keeping
        is impossible.

        Guests stay with their host; where they cannot, they keep the GPUs themselves."""
        i = self.instance
        choice = np.full(len(self.problem.jobs), -1)
        kept = np.flatnonzero(i.keep)
        present = np.append(i.job, -1)[i.host[kept]] == self.problem.jobs.host[i.job[kept]]
        kept = kept[np.argsort(present, kind="stable")]  # the last of a job counts
        choice[i.job[kept]] = kept
        return choice

    def staying(self, choice: Ints) -> Ints:
        """The choice in which a job that would leave its host's GPUs for as many others of the pool
        keeps them where the host leaves them itself: nobody would move it."""
        jobs, i = self.problem.jobs, self.instance
        own = np.flatnonzero((choice >= 0) & (jobs.host >= 0))
        at = choice[own]
        own = own[
            ~i.keep[at]
            & (i.host[at] < 0)
            & (i.pool[at] == jobs.pool[own])
            & (i.gpus[at] == jobs.gpus[own])
        ]
        if not len(own):
            return choice
        kept = np.flatnonzero(i.keep & (i.host < 0) & np.isin(i.job, own))
        free = kept[~np.isin(i.rival[kept], choice[choice >= 0])]
        out = choice.copy()
        out[i.job[free]] = free
        return out

    def insisting(self, job: int, columns: Ints) -> Round:
        """The round in which `job` must get one of `columns`, and nothing else is changed."""
        i = self.instance
        stays = (i.job != job) | np.isin(np.arange(len(i.job)), columns)
        stays[i.host >= 0] &= stays[i.host[i.host >= 0]]  # guests go with their hosts
        must = i.must.copy()
        must[job] = True
        forced = replace(i.take(np.flatnonzero(stays)), must=must)
        return replace(self, instance=forced, option=self.option[stays], rest=None, covers=False)


@dataclass(frozen=True)
class Rest:
    """All pairs of a round, and those of them that it offers: host, guest (k,), ordinary
    options.
    """

    pairs: Colocations
    host: Ints
    guest: Ints
    ordinary: Menu
    table: RateTable
    prunes: bool
    start: Floats | None = None

    def prices(self, model: LinearModel) -> Floats | None:
        """(m,) prices to start from: those of the round without pairs."""
        if self.start is None:
            return None
        out, shared = np.zeros(model.m), next(f.first for f in model.families if f.kind == GUEST)
        out[:shared] = self.start[:shared]
        return out

    def names(self, also: tuple[Ints, Ints]) -> tuple[Rest, Pairs]:
        """With these pairs, too, as (host, guest, pool, gpus)."""
        m, n = self.ordinary, len(self.ordinary) + 1
        key = np.unique(np.append(self.host, also[0]) * n + np.append(self.guest, also[1]))
        host, guest = key // n, key % n
        return replace(self, host=host, guest=guest), (
            m.job[host],
            m.job[guest],
            m.pool[host],
            m.gpus[host],
        )

    def reduced(self, round_: Round, prices: Floats) -> Floats:
        """(n,) of the ordinary options: value less the prices (m,) of what they use, the right to a
        guest aside; -inf where the option is not in the round."""
        model = round_.model
        p = prices.copy()
        for family in model.families:
            if family.kind in (AT_MOST_ONE, GUEST):
                p[family.first : family.stop] = 0.0
        own = np.bincount(model.entry_column, model.coef * p[model.index], minlength=model.n)
        m = self.ordinary
        at = option_at(round_.menu, m.job, m.pool, m.gpus)
        column = np.full(len(round_.menu), -1)
        column[round_.option] = np.arange(len(round_.option))
        of_option: Floats = np.append(model.value - own, -np.inf)[column[at]]
        return of_option


def compile_round(
    problem: Problem,
    prunes: bool = True,
    shares: Guests = Guests.WORTHWHILE,
    also: Pairs | None = None,
) -> Round:
    """Build the round: menu, repairs, instance, model. Pure and deterministic.

    prunes: leave out options that no best plan needs (formulations/dominance); baselines that
    follow other rules than the objective, and the analysis of conflicts, look at all of them.
    shares: which guests are offered, where pools let jobs share. also: pairs that a large round
    must offer, those of a plan for example. The round's problem has the sizes that are believed
    where they are not known.
    """
    problem = believed(problem)
    table = RateTable.of(problem)
    ordinary = menu(problem, table)
    none = (np.zeros(0, np.int64),) * 4
    if not may_share(problem):
        return _compiled(problem, table, ordinary, prunes, shares, none)
    if shares != Guests.WORTHWHILE:
        pairs = every(problem, ordinary) if shares == Guests.ALL else none
        return replace(_compiled(problem, table, ordinary, prunes, shares, pairs), covers=False)
    whole = colocations(problem, ordinary, table)
    rest = Rest(whole, none[0], none[0], ordinary, table, prunes)
    if whole.count <= LISTED:
        return _compiled(problem, table, ordinary, prunes, shares, rest.names(whole.listed())[1])
    alone = _compiled(problem, table, ordinary, True, Guests.RUNNING, none, whole.hosts)
    dual = best_prices(choices(alone.model), close=ROUGH)
    best = whole.price(rest.reduced(alone, dual.prices), dual.reduced)
    round_ = with_pairs(
        replace(alone, rest=replace(rest, start=dual.prices)), best.host, best.guest
    )
    if also is None or not len(also[0]):
        return round_
    at = [option_at(ordinary, job, also[2], also[3]) for job in also[:2]]
    return with_pairs(round_, *at)


def may_share(problem: Problem) -> bool:
    """Whether any two jobs may get the same GPUs."""
    return bool((problem.pools.sharing != Isolation.NONE).any()) and len(problem.sharing.gpus) > 0


def with_pairs(round_: Round, host: Ints, guest: Ints) -> Round:
    """The round with more pairs, by their ordinary options."""
    assert round_.rest is not None
    rest, pairs = round_.rest.names((host, guest))
    new = _compiled(
        round_.problem,
        rest.table,
        rest.ordinary,
        rest.prunes,
        Guests.WORTHWHILE,
        pairs,
        rest.pairs.hosts,
    )
    return replace(new, rest=rest)


def same_columns(old: Round, choice: Ints, new: Round) -> Ints:
    """Columns (k,) of one round, -1 = nothing, in those of another, which has at least its
    options.
    """
    taken = choice >= 0
    span = int(max(old.menu.gpus.max(initial=0), new.menu.gpus.max(initial=0))) + 1
    a, b = (
        _numbers(r.menu, r.option, len(r.problem.jobs), len(r.problem.pools), span)
        for r in (old, new)
    )
    order = np.argsort(b, kind="stable")
    out = choice.copy()
    out[taken] = order[np.searchsorted(b[order], a[choice[taken]])]
    return out


def _numbers(m: Menu, option: Ints, jobs: int, pools: int, span: int) -> Ints:
    """A number for each of these options by what it is: job, pool, GPUs, whose GPUs, and whether
    it is kept.
    """
    place = (m.job * pools + m.pool) * span + m.gpus
    return ((place * (jobs + 1) + m.host + 1) * 2 + m.keep)[option]


def _compiled(
    problem: Problem,
    table: RateTable,
    ordinary: Menu,
    prunes: bool,
    shares: Guests,
    pairs: Pairs,
    hosts: Ints | None = None,
) -> Round:
    """hosts: ordinary options that are never left out, as pairs may be added to them."""
    full = with_guests(problem, ordinary, table, shares, pairs)
    mended = repairs(problem, full)
    whole = _instance(problem, full, mended)
    may_host = np.zeros(len(full), dtype=bool)
    if hosts is not None:
        may_host[
            option_at(full, ordinary.job[hosts], ordinary.pool[hosts], ordinary.gpus[hosts])
        ] = True
    option = np.flatnonzero(needed(whole, may_host)) if prunes else np.arange(len(full))
    pruned = whole if len(option) == len(full) else whole.take(option)
    return Round(problem, full, mended, pruned, option)


def _instance(problem: Problem, full: Menu, mended: Repairs) -> Instance:
    jobs, tenants = problem.jobs, problem.tenants
    running = int((jobs.state == State.RUNNING).sum())
    least_kept = 0 if mended.max_changes < 0 else max(0, running - mended.max_changes)
    must = must_run(problem, full, mended.released)
    host, guest = np.full(len(full), -1), np.flatnonzero(full.host >= 0)
    host[guest] = option_at(full, full.host[guest], full.pool[guest], full.gpus[guest])
    rival, heir = (
        np.full(len(full), -1),
        np.flatnonzero(full.keep & (full.host < 0) & (jobs.host[full.job] >= 0)),
    )
    rival[heir] = option_at(full, jobs.host[full.job[heir]], full.pool[heir], full.gpus[heir])
    return Instance(
        value=full.value,
        start=full.start,
        job=full.job,
        pool=full.pool,
        gpus=full.gpus,
        cost=full.cost,
        keep=full.keep,
        host=host,
        rival=rival,
        must=must,
        tenant=jobs.tenant,
        capacity=problem.pools.gpus,
        budget=problem.budget_per_hour,
        quota=tenants.max_gpus,
        tenant_budget=tenants.budget_per_hour,
        guarantee=mended.usable,
        zone=problem.pools.zone,
        exposure=tenants.exposure,
        least_kept=least_kept,
        jobs=jobs.job_id,
        pools=problem.pools.pool,
        tenants=tenants.tenant,
        zones=problem.pools.zones,
        headroom=of_options(problem, must, full.job, np.where(full.host < 0, full.gpus, 0)),
    )
