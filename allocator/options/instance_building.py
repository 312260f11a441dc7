"""One compiled round: from a Problem to the model that policies and solvers use, and back.

    Problem -> OptionTable (with options of secondary jobs) -> Repairs
            -> Instance (dominated options removed) -> LinearModel

Where jobs may share GPUs, a small round offers every pair. A large one begins with the pairs that
run, and with the sets of several primary jobs. It can price all other pairs
(`CompiledRound.omitted_pairs`, options/colocation/pairs.py), and the policy adds those that a good
plan may need (policies/pairs.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from allocator.domain.allocation import Allocation, Repairs
from allocator.domain.problem import Bools, Floats, Ints, Isolation, Problem, State
from allocator.options.colocation.pairs import Colocations, find_colocations
from allocator.options.colocation.running_pairs import list_candidate_pairs
from allocator.options.colocation.secondary_jobs import (
    PairOffer,
    add_colocated_options,
)
from allocator.options.colocation.several_primaries import Groups, list_groups
from allocator.options.kept.headroom import headroom_rows
from allocator.options.kept.reservations import (
    due_jobs,
    find_kept_nodes,
    forbidden_nodes,
    leaving_rows,
    option_ends,
    reservation_rows,
)
from allocator.options.moves import merge_options, options_of_moves
from allocator.options.node_needs import NONE, NodeNeeds
from allocator.options.option_table import OptionTable, option_table
from allocator.options.quotas import job_rows, lending, quota_table
from allocator.options.repairs import find_mandatory_jobs, repairs
from allocator.options.staying import Staying
from allocator.performance.lost_time import number_rows
from allocator.performance.sizes import estimate_sizes
from formulations.colocation.kind_prices import Terms
from formulations.model.choices import Choices, choices
from formulations.model.linear import (
    AT_MOST_ONE,
    COLOCATION,
    Block,
    LinearModel,
    begins_run,
    ragged,
)
from formulations.model.single_round import Instance, build_model, find_needed_options, list_blocks
from formulations.objectives.context import Offer
from formulations.placement.holes import Need

LISTED = 4000  # largest number of pairs of options of which a round offers all


@dataclass(frozen=True)
class CompiledRound:
    """Everything that a policy may use.

    Columns of `instance` and `model` are the options `option` of `option_table`. A choice is an
    array (J,) of columns, -1 = nothing.

    Attributes
    ----------
    option : (n,)
        Indices into the option table.
    offer : Offer
        All ways of the jobs to hold GPUs alone, without values, as the audit needs them.
    omitted_pairs : OmittedPairs or None
        The pairs that are not among the options, None if there are none, or if they are not needed.
    has_all_pairs : bool
        Whether options and omitted pairs are all that the rules allow.
    """

    problem: Problem
    option_table: OptionTable
    repairs: Repairs
    instance: Instance
    option: Ints
    offer: Offer
    omitted_pairs: OmittedPairs | None = None
    has_all_pairs: bool = True

    @cached_property
    def choices(self) -> Choices:
        """The model as one choice per job under coupling rows."""
        return choices(self.model)

    @cached_property
    def nodes(self) -> Ints:
        """Number of nodes of the spread shape of each column, (n,), else 0."""
        return self.option_table.nodes[self.option]

    @cached_property
    def leaves(self) -> dict[int, tuple[tuple[int, int, int], ...]]:
        """What columns have to leave for reservations: nodes, GPUs of each, number of the moment.

        Columns that have nothing to leave are not listed.
        """
        out: dict[int, tuple[tuple[int, int, int], ...]] = {}
        if self.problem.has_nodes.any():
            mandatory, m = self.instance.mandatory, self.option_table
            for moment, (there, nodes) in enumerate(find_kept_nodes(self.problem, mandatory, m)):
                for c in np.flatnonzero(there[self.option]).tolist() if nodes else ():
                    out[c] = (*out.get(c, ()), *((n, k, moment) for n, k in nodes))
        return out

    @cached_property
    def fixed(self) -> Bools:
        """The jobs that keep what they hold in every plan, (J,)."""
        jobs = self.problem.jobs
        out: Bools = self.instance.mandatory & ~jobs.preemptible & (jobs.state == State.RUNNING)
        return out

    @cached_property
    def forbidden(self) -> dict[int, frozenset[int]]:
        """The nodes on which options may not be, because they leave; others are not listed."""
        return forbidden_nodes(self.problem, self.option_table)

    @cached_property
    def avoids(self) -> dict[int, frozenset[int]]:
        """The same of columns."""
        return self._of_columns(self.forbidden)

    @cached_property
    def shuns(self) -> dict[int, frozenset[int]]:
        """The nodes that leave before columns are done with their jobs; others are not listed."""
        return self._of_columns(forbidden_nodes(self.problem, self.option_table, option_ends))

    def _of_columns(self, of_option: dict[int, frozenset[int]]) -> dict[int, frozenset[int]]:
        columns = np.flatnonzero(np.isin(self.option, list(of_option))) if of_option else ()
        return {int(c): of_option[int(self.option[c])] for c in columns}

    def need_of(self, needs: NodeNeeds, column: int) -> Need:
        """Return what a column needs of nodes."""
        i = self.instance
        return needs.of(
            int(i.job[column]),
            int(i.pool[column]),
            int(i.gpus[column]),
            int(self.nodes[column]),
            self.leaves.get(column, ()),
            self.avoids.get(column, NONE),
        )

    @cached_property
    def model(self) -> LinearModel:
        """The round's MIP, built at the first access."""
        return build_model(self.instance)

    @cached_property
    def unpruned(self) -> CompiledRound:
        """The round with all options of the option table."""
        every = _instance(self.problem, self.option_table, self.repairs)
        return replace(self, instance=every, option=np.arange(len(self.option_table)))

    @cached_property
    def rows(self) -> tuple[Block, ...]:
        """The rows of every hard rule over all options of the option table."""
        return tuple(block for block in list_blocks(self.unpruned.instance) if len(block.upper))

    def allocation(self, choice: Ints) -> Allocation:
        """Return the choice as pools, sizes and rows of rates.csv."""
        m = self.option_table
        o = self.chosen(choice)
        pool, gpus, row, primary = (
            np.append(column, none)[o]
            for column, none in ((m.pool, -1), (m.gpus, 0), (m.row, -1), (m.primary, -1))
        )
        shared_by, secondary = np.full(len(o), -1), np.flatnonzero(primary >= 0)
        members = m.primaries[o[secondary]]
        at, k = np.nonzero(members["job"] >= 0)
        h = members["job"][at, k]
        row[h], shared_by[h] = members["row"][at, k], secondary[at]
        return Allocation(pool, gpus, row, primary, shared_by=shared_by)

    def chosen(self, choice: Ints) -> Ints:
        """Return the choice (J,) as options of the whole option table, -1 = nothing."""
        return np.append(self.option, -1)[choice]

    def columns_at(self, job: Ints, pool: Ints, gpus: Ints) -> Ints:
        """Return the columns in which jobs hold GPUs of a pool by themselves, (n,), -1 = none."""
        column = np.full(len(self.option_table) + 1, -1)
        column[self.option] = np.arange(len(self.option))
        return column[self.option_table.at(job, pool, gpus)]

    def unchanged_choice(self) -> Ints:
        """Return the choice that changes nothing: running jobs keep their GPUs, all others wait.

        It is -1 for waiting jobs, and where a job cannot keep its GPUs. Secondary jobs stay with
        their primary job; where they cannot, they keep the GPUs themselves.
        """
        i = self.instance
        choice = np.full(len(self.problem.jobs), -1)
        kept = np.flatnonzero(i.keep)
        jobs = self.problem.jobs
        secondary, primary = i.colocations
        same = jobs.secondary[i.job[primary]] == i.job[secondary]
        present = np.bincount(secondary[same], minlength=len(i.job))[kept]
        present += (i.primary[kept] < 0) & (jobs.primary[i.job[kept]] < 0)
        kept = kept[np.argsort(present, kind="stable")]  # the last option of a job counts
        choice[i.job[kept]] = kept
        return choice

    def with_kept_gpus(self, choice: Ints) -> Ints:
        """Let secondary jobs keep GPUs that their primary job leaves.

        This concerns a job that would otherwise move to as many other GPUs of the same pool.
        """
        jobs = self.problem.jobs
        i = self.instance
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
        option, other = i.takeovers
        free = kept[~np.isin(kept, option[np.isin(other, choice[choice >= 0])])]
        out = choice.copy()
        out[i.job[free]] = free
        return out

    def with_moves(self) -> CompiledRound:
        """Return the round in which running jobs may also move to other nodes of their pool.

        It has every shape of a size that has several, and options that only plans by counts do not
        need. No better plan has any of these unless jobs have to be placed on nodes.
        """
        problem = self.problem
        m = self.option_table
        alone = np.setdiff1d(np.flatnonzero(self.instance.keep), self.instance.colocations[1])
        movable = np.zeros(len(problem.jobs), bool)
        movable[self.instance.job[alone]] = self.instance.primary[alone] < 0
        movable &= (problem.jobs.primary < 0) & ~Staying.of(problem).assumed
        moves = options_of_moves(problem, m, movable)
        full = merge_options(problem, m, moves)
        whole = _instance(problem, full, self.repairs)
        numbers = _identify_options(full, m, moves)
        stays = np.isin(numbers[0], np.append(numbers[1][self.option], numbers[2]))
        shaped = np.zeros(len(full), bool)
        if full.nodes.any():  # options at whose pool and size their job has spread shapes
            size = number_rows(full.job, full.pool, full.gpus)
            shaped = (full.primary < 0) & np.isin(size, size[full.nodes > 0])
        if self.has_all_pairs:  # what a best plan on nodes may need
            packed = np.array([name == "packed" for name in problem.jobs.placement], bool)
            fewest = problem.fewest_nodes(whole.job, whole.pool, whole.gpus)
            most_nodes = np.where(packed[whole.job] | shaped, fewest, 0)
            needed = find_needed_options(whole, most_nodes=most_nodes)
            stays |= needed & problem.has_nodes[whole.pool] & (whole.primary < 0)
        option = np.flatnonzero(stays | shaped)
        return replace(
            self,
            option_table=full,
            instance=replace(whole.take(option), mandatory=self.instance.mandatory),
            option=option,
        )

    def without_new_spread(self) -> CompiledRound:
        """Return the round with one shape of each size besides what jobs hold.

        It is the packed shape, or else that on the fewest nodes. This is for policies that know
        sizes and no shapes.
        """
        i = self.instance
        if not self.nodes.any():
            return self
        others = begins_run(i.job, i.pool, i.gpus)
        stays = np.flatnonzero((self.nodes == 0) | i.keep | others)
        return replace(self, instance=i.take(stays), option=self.option[stays], has_all_pairs=False)

    def with_less_guaranteed(self, missing: Ints) -> CompiledRound:
        """Return the round in which each guarantee is so many GPUs less, (K,)."""
        usable = np.maximum(0, self.repairs.usable - missing[: len(self.repairs.usable)])
        messages = tuple(
            f"the nodes do not hold the {self.repairs.usable[q]} GPUs guaranteed to tenant"
            f' "{self.instance.quota_names[q]}": it is owed {usable[q]}'
            for q in np.flatnonzero(missing > 0).tolist()
        )
        return replace(
            self,
            repairs=replace(
                self.repairs, usable=usable, messages=(*self.repairs.messages, *messages)
            ),
            instance=replace(self.instance, guarantee=_pad(usable, len(self.instance.guarantee))),
        )

    def with_forced_job(self, job: int, columns: Ints) -> CompiledRound:
        """Return the round in which `job` must get one of `columns`; nothing else changes."""
        i = self.instance
        stays = (i.job != job) | np.isin(np.arange(len(i.job)), columns)
        secondary, primary = i.colocations
        stays[secondary[~stays[primary]]] = False  # pairs go together
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
    """All pairs of a round, and the groups that it offers."""

    pairs: Colocations
    exclusive: OptionTable
    prunes: bool
    groups: Groups

    def terms(self, round_: CompiledRound) -> tuple[Terms, Terms]:
        """Return the terms of the two sides of all pairs in groups and columns of a round."""
        job, column = self.exclusive.job, self.columns(round_)
        first, second = self.pairs.primary, self.pairs.secondary
        none = np.full(len(second.pair), -1)
        primary = Terms(first.pair, job[first.option], first.term, column[first.option])
        return (
            primary.take(np.flatnonzero(primary.column >= 0)),
            Terms(second.pair, job[second.option], second.term, none),
        )

    def columns(self, round_: CompiledRound) -> Ints:
        """Return the column of each option with GPUs of its own, (n,), -1 = not in the round."""
        return round_.columns_at(self.exclusive.job, self.exclusive.pool, self.exclusive.gpus)

    def reduced(self, round_: CompiledRound, prices: Floats) -> Floats:
        """Return the reduced values of the options with GPUs of their own, (n,).

        The reduced value is the value less the prices (m,) of what the option uses, without the
        price of the right to a secondary job. It is -inf where the option is not in the round.
        """
        model = round_.model
        p = np.where(model.rows_of(AT_MOST_ONE, COLOCATION), 0.0, prices)
        own = np.bincount(model.entry_column, model.coef * p[model.index], minlength=model.n)
        of_option: Floats = np.append(model.value - own, -np.inf)[self.columns(round_)]
        return of_option


