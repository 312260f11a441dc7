"""Charts of the nodes in a simulation: fragmentation over time, and the nodes when it was worst."""

from collections.abc import Iterator, Sequence

import numpy as np

from allocator.report.chart import Axis, Chart, Mark, Panel, hold
from allocator.report.measures import duration
from allocator.report.nodes.cells import JobPart, NodeRow, draw_nodes
from allocator.report.page import Picture
from allocator.report.runs import Frame, SimulationRun
from allocator.report.theme import colour

KINDS = {"unusable": "GPUs that are free and of no use", "free": "GPUs that are free"}


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
        "GPUs that are free and of no use",
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
        for name, found in marks.items():
            line = hold(frame.index, frame[name])
            found.append(Mark("line", *line, run.policy, colour(run.policy)))
    since = Axis("since the first submission", "time", high=length)
    whole = Axis(kind="whole")
    panels = [Panel(title, marks[name], since, whole) for name, title in KINDS.items()]
    return Chart("free GPUs", panels, 2)


def _sum_pools(run: SimulationRun) -> Frame:
    return run.frame("fragmentation").groupby("at_s")[["unusable", "free"]].sum()


def find_moment(runs: Sequence[SimulationRun]) -> tuple[SimulationRun, float]:
    """Return the run and the round after which most GPUs were unusable, then fewest free."""
    found = []
    for run in runs:
        frame = _sum_pools(run)
        for at_s, unusable, free in frame.itertuples():
            found.append((unusable, -free, -at_s, run.policy, run))
    if not found:
        return runs[0], 0.0
    *_, at_s, _, run = max(found, key=lambda row: row[:4])
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
