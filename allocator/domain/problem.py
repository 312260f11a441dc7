"""The checked state of a cluster as immutable arrays, so that 50,000 jobs cost milliseconds.

J jobs, P pools, T GPU types, Q tenants, M models. Where the CSV has a name, the array has an index
into the names of that thing (-1 = none). "No limit" is inf (-1 for `resizes_left`), and "no value"
of a float column is nan. Field names equal column names; a test compares the two.

Every primary job has one secondary job, which may have several primary jobs. A GPU has two jobs at
most, so `secondary` (J,) says it all: of a primary job, the job that runs on its GPUs too.
`primary` (J,) is of a secondary job the first of its primary jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property
from itertools import compress
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from allocator.domain.schema.cells import picked, pool_hazard
from allocator.objects import Record
from formulations.training_step import computing_share
from formulations.transient.revocations import Hazard
from formulations.transient.synchronisation import Mode

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

SAME = 1e-9  # relative: times closer than this are one time


class Code(IntEnum):
    """A number that stands for a word, and is compared with whole arrays.

    numpy asks both sides of a comparison for `__array_ufunc__`. If an enum does not have it, the
    answer takes longer than the comparison.
    """

    __array_ufunc__ = np.ndarray.__array_ufunc__


class State(Code):
    """jobs.csv `state`; the value is the index in the column's choices."""

    QUEUED = 0
    RUNNING = 1
    PAUSED = 2
    HELD = 3


class Market(Code):
    """pools.csv `market`."""

    RESERVED = 0
    ON_DEMAND = 1
    SPOT = 2


class Isolation(Code):
    """pools.csv `sharing`: which two jobs may run on the same GPUs."""

    NONE = 0  # no two jobs
    TENANT = 1  # jobs of one tenant
    ANY = 2
    BEST_EFFORT = 3  # a best-effort job next to any primary job


