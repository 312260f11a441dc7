"""Which job has which GPUs: a row for each node, a cell for each GPU, a colour for each job.

Of any nodes, of a plan (a page of its own), and of a simulation.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import numpy as np

from allocator.domain.findings import input_error
from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.errors import UsageError
from allocator.io.plans import PLAN_JSON
from allocator.io.snapshots import read_snapshot
from allocator.objects import Json
from allocator.report.chart import Axis, Box, Chart, Mark, Panel, boxes as draw_boxes, hold
from allocator.report.charts.holders import split_adjacent
from allocator.report.measures import duration
from allocator.report.page import Picture, write_page
from allocator.report.runs import Frame, SimulationRun, read_json
from allocator.report.theme import JOBS, colour

UP, DRAIN, DOWN = STATES = "up", "drain", "down"
FREE = {UP: "var(--panel)", DRAIN: "var(--line)", DOWN: "var(--quiet)"}
MOST_ROWS = 40  # of a panel
ROW = 20  # pixels
KINDS = {"unusable": "free GPUs that no waiting job can use", "free": "all free GPUs"}


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
    shades = dict(zip(dict.fromkeys(b.job for of_node in blocks for b in of_node), cycle(JOBS)))
    across = min(3, -(-len(nodes) // 8)) or 1
    size = max(1, min(MOST_ROWS, -(-len(nodes) // across)))
    panels = [
        _panel(nodes[i : i + size], blocks[i : i + size], shades)
        for i in range(0, len(nodes), size)
    ]
    return Chart(words, panels, across)


def _panel(
    nodes: Sequence[NodeRow], by_node: Sequence[Sequence[Block]], shades: Mapping[str, str]
) -> Panel:
    boxes: dict[str, list[Box]] = defaultdict(list)
    names = []
    for i, (node, blocks) in enumerate(zip(nodes, by_node, strict=True)):
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
    marks = [draw_boxes(shapes, shade) for shade, shapes in boxes.items()]
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


def write_plan_report(folder: Path, out: Path, snapshot: Path | str | None = None) -> Path:
    """Write the page of a plan; return its path.

    Parameters
    ----------
    folder : with plan.json.
    out : the HTML file.
    snapshot : the snapshot of the plan, which has the nodes. The default is the folder itself.

    Raises
    ------
    UsageError
        If the snapshot is not given, or is that of another plan.
    InvalidInput
        For files that are not valid.
    """
    if snapshot is None and not (folder / "nodes.csv").is_file():
        raise UsageError(
            f'"{folder}" has a plan and not its nodes; say --snapshot SNAPSHOT, which was decided'
        )
    problem = validate(read_snapshot(folder if snapshot is None else snapshot))
    plan = read_json(folder / PLAN_JSON)
    if not isinstance(plan.get("jobs"), list):
        raise input_error(folder / PLAN_JSON, "is not a plan")
    if snapshot is not None and plan.get("digest") != problem.digest:
        raise UsageError(f'the plan in "{folder}" is not one of the snapshot "{snapshot}"')
    nodes, parts = plan_on_nodes(problem, plan)
    caption = "A row per node, a cell per GPU, a colour per job."
    free = sum(node.gpus for node in nodes if node.state == STATES[0])
    free -= sum(part.gpus for part in parts if part.gpu is None)
    free -= len({(part.node, part.gpu) for part in parts if part.gpu is not None})
    return write_page(
        out,
        f"Plan for {plan.get('snapshot', folder.name)} by {plan.get('policy')}",
        [Picture("nodes", "Which job gets which GPUs", caption, draw_nodes(nodes, parts))],
        f"{len(nodes)} nodes; {len({p.job for p in parts})} jobs on them; {free} GPUs free",
    )


def plan_on_nodes(problem: Problem, plan: Json) -> tuple[list[NodeRow], list[JobPart]]:
    """Return the nodes of a problem, and what the jobs of a plan get of them."""
    nodes = problem.nodes
    rows = [
        NodeRow(name, int(gpus), STATES[state])
        for name, gpus, state in zip(nodes.node, nodes.gpus, nodes.state, strict=True)
    ]
    parts = [
        JobPart(job["job_id"], **place)
        for job in plan["jobs"]
        if not job["shared_with"]
        for place in job["nodes"] or ()
    ]
    return rows, parts


def draw_simulated_nodes(
    runs: Sequence[SimulationRun], length: float, tail: str
) -> Iterator[Picture]:
    """Yield the pictures; there are none if the simulation has no nodes.

    Parameters
    ----------
    runs : of one workload, load and seed.
    length : seconds to show.
    tail : end of the names of the pictures.
    """
    if not all((run.folder / "fragmentation.csv").is_file() for run in runs):
        return
    yield Picture(
        "fragmentation" + tail,
        "Free GPUs that no waiting job can use",
        "First: free GPUs that would be enough for a waiting job, at the size that its user asked"
        " for, if they were together. Second: all free whole GPUs of pools with nodes.",
        _draw_fragmentation(runs, length),
    )
    run, at_s = find_moment(runs)
    yield Picture(
        "nodes" + tail,
        "Which job has which GPUs",
        f"A row per node, a cell per GPU, a colour per job, under {run.policy},"
        f" {duration(at_s)} after the first submission: when most"
        " GPUs were of no use, or else most were in use.",
        draw_nodes(*state_at(run, at_s)),
    )


def _draw_fragmentation(runs: Sequence[SimulationRun], length: float) -> Chart:
    """Draw unusable and free GPUs over time, a line per policy."""
    marks: dict[str, list[Mark]] = {name: [] for name in KINDS}
    for run in runs:
        frame = _sum_pools(run)
        for name, lines in marks.items():
            line = hold(frame.index, frame[name])
            lines.append(Mark("line", *line, run.policy, colour(run.policy)))
    since = Axis("since the first submission", "time", high=length)
    whole = Axis(kind="whole")
    panels = [Panel(title, marks[name], since, whole) for name, title in KINDS.items()]
    return Chart("free GPUs", panels, 2)


def _sum_pools(run: SimulationRun) -> Frame:
    return run.frame("fragmentation").groupby("at_s")[["unusable", "free"]].sum()


def find_moment(runs: Sequence[SimulationRun]) -> tuple[SimulationRun, float]:
    """Return the run and the round after which most GPUs were unusable, then fewest free."""
    moments = []
    for run in runs:
        frame = _sum_pools(run)
        for at_s, unusable, free in frame.itertuples():
            moments.append((unusable, -free, -at_s, run.policy, run))
    if not moments:
        return runs[0], 0.0
    *_, at_s, _, run = max(moments, key=lambda row: row[:4])
    return run, -at_s


def state_at(run: SimulationRun, at_s: float) -> tuple[list[NodeRow], list[JobPart]]:
    """Return the nodes, and what jobs held of them, just after a time."""
    states, places = (_rows_at(run.frame(name), at_s) for name in ("node_states", "places"))
    nodes = [
        NodeRow(name, int(gpus), state)
        for name, gpus, state in zip(states["node"], states["gpus"], states["state"], strict=True)
    ]
    own = places[places["shared_with"].isna()]
    on_gpu = own.groupby(["node", "gpu"])["job_id"].transform("size")
    columns = (own["job_id"], own["node"], own["gpus"], own["gpu"], on_gpu)
    parts = [
        JobPart(job, node, int(gpus), *(() if np.isnan(gpu) else (int(gpu), 1.0 / jobs)))
        for job, node, gpus, gpu, jobs in zip(*columns, strict=True)
    ]
    return nodes, parts


def _rows_at(frame: Frame, at_s: float) -> Frame:
    return frame[(frame["from_s"] <= at_s) & (at_s < frame["to_s"])]
