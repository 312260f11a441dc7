"""Show a plan on the screen: totals by action, reason, pool and tenant, then the jobs that fit."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from allocator.cli.tables import Table, headline, jobs_table, pools_table, show, text
from allocator.domain.plan import Plan

LEAST_ROWS = 12  # jobs that are shown on the smallest terminal
# in the order in which they are shown
ACTIONS = ("start", "grow", "move", "shrink", "pause", "wait", "keep")
NUMBERS = frozenset(
    {
        "jobs",
        "GPUs",
        "value",
        "$/h",
        "run",
        "wait",
        "pause",
        "get nothing",
        "get less",
        "guaranteed",
        "at most",
    }
)


def show_plan(result: Plan, has_reasons: bool = False, head: Sequence[str] = ()) -> None:
    """Print a plan on standard output.

    A terminal shows the jobs that fit. A pipe or a file gets all jobs, and so does has_reasons.
    head: lines to print before the plan.
    """
    on_terminal = sys.stdout.isatty()
    first = [by_action(result), by_reason(result), pools_table(result), by_tenant(result)]
    first = [table for table in first if table.rows]
    lines = [*head, *headline(result)]
    show(first, lines)
    if not on_terminal:
        show([jobs_table(result.jobs, result.now_s)])
        return
    used = len(lines) + sum(len(table.rows) + 4 for table in first)
    space = max(LEAST_ROWS, shutil.get_terminal_size().lines - used - 6)
    count = len(result.jobs["job_id"])
    hidden = 0 if has_reasons else max(0, count - space)
    show([jobs_by_action(result, count - hidden)])
    if hidden:
        _say(
            f"{hidden} more jobs are not shown: --reasons shows all, --format csv is for programs."
        )
    if has_reasons:
        show_reasons(result)
    elif any(result.jobs["reason"]):
        _say(
            "--reasons says why for every job, `allocator explain SNAPSHOT JOB` what would"
            " change it."
        )


def show_reasons(result: Plan) -> None:
    """Print the reason of every job that has one, wrapped between words."""
    print("\nreasons")
    for job, code, detail in zip(
        *(result.jobs[name] for name in ("job_id", "reason", "detail")), strict=True
    ):
        if code:
            _say(f"{text(job)}: {code}" + (f", {text(detail)}" if detail else ""), "  ")


def by_action(result: Plan) -> Table:
    """Return jobs, GPUs, value and cost of every action that the plan takes."""
    columns = [result.jobs[name] for name in ("gpus", "value", "cost_per_hour")]
    of_action: dict[str, list[int]] = {action: [] for action in ACTIONS}
    for j, action in enumerate(result.jobs["action"]):
        of_action[action].append(j)
    rows = []
    for action, mine in of_action.items():
        if mine:
            gpus, value, cost = (sum(map(column.__getitem__, mine)) for column in columns)
            rows.append([action, str(len(mine)), text(gpus), text(float(value)), text(float(cost))])
    return Table("jobs by action", ("action", "jobs", "GPUs", "value", "$/h"), rows, NUMBERS)


def by_reason(result: Plan) -> Table:
    """Return by reason the jobs that get less than they could use, and how many get nothing."""
    jobs = result.jobs
    every = Counter(code for code in jobs["reason"] if code)
    nothing = Counter(
        code
        for code, pool in zip(jobs["reason"], jobs["pool"], strict=True)
        if code and pool is None
    )
    rows = [
        [text(code), str(count), str(nothing[code]), str(count - nothing[code])]
        for code, count in every.most_common()
    ]
    return Table(
        "jobs that get less than they could use, by reason",
        ("reason", "jobs", "get nothing", "get less"),
        rows,
        NUMBERS,
    )


def by_tenant(result: Plan) -> Table:
    """Return what every tenant holds, with its limits and the states of its jobs."""
    count = Counter(zip(result.jobs["tenant"], result.jobs["action"], strict=True))
    rows = []
    for t in result.tenants:
        name = t.tenant
        wait = count[name, "wait"]
        pause = count[name, "pause"]
        run = sum(count[name, action] for action in ACTIONS) - wait - pause
        rows.append(
            [
                text(v)
                for v in (
                    name,
                    run,
                    wait,
                    pause,
                    t.gpus,
                    t.guaranteed,
                    t.max_gpus,
                    t.cost_per_hour,
                )
            ]
        )
    return Table(
        "tenants",
        ("tenant", "run", "wait", "pause", "GPUs", "guaranteed", "at most", "$/h"),
        rows,
        NUMBERS,
        ("guaranteed", "pause"),
    )


def jobs_by_action(result: Plan, count: int) -> Table:
    """Return the first jobs in the order of ACTIONS, without the text of their reasons.

    The highest value of an action comes first.
    """
    jobs = result.jobs
    rank = [
        (ACTIONS.index(action), -value)
        for action, value in zip(jobs["action"], jobs["value"], strict=True)
    ]
    first = sorted(range(len(rank)), key=rank.__getitem__)[:count]
    shown = {name: [column[j] for j in first] for name, column in jobs.items()}
    table = jobs_table(shown | {"detail": [None] * len(first)}, result.now_s)
    return replace(table, droppable=("held", "$/h", "tenant", "value"))


def _say(said: str, indent: str = "") -> None:
    width = max(40, shutil.get_terminal_size().columns)
    print(
        textwrap.fill(
            said,
            width,
            initial_indent=indent,
            subsequent_indent=indent + "  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    )
