"""One round, compiled: from a Problem to the model that policies and solvers work on, and from a
choice back.

    Problem -> Menu (with options of guests) -> Repairs -> Instance (dominated options removed) ->
    LinearModel

Where jobs may share GPUs, a small round offers every pair. A large one begins with the pairs that
the prices of the round without them call best, and keeps the means to price all others
(`CompiledRound.omitted_pairs`, colocation.py): who decides it adds those that are missing
(policies/pairs.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from allocator.domain.allocation import Allocation, Repairs
from allocator.domain.problem import Floats, Ints, Isolation, Problem, State
from allocator.options.colocation.pairs import Colocations, find_colocations
from allocator.options.colocation.running_pairs import list_candidate_pairs
from allocator.options.colocation.secondary_jobs import (
    PairArrays,
    PairOffer,
    add_colocated_options,
    option_at,
)
from allocator.options.headroom import headroom_of_options
from allocator.options.option_table import OptionTable, option_table
from allocator.options.repairs import find_mandatory_jobs, repairs
from allocator.performance.sizes import estimate_sizes
from allocator.performance.table import RateTable
from formulations.colocation.prices import best_prices
from formulations.model.choices import choices
from formulations.model.dominance import find_needed_options
from formulations.model.instance import Instance
from formulations.model.linear import AT_MOST_ONE, COLOCATION, LinearModel
from formulations.model.single_round import build_model

LISTED = 4000  # pairs of options up to which a round offers them all
# relative distance of the bound to the value at the prices that choose the first pairs
ROUGH = 1e-2


@dataclass(frozen=True)
class CompiledRound:
    """Everything a policy may look at. Columns of `instance` and `model` are the options `option`
    of `option_table`.

    option (n,): index into menu. A choice is (J,) columns, -1 = nothing. rest: the pairs that are
    not among the options, None where all are or nobody asks for more. covers: whether options and
    rest are all that the rules allow.
    """

    problem: Problem
    option_table: OptionTable
    repairs: Repairs
    instance: Instance
    option: Ints
    omitted_pairs: OmittedPairs | None = None
    has_all_pairs: bool = True

    @cached_property
    def model(self) -> LinearModel:
        """The round's MIP, made when it is first asked for."""
        return build_model(self.instance)

    def allocation(self, choice: Ints) -> Allocation:
        """The choice as pools, sizes and rate rows."""
        m, o = self.option_table, self.chosen(choice)
        row, primary = np.append(m.row, -1)[o], np.append(m.primary, -1)[o]
        secondary = np.flatnonzero(primary >= 0)
        row[primary[secondary]] = m.primary_row[o[secondary]]
        return Allocation(np.append(m.pool, -1)[o], np.append(m.gpus, 0)[o], row, primary)

    def chosen(self, choice: Ints) -> Ints:
        """The choice (J,) as options of the whole menu, -1 = nothing."""
        return np.append(self.option, -1)[choice]

    def unchanged_choice(self) -> Ints:
        """The choice that changes nothing: running jobs keep, all others wait; -1 too where keeping
        is impossible.

        Guests stay with their host; where they cannot, they keep the GPUs themselves."""
        i = self.instance
        choice = np.full(len(self.problem.jobs), -1)
        kept = np.flatnonzero(i.keep)
        present = np.append(i.job, -1)[i.primary[kept]] == self.problem.jobs.primary[i.job[kept]]
        kept = kept[np.argsort(present, kind="stable")]  # the last of a job counts
        choice[i.job[kept]] = kept
        return choice

    def with_kept_gpus(self, choice: Ints) -> Ints:
        """The choice in which a job that would leave its host's GPUs for as many others of the pool
        keeps them where the host leaves them itself: nobody would move it."""
        jobs, i = self.problem.jobs, self.instance
        own = np.flatnonzero((choice >= 0) & (jobs.primary >= 0))
        at = choice[own]
        own = own[
            ~i.keep[at]
            & (i.primary[at] < 0)
            & (i.pool[at] == jobs.pool[own])
            & (i.gpus[at] == jobs.gpus[own])
        ]
        if not len(own):
            return choice
        kept = np.flatnonzero(i.keep & (i.primary < 0) & np.isin(i.job, own))
        free = kept[~np.isin(i.conflicting_option[kept], choice[choice >= 0])]
        out = choice.copy()
        out[i.job[free]] = free
        return out

    def with_forced_job(self, job: int, columns: Ints) -> CompiledRound:
        """The round in which `job` must get one of `columns`, and nothing else is changed."""
        i = self.instance
        stays = (i.job != job) | np.isin(np.arange(len(i.job)), columns)
        stays[i.primary >= 0] &= stays[i.primary[i.primary >= 0]]  # guests go with their hosts
        mandatory = i.mandatory.copy()
        mandatory[job] = True
        forced = replace(i.take(np.flatnonzero(stays)), mandatory=mandatory)
        return replace(
            self,
            instance=forced,
            option=self.option[stays],
            omitted_pairs=None,
            has_all_pairs=False,
        )


