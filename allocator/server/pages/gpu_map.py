"""Which job has which GPUs: one small picture for each node, one cell for each GPU.

Colours and blocks are those of the report of a plan. A pool without nodes is drawn as rows of
gpus_per_node cells, which jobs fill from the left.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocator.report.nodes.cells import JobPart, NodeRow, blocks_of, choose_colours
from allocator.server.views.cluster import OTHERS, PoolState

GREY = "#9a9a9a"  # jobs that may not be seen


@dataclass(frozen=True)
class DrawnNode:
    """A node, or a row of a pool without nodes.

    `free` are its free cells, `blocks` the others, `jobs` those on it, and `spread` the jobs that
    have GPUs of other nodes too. `shades` are the colours of jobs.
    """

    name: str
    state: str
    gpus: int
    used: int
    free: list[int]
    blocks: Sequence[Any]
    jobs: list[str]
    spread: set[str]
    shades: Mapping[str, str]


def draw_pool(pool: PoolState) -> list[DrawnNode]:
    """Draw the nodes of a pool in their order."""
    if pool.nodes:
        rows = [NodeRow(node["node"], node["gpus"], node["state"]) for node in pool.nodes]
        parts = [
            JobPart(
                holder.job_id,
                part.node,
                part.gpus,
                -1 if part.gpu is None else part.gpu,
                1.0 if part.fraction is None else part.fraction,
            )
            for holder in pool.holders
            for part in holder.nodes
        ]
    else:
        rows = list(_make_rows(pool))
        parts = list(_fill_rows(pool))
    by_node: dict[str, list[JobPart]] = defaultdict(list)
    for part in parts:
        by_node[part.node].append(part)
    on = [sorted({part.job for part in by_node[row.name]}) for row in rows]
    shades = choose_colours(on) | {OTHERS: GREY}
    count = Counter(job for jobs in on for job in jobs)
    spread = {job for job, nodes in count.items() if nodes > 1}
    drawn = []
    for row, jobs in zip(rows, on, strict=True):
        blocks = blocks_of(row, by_node[row.name])
        taken = {g for block in blocks for g in block.cells}
        free = [g for g in range(row.gpus) if g not in taken]
        used = len(taken)
        drawn.append(
            DrawnNode(row.name, row.state, row.gpus, used, free, blocks, jobs, spread, shades)
        )
    return drawn


def _make_rows(pool: PoolState) -> Iterator[NodeRow]:
    total = max(pool.gpus, sum(holder.gpus for holder in pool.holders))
    for first in range(0, total, pool.gpus_per_node):
        size = min(pool.gpus_per_node, total - first)
        yield NodeRow(f"{pool.pool} {first} to {first + size - 1}", size)


def _fill_rows(pool: PoolState) -> Iterator[JobPart]:
    """Yield the parts of the jobs of a pool without nodes, one after another."""
    free = {row.name: row.gpus for row in _make_rows(pool)}
    for holder in pool.holders:
        left = holder.gpus
        for name, gpus in free.items():
            taken = min(left, gpus)
            if taken:
                yield JobPart(holder.job_id, name, taken)
                free[name] -= taken
                left -= taken