class Rows:
    """Rows of a table: the fields of the class are its columns, and all of them are as long."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def select(self, rows: Bools | Ints | slice) -> Self:
        """Return some rows; columns of texts know them by their numbers only."""
        names = (column.name for column in fields(self))  # type: ignore[arg-type]
        return type(self)(*(picked(getattr(self, name), rows) for name in names))

    def append(self, other: Self) -> Self:
        """Return these rows, then the others."""
        names = (column.name for column in fields(self))  # type: ignore[arg-type]
        both = ((getattr(self, name), getattr(other, name)) for name in names)
        return type(self)(*(a + b if isinstance(a, tuple) else np.append(a, b) for a, b in both))


class Sharers:
    """Jobs of which some run on the GPUs of others: see `colocation`."""

    gpus: Ints
    primary: Ints
    shared_by: Ints | None

    @property
    def secondary(self) -> Ints:
        """Of a primary job, the job that runs on its GPUs too, (J,), -1 = none."""
        return secondary_of(self.primary) if self.shared_by is None else self.shared_by

    @property
    def held(self) -> Ints:
        """GPUs that each job holds itself, (J,): those that two jobs share count once."""
        return held_gpus(self.gpus, self.secondary)


@dataclass(frozen=True)
class Jobs(Sharers, Rows):
    """All jobs in file order; every array has shape (J,)."""

    job_id: tuple[str, ...]
    model: Ints  # index into Problem.models
    submitted_s: Floats
    remaining_work: Floats
    total_work: Floats
    tenant: Ints  # index into Problem.tenants
    state: Ints  # State
    pool: Ints  # index into Problem.pools; -1 unless running
    gpus: Ints  # 0 unless running
    min_gpus: Ints
    max_gpus: Ints
    requested_gpus: Ints
    sizes: Ints  # index into Problem.size_lists, -1 = the rule of gpus_per_node; never of pods
    gpu_types: Ints  # index into Problem.type_sets, -1 = any
    weight: Floats
    deadline_s: Floats  # nan = none
    preemptible: Bools
    restart_s: Floats
    resizes_left: Ints  # -1 = no limit
    memory_gb: Floats  # nan = unknown
    checkpoint_s: Floats
    checkpoint_every_s: Floats  # nan = none
    after: tuple[tuple[str, ...], ...]  # names of predecessors
    max_spot_gpus: Floats  # inf = no limit
    interactive: Bools
    shrinkable: Bools
    best_effort: Bools
    every_s: Floats  # nan = the job is not periodic
    times: Ints  # -1 = no limit
    synchronous: Bools
    modes: Ints  # index into Problem.mode_sets, -1 = as `synchronous` says
    attained_gpu_s: Floats  # GPU-seconds held so far
    restarts: Ints  # starts after the first, and changes
    largest_gpus: Ints  # most GPUs ever held
    # of a secondary job: index of the job on whose GPUs it runs, -1 = on its own
    primary: Ints
    cpus_per_gpu: Floats
    host_memory_gb_per_gpu: Floats
    gpu_fraction: Floats  # nan = whole GPUs
    gpus_per_pod: Ints
    placement: tuple[str, ...]
    time_limit_s: Floats  # nan = none
    cluster: tuple[str, ...]  # a label
    target_loss: Floats  # nan = none
    loss_work: Floats  # whole work as its losses say, nan = they say nothing
    loss_error: Floats  # of ln of the work left
    # of a primary job: index of its secondary job, -1 = none; None = as `primary` says
    shared_by: Ints | None = None

    def take(self, which: Ints, **columns: Any) -> Jobs:
        """Return the jobs with these numbers, in that order, and with some other columns.

        A secondary job whose primary job is not among them holds the GPUs itself.
        """
        if "primary" not in columns:
            place = np.full(len(self) + 1, -1)  # the last entry stands for -1
            place[which] = np.arange(len(which))
            columns["shared_by"] = place[self.secondary[which]]
            columns["primary"] = first_primary(columns["shared_by"])
        columns.setdefault("shared_by", None)
        rest = {n: picked(column, which) for n, column in vars(self).items() if n not in columns}
        return Jobs(**rest, **columns)


@dataclass(frozen=True)
class Pools(Rows):
    """All pools in file order; arrays (P,).

    `gpus` and `price_per_gpu_hour` are those in force at now_s.
    """

    pool: tuple[str, ...]
    gpu_type: Ints  # index into Problem.gpu_types
    gpus: Ints
    gpus_per_node: Ints
    market: Ints  # Market
    price_per_gpu_hour: Floats
    price_per_gb_hour: Floats
    region: tuple[str, ...]
    startup_s: Floats
    revocations_per_gpu_hour: Floats
    memory_gb: Floats  # nan = unknown
    lifetime_s: Floats  # inf = no limit
    min_billing_s: Floats
    availability: Floats
    sharing: Ints  # Isolation
    isolation: Floats  # inf = as in sharing.csv
    straggler_cv: Floats
    link_gb_s: Floats  # inf = the exchange takes no time
    hazard_by_age: tuple[str, ...]  # "" = the same at every age

    @cached_property
    def hazards(self) -> tuple[Hazard, ...]:
        """Revocations per GPU-hour of each pool by age, without its lifetime; never but on spot."""
        every = zip(self.hazard_by_age, self.revocations_per_gpu_hour, self.market, strict=True)
        return tuple(
            pool_hazard(text, float(h)) if m == Market.SPOT else Hazard.constant(0.0)
            for text, h, m in every
        )

    @cached_property
    def is_ageing(self) -> Bools:
        """Whether the revocations of a pool depend on the age of its GPUs, (P,)."""
        return np.array([not h.ageless for h in self.hazards], dtype=bool)

    @cached_property
    def is_lossy(self) -> Bools:
        """Whether GPUs of a pool can be taken back, (P,)."""
        hazardous = np.array([h.per_hour.max() > 0 for h in self.hazards], dtype=bool)
        out: Bools = hazardous | ((self.market == Market.SPOT) & np.isfinite(self.lifetime_s))
        return out

    @cached_property
    def zone(self) -> Ints:
        """Number of the region of each spot pool, (P,); -1 for other markets.

        GPUs of one zone may be revoked together.
        """
        number = {name: z for z, name in enumerate(self.zones)}
        spot = (self.market == Market.SPOT).tolist()
        return np.array(
            [number[name] if s else -1 for name, s in zip(self.region, spot, strict=True)],
            dtype=np.int64,
        )

    @cached_property
    def zones(self) -> tuple[str, ...]:
        """Names of the zones, the regions of spot pools."""
        return tuple(dict.fromkeys(compress(self.region, (self.market == Market.SPOT).tolist())))

    @cached_property
    def prices_memory(self) -> bool:
        """Whether any pool has a price of memory."""
        return bool((self.price_per_gb_hour > 0).any())

    @cached_property
    def marginal_price(self) -> Floats:
        """US dollars that using a GPU-hour of each pool adds to the bill, (P,).

        It is 0 for reserved pools.
        """
        return np.where(self.market == Market.RESERVED, 0.0, self.price_per_gpu_hour)


@dataclass(frozen=True)
class Tenants(Rows):
    """All tenants of tenants.csv, then those only named by jobs; arrays (Q,)."""

    OF_TREE: ClassVar = ("max_gpus", "budget_per_hour", "gpu_hours_per_month")
    OF_OWN_JOBS: ClassVar = ("max_jobs", "max_spot_gpus", "max_spot_share")
    """Limits on the jobs of a tenant and of all below it, and on its own jobs; inf = none."""

    tenant: tuple[str, ...]
    weight: Floats
    max_gpus: Floats
    max_jobs: Floats
    guaranteed_gpus: Ints
    budget_per_hour: Floats
    max_spot_gpus: Floats
    max_spot_share: Floats
    dollar_price: Floats
    average_per_hour: Floats  # nan = none
    amount: Floats  # nan = none
    until_s: Floats  # inf = none
    gpu_hours_per_month: Floats
    gpu_hours_used: Floats  # since the month began, by the jobs of its tree
    parent: Ints  # index into tenants, -1 = none

    @property
    def is_limited(self) -> Bools:
        """Whether a tenant has a limit of its own, (Q,)."""
        limits = (*self.OF_TREE, *self.OF_OWN_JOBS)
        columns = np.stack([getattr(self, name) for name in limits])
        return np.asarray(np.isfinite(columns).any(axis=0))

    @cached_property
    def ancestors(self) -> Ints:
        """Each tenant, its parent, the parent of that, and so on, (D, Q); -1 above the root."""
        lines = [np.arange(len(self))]
        while (above := np.append(self.parent, -1)[lines[-1]]).max(initial=-1) >= 0:
            lines.append(above)
        return np.stack(lines)

    @cached_property
    def exposure(self) -> Floats:
        """GPUs at most in the spot pools of any one region, (Q,).

        The limits are max_spot_gpus, and max_spot_share of guaranteed_gpus.
        """
        has_share = np.isfinite(self.max_spot_share)
        share = np.where(has_share, self.max_spot_share, 0.0) * self.guaranteed_gpus
        by_share = np.where(has_share, np.floor(share + 1e-9), np.inf)
        return np.minimum(self.max_spot_gpus, by_share)


@dataclass(frozen=True)
class Quotas(Rows):
    """Rows of quotas.csv; arrays (K,)."""

    tenant: Ints  # index into Problem.tenants
    gpu_type: Ints  # index into Problem.gpu_types, -1 = any
    pool: Ints  # index into Problem.pools, -1 = any
    guaranteed_gpus: Ints
    max_gpus: Floats  # inf = no limit
    lend_gpus: Floats  # inf = all


@dataclass(frozen=True)
class Rates:
    """Rows of rates.csv in file order; arrays (R,).

    `rate` = work_per_s x efficiency is the speed that counts. `observed` marks speeds that a
    controller measured. `nodes` is the number of nodes of a spread shape: of a row whose `spread`
    is more than the fewest nodes of a pool that hold so many GPUs. It is 0 for all other rows.
    """

    model: Ints
    gpu_type: Ints
    gpus: Ints
    rate: Floats
    batch_size: Ints  # -1 = not given
    accumulation: Ints  # -1 = not given
    memory_gb: Floats  # nan = not given
    spread: Ints  # -1 = not given
    variant: tuple[str, ...]
    compute_s: Floats  # nan = not given
    codec_s: Floats
    volume_gb: Floats
    ratio: Floats
    observed: Bools
    nodes: Ints

    def over(self, row: Ints | slice, link_gb_s: Floats | float) -> Floats:
        """Return work per second of rows over links of so many GB/s (inf: without loss), (n,)."""
        rate, step_s = self.rate[row], self.compute_s[row]
        if np.isnan(step_s).all():  # no row says how long a step computes
            return rate
        share = computing_share(
            step_s, self.codec_s[row], self.volume_gb[row], self.ratio[row], link_gb_s
        )
        return np.where(np.isnan(step_s), rate, rate * share)


@dataclass(frozen=True)
class Curves(Rows):
    """Rows of models.csv: speed models by formula (performance/curves.py)."""

    model: Ints
    gpu_type: Ints
    kind: tuple[str, ...]
    parameters: tuple[Mapping[str, float], ...]

    @cached_property
    def numbers(self) -> Mapping[str, Floats]:
        """Value of every parameter in every curve, (C,), nan where a curve has none.

        Formulas work on all curves at once.
        """
        names = dict.fromkeys(name for q in self.parameters for name in q)
        return {name: np.array([q.get(name, np.nan) for q in self.parameters]) for name in names}

    @cached_property
    def kinds(self) -> tuple[tuple[str, ...], Ints]:
        """The distinct kinds, and the index of each curve's kind, (C,)."""
        names, code = np.unique(np.array(self.kind, dtype=str), return_inverse=True)
        return tuple(names.tolist()), code.reshape(-1)


