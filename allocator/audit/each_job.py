"""Rules of each job: is what the plan gives it one of its options?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from allocator.audit.context import AuditContext
from allocator.domain.problem import Bools, Market, State
from allocator.domain.schema.columns import MOST_GPUS


def faults(s: AuditContext) -> Iterator[str]:
    """Yield every rule that a single job breaks, rule by rule."""
    for broken, describe in _rules(s):
        for j in broken.nonzero()[0].tolist():
            yield f"{s.name(j)} gets {describe(j)}"


def _rules(s: AuditContext) -> Iterator[tuple[Bools, Callable[[int], str]]]:
    """Yield which jobs break each rule, (J,), and what is said of such a job."""
    jobs = s.problem.jobs
    pools = s.problem.pools
    a = s.allocation
    yield (
        ~s.has_gpus & ~((a.pool == -1) & (a.gpus == 0)),
        lambda j: f"pool {a.pool[j]} with {a.gpus[j]} GPUs is neither an option nor nothing",
    )
    if not len(pools):
        return
    # what a job already holds may lie outside its range, sizes and types
    fresh = s.has_gpus & ~s.is_kept
    out = fresh & ((s.gpus < jobs.min_gpus) | (s.gpus > jobs.max_gpus))
    yield (
        out,
        lambda j: f"{s.planned(j)}, outside its range {jobs.min_gpus[j]} to {jobs.max_gpus[j]}",
    )
    yield fresh & ~out & ~_size_allowed(s), lambda j: f"{s.planned(j)}, not one of its sizes"
    kind = pools.gpu_type[s.pool]
    yield (
        fresh & ~s.types[np.arange(len(jobs)), kind],
        lambda j: (
            f'{s.planned(j)} of type "{s.problem.gpu_types[kind[j]]}", which its gpu_types exclude'
        ),
    )
    yield (
        s.has_gpus & (s.gpus > pools.gpus[s.pool]),
        lambda j: f"{s.planned(j)}, which has only {pools.gpus[s.pool[j]]}",
    )
    yield (
        fresh & s.table.is_assumed(jobs.model, kind, s.gpus) & (s.gpus != jobs.requested_gpus),
        lambda j: (
            f"{s.planned(j)} at an assumed speed, which it may have at its "
            f"requested {jobs.requested_gpus[j]} only"
        ),
    )
    yield (
        fresh & (pools.market[s.pool] == Market.SPOT) & (s.gpus > jobs.max_spot_gpus),
        lambda j: f"{s.planned(j)}, a spot pool, where it may hold {jobs.max_spot_gpus[j]:g}",
    )
    alone = s.has_gpus & ~s.is_colocated  # audit/pair_rules.py checks rows and speeds of pairs
    yield alone & ~(s.rate > 0), lambda j: f"{s.planned(j)}: no rate is known there"
    yield (
        alone & (s.rate > 0) & ~_row_true(s),
        lambda j: f"{s.planned(j)} with row {a.row[j]} of rates.csv, which does not give its rate",
    )
    memory_gb = np.append(s.problem.rates.memory_gb, np.nan)  # the last for no such row
    row = np.where((a.row >= 0) & (a.row < len(memory_gb)), a.row, -1)
    yield (
        fresh & (memory_gb[row] > pools.memory_gb[s.pool]),
        lambda j: (
            f"{s.planned(j)} with row {a.row[j]} of rates.csv, which needs"
            f" {memory_gb[row[j]]:g} GB of each GPU; it has {pools.memory_gb[s.pool[j]]:g}"
        ),
    )
    yield (
        s.has_gpus & s.is_barred,
        lambda j: (
            f"{s.planned(j)}, although "
            + ("it is held" if jobs.state[j] == State.HELD else "a job it comes after is not done")
        ),
    )
    moved = s.frozen & s.has_gpus & ~s.is_kept
    yield (
        moved & jobs.preemptible,
        lambda j: f"{s.planned(j)}, although resizes_left is 0 and it holds {s.holds(j)}",
    )
    # a non-preemptible job stays if it can; otherwise, or if released, it may only be paused
    left = s.running & ~s.has_gpus & s.can_be_kept & ~s.repairs.released
    yield (
        (moved | left) & ~jobs.preemptible,
        lambda j: f"{s.planned(j)}, although it is not preemptible and holds {s.holds(j)}",
    )


def _size_allowed(s: AuditContext) -> Bools:
    """Find jobs whose size is listed in `sizes`, or follows the rule if they have no list.

    The rule has powers of two in a node, and whole nodes; of pods it has all whole ones.
    """
    jobs = s.problem.jobs
    allowed: Bools = np.zeros(len(jobs), dtype=bool)
    listed = jobs.sizes >= 0
    if s.has_gpus.any():
        node = s.problem.pools.gpus_per_node[s.pool]
        node = np.where(jobs.gpus_per_pod > 1, jobs.gpus_per_pod, node)
        allowed = ((s.gpus & (s.gpus - 1)) == 0) & (s.gpus <= node) | (s.gpus % node == 0)
    if listed.any():
        span = MOST_GPUS + 1
        listed_sizes = np.concatenate(
            [code * span + sizes for code, sizes in enumerate(s.problem.size_lists)]
        )
        allowed = np.where(listed, np.isin(jobs.sizes * span + s.gpus, listed_sizes), allowed)
    whole: Bools = s.gpus % jobs.gpus_per_pod == 0
    return allowed & whole


def _row_true(s: AuditContext) -> Bools:
    """Find jobs whose row of rates.csv is of their model, type and size, and gives the rate.

    -1 is right only where no row applies.
    """
    jobs = s.problem.jobs
    pools = s.problem.pools
    rates = s.problem.rates
    row = s.allocation.row
    true: Bools = (row == -1) & (s.row == -1)
    j = np.flatnonzero(s.has_gpus & (row >= 0) & (row < len(rates.rate)))
    r = row[j]
    true[j] = (
        (rates.model[r] == jobs.model[j])
        & (rates.gpu_type[r] == pools.gpu_type[s.pool[j]])
        & (rates.gpus[r] == s.gpus[j])
        & (rates.over(r, pools.link_gb_s[s.pool[j]]) * s.pace[j] == s.rate[j])
    )
    return true
