"""How long jobs take: which share was done, or had started, after a time."""

from __future__ import annotations

import numpy as np

from allocator.report.chart import Axis, Chart, Mark, Panel
from allocator.report.charts.cluster import BANDS
from allocator.report.charts.series import Floats, share_done
from allocator.report.runs import SimulationRun, Study
from allocator.report.theme import colour

POINTS = 200  # number of points of each line
MOMENTS = {
    1.0: "1 s",
    10.0: "10 s",
    60.0: "1 min",
    600.0: "10 min",
    3600.0: "1 h",
    36_000.0: "10 h",
    345_600.0: "4 d",
    3_456_000.0: "40 d",
}
SHARES = {0.0: "0", 0.25: "25 %", 0.5: "50 %", 0.75: "75 %", 1.0: "all"}
# column of jobs.csv, title of its panel, the least time of its axis
KINDS = (
    ("jct_s", "Share of jobs done", 10.0),
    ("queue_s", "Share of jobs started", 1.0),
)


def times(study: Study, workload: str) -> Chart:
    """Draw the distributions of completion and queueing times, two panels for each load."""
    panels = [
        _panel(study, workload, load, *kind) for load in study.loads(workload) for kind in KINDS
    ]
    return Chart("how long jobs take", panels, 2)


def _panel(study: Study, workload: str, load: str, column: str, title: str, least: float) -> Panel:
    """Draw the distribution of a column of jobs.csv, with a line for each policy."""
    found = {
        p: [_values(study, r, column) for r in study.of(workload, load, p)]
        for p in study.policies(workload)
    }
    known = np.concatenate([np.zeros(0), *(v for runs in found.values() for v in runs)])
    known = known[np.isfinite(known)]
    high = 1.1 * max([float(known.max(initial=0.0)), 2 * least])
    low = min(high / 10, max(least, 0.8 * float(np.percentile(known, 0.5)) if len(known) else 0))
    x = np.geomspace(low, high, POINTS)
    marks = []
    for policy, runs in found.items() if len(known) else ():
        shares = [share_done(v, len(v), x) for v in runs]
        if len(runs) > 1 and len(found) <= BANDS:
            bottom, top = np.percentile(shares, (10.0, 90.0), axis=0)
            marks.append(Mark("area", x, top, low=bottom, colour=colour(policy), is_faint=True))
        every = np.concatenate([np.zeros(0), *runs])
        marks.append(Mark("line", x, share_done(every, len(every), x), policy, colour(policy)))
    ticks = {at: text for at, text in MOMENTS.items() if low <= at <= high}
    return Panel(
        (f"Load {load}: " if load else "") + title,
        marks,
        Axis("time since submission", "log", low, high, ticks),
        Axis(high=1.0, ticks=SHARES),
    )


def _values(study: Study, run: SimulationRun, column: str) -> Floats:
    """Return a column of the jobs of a run, in seconds; nan where it has no value."""
    return np.asarray(study.frame(run, "jobs")[column].to_numpy(), dtype=np.float64)