@dataclass(frozen=True)
class Nodes(Rows):
    """Rows of nodes.csv; arrays (N,)."""

    node: tuple[str, ...]
    pool: Ints
    gpus: Ints
    state: Ints  # 0 up, 1 drain, 2 down
    rack: tuple[str, ...]
    cpus: Floats  # inf = no limit
    host_memory_gb: Floats  # inf = no limit
    leaves_s: Floats  # inf = stays
    returns_s: Floats  # inf = does not come back

    def at(self, now_s: float, interval_s: float) -> Nodes:
        """Return the nodes as a round has them (R70).

        Those that leave before the next round are drained until they are back. Absences that are
        over, and those of nodes that are not up for other reasons, are dropped.
        """
        ahead = (self.state == 0) & (now_s < self.returns_s) & (self.leaves_s < np.inf)
        soon = ahead & (self.leaves_s - now_s <= interval_s * (1 + SAME))
        return replace(
            self,
            state=np.where(soon, 1, self.state),
            leaves_s=np.where(ahead, self.leaves_s, np.inf),
            returns_s=np.where(ahead, self.returns_s, np.inf),
        )

    def change_until(self, then_s: float, until_s: float = -np.inf) -> Ints:
        """Return how many more GPUs each node has at a time than in this round, (N,).

        Nodes that leave later, until `until_s`, do not count either.
        """
        back = (self.state != 0) & (self.leaves_s < np.inf) & (self.returns_s <= then_s)
        gone = (self.state == 0) & (self.leaves_s <= max(then_s, until_s))
        return np.asarray(self.gpus * (back.astype(int) - (gone & (then_s < self.returns_s))))


