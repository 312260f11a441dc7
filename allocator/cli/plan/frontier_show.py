"""Tables and CSV of `allocator frontier`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from allocator.cli.plan.plan_show import show_plan
from allocator.cli.tables import Table, percent, show, text
from allocator.io.tables import csv_table

if TYPE_CHECKING:
    from allocator.engine.frontier.jobs import JobsFrontier
    from allocator.engine.frontier.rounds import CheapestPlan, RoundFrontier

MEANT = {
    "listed": (
        "budgets and spending in listed prices of all pools, as budget_per_hour counts; added: what"
        " that adds to the bill, reserved pools are paid for anyway"
    ),
    "added": (
        "budgets and spending in dollars added to the bill: reserved pools are paid for anyway and"
        " count nothing (budget_per_hour of a snapshot counts them)"
    ),
}
TO_THE_END = {
    "listed": (
        "dollars in listed prices of all pools; added: without reserved pools, paid for anyway"
    ),
    "added": (
        "the frontier is of the dollars added to the bill; listed: with reserved pools at their"
        " price"
    ),
}


def csv_text(rows: list[dict[str, Any]]) -> str:
    """Return rows with equal keys as CSV; a mapping becomes a column per key, KEY:NAME."""
    flat = [_flatten(row) for row in rows]
    return csv_table.csv_text(flat[0], (map(_cell, row.values()) for row in flat))


def _flatten(row: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{key}:{name}" if name is not None else key: value
        for key, given in row.items()
        for name, value in (given.items() if isinstance(given, dict) else ((None, given),))
    }


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None or (isinstance(value, float) and not math.isfinite(value)) else value


def round_(found: RoundFrontier) -> None:
    """Print the curve of a round."""
    pools = found.problem.pools.pool
    head = [
        (
            f"snapshot {text(found.problem.name)}: {found.problem.objective} against dollars per"
            f" hour, {len(found.found.answers)} solves, {len(found.found.best)} plans that nothing"
            " found beats"
        ),
        MEANT[found.dollars],
        (
            f"no plan keeps the rules for less than {text(found.found.least)} $/h; between the"
            f" plans {percent(found.found.open_share)} of the area is open"
        ),
    ]
    columns = (
        "budget",
        "spent",
        "added",
        "value",
        "at most",
        "gap",
        "1 $/h more",
        "jobs",
        *map(text, pools),
    )
    rows = [
        [
            text(row["budget_per_hour"]),
            text(row["spent_per_hour"]),
            text(row["added_per_hour"]),
            text(row["value"], 6),
            text(row["bound"], 6),
            percent(row["gap"]),
            text(row["dollar_value"]),
            str(row["jobs_running"]),
            *(str(row[f"gpus:{name}"]) for name in pools),
        ]
        for row in found.rows()
    ]
    show(
        [
            Table(
                "plans (budget: the largest looked at that buys nothing better; by pool: GPUs)",
                columns,
                rows,
                frozenset(columns),
            )
        ],
        head,
    )


def jobs(found: JobsFrontier) -> None:
    """Print the ways of the jobs, and their sums."""
    ways = found.rows()
    shown = [w for w in ways if w["front"]]
    cells = [
        [
            text(w["job_id"]),
            text(w["pool"]),
            text(w["gpus"]),
            f"{100 * w['useful_share']:.4g} %",
            text(w["hours"]),
            text(w["dollars"]),
            text(w["added_dollars"]),
            "x" if w["hull"] else "",
        ]
        for w in shown
    ]
    columns = ("job", "pool", "GPUs", "useful", "hours", "listed $", "added $", "hull")
    made = [
        Table(
            "ways to the end that no other of the job beats in both (hull: nor a mix of two)",
            columns,
            cells,
            frozenset(columns[2:7]),
        )
    ]
    head = [
        (
            f"snapshot {text(found.problem.name)}: {len(ways)} ways to run {len(found.ways.name)} "
            f"job{'s' if len(found.ways.name) > 1 else ''} to the end, starting now"
        ),
        TO_THE_END[found.dollars],
    ]
    if found.found is not None:
        names = tuple(map(text, found.ways.name)) if len(found.ways.name) <= 8 else ()
        heads = (
            "at most $",
            "spent $",
            "weighted h",
            "at least",
            "gap",
            "h per $ more",
            "without limits",
            *names,
        )
        cells = [
            [
                text(p["budget"]),
                text(p["spent"]),
                text(p["weighted_hours"], 5),
                text(p["bound"], 5),
                percent(p["gap"]),
                text(p["hours_per_dollar"]),
                text(p["without_limits"], 5),
                *(p["jobs"][n] for n in (found.ways.name if names else ())),
            ]
            for p in found.plans()
        ]
        made.append(
            Table(
                "all at the same time (without limits: the least by mixing if pools had no ends)",
                heads,
                cells,
                frozenset(heads[:7]),
            )
        )
        best = int(found.fits.sum())
        head.append(
            f"{len(found.fits)} corners without limits of pools and tenants, {best} of them keep"
            f" the limits; {len(found.found.answers)} solves with limits,"
            f" {percent(found.found.open_share)} of the area between the plans is open"
        )
    show(made, head)


def kept_lines(kept: CheapestPlan) -> list[str]:
    """Return what was asked for, its cost, and the proof."""
    less = kept.best_spent - kept.spent
    share = f" ({100 * less / kept.best_spent:.1f} % less)" if kept.best_spent > 0 else ""
    return [
        (
            f"kept {text(kept.result.objective_value, 7)} of at least {text(kept.target, 7)} for"
            f" {text(kept.spent, 6)} $/h; no plan that keeps it spends less than"
            f" {text(kept.least, 6)} $/h ({kept.solves} solves)"
        ),
        (
            f"the best plan has value {text(kept.best_value, 7)} for {text(kept.best_spent, 6)}"
            f" $/h{share}"
        ),
        MEANT[kept.dollars],
    ]


def kept(found: CheapestPlan) -> None:
    """Print the plan, as `solve` does."""
    show_plan(found.result, head=kept_lines(found))