@dataclass(frozen=True)
class OmittedPairs:
    """All pairs of a round, and those of them that it offers: host, guest (k,), ordinary
    options.
    """

    pairs: Colocations
    primary: Ints
    secondary: Ints
    exclusive: OptionTable
    table: RateTable
    prunes: bool
    start: Floats | None = None

    def prices(self, model: LinearModel) -> Floats | None:
        """(m,) prices to start from: those of the round without pairs."""
        if self.start is None:
            return None
        out, shared = (
            np.zeros(model.m),
            next(f.first for f in model.families if f.kind == COLOCATION),
        )
        out[:shared] = self.start[:shared]
        return out

    def names(self, also: tuple[Ints, Ints]) -> tuple[OmittedPairs, PairArrays]:
        """With these pairs, too, as (host, guest, pool, gpus)."""
        m, n = self.exclusive, len(self.exclusive) + 1
        key = np.unique(np.append(self.primary, also[0]) * n + np.append(self.secondary, also[1]))
        primary, secondary = key // n, key % n
        return replace(self, primary=primary, secondary=secondary), (
            m.job[primary],
            m.job[secondary],
            m.pool[primary],
            m.gpus[primary],
        )

    def reduced(self, round_: CompiledRound, prices: Floats) -> Floats:
        """(n,) of the ordinary options: value less the prices (m,) of what they use, the right to a
        guest aside; -inf where the option is not in the round."""
        model = round_.model
        p = prices.copy()
        for family in model.families:
            if family.kind in (AT_MOST_ONE, COLOCATION):
                p[family.first : family.stop] = 0.0
        own = np.bincount(model.entry_column, model.coef * p[model.index], minlength=model.n)
        m = self.exclusive
        at = option_at(round_.option_table, m.job, m.pool, m.gpus)
        column = np.full(len(round_.option_table), -1)
        column[round_.option] = np.arange(len(round_.option))
        of_option: Floats = np.append(model.value - own, -np.inf)[column[at]]
        return of_option


def compile_round(
    problem: Problem,
    prunes: bool = True,
    shares: PairOffer = PairOffer.PROFITABLE,
    also: PairArrays | None = None,
) -> CompiledRound:
    """Build the round: menu, repairs, instance, model. Pure and deterministic.

    prunes: leave out options that no best plan needs (formulations/dominance); baselines that
    follow other rules than the objective, and the analysis of conflicts, look at all of them.
    shares: which guests are offered, where pools let jobs share. also: pairs that a large round
    must offer, those of a plan for example. The round's problem has the sizes that are believed
    where they are not known.
    """
    problem = estimate_sizes(problem)
    table = RateTable.of(problem)
    exclusive = option_table(problem, table)
    none = (np.zeros(0, np.int64),) * 4
    if not can_colocate(problem):
        return _compile(problem, table, exclusive, prunes, shares, none)
    if shares != PairOffer.PROFITABLE:
        pairs = list_candidate_pairs(problem, exclusive) if shares == PairOffer.ALL else none
        return replace(
            _compile(problem, table, exclusive, prunes, shares, pairs), has_all_pairs=False
        )
    whole = find_colocations(problem, exclusive, table)
    omitted_pairs = OmittedPairs(whole, none[0], none[0], exclusive, table, prunes)
    if whole.count <= LISTED:
        return _compile(
            problem, table, exclusive, prunes, shares, omitted_pairs.names(whole.listed())[1]
        )
    alone = _compile(problem, table, exclusive, True, PairOffer.RUNNING, none, whole.primaries)
    dual = best_prices(choices(alone.model), close=ROUGH)
    best = whole.price(omitted_pairs.reduced(alone, dual.prices), dual.reduced)
    round_ = with_pairs(
        replace(alone, omitted_pairs=replace(omitted_pairs, start=dual.prices)),
        best.primary,
        best.secondary,
    )
    if also is None or not len(also[0]):
        return round_
    at = [option_at(exclusive, job, also[2], also[3]) for job in also[:2]]
    return with_pairs(round_, *at)