@dataclass(frozen=True)
class Level:
    """A column of nodes.csv that says where nodes stand, such as their rack.

    `label` has the text of each node, (N,).
    """

    name: str
    label: tuple[str, ...]

    @cached_property
    def domain(self) -> Ints:
        """Number of the label of each node, (N,); nodes with the same label stand together."""
        number: dict[str, int] = {}
        return np.array([number.setdefault(x, len(number)) for x in self.label], dtype=np.int64)


@dataclass(frozen=True)
class Placements(Rows):
    """Rows of placements.csv; arrays (L,)."""

    job: Ints  # index into Jobs
    node: Ints  # index into Nodes
    gpus: Ints
    gpu: Ints  # number of the GPU in its node, of which the job has a share; -1 = whole GPUs


def usable_gpus(
    nodes: Nodes, placements: Placements, pinned: Bools, pool: Ints, gpus: Ints, pools: int
) -> Ints:
    """Return the GPUs of each pool that its nodes offer, (P,).

    They are those of its up nodes, and those of other nodes that pinned jobs hold. Pinned jobs
    whose nodes are unknown are on other nodes as far as the up nodes are too few.

    Parameters
    ----------
    pinned : (J,)
        Running jobs that may not be moved.
    pool, gpus : (J,)
        What running jobs hold themselves: GPUs of two jobs count once.
    """
    pinned = pinned & (gpus > 0)
    up = nodes.state == 0
    every = np.bincount(nodes.pool, nodes.gpus, minlength=pools)
    total = np.bincount(nodes.pool[up], nodes.gpus[up], minlength=pools)
    left = pinned[placements.job] & ~up[placements.node]
    node, gpu = placements.node[left], placements.gpu[left]
    shares = np.unique(np.stack([node, gpu])[:, gpu >= 0], axis=1)[0]  # a GPU counts once
    total = total + np.bincount(nodes.pool[shares], minlength=pools)
    whole = np.where(gpu < 0, placements.gpus[left], 0)
    total = total + np.bincount(nodes.pool[node], whole, minlength=pools)
    unknown = pinned.copy()
    unknown[placements.job] = False
    if unknown.any():
        held = np.bincount(pool[pinned], gpus[pinned], minlength=pools)
        lacks = np.bincount(pool[unknown], minlength=pools) > 0
        total = np.where(lacks, np.maximum(total, np.minimum(held, every)), total)
    return np.asarray(total, dtype=np.int64)


