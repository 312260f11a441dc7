"""The pictures of simulations with nodes: one moment of them, and fragmentation over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.report.charts.series import begin_of
from allocator.report.charts.style import figure, legend, line, time_axis, whole_ticks
from allocator.report.measures import duration
from allocator.report.nodes.cells import JobPart, NodeRow, draw_nodes
from allocator.report.runs import SimulationRun, Study

if TYPE_CHECKING:
    import pandas as pd


def node_figures(
    study: Study, runs: Sequence[SimulationRun], length: float, tail: str
) -> Iterator[tuple[str, str, str, Any]]:
    """Yield name, title, caption and figure of each picture, none without nodes.

    Parameters
    ----------
    runs : of one workload, load and seed.
    length : seconds to show.
    tail : end of the names of the pictures.
    """
    if not all((run.folder / "fragmentation.csv").is_file() for run in runs):
        return
    yield (
        "fragmentation" + tail,
        "GPUs that are free and of no use",
        "Above: free GPUs that would be enough for a waiting job, at the size that its user asked"
        " for, if they were together. Below: all free whole GPUs of pools with nodes.",
        draw_fragmentation(study, runs, length),
    )
    run, at_s = find_moment(study, runs)
    nodes, parts = state_at(study, run, at_s)
    yield (
        "nodes" + tail,
        "Which job has which GPUs",
        f"A row per node, a cell per GPU, a colour per job, under {run.policy},"
        f" {duration(at_s - begin_of(study, run))} after {study.origin}: the moment at which most"
        " GPUs were of no use, or else most were in use.",
        draw_nodes(nodes, parts),
    )


def draw_fragmentation(study: Study, runs: Sequence[SimulationRun], length: float) -> Any:
    """Draw unusable and free GPUs over time, a line per policy."""
    drawn = figure(11.5, 4.4)
    panels = drawn.subplots(2, 1, sharex=True)
    size, unit = time_axis(length)
    for run in runs:
        frame = study.frame(run, "fragmentation").groupby("at_s")[["unusable", "free"]].sum()
        at = (frame.index.to_numpy() - begin_of(study, run)) / size
        for panel, name in zip(panels, ("unusable", "free"), strict=True):
            panel.step(at, frame[name].to_numpy(), where="post", **line(run.policy))
    for panel, words in zip(panels, ("unusable GPUs", "free GPUs"), strict=True):
        panel.set_xlim(0, length / size)
        panel.set_ylim(bottom=0)
        panel.set_ylabel(words)
        panel.grid(True)
        whole_ticks(panel)
    panels[-1].set_xlabel(f"{unit} since {study.origin}")
    legend(drawn, panels)
    return drawn


def find_moment(study: Study, runs: Sequence[SimulationRun]) -> tuple[SimulationRun, float]:
    """Return the run and the round after which most GPUs were unusable, then fewest free."""
    found = []
    for run in runs:
        frame = study.frame(run, "fragmentation").groupby("at_s")[["unusable", "free"]].sum()
        for at_s, unusable, free in frame.itertuples():
            found.append((unusable, -free, -at_s, run.policy, run))
    if not found:
        return runs[0], begin_of(study, runs[0])
    *_, at_s, _, run = max(found, key=lambda row: row[:4])
    return run, -at_s


def state_at(study: Study, run: SimulationRun, at_s: float) -> tuple[list[NodeRow], list[JobPart]]:
    """Return the nodes, and what jobs held of them, just after a time."""
    states, places = (_rows_at(study.frame(run, name), at_s) for name in ("node_states", "places"))
    nodes = [
        NodeRow(name, int(gpus), state)
        for name, gpus, state in zip(states["node"], states["gpus"], states["state"], strict=True)
    ]
    own = places[places["shared_with"].isna()].assign(gpu=places["gpu"].fillna(-1))
    on_gpu = own.groupby(["node", "gpu"])["job_id"].transform("size")
    shares = np.where(own["gpu"] < 0, 1.0, 1.0 / on_gpu)
    columns = (own["job_id"], own["node"], own["gpus"], own["gpu"], shares)
    parts = [
        JobPart(job, node, int(gpus), int(gpu), float(share))
        for job, node, gpus, gpu, share in zip(*columns, strict=True)
    ]
    return nodes, parts


def _rows_at(frame: pd.DataFrame, at_s: float) -> pd.DataFrame:
    return frame[(frame["from_s"] <= at_s) & (at_s < frame["to_s"])]