def can_colocate(problem: Problem) -> bool:
    """Whether any two jobs may get the same GPUs."""
    return bool((problem.pools.sharing != Isolation.NONE).any()) and len(problem.sharing.gpus) > 0


def with_pairs(round_: CompiledRound, primary: Ints, secondary: Ints) -> CompiledRound:
    """The round with more pairs, by their ordinary options."""
    assert round_.omitted_pairs is not None
    omitted_pairs, pairs = round_.omitted_pairs.names((primary, secondary))
    new = _compile(
        round_.problem,
        omitted_pairs.table,
        omitted_pairs.exclusive,
        omitted_pairs.prunes,
        PairOffer.PROFITABLE,
        pairs,
        omitted_pairs.pairs.primaries,
    )
    return replace(new, omitted_pairs=omitted_pairs)


def same_columns(old: CompiledRound, choice: Ints, new: CompiledRound) -> Ints:
    """Columns (k,) of one round, -1 = nothing, in those of another, which has at least its
    options.
    """
    taken = choice >= 0
    span = int(max(old.option_table.gpus.max(initial=0), new.option_table.gpus.max(initial=0))) + 1
    a, b = (
        _identify_options(r.option_table, r.option, len(r.problem.jobs), len(r.problem.pools), span)
        for r in (old, new)
    )
    order = np.argsort(b, kind="stable")
    out = choice.copy()
    out[taken] = order[np.searchsorted(b[order], a[choice[taken]])]
    return out


def _identify_options(m: OptionTable, option: Ints, jobs: int, pools: int, span: int) -> Ints:
    """A number for each of these options by what it is: job, pool, GPUs, whose GPUs, and whether
    it is kept.
    """
    place = (m.job * pools + m.pool) * span + m.gpus
    return ((place * (jobs + 1) + m.primary + 1) * 2 + m.keep)[option]


def _compile(
    problem: Problem,
    table: RateTable,
    exclusive: OptionTable,
    prunes: bool,
    shares: PairOffer,
    pairs: PairArrays,
    primaries: Ints | None = None,
) -> CompiledRound:
    """hosts: ordinary options that are never left out, as pairs may be added to them."""
    full = add_colocated_options(problem, exclusive, table, shares, pairs)
    mended = repairs(problem, full)
    whole = _instance(problem, full, mended)
    can_be_primary = np.zeros(len(full), dtype=bool)
    if primaries is not None:
        can_be_primary[
            option_at(
                full, exclusive.job[primaries], exclusive.pool[primaries], exclusive.gpus[primaries]
            )
        ] = True
    option = (
        np.flatnonzero(find_needed_options(whole, can_be_primary))
        if prunes
        else np.arange(len(full))
    )
    pruned = whole if len(option) == len(full) else whole.take(option)
    return CompiledRound(problem, full, mended, pruned, option)


def _instance(problem: Problem, full: OptionTable, mended: Repairs) -> Instance:
    jobs, tenants = problem.jobs, problem.tenants
    running = int((jobs.state == State.RUNNING).sum())
    least_kept = 0 if mended.max_changes < 0 else max(0, running - mended.max_changes)
    mandatory = find_mandatory_jobs(problem, full, mended.released)
    primary, secondary = np.full(len(full), -1), np.flatnonzero(full.primary >= 0)
    primary[secondary] = option_at(
        full, full.primary[secondary], full.pool[secondary], full.gpus[secondary]
    )
    conflicting_option, takeover = (
        np.full(len(full), -1),
        np.flatnonzero(full.keep & (full.primary < 0) & (jobs.primary[full.job] >= 0)),
    )
    conflicting_option[takeover] = option_at(
        full, jobs.primary[full.job[takeover]], full.pool[takeover], full.gpus[takeover]
    )
    return Instance(
        value=full.value,
        start=full.start,
        job=full.job,
        pool=full.pool,
        gpus=full.gpus,
        cost=full.cost,
        keep=full.keep,
        primary=primary,
        conflicting_option=conflicting_option,
        mandatory=mandatory,
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
        headroom=headroom_of_options(
            problem, mandatory, full.job, np.where(full.primary < 0, full.gpus, 0)
        ),
    )