_NONE: Ints = np.zeros(0, dtype=np.int64)
NO_NODES = Nodes((), _NONE, _NONE, _NONE, (), *(np.zeros(0) for _ in range(4)))
NO_PLACEMENTS = Placements(_NONE, _NONE, _NONE, _NONE)


@dataclass(frozen=True)
class Sharing:
    """Rows of sharing.csv; arrays (S,)."""

    model_a: Ints
    model_b: Ints
    gpu_type: Ints
    gpus: Ints
    slowdown_a: Floats
    slowdown_b: Floats


@dataclass(frozen=True)
class Interactive(Rows):
    """Rows of interactive.csv; arrays (I,)."""

    pool: Ints  # index into Problem.pools
    headroom_gpus: Ints  # -1 = by the sessions
    sessions_per_hour: Floats  # nan = not given
    session_s: Floats  # nan = not given
    session_gpus: Ints
    late_share: Floats
    shrinkable_share: Floats


@dataclass(frozen=True)
class Reservations(Rows):
    """Rows of reservations.csv; arrays (R,)."""

    reservation: tuple[str, ...]
    pool: Ints  # index into Problem.pools
    gpus: Ints
    at_s: Floats
    until_s: Floats  # inf = for good
    job_id: tuple[str, ...]  # "" = of no job
    tenant: Ints  # index into Problem.tenants, -1 = of no tenant


@dataclass(frozen=True)
class Pauses:
    """Rows of pauses.csv; arrays (K,)."""

    model: Ints
    from_gpus: Ints
    to_gpus: Ints
    pause_s: Floats
    gpu_type: Ints  # -1 = any

    def look_up(self, model: Ints, gpu_type: Ints, from_gpus: Ints, to_gpus: Ints) -> Floats:
        """Return pause_s of the row for each change, (n,), nan without one.

        A row for the GPU type comes before a row for any type.
        """
        out = np.full(len(model), np.nan)
        at = np.flatnonzero(np.isin(model, self.model))
        if not len(at):
            return out
        key, pause = self._sorted
        for kind in (np.full(len(at), -1), gpu_type[at]):
            wanted = self._key(model[at], kind, from_gpus[at], to_gpus[at])
            place = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
            hit = key[place] == wanted
            out[at[hit]] = pause[place[hit]]
        return out

    @cached_property
    def _sorted(self) -> tuple[Ints, Floats]:
        key = self._key(self.model, self.gpu_type, self.from_gpus, self.to_gpus)
        order = np.argsort(key)
        return key[order], self.pause_s[order]

    @cached_property
    def _sizes(self) -> Ints:
        return np.unique(np.concatenate([self.from_gpus, self.to_gpus]))

    def _key(self, model: Ints, gpu_type: Ints, from_gpus: Ints, to_gpus: Ints) -> Ints:
        """Return one number for a change, -1 where a size is in no row."""
        sizes, types = self._sizes, int(self.gpu_type.max()) + 2
        out = np.where(gpu_type + 1 < types, model * types + gpu_type + 1, -1)
        for gpus in (from_gpus, to_gpus):
            place = np.minimum(np.searchsorted(sizes, gpus), len(sizes) - 1)
            out = np.where((out >= 0) & (sizes[place] == gpus), out * len(sizes) + place, -1)
        return np.asarray(out, dtype=np.int64)


@dataclass(frozen=True)
class Changes(Rows):
    """Changes of GPUs and prices, in order of time; arrays (C,).

    Attributes
    ----------
    at_s : (C,)
        Seconds on the clock of submitted_s.
    pool : (C,)
        Index into Problem.pools.
    gpus : (C,)
        GPUs that are usable from then on, -1 = as before.
    price_per_gpu_hour : (C,)
        US dollars, nan = as before.
    """

    at_s: Floats
    pool: Ints
    gpus: Ints
    price_per_gpu_hour: Floats

    def between(self, after_s: float, until_s: float) -> Changes:
        """Return the changes after `after_s` and not after `until_s`."""
        chosen = np.searchsorted(self.at_s, [after_s, until_s], side="right")
        return self.select(slice(*chosen.tolist()))


