"""Which job has which GPUs of which nodes: one row per node, one cell per GPU.

A job has one colour on all its nodes, and another one than jobs near it where that is possible. A
dark frame marks jobs on several nodes. Which whole GPUs of a node a job has is not recorded and
does not matter; they are drawn next to each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocator.report.charts.style import FAINT, INK, JOBS, add_rectangles, figure, text_colour_on

UP, DRAIN, DOWN = STATES = "up", "drain", "down"
WHITE, CELL = "#ffffff", "#bbbbbb"  # edges of cells of jobs, and of others
EDGES = {CELL: (1, 0.4), WHITE: (2, 0.4), INK: (3, 0.7)}
"""In which order they are drawn, dark frames last, and how thick."""
Box = tuple[float, float, float, float]
SHADES = tuple(shade for shade in JOBS if shade != "#c9c9c9")  # grey is for drained nodes
GROUND = {UP: "#ffffff", DRAIN: "#dddddd", DOWN: "#444444"}
MOST_ROWS = 50  # of a column of nodes
FEW = 40  # nodes up to which blocks have the names of their jobs
NAME = 4.5  # width of the name of a node, in cells


@dataclass(frozen=True)
class NodeRow:
    """A node: its name, its number of GPUs, and its state in words of nodes.csv."""

    name: str
    gpus: int
    state: str = UP


@dataclass(frozen=True)
class JobPart:
    """What a job has of a node.

    Attributes
    ----------
    job, node : names.
    gpus : whole GPUs, or 1 for a share.
    gpu : number of the GPU of which it has a share, -1 = whole GPUs.
    share : of that GPU.
    """

    job: str
    node: str
    gpus: int
    gpu: int = -1
    share: float = 1.0


@dataclass(frozen=True)
class _Block:
    """A rectangle of a node: `width` cells from `cell` on, from `low` up to `high` of the row."""

    part: JobPart
    cell: int
    width: int
    low: float = 0.0
    high: float = 1.0

    @property
    def cells(self) -> range:
        """The cells that it covers, the whole of them or a part."""
        return range(self.cell, self.cell + self.width)


def draw_nodes(nodes: Sequence[NodeRow], parts: Sequence[JobPart]) -> Any:
    """Draw all nodes in their order, in columns from left to right."""
    by_node: Mapping[str, list[JobPart]] = defaultdict(list)
    for part in parts:
        by_node[part.node].append(part)
    widest = max((node.gpus for node in nodes), default=1)
    columns = max(1, -(-len(nodes) // MOST_ROWS), min(3, -(-len(nodes) // 14)))
    rows = max(1, -(-len(nodes) // columns))
    drawn = figure(11.5, 0.9 + 0.16 * max(rows, 4) * (1.6 if len(nodes) <= FEW else 1.0))
    panel = drawn.subplots(1, 1)
    blocks = [blocks_of(node, by_node[node.name]) for node in nodes]
    shades = choose_colours([[b.part.job for b in found] for found in blocks])
    nodes_of = defaultdict[str, set[str]](set)
    for part in parts:
        nodes_of[part.job].add(part.node)
    shapes = defaultdict[tuple[str, str], list[Box]](list)
    step = widest + NAME + 1
    for i, (node, found) in enumerate(zip(nodes, blocks, strict=True)):
        x = (i // rows) * step
        y = rows - 1 - i % rows
        size = 6.5 if rows <= 30 else 5.0
        panel.text(x - 0.3, y + 0.45, node.name, ha="right", va="center", fontsize=size)
        for g in set(range(node.gpus)) - {g for b in found for g in b.cells}:
            shapes[GROUND[node.state], CELL].append((x + g, y + 0.06, x + g + 1, y + 0.94))
        for b in found:
            low, high = (y + 0.06 + 0.88 * level for level in (b.low, b.high))
            for g in b.cells:
                shapes[shades[b.part.job], WHITE].append((x + g, low, x + g + 1, high))
            box = (x + b.cell, low, x + b.cell + b.width, high)
            if len(nodes_of[b.part.job]) > 1:
                shapes["none", INK].append(box)
            if len(nodes) <= FEW and b.width > 1:
                panel.text(
                    (box[0] + box[2]) / 2,
                    (low + high) / 2,
                    b.part.job[: 4 * b.width],
                    ha="center",
                    va="center",
                    fontsize=6,
                    color=text_colour_on(shades[b.part.job]),
                    zorder=4,
                )
    for (fill, edge), boxes in shapes.items():
        order, width = EDGES[edge]
        add_rectangles(panel, boxes, fill, edge, linewidth=width, zorder=order)
    panel.set_xlim(-NAME, columns * step - NAME)
    panel.set_ylim(-0.2, rows + 0.2)
    panel.set_axis_off()
    _explain(drawn, nodes)
    return drawn


def blocks_of(node: NodeRow, parts: Sequence[JobPart]) -> list[_Block]:
    """Return the blocks of a node: shares on their GPUs, whole GPUs in the cells that are left."""
    out = list[_Block]()
    filled = defaultdict[int, float](float)
    for part in sorted((p for p in parts if p.gpu >= 0), key=lambda p: (p.gpu, p.job)):
        low = filled[part.gpu]
        filled[part.gpu] = low + part.share
        out.append(_Block(part, part.gpu, 1, low, min(1.0, filled[part.gpu])))
    left = [g for g in range(node.gpus) if g not in filled]
    for part in sorted((p for p in parts if p.gpu < 0), key=lambda p: (-p.gpus, p.job)):
        cells = left[: part.gpus]
        left = left[part.gpus :]
        start = 0
        for i in range(1, len(cells) + 1):
            if i == len(cells) or cells[i] != cells[i - 1] + 1:
                out.append(_Block(part, cells[start], i - start))
                start = i
    return out


def choose_colours(rows: Sequence[Sequence[str]]) -> dict[str, str]:
    """Choose a colour for each job of some rows, unlike those of the same row and the one before.

    Of the colours that are left, the one that was used least is taken.
    """
    shades = dict[str, str]()
    used = dict.fromkeys(SHADES, 0)
    before: Sequence[str] = ()
    for row in rows:
        for job in row:
            if job not in shades:
                near = {shades[j] for j in (*before, *row) if j in shades}
                shades[job] = min(SHADES, key=lambda c: (c in near, used[c]))
            used[shades[job]] += 1
        before = row
    return shades


def _explain(drawn: Any, nodes: Sequence[NodeRow]) -> None:
    """Draw the legend of the states that occur."""
    from matplotlib.patches import Patch

    states = {node.state for node in nodes}
    words = {UP: "free", DRAIN: "drained", DOWN: "down"}
    handles = [
        Patch(facecolor=GROUND[s], edgecolor=CELL, label=words[s]) for s in words if s in states
    ]
    handles.append(Patch(facecolor=JOBS[0], edgecolor=INK, label="on several nodes"))
    drawn.legend(handles=handles, loc="outside upper left", ncols=4, fontsize=8, labelcolor=FAINT)
