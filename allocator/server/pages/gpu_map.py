"""Which job has which GPUs: one small picture for each node, one cell for each GPU.

Colours and blocks are those of the report of a plan. A pool without nodes is drawn as rows of
gpus_per_node cells, which jobs fill from the left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from allocator.report.nodes.cells import JobPart, NodeRow, blocks_of, choose_colours
from allocator.server.views.cluster import OTHERS, PoolState

CELL = 10
GREY = "#9a9a9a"  # jobs that may not be seen


@dataclass(frozen=True)
class DrawnNode:
    """A node, or a row of a pool without nodes: name, state, GPUs in use, picture, jobs."""

    name: str
    state: str
    gpus: int
    used: int
    picture: Markup
    jobs: tuple[str, ...]


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
    count = defaultdict[str, int](int)
    for jobs in on:
        for job in jobs:
            count[job] += 1
    return [
        _draw_node(row, by_node[row.name], shades, {job for job in jobs if count[job] > 1}, jobs)
        for row, jobs in zip(rows, on, strict=True)
    ]


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


def _draw_node(
    node: NodeRow,
    parts: Sequence[JobPart],
    shades: dict[str, str],
    spread: set[str],
    jobs: Sequence[str],
) -> DrawnNode:
    blocks = blocks_of(node, parts)
    shapes = [
        f'<rect class="free {node.state}" x="{CELL * g}" y="0" width="{CELL}" height="{CELL}"/>'
        for g in sorted(set(range(node.gpus)) - {g for b in blocks for g in b.cells})
    ]
    for block in blocks:
        height = CELL * (block.high - block.low)
        frame = " spread" if block.part.job in spread else ""
        shapes.append(
            f'<rect class="job{frame}" fill="{shades[block.part.job]}" x="{CELL * block.cell}"'
            f' y="{CELL * block.low:g}" width="{CELL * block.width}" height="{height:g}">'
            f"<title>{escape(block.part.job)}</title></rect>"
        )
    lines = "".join(f"M{CELL * g} 0V{CELL}" for g in range(1, node.gpus))
    shapes.append(f'<path class="grid" d="{lines}"/>')
    used = len({g for block in blocks for g in block.cells})
    words = f"{node.name}: {used} of {node.gpus} GPUs in use"
    if jobs:
        words += f" by {', '.join(jobs)}"
    if node.state != "up":
        words += f"; {node.state}"
    picture = Markup(
        f'<svg class="cells" viewBox="-0.5 -0.5 {CELL * max(1, node.gpus) + 1} {CELL + 1}"'
        f' role="img" aria-label="{escape(words)}">{"".join(shapes)}</svg>'
    )
    return DrawnNode(node.name, node.state, node.gpus, used, picture, tuple(jobs))