NO_CHANGES = Changes(np.zeros(0), _NONE, _NONE, np.zeros(0))


@dataclass(frozen=True)
class Finished(Rows):
    """Rows of finished.csv, jobs that are done; arrays (F,).

    The sizes of others are learned from them (performance/sizes.py).

    Attributes
    ----------
    model : (F,)
        Index into Problem.models.
    total_work : (F,)
        Work of the whole job, in the unit of the model.
    """

    model: Ints
    total_work: Floats


@dataclass(frozen=True)
class Reservation:
    """GPUs of a pool that are kept for a job that waits.

    Attributes
    ----------
    job, pool : int
        Indices into Problem.jobs and Problem.pools.
    gpus : int
        GPUs that it starts with.
    after_s : float
        Seconds from now until it is to start.
    nodes : tuple of (int, int)
        Where the pool has nodes, indices into Problem.nodes, and the GPUs of each that are kept.
    """

    job: int
    pool: int
    gpus: int
    after_s: float
    nodes: tuple[tuple[int, int], ...] = ()


NO_FINISHED = Finished(np.zeros(0, dtype=np.int64), np.zeros(0))
NO_RESERVATIONS = Reservations((), _NONE, _NONE, np.zeros(0), np.zeros(0), (), _NONE)
NO_QUOTAS = Quotas(_NONE, _NONE, _NONE, _NONE, np.zeros(0), np.zeros(0))


