"""The quotas of a round: those of tenants over all GPUs, those by type or pool, and what is lent.

Quota k concerns the options of the jobs of a tenant and of all tenants below it, in some pools
(R17, R18, R63 to R66). First come the Q quotas of tenants.csv, then the rows of quotas.csv, then
one for each set of pools of which tenants keep GPUs that they do not lend: this one concerns all
tenants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Problem, State
from allocator.options.guarantees_on_nodes import GuaranteesOnNodes
from allocator.options.option_table import OptionTable, find_locked_jobs
from formulations.model.guarantee import JobSizes, Limits, usable_guarantee
from formulations.model.linear import Block
from formulations.objectives.context import HOUR

MAX_JOBS = "max_jobs"  # kind of the rows of R72
EVERYBODY = -1  # tenant of a quota that concerns all jobs


@dataclass(frozen=True)
class QuotaTable:
    """All quotas of a problem, K in all.

    Attributes
    ----------
    label : tuple of str
        Name of each quota in messages, to be put in quotation marks.
    place : tuple of str
        What `whatif` sets to change it.
    tenant : (K,)
        Index of the tenant, EVERYBODY for GPUs that are not lent.
    kind : (K,)
        Number of the set of pools.
    granularity : (K,)
        0: of tenants.csv; of quotas.csv, 1: all pools, 2: a type, 3: a pool.
    pools : (kinds, P)
        The pools of each set; set 0 are all pools.
    max_gpus, budget_per_hour : (K,)
        Limits, inf = none. The GPU-hours that are left of a month are part of max_gpus.
    is_by_hours : (K,)
        Whether max_gpus is what the GPU-hours of the month leave.
    guaranteed_gpus, reserve : (K,)
        GPUs at least, and those of them that others may not hold.
    ancestors : (D, Q)
        Each tenant, its parent, and so on, -1 above the root.
    """

    label: tuple[str, ...]
    place: tuple[str, ...]
    tenant: Ints
    kind: Ints
    granularity: Ints
    pools: Bools
    max_gpus: Floats
    is_by_hours: Bools
    budget_per_hour: Floats
    guaranteed_gpus: Ints
    reserve: Floats
    ancestors: Ints

    def __len__(self) -> int:
        return len(self.tenant)

    @cached_property
    def is_common(self) -> Bools:
        """True for quotas of all tenants: GPUs that are not lent, (K,)."""
        return np.asarray(self.tenant == EVERYBODY)

    @cached_property
    def accounts(self) -> Ints:
        """Quotas that a GPU of each tenant in each pool counts for, (L, Q, P), -1 = none."""
        layers = [layer for layer in _layers(self) if (layer >= 0).any()]
        none = np.zeros((0, self.ancestors.shape[1], self.pools.shape[1]), np.int64)
        return np.stack(layers) if layers else none

    def members(self, k: int) -> Bools:
        """Return which tenants a quota concerns, (Q,)."""
        if self.is_common[k]:
            return np.ones(self.ancestors.shape[1], bool)
        return np.asarray((self.ancestors == self.tenant[k]).any(axis=0))

    def named_by(self, k: int) -> Ints:
        """Return the quotas whose cells set a limit: quota k, or those of which a part is lent."""
        if not self.is_common[k]:
            return np.array([k])
        return np.flatnonzero((self.kind == self.kind[k]) & (self.reserve > 0))

    def inner(self, k: int) -> Ints:
        """Return the other quotas with a limit of the tenant of quota k and of those below it."""
        among = np.append(self.members(k), False)[self.tenant] & ~self.is_common
        among[k] = False
        return np.flatnonzero(among & np.isfinite(self.max_gpus))


def quota_table(problem: Problem) -> QuotaTable:
    """Return the quotas of a problem, made once for each problem."""
    cached: dict[str, QuotaTable] = problem.__dict__
    if "quota_table" not in cached:
        cached["quota_table"] = _make_table(problem)
    return cached["quota_table"]


def _make_table(problem: Problem) -> QuotaTable:
    tenants = problem.tenants
    quotas = problem.quotas
    cells = list(zip(quotas.gpu_type.tolist(), quotas.pool.tolist(), strict=True))
    number = {cell: n for n, cell in enumerate(dict.fromkeys([(-1, -1), *cells]))}
    sets = [_find_pools(problem, *cell) for cell in number]
    kind = [0] * len(tenants) + [number[cell] for cell in cells]
    label = list(tenants.tenant)
    place = [f"tenants.{name}" for name in tenants.tenant]
    for q, n in zip(quotas.tenant.tolist(), kind[len(tenants) :], strict=True):
        name, of = tenants.tenant[q], sets[n]
        label.append(f'{name}" of {of.of} "{of.name}' if of.name else f'{name}" of "all GPUs')
        place.append(f"quotas.{name}{f'/{of.name}' if of.name else ''}")
    by_hours, ended = _limit_by_gpu_hours(problem)
    own_guarantee = np.where(ended, 0, tenants.guaranteed_gpus)
    quota_guarantee = np.where(ended[quotas.tenant], 0, quotas.guaranteed_gpus)
    reserve = np.zeros(len(kind))
    reserve[len(tenants) :] = np.maximum(0.0, quota_guarantee - quotas.lend_gpus)
    common = sorted({n for n, r in zip(kind, reserve.tolist(), strict=True) if r > 0})
    unlimited = np.full(len(common), np.inf)
    return QuotaTable(
        label=(*label, *(f"{sets[n].of} {sets[n].name}".strip() or "all GPUs" for n in common)),
        place=(*place, *("" for _ in common)),
        tenant=np.concatenate(
            [np.arange(len(tenants)), quotas.tenant, np.full(len(common), EVERYBODY)]
        ),
        kind=np.array(kind + common, np.int64),
        granularity=np.array(
            [0] * len(tenants) + [sets[n].granularity for n in kind[len(tenants) :] + common],
            np.int64,
        ),
        pools=np.stack([each.pools for each in sets]),
        max_gpus=np.concatenate(
            [np.minimum(tenants.max_gpus, by_hours), quotas.max_gpus, unlimited]
        ),
        is_by_hours=np.append(
            by_hours < tenants.max_gpus, np.zeros(len(quotas) + len(common), bool)
        ),
        budget_per_hour=np.concatenate(
            [tenants.budget_per_hour, np.full(len(quotas), np.inf), unlimited]
        ),
        guaranteed_gpus=np.concatenate(
            [own_guarantee, quota_guarantee, np.zeros(len(common), np.int64)]
        ),
        reserve=np.append(reserve, np.zeros(len(common))),
        ancestors=tenants.ancestors,
    )


def _limit_by_gpu_hours(problem: Problem) -> tuple[Floats, Bools]:
    """Return the GPUs that the GPU-hours left of the month allow, and which guarantees end, (Q,).

    A tenant with h GPU-hours left may hold floor(h / hours of a round) GPUs. Jobs that can only
    keep what they hold stay, and so do all that run where changes are limited. The guarantees in
    the tree of a tenant end until the next month when h does not pay for them and for these jobs
    (R69).
    """
    tenants, quotas, jobs = problem.tenants, problem.quotas, problem.jobs
    Q = len(tenants)
    limit, ended = np.full(Q, np.inf), np.zeros(Q, bool)
    limited = np.flatnonzero(np.isfinite(tenants.gpu_hours_per_month))
    if not len(limited):
        return limit, ended
    stays = _stays(problem) & (jobs.primary < 0)
    stay = np.bincount(jobs.tenant[stays], jobs.gpus[stays], Q)
    guaranteed = tenants.guaranteed_gpus.astype(float)
    np.add.at(guaranteed, quotas.tenant, quotas.guaranteed_gpus)
    left = tenants.gpu_hours_per_month - tenants.gpu_hours_used
    pays = np.maximum(0.0, np.floor(left / (problem.interval_s / HOUR) + 1e-9))
    for q in limited.tolist():
        tree = (tenants.ancestors == q).any(axis=0)
        limit[q] = max(pays[q], stay[tree].sum())
        if pays[q] < (stay + guaranteed)[tree].sum():
            ended |= tree
    return limit, ended


def _stays(problem: Problem) -> Bools:
    """Find the jobs that can only keep what they hold, and all that run if changes are limited."""
    running = problem.jobs.state == State.RUNNING
    return running if problem.max_changes >= 0 else find_locked_jobs(problem)


def most_jobs(problem: Problem) -> Floats:
    """Return how many jobs of each tenant may run, (Q,), inf = no limit (R72)."""
    tenants = problem.tenants
    if not np.isfinite(tenants.max_jobs).any():
        return tenants.max_jobs
    stay = np.bincount(problem.jobs.tenant[_stays(problem)], minlength=len(tenants))
    return np.maximum(tenants.max_jobs, stay)


def job_rows(problem: Problem, m: OptionTable) -> list[Block]:
    """Build the rows sum_{o of q} x_o <= max_jobs_q, one for each tenant q that has a limit.

    The list is empty if no tenant has one.
    """
    most = most_jobs(problem)
    if not np.isfinite(most).any():
        return []
    q = problem.jobs.tenant[m.job]
    return [Block.at_most(MAX_JOBS, problem.tenants.tenant, q, np.ones(len(m)), most)]


class _PoolSet(NamedTuple):
    """A set of pools that quotas are about: a mask (P,), its name, and words before the name."""

    pools: Bools
    name: str
    of: str
    granularity: int


def _find_pools(problem: Problem, gpu_type: int, pool: int) -> _PoolSet:
    """Return the pools of a type, one pool, or all pools (-1, -1)."""
    pools = problem.pools
    if gpu_type >= 0:
        return _PoolSet(pools.gpu_type == gpu_type, problem.gpu_types[gpu_type], "type", 2)
    if pool >= 0:
        return _PoolSet(np.arange(len(pools)) == pool, pools.pool[pool], "pool", 3)
    return _PoolSet(np.ones(len(pools), bool), "", "", 1)


def _layers(table: QuotaTable) -> Iterator[Ints]:
    """List arrays (Q, P) of the quotas in force, such that no quota is in two layers of a cell.

    In a layer the quotas of one job in the pools of one type are alike, so that a job that changes
    its size stays in its quota.
    """
    Q, P = table.ancestors.shape[1], table.pools.shape[1]
    counts = np.isfinite(table.max_gpus) | np.isfinite(table.budget_per_hour)
    counts |= (table.guaranteed_gpus > 0) | table.is_common
    for granularity in range(int(table.granularity.max(initial=0)) + 1):
        those = np.flatnonzero(counts & (table.granularity == granularity)).tolist()
        if not those:
            continue
        cells, common = (np.full((Q + 1, P), -1) for _ in range(2))
        for k in those:
            if table.is_common[k]:
                common[:, table.pools[table.kind[k]]] = k
            else:
                cells[table.tenant[k], table.pools[table.kind[k]]] = k
        yield from (cells[line] for line in table.ancestors)
        yield common[:Q]


def usable_guarantees(problem: Problem, table: QuotaTable, option_table: OptionTable) -> Ints:
    """Return the GPUs that each guarantee amounts to, (K,) (R18, R64)."""
    out = np.zeros(int((~table.is_common).sum()), np.int64)
    capacity = problem.pools.gpus.tolist()
    guarantees = np.flatnonzero(table.guaranteed_gpus > 0).tolist()
    if not guarantees:
        return out
    own = np.bincount(option_table.job, option_table.primary < 0, len(problem.jobs)).astype(int)
    ends = option_table.start[:-1] + own
    few = most_jobs(problem)
    has_nodes = problem.has_nodes.any()
    on_nodes = GuaranteesOnNodes(problem, option_table, few) if has_nodes else None
    for k in guarantees:
        pools = table.pools[table.kind[k]]
        tenants = np.flatnonzero(table.members(k))
        place = np.full(len(problem.tenants) + 1, -1)
        place[tenants] = np.arange(len(tenants))
        parent = np.append(problem.tenants.parent, -1)[tenants]
        jobs = np.flatnonzero(place[problem.jobs.tenant] >= 0)
        rows = [
            (
                int(place[table.tenant[n]]),
                frozenset(np.flatnonzero(table.pools[table.kind[n]]).tolist()),
                int(table.max_gpus[n]),
            )
            for n in table.inner(k).tolist()
        ]
        out[k] = usable_guarantee(
            int(table.guaranteed_gpus[k]),
            _SizesInPools(option_table, option_table.start[jobs], ends[jobs], pools),
            capacity,
            Limits(
                place[problem.jobs.tenant[jobs]].tolist(),
                place[parent].tolist(),
                rows,
                few[tenants].tolist(),
            ),
            _find_shares(problem, jobs),
        )
        if out[k] and on_nodes:
            limits = [
                (
                    table.members(n)[problem.jobs.tenant],
                    table.pools[table.kind[n]],
                    float(table.max_gpus[n]),
                )
                for n in table.inner(k).tolist()
            ]
            out[k] = on_nodes.most(int(out[k]), jobs, pools, limits)
    return out


@dataclass(frozen=True)
class _SizesInPools(Sequence[JobSizes]):
    """The (pool, GPUs) in some pools of options start_j to end_j of jobs, listed when one reads."""

    table: OptionTable
    start: Ints
    end: Ints
    pools: Bools

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, j: Any) -> Any:
        of = slice(self.start[j], self.end[j])
        pool, gpus = self.table.pool[of], self.table.gpus[of]
        here = self.pools[pool]
        return list(zip(pool[here].tolist(), gpus[here].tolist(), strict=True))


def _find_shares(problem: Problem, jobs: Ints) -> Callable[[int, int], float] | None:
    """Return the share of a GPU that (number in `jobs`, pool) takes, None = all take whole ones."""
    share = problem.jobs.gpu_fraction[jobs]
    if np.isnan(share).all():
        return None
    shares = np.nan_to_num(share, nan=1.0).tolist()
    has_nodes = problem.has_nodes.tolist()
    return lambda job, pool: shares[job] if has_nodes[pool] else 1.0


@dataclass(frozen=True)
class Lending:
    """GPUs of the pools of each common quota that stay free, because tenants do not lend them.

    Attributes
    ----------
    kept, wanted : (K,)
        GPUs that stay free, and those that would if no rule needed them; 0 for other quotas.
    limits : (K,)
        GPUs at most of every quota.
    """

    kept: Floats
    wanted: Floats
    limits: Floats


def lending(problem: Problem, table: QuotaTable, usable: Ints, mandatory: Bools) -> Lending:
    """Return what is kept for tenants that do not lend all of their guarantee (R65).

    All jobs together hold at most so many of the C GPUs of a set of pools:

        max(C - H, B) + E

    H and B are those of `_kept_and_needed`; every plan needs B. E is 0 if a plan exists so, and
    otherwise the least with which one does (policies/reserves.py), because of rules on other pools,
    sizes or max_changes. usable are the GPUs that guarantees amount to; mandatory (J,) are the jobs
    that keep what they hold.
    """
    wanted = np.zeros(len(table))
    kept = np.zeros(len(table))
    limits = table.max_gpus.copy()
    for k in np.flatnonzero(table.is_common).tolist():
        pools = table.pools[table.kind[k]]
        gpus = float(problem.pools.gpus[pools].sum())
        free, need = _kept_and_needed(problem, table, int(table.kind[k]), usable, mandatory)
        wanted[k] = min(free, gpus)
        kept[k] = max(0.0, min(free, gpus - need) - problem.yielded.get(table.label[k], 0.0))
        limits[k] = gpus - kept[k]
    return Lending(kept, wanted, limits)


def _kept_and_needed(
    problem: Problem, table: QuotaTable, kind: int, usable: Ints, mandatory: Bools
) -> tuple[float, float]:
    """Return the GPUs H of a set of pools that are not lent, and those that plans need in any case.

    These are the sums over the tenants at the top. From the children of a tenant t to t,

        H(t) = max( r(t) - u(t), sum_c H(c), 0 )
        B(t) = max( u(t), sum_c B(c) + GPUs that jobs of t keep )
    """
    jobs = problem.jobs
    Q = len(problem.tenants)
    stay = mandatory & (jobs.primary < 0)
    stay &= np.append(table.pools[kind], False)[jobs.pool]
    need = np.bincount(jobs.tenant[stay], jobs.gpus[stay], Q).astype(float)
    kept, reserve, own = (np.zeros(Q) for _ in range(3))
    here = np.flatnonzero((table.kind == kind) & ~table.is_common)
    np.maximum.at(own, table.tenant[here], usable[here].astype(float))
    np.maximum.at(reserve, table.tenant[here], table.reserve[here] - usable[here])
    depth = (table.ancestors >= 0).sum(axis=0)
    total_kept = total_need = 0.0
    for t in np.argsort(-depth, kind="stable").tolist():
        kept[t], need[t] = max(kept[t], reserve[t]), max(need[t], own[t])
        above = int(problem.tenants.parent[t])
        if above >= 0:
            kept[above] += kept[t]
            need[above] += need[t]
        else:
            total_kept = total_kept + kept[t]
            total_need = total_need + need[t]
    return total_kept, total_need


def lending_messages(table: QuotaTable, of: Lending) -> list[str]:
    """Describe where fewer GPUs stay free than tenants do not lend."""
    return [
        f"{of.kept[k]:g} GPUs of {table.label[k]} instead of {of.wanted[k]:g} are kept"
        " for tenants that do not lend them: guarantees, jobs that may not be moved or max_changes"
        " need the others"
        for k in np.flatnonzero(of.kept < of.wanted).tolist()
    ]