def compile_round(
    problem: Problem,
    prunes: bool = True,
    shares: PairOffer = PairOffer.PROFITABLE,
    groups: Groups | None = None,
) -> CompiledRound:
    """Build the round: option table, repairs, instance, model. Pure and deterministic.

    Parameters
    ----------
    prunes : bool
        Whether to leave out options that no best plan needs (formulations/model/single_round.py).
        Baselines with rules of their own and the analysis of conflicts need all options.
    shares : PairOffer
        The pairs that are offered where pools let jobs share GPUs.
    groups : Groups, optional
        Secondary jobs with their primary jobs that the round must offer.

    Returns
    -------
    round_ : CompiledRound
        Its problem has estimates in place of unknown sizes of jobs.
    """
    problem = estimate_sizes(problem)
    exclusive = option_table(problem)
    if not can_colocate(problem):
        return _compile(problem, exclusive, prunes, shares, groups)
    offered = Groups.of(problem, ()) if groups is None else groups
    if shares != PairOffer.PROFITABLE:
        if shares == PairOffer.ALL:
            pairs = list_candidate_pairs(problem, exclusive)
            offered = Groups.of_pairs(problem, exclusive, *pairs).join(offered)
        return replace(_compile(problem, exclusive, prunes, shares, offered), has_all_pairs=False)
    whole = find_colocations(problem, exclusive)
    offered = list_groups(problem, exclusive).join(offered)
    if whole.count <= LISTED:
        offered = Groups.of_pairs(problem, exclusive, *whole.listed()).join(offered)
        return _compile(problem, exclusive, prunes, shares, offered)
    few = _compile(problem, exclusive, prunes, shares, offered, whole.primaries)
    return replace(few, omitted_pairs=OmittedPairs(whole, exclusive, prunes, offered))


