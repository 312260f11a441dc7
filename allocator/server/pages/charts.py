"""Charts of the pages: money, GPUs in use, rounds, nodes, and what a job held."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import cycle
from operator import attrgetter

import numpy as np

from allocator.objects import Record
from allocator.queue.costs import DailyCost
from allocator.report.chart import COLOURS, INK, Axis, Box, Chart, Mark, Panel, boxes, stack
from allocator.report.measures import duration, number
from allocator.report.nodes import JobPart, NodeRow, draw_nodes
from allocator.server.views.cluster import PoolState, UseOverTime
from allocator.server.views.rounds import Round

DOLLARS = Axis(label=lambda at: f"${at:,.2f}" if 0 < at < 10 else f"${at:,.0f}")
FEW = 5  # labels of days
SECONDS = Axis(kind="log", label=duration)
SHARES = Axis(label=lambda at: f"{round(100 * at, 6):g} %")


def draw_spending(
    days: Sequence[str], daily: Sequence[DailyCost], budget_per_hour: float | None
) -> Chart | None:
    """Return dollars by day, stacked by tenant, with a line at the budget of a day."""
    if not daily:
        return None
    # a new queue has few days, which would be the thin end of an empty chart
    days = days[min(*(days.index(cost.day) for cost in daily), len(days) - FEW) :]
    at = {day: i for i, day in enumerate(days)}
    floor = dict.fromkeys(days, 0.0)
    by_tenant = defaultdict[str, list[Box]](list)
    for cost in sorted(daily, key=attrgetter("tenant", "day")):
        i, low = at[cost.day], floor[cost.day]
        floor[cost.day] += cost.dollars
        tip = f"{cost.tenant}, {cost.day}: ${cost.dollars:,.2f}"
        by_tenant[cost.tenant].append((i + 0.05, low, i + 0.95, floor[cost.day], tip))
    marks = [boxes(by_tenant[tenant], COLOURS[k % 8], tenant) for k, tenant in enumerate(by_tenant)]
    every = -(-len(days) // FEW)
    ticks = {i + 0.5: days[i][5:] for i in range(len(days) - 1, -1, -every)}
    limit = [] if budget_per_hour is None else [(24 * budget_per_hour, "budget of a day")]
    x = Axis(low=0.0, high=float(len(days)), ticks=ticks)
    panel = Panel("US dollars by day", marks, x, DOLLARS, limit)
    return Chart(f"US dollars by day and tenant; today {floor[days[-1]]:,.2f}", [panel])


def draw_use(use: UseOverTime) -> Chart | None:
    """Return GPUs in use over time, stacked by pool, with a line at all GPUs."""
    if not use.by_pool:
        return None
    edges = np.append(use.at_s, 2 * use.at_s[-1] - use.at_s[-2])
    marks = list(stack(edges, use.by_pool, dict(zip(use.by_pool, cycle(COLOURS), strict=False))))
    now = sum(gpus[-1] for gpus in use.by_pool.values())
    words = f"now {now:,.0f} of {use.gpus:,} GPUs in use"
    limit = [(use.gpus, "all GPUs")] if use.gpus else []
    panel = Panel("GPUs in use", marks, Axis(kind="clock"), Axis(kind="whole"), limit)
    return Chart(words, [panel])


def draw_rounds(rows: Sequence[Round]) -> Chart:
    """Return numbers of rounds; each point leads to its round."""
    ordered = sorted(rows, key=lambda row: row.number)
    x = [row.number for row in ordered]

    def dots(values: Iterable[float | None], name: str = "", colour: str = COLOURS[0]) -> Mark:
        y = np.array([*values], dtype=np.float64)
        tips = [f"round {n}: {number(v)}" for n, v in zip(x, y, strict=True)]
        links = [f"/rounds/{n}" for n in x]
        return Mark("dots", x, y, name, colour, tips=tips, links=links)

    both = [
        dots((row.bound for row in ordered), "bound", INK),
        dots((row.value for row in ordered), "value"),
    ]
    changes = dots(row.changes for row in ordered)
    gap = dots(row.gap for row in ordered)
    took = dots(row.seconds.get("decide") for row in ordered)
    axis = Axis("round", "near", label="{:.0f}".format)
    if len(x) < 6:
        axis = Axis("round", "near", ticks={float(n): str(n) for n in x})
    panels = [
        Panel("Jobs started or stopped", [changes], axis, Axis(kind="whole")),
        Panel("Value of the plan, and the most it could be", both, axis),
        Panel("Proven gap", [gap], axis, SHARES),
        Panel("Seconds to decide", [took], axis, SECONDS),
    ]
    return Chart("rounds by number", panels, 2)


def draw_holdings(allocations: Sequence[Record], begin_s: float, end_s: float) -> Chart | None:
    """Return when a job held how many GPUs of which pool."""
    marks = []
    for k, pool in enumerate(sorted({allocation["pool"] for allocation in allocations})):
        shapes = [
            (
                allocation["ordered_s"],
                0.0,
                end_s if allocation["ended_s"] is None else allocation["ended_s"],
                allocation["gpus"],
                f"{allocation['gpus']} x {pool}, {allocation['phase']}",
            )
            for allocation in allocations
            if allocation["pool"] == pool
        ]
        marks.append(boxes(shapes, COLOURS[k % 8], pool))
    if not marks:
        return None
    x_axis = Axis(kind="clock", low=begin_s, high=max(end_s, begin_s + 1))
    panel = Panel("GPUs held", marks, x_axis, Axis(kind="whole"), height=170)
    return Chart(f"held GPUs {len(allocations)} times", [panel])


def draw_pool(
    pool: PoolState, most: int | None = None
) -> tuple[Chart | None, dict[str, list[str]]]:
    """Return the map of the first nodes of a pool, and the jobs on each node."""
    if pool.nodes:
        rows = [NodeRow(node["node"], node["gpus"], node["state"]) for node in pool.nodes]
        parts = [JobPart(h.job_id, **vars(part)) for h in pool.holders for part in h.nodes]
    else:
        rows, parts = _fill_rows(pool)
    jobs: dict[str, set[str]] = defaultdict(set)
    for part in parts:
        jobs[part.node].add(part.job)
    chart = draw_nodes(rows[:most], parts, f"who has which GPU of {pool.pool}") if rows else None
    return chart, {name: sorted(names) for name, names in jobs.items()}


def _fill_rows(pool: PoolState) -> tuple[list[NodeRow], list[JobPart]]:
    """Return rows of a pool without nodes, and the jobs on them, one after another."""
    size, parts, end = pool.gpus_per_node, [], 0
    total = max(pool.gpus, sum(holder.gpus for holder in pool.holders))
    rows = []
    for first in range(0, total, size):
        last = min(first + size, total)
        rows.append(NodeRow(f"{pool.pool} {first} to {last - 1}", last - first))
    for holder in pool.holders:
        begin, end = end, end + holder.gpus
        for row in range(begin // size, -(-end // size)):
            gpus = min(end, (row + 1) * size) - max(begin, row * size)
            parts.append(JobPart(holder.job_id, rows[row].name, gpus))
    return rows, parts