@dataclass(frozen=True)
class Problem:
    """One round, ready to decide. It is immutable and made by `validate` only."""

    name: str
    digest: str
    now_s: float
    interval_s: float
    budget_per_hour: float  # inf = none
    restart_s: float
    max_changes: int  # -1 = no limit
    ageing_s: float  # inf = none
    reserve_after_s: float
    due_after_runs: float  # inf = never
    objective: str
    # whether values count a pause spread over the time for which an option will be held
    spread_pauses: bool
    dollar_price: float  # value of a dollar, in units of the objective
    settings: Mapping[str, Record]  # tables [solver], [horizon], ... of config.toml
    jobs: Jobs
    pools: Pools
    tenants: Tenants
    rates: Rates
    curves: Curves
    nodes: Nodes
    placements: Placements
    received: Floats  # (J, T) seconds that a job has held GPUs of a type
    sharing: Sharing
    pauses: Pauses
    interactive: Interactive
    reservations: Reservations
    models: tuple[str, ...]  # names
    gpu_types: tuple[str, ...]  # names
    size_lists: tuple[Ints, ...]  # ascending, distinct
    type_sets: tuple[Bools, ...]  # each (T,)
    mode_sets: tuple[tuple[Mode, ...], ...]
    warnings: tuple[str, ...] = ()
    max_primaries: int = 1  # on whose GPUs one secondary job may run
    sizes: str = "known"  # columns.SIZES
    # of predicted sizes: standard deviation of ln(true size / total_work)
    size_error: float = 0.5
    # standard deviation of ln(true remaining_work / remaining_work), (J,): of predicted sizes, and
    # of those that losses say; None: sizes are not estimated yet, or known
    left_error: Floats | None = None
    # announced changes of the pools after now_s; the hard rules concern now only
    announced: Changes = NO_CHANGES
    # jobs that are done: what is expected of others where sizes are unknown
    finished: Finished = NO_FINISHED
    # whether nothing but a job's own work so far says how much is left, (J,); None = of no job
    guessed: Bools | None = None
    # where the nodes stand, the nearest level first
    levels: tuple[Level, ...] = ()
    quotas: Quotas = NO_QUOTAS
    # GPUs that are not lent and that this round needs all the same, by "type A", "pool a" (R65)
    yielded: Mapping[str, float] = field(default_factory=dict)
    # for large jobs that wait; the decision finds them (policies/reserving.py)
    kept: tuple[Reservation, ...] = ()

    def is_due(self, r: Reservation) -> bool:
        """Return whether the job of a reservation has to start now."""
        return r.after_s == 0 and bool(np.isfinite(self.due_after_runs))

    @cached_property
    def asked(self) -> Reservations:
        """Rows of reservations.csv that are not over."""
        r = self.reservations
        lasts = [not name or name in self.jobs.job_id for name in r.job_id]
        return r.select(np.flatnonzero(np.array(lasts, bool) & (self.now_s < r.until_s)))

    @cached_property
    def has_nodes(self) -> Bools:
        """True for pools whose GPUs are on nodes of nodes.csv, (P,)."""
        return np.bincount(self.nodes.pool, minlength=len(self.pools)) > 0

    @cached_property
    def allowed_types(self) -> Bools:
        """The GPU types that each job may use, (J, T)."""
        # code -1 selects the last row: any type
        sets = np.vstack([*self.type_sets, np.ones(len(self.gpu_types), bool)])
        return np.asarray(sets[self.jobs.gpu_types])

    def gpu_share(self, job: Ints, pool: Ints) -> Floats:
        """Return the share of each GPU that jobs take in pools, (n,).

        It is 1 but for jobs with gpu_fraction in pools with nodes.
        """
        share = np.nan_to_num(self.jobs.gpu_fraction[job], nan=1.0)
        return np.where(self.has_nodes[pool], share, 1.0) if len(self.pools) else share

    def fewest_nodes(self, job: Ints, pool: Ints, gpus: Ints) -> Ints:
        """Return the fewest nodes that hold jobs of these sizes, in whole pods, (n,)."""
        pod = self.jobs.gpus_per_pod[job]
        on_node = np.maximum(1, self.pools.gpus_per_node[pool] // pod) * pod
        return np.asarray(-(-gpus // on_node))

    @cached_property
    def dearest_prices(self) -> Floats:
        """US dollars per hour of a GPU of each pool at most, with the memory of any job, (P,)."""
        by_curve = (
            q.get("memory_gb", 0.0)
            + q.get("memory_per_sample_gb", 0.0) * q.get("max_local", q.get("max_batch", 0.0))
            for q in self.curves.parameters
        )
        given = (*self.jobs.memory_gb.tolist(), *self.rates.memory_gb.tolist(), *by_curve)
        most_gb = max((gb for gb in given if gb > 0), default=0.0)
        return self.pools.price_per_gpu_hour + self.pools.price_per_gb_hour * most_gb

    @property
    def weight(self) -> Floats:
        """Weights that count in the objective, (J,): those of the jobs, increased while they wait.

        weight x (1 + waited_s / ageing_s), where waited_s = now_s - submitted_s - seconds with GPUs
        (received.csv).
        """
        waited_s = np.maximum(0.0, self.now_s - self.jobs.submitted_s - self.received.sum(axis=1))
        return np.asarray(self.jobs.weight * (1.0 + waited_s / self.ageing_s))

    @property
    def money(self) -> Floats:
        """Value of one dollar spent on each job, (J,), in units of the objective."""
        return self.dollar_price + self.tenants.dollar_price[self.jobs.tenant]


BETWEEN_NAMES = "|"  # as in every list of a cell


def secondary_of(primary: Ints) -> Ints:
    """Return the secondary job of each primary job, (J,), -1 = none, where each has one."""
    secondary = np.full(len(primary), -1)
    g = np.flatnonzero((primary >= 0) & (primary < len(primary)))
    secondary[primary[g]] = g
    return secondary


def first_primary(secondary: Ints) -> Ints:
    """Return the first primary job of each secondary job, (J,), -1 = none."""
    primary = np.full(len(secondary), -1)
    h = np.flatnonzero(secondary >= 0)[::-1]
    primary[secondary[h]] = h
    return primary


def held_gpus(gpus: Ints, secondary: Ints) -> Ints:
    """Return the GPUs that each job holds itself, (J,): all but those of its primary jobs."""
    h = np.flatnonzero(secondary >= 0)
    if not len(h):
        return gpus
    held = gpus.copy()
    np.subtract.at(held, secondary[h], gpus[h])
    return np.maximum(held, 0)


def other_jobs(secondary: Ints) -> list[list[int]]:
    """List the jobs on the GPUs of each job: its secondary job, or its primary jobs."""
    out: list[list[int]] = [[] for _ in secondary.tolist()]
    for h in np.flatnonzero(secondary >= 0).tolist():
        g = int(secondary[h])
        out[h].append(g)
        out[g].append(h)
    return out


def join_names(names: Iterable[str]) -> str:
    """Return the cell of `shared_with` that names these jobs."""
    return BETWEEN_NAMES.join(names)


def split_names(cell: str) -> list[str]:
    """Return the jobs that a cell of `shared_with` names."""
    return cell.split(BETWEEN_NAMES) if cell else []