def can_colocate(problem: Problem) -> bool:
    """Return whether any two jobs may get the same GPUs."""
    return bool((problem.pools.sharing != Isolation.NONE).any()) and len(problem.sharing.gpus) > 0


def with_pairs(round_: CompiledRound, primary: Ints, secondary: Ints) -> CompiledRound:
    """Add more pairs to a round, given by the options of both jobs with their own GPUs."""
    o = round_.omitted_pairs
    assert o is not None
    pairs = Groups.of_pairs(round_.problem, o.exclusive, primary, secondary)
    o = replace(o, groups=pairs.join(o.groups))
    shares = PairOffer.PROFITABLE
    new = _compile(round_.problem, o.exclusive, o.prunes, shares, o.groups, o.pairs.primaries)
    return replace(new, omitted_pairs=o)


def same_columns(old: CompiledRound, choice: Ints, new: CompiledRound) -> Ints:
    """Translate columns (k,) of one round to another round that has at least its options.

    -1 stands for nothing.
    """
    taken = choice >= 0
    a, b = _identify_options(old.option_table, new.option_table)
    a = a[old.option]
    b = b[new.option]
    order = np.argsort(b, kind="stable")
    out = choice.copy()
    out[taken] = order[np.searchsorted(b[order], a[choice[taken]])]
    return out


