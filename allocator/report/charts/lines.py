"""Lines of policies: how long jobs take, and waiting jobs, GPUs and dollars per hour over time."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from allocator.report.chart import INK, Axis, Chart, Mark, Panel
from allocator.report.charts.series import BINS, Floats, series
from allocator.report.runs import Frame, Study
from allocator.report.theme import colour

BANDS = 5  # policies; with more, bands would cover each other
POINTS = 200  # of each line of a distribution
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
WAITING = {"waiting": "Jobs that never started", "paused": "Jobs paused"}
HELD = {"held": "GPUs held"}
PAID = {"paid": "Dollars per hour"}
LIMITS = {"held": "capacity", "paid": "cost_of_all"}
ByLoad = Mapping[str, Mapping[str, Sequence[Frame]]]
"""The series of every seed by load and policy."""


def _draw_policy(
    policy: str, x: Floats, rows: Sequence[Floats], middle: Floats, is_banded: bool
) -> Iterator[Mark]:
    """Yield the line of a policy, and the band in which 8 of 10 seeds lie."""
    if len(rows) > 1 and is_banded:
        low, high = np.percentile(rows, (10.0, 90.0), axis=0)
        yield Mark("area", x, high, low=low, colour=colour(policy), is_faint=True)
    yield Mark("line", x, middle, policy, colour(policy))


def draw_times(work: Study) -> Chart:
    """Draw the distributions of completion and queueing times, two panels for each load."""
    panels = [_draw_shares(work, load, *kind) for load in work.loads for kind in KINDS]
    return Chart("how long jobs take", panels, 2)


def _draw_shares(work: Study, load: str, column: str, title: str, least: float) -> Panel:
    """Draw the distribution of a column of jobs.csv, with a line for each policy."""
    by_policy = {
        policy: [run.frame("jobs")[column].to_numpy() for run in work.of(load, policy)]
        for policy in work.policies
    }
    known = np.concatenate([np.zeros(0), *(v for runs in by_policy.values() for v in runs)])
    known = known[np.isfinite(known)]
    high = 1.1 * max([float(known.max(initial=0.0)), 2 * least])
    low = min(high / 10, max(least, 0.8 * float(np.percentile(known, 0.5)) if len(known) else 0))
    x = np.geomspace(low, high, POINTS)
    marks = list[Mark]()
    for policy, runs in by_policy.items() if len(known) else ():
        *shares, middle = (
            # jobs without a value never end
            np.searchsorted(np.sort(values), x, side="right") / max(1, len(values))
            for values in (*runs, np.concatenate([np.zeros(0), *runs]))
        )
        marks += _draw_policy(policy, x, shares, middle, len(by_policy) <= BANDS)
    ticks = {at: text for at, text in MOMENTS.items() if low <= at <= high}
    return Panel(
        (f"Load {load}: " if load else "") + title,
        marks,
        Axis("time since submission", "log", low, high, ticks),
        Axis(high=1.0, ticks=SHARES),
    )


def collect(work: Study, load: str, length_s: float) -> dict[str, list[Frame]]:
    """Return the series of every policy and seed over one common grid."""
    return {
        policy: [series(run, length_s) for run in work.of(load, policy)] for policy in work.policies
    }


def is_priced(by_load: ByLoad) -> bool:
    """Return whether any GPU has a price, or memory on it."""
    every = (frame for policies in by_load.values() for runs in policies.values() for frame in runs)
    return any(frame[["cost_of_all", "paid"]].to_numpy().any() for frame in every)


def draw_over_time(by_load: ByLoad, columns: Mapping[str, str], words: str) -> Chart:
    """Draw a panel per load and column; the time when queues are empty is left out."""
    panels = []
    for load, policies in by_load.items():
        means = [
            np.mean([frame[column] for frame in runs], axis=0)
            for runs in policies.values()
            for column in columns
            if column in WAITING and runs
        ]
        # a little beyond the last mean above 1 % of the highest
        top = np.max(means, axis=0, initial=0.0) if means else np.zeros(1)
        over = np.flatnonzero(top > 0.01 * top.max())
        bins = min(BINS, int(1.06 * over[-1]) + 3) if len(over) else BINS
        load_words = f"Load {load}: " if load else ""
        for column, title in columns.items():
            panels.append(_draw_column(policies, column, load_words + title, bins))
    return Chart(words, panels, len(columns))


def _draw_column(
    policies: Mapping[str, Sequence[Frame]], column: str, title: str, bins: int
) -> Panel:
    every = [frame for runs in policies.values() for frame in runs]
    ends = every[0].index[:bins] if every else []
    x = np.repeat([0.0, *ends], 2)[1:-1]

    def line(frame: Frame, name: str) -> Floats:
        return np.repeat(frame[name].to_numpy()[:bins], 2)

    marks = list[Mark]()
    for policy, runs in policies.items():
        rows = [line(frame, column) for frame in runs]
        marks += _draw_policy(policy, x, rows, np.mean(rows, axis=0), len(policies) <= BANDS)
    if column in LIMITS:
        top = np.mean([line(frame, LIMITS[column]) for frame in every], axis=0)
        marks.append(Mark("line", x, top, "all there is", INK, is_dashed=True))
    begin = Axis("since the first submission", "time", high=float(x[-1]) if len(x) else 0.0)
    return Panel(title, marks, begin, Axis() if column == "paid" else Axis(kind="whole"))
