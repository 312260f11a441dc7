"""Which job has which GPUs: a row for each node, a cell for each GPU, a colour for each job."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

import numpy as np

from allocator.report.chart import Axis, Box, Chart, Mark, Panel, boxes as draw_boxes
from allocator.report.charts.gpu_rows import split_adjacent
from allocator.report.theme import JOBS

UP, DRAIN, DOWN = STATES = "up", "drain", "down"
FREE = {UP: "var(--panel)", DRAIN: "var(--line)", DOWN: "var(--quiet)"}
MOST_ROWS = 40  # of a panel
ROW = 20  # pixels


class NodeRow(NamedTuple):
    """A node: its name, its number of GPUs, and its state in words of nodes.csv."""

    name: str
    gpus: int
    state: str = UP


class JobPart(NamedTuple):
    """What a job has of a node: whole GPUs, or the share `fraction` of the GPU `gpu`."""

    job: str
    node: str
    gpus: int
    gpu: int | None = None
    fraction: float | None = None


class Block(NamedTuple):
    """A rectangle of a node: the cells, the whole of them or the part from `low` to `high`."""

    job: str
    cells: range
    low: float = 0.0
    high: float = 1.0


def draw_nodes(nodes: Sequence[NodeRow], parts: Sequence[JobPart], words: str = "nodes") -> Chart:
    """Draw all nodes in their order, from top to bottom and from left to right."""
    by_node: Mapping[str, list[JobPart]] = defaultdict(list)
    for part in parts:
        by_node[part.node].append(part)
    blocks = [blocks_of(node, by_node[node.name]) for node in nodes]
    # in turn, so that jobs which begin near each other differ
    shades = dict(zip(dict.fromkeys(b.job for found in blocks for b in found), cycle(JOBS)))
    across = min(3, -(-len(nodes) // 8)) or 1
    size = max(1, min(MOST_ROWS, -(-len(nodes) // across)))
    panels = [
        _panel(nodes[i : i + size], blocks[i : i + size], shades)
        for i in range(0, len(nodes), size)
    ]
    return Chart(words, panels, across)


def _panel(
    nodes: Sequence[NodeRow], found: Sequence[Sequence[Block]], shades: Mapping[str, str]
) -> Panel:
    boxes: dict[str, list[Box]] = defaultdict(list)
    names = []
    for i, (node, blocks) in enumerate(zip(nodes, found, strict=True)):
        floor = len(nodes) - 1 - i + 0.06
        for g in set(range(node.gpus)) - {g for b in blocks for g in b.cells}:
            tip = f"{node.name}: {'free' if node.state == UP else node.state}"
            boxes[FREE[node.state]].append((g, floor, g + 1, floor + 0.88, tip))
        for b in blocks:
            low, high = floor + 0.88 * b.low, floor + 0.88 * b.high
            tip = f"{node.name}: {b.job}"
            boxes[shades[b.job]] += [(g, low, g + 1, high, tip) for g in b.cells]
            if b.high - b.low > 0.6:
                names.append((b.cells.start, high, b.cells.stop, b.job))
    marks = [draw_boxes(found, shade) for shade, found in boxes.items()]
    if names:
        x, y, end, words = zip(*names, strict=True)
        marks.append(Mark("label", x, y, end=end, tips=words))
    labels = {
        len(nodes) - 0.5 - i: node.name + (f" ({node.state})" if node.state != UP else "")
        for i, node in enumerate(nodes)
    }
    widest = max(node.gpus for node in nodes)
    rows = Axis(low=0.0, high=float(len(nodes)), ticks=labels)
    gpus = Axis(low=0.0, high=float(widest), ticks={})
    return Panel("", marks, gpus, rows, height=30 + ROW * len(nodes), left=130)


def blocks_of(node: NodeRow, parts: Sequence[JobPart]) -> list[Block]:
    """Return the blocks of a node: shares on their GPUs, whole GPUs in the cells that are left."""
    out = list[Block]()
    filled = defaultdict[int, float](float)
    shares = ((part.gpu, part.job, part.fraction) for part in parts if part.gpu is not None)
    for gpu, job, fraction in sorted(shares):
        low = filled[gpu]
        filled[gpu] += 1.0 if fraction is None else fraction
        out.append(Block(job, range(gpu, gpu + 1), low, min(1.0, filled[gpu])))
    left = [g for g in range(node.gpus) if g not in filled]
    whole = ((-part.gpus, part.job) for part in parts if part.gpu is None)
    for gpus, job in sorted(whole):
        cells, left = left[:-gpus], left[-gpus:]
        runs = split_adjacent(np.array(cells)) if cells else []
        out += [Block(job, range(int(run[0]), int(run[-1]) + 1)) for run in runs]
    return out