def _identify_options(*tables: OptionTable) -> list[Ints]:
    """Return a number for each option of the tables, (n,) each.

    It stands for job, pool, GPUs, nodes of a spread shape, primary jobs, and whether it is kept.
    """
    names = ("job", "pool", "gpus", "nodes", "keep")
    columns = [np.concatenate([getattr(m, name) for m in tables]) for name in names]
    members = np.concatenate([m.primaries for m in tables])
    number = number_rows(*columns, *members["job"].T, *members["gpus"].T)
    return np.split(number, np.cumsum([len(m) for m in tables])[:-1])


def _compile(
    problem: Problem,
    exclusive: OptionTable,
    prunes: bool,
    shares: PairOffer,
    groups: Groups | None,
    primaries: Ints | None = None,
) -> CompiledRound:
    """Build the round; options `primaries` are never left out, as pairs may be added to them."""
    full = exclusive
    if groups or (problem.jobs.secondary >= 0).any():
        offered = groups or Groups.of(problem, ())
        full = add_colocated_options(problem, exclusive, shares, offered)
    mended = repairs(problem, full)
    whole = _instance(problem, full, mended)
    can_be_primary = np.zeros(len(full), bool)
    if primaries is not None:
        can_be_primary[
            full.at(exclusive.job[primaries], exclusive.pool[primaries], exclusive.gpus[primaries])
        ] = True
    option = (
        np.flatnonzero(find_needed_options(whole, can_be_primary))
        if prunes
        else np.arange(len(full))
    )
    pruned = whole if len(option) == len(full) else whole.take(option)
    return CompiledRound(problem, full, mended, pruned, option, exclusive.offer)


def _instance(problem: Problem, full: OptionTable, mended: Repairs) -> Instance:
    jobs = problem.jobs
    tenants = problem.tenants
    quotas = quota_table(problem)
    running = int((jobs.state == State.RUNNING).sum())
    least_kept = 0 if mended.max_changes < 0 else max(0, running - mended.max_changes)
    mandatory = find_mandatory_jobs(problem, full, mended.released)
    secondary, k = np.nonzero(full.primaries["job"] >= 0)
    member = full.primaries[secondary, k]
    needed = full.at(member["job"], full.pool[secondary], member["gpus"])
    return Instance(
        value=full.value,
        start=full.start,
        job=full.job,
        pool=full.pool,
        gpus=full.gpus,
        cost=full.cost,
        keep=full.keep,
        mandatory=mandatory | due_jobs(problem),
        tenant=jobs.tenant,
        capacity=problem.pools.gpus,
        budget=problem.budget_per_hour,
        quota=lending(problem, quotas, mended.usable, mandatory).limits,
        tenant_budget=quotas.budget_per_hour,
        guarantee=_pad(mended.usable, len(quotas)),
        zone=problem.pools.zone,
        exposure=tenants.exposure,
        least_kept=least_kept,
        jobs=jobs.job_id,
        pools=problem.pools.pool,
        tenants=tenants.tenant,
        zones=problem.pools.zones,
        rules=(
            *(headroom_rows(problem, mandatory, full) if len(problem.interactive) else ()),
            *reservation_rows(problem, mandatory, full),
            *leaving_rows(problem, full),
            *job_rows(problem, full),
        ),
        share=_shares(problem, full),
        accounts=quotas.accounts,
        quotas=quotas.label,
        common=quotas.is_common,
        colocations=np.stack([secondary, needed]),
        takeovers=_find_takeovers(problem, full),
    )


def _find_takeovers(problem: Problem, full: OptionTable) -> Ints:
    """Find what primary jobs hold, and the options of jobs that keep GPUs as they leave, (2, k)."""
    jobs = problem.jobs
    kept = np.flatnonzero(full.keep & (jobs.primary[full.job] >= 0))
    order = np.argsort(jobs.secondary, kind="stable")
    ends = (np.searchsorted(jobs.secondary[order], full.job[kept], x) for x in ("left", "right"))
    at, k = ragged(*ends)
    option, h = kept[at], order[k]
    leaves = ~(full.primaries["job"][option] == h[:, None]).any(axis=1)
    option, h = option[leaves], h[leaves]
    held = full.at(h, jobs.pool[h], jobs.gpus[h])
    return np.stack([option, held])[:, held >= 0]


def _pad(usable: Ints, quotas: int) -> Ints:
    """Return the guarantees of all quotas, (K,); those of all tenants have none."""
    return np.append(usable, np.zeros(quotas - len(usable), np.int64))


def _shares(problem: Problem, full: OptionTable) -> Floats | None:
    """Return the share of each of its GPUs that an option takes, (n,), None = whole GPUs."""
    if not (problem.jobs.gpu_fraction < 1).any():
        return None
    share = problem.gpu_share(full.job, full.pool)
    return share if (share < 1).any() else None
