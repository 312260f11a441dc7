"""`allocator frontier`: time or progress against money, of one job, several, or a whole round."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.cli.models.sources import read_problem
from allocator.cli.output import format_csv, note, progress_bar, show_result, write_results
from allocator.cli.parsing import (
    SNAPSHOT,
    command,
    effort,
    formats,
    group,
    number,
    objective,
    option,
    parse_integer,
    words,
)
from allocator.cli.plan.plan_show import show_plan
from allocator.cli.tables import Table, percent, show, text
from allocator.errors import UsageError

if TYPE_CHECKING:
    from allocator.domain.problem import Problem
    from allocator.engine.frontier.jobs import JobsFrontier
    from allocator.engine.frontier.rounds import CheapestPlan, RoundFrontier
    from allocator.engine.frontier.sweep import Effort, Tell

EXAMPLES = """
allocator frontier data/snapshots/medium --points 25 --out curve     progress against dollars per \
hour
allocator frontier data/snapshots/medium --keep 95% --out cheaper    the cheapest plan that keeps \
95 % of the progress
allocator frontier data/snapshots/demo --jobs pretrain,llm-tune      hours against dollars, to the \
end of the jobs
"""
# few budgets can be proven to the last digit, and a curve shows what is open
PLAN_S = 5.0
ABOUT = """\
What money buys. Of a snapshot: the round at a series of budgets, each plan with the bound that none
beats, the price of a dollar, and the curve that bounds all plans in between. With --jobs: every way
(pool, size) to run these jobs to their end, starting now, and for several the sum of weighted hours
against the sum of dollars. docs/tenants.md."""


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


def _parse_value(text: str) -> tuple[float, bool]:
    """Return (value, whether it is a share) of '95%' or '12.5'."""
    share = text.strip().endswith("%")
    value = float(text.strip().removesuffix("%")) / (100.0 if share else 1.0)
    if not math.isfinite(value) or (share and not 0 <= value <= 1):
        raise argparse.ArgumentTypeError(f"{text} is neither a value nor a share from 0% to 100%")
    return value, share


_parse_value.__name__ = "value or share"


@command(
    "frontier",
    "what money buys: time-cost frontier of jobs or of a round",
    ABOUT,
    EXAMPLES,
    SNAPSHOT,
    option("--jobs", "A,B", "of these jobs to their end, instead of the round", words),
    option(
        "--points",
        "N",
        "plans to look for at most (default: 25; with --keep 60)",
        parse_integer(2, 100_000),
    ),
    option(
        "--dollars",
        None,
        "which count: listed prices of all pools, as in budget_per_hour (default), or what is "
        "added to the bill: reserved pools are paid for anyway",
        default="listed",
        choices=("listed", "added"),
    ),
    objective(),
    option(
        "--max-budget",
        "USD",
        "dollars per hour at the right end (default: what the best plan without a budget spends)",
        number(),
    ),
    option(
        "--keep",
        "V|P%",
        "instead of the curve: the cheapest plan of value V, or P %% of the best plan",
        _parse_value,
    ),
    effort(PLAN_S, "each plan"),
    group(
        "output",
        option(
            "--out",
            "DIR",
            "write frontier.json, frontier.csv, frontier.svg, with "
            "--jobs ways.csv; with --keep plan.json, plan.csv, "
            "keep.json",
            Path,
        ),
        formats("table", "json", "csv"),
    ),
)
def call(args: argparse.Namespace) -> int:
    from allocator.engine.frontier.sweep import Effort
    from allocator.solvers.base import SolveLimits
    from allocator.solvers.registry import find

    given = {"--objective": args.objective, "--max-budget": args.max_budget, "--keep": args.keep}
    wrong = [
        f"{name} is of a round, --jobs of jobs to their end: give one of them"
        for name, value in given.items()
        if args.jobs and value is not None
    ]
    if wrong:
        raise UsageError("\n".join(wrong))
    solver = find(args.solver)
    problem = read_problem(args.snapshot)
    points = args.points or (25 if args.keep is None else 60)
    limits = SolveLimits(args.time_limit_s, args.gap, args.threads, args.seed)
    effort = Effort(limits, solver, points)
    with progress_bar(is_counted=True) as bar:
        row = bar.add_task("plans", total=points)

        def tell(done: int) -> None:
            bar.update(row, completed=done)

        if args.jobs:
            _jobs(args, problem, effort, tell)
        elif args.keep is not None:
            _keep(args, problem, effort, tell)
        else:
            _round(args, problem, effort, tell)
    return 0


def _round(args: argparse.Namespace, problem: Problem, effort: Effort, tell: Tell) -> None:
    from allocator.engine.frontier.rounds import round_frontier
    from allocator.report.charts.choices import draw_round_frontier

    found = round_frontier(problem, effort, tell=tell, **_asked(args))
    rows = format_csv(found.rows())
    document = found.to_dict()
    _write(args.out, document, {"frontier.csv": rows}, lambda: draw_round_frontier(found))
    show_result(args.format, document, lambda: _show_round(found), lambda: rows)


def _asked(args: argparse.Namespace) -> dict[str, Any]:
    most = math.inf if args.max_budget is None else args.max_budget
    return {"objective": args.objective, "dollars": args.dollars, "max_budget": most}


def _jobs(args: argparse.Namespace, problem: Problem, effort: Effort, tell: Tell) -> None:
    from allocator.engine.frontier.jobs import jobs_frontier
    from allocator.engine.frontier.ways import job_ways
    from allocator.report.charts.choices import draw_jobs_frontier

    found = jobs_frontier(
        problem, job_ways(problem, args.jobs, args.dollars), effort, args.dollars, tell
    )
    rows = format_csv(found.rows() if found.found is None else found.plans())
    files = {"frontier.csv": rows}
    if found.found is not None:
        files["ways.csv"] = format_csv(found.rows())
    document = found.to_dict()
    _write(args.out, document, files, lambda: draw_jobs_frontier(found))
    show_result(args.format, document, lambda: _show_jobs(found), lambda: rows)


def _keep(args: argparse.Namespace, problem: Problem, effort: Effort, tell: Tell) -> None:
    from allocator.engine.frontier.rounds import keep
    from allocator.io.plans import dumps, to_csv, to_json, write_files, write_plan

    kept = keep(problem, effort, *args.keep, tell=tell, **_asked(args))
    if args.out is not None:
        write_files(args.out, {"keep.json": dumps(kept.to_dict()) + "\n"})
        write_plan(kept.result, args.out)
    lines = _describe_kept(kept)
    if args.format == "table":
        show_plan(kept.result, head=lines)
        return
    sys.stdout.write((to_json if args.format == "json" else to_csv)(kept.result))
    note(*lines)


def _write(
    folder: Path | None,
    document: dict[str, Any],
    files: dict[str, str],
    picture: Callable[[], bytes],
) -> None:
    """Write the files of a curve, if there is a folder for them."""
    from allocator.io.plans import dumps

    if folder is not None:
        document_text = dumps(document) + "\n"
        pictures = {"frontier.svg": picture()}
        write_results(folder, {**files, "frontier.json": document_text, **pictures})


def _show_round(found: RoundFrontier) -> None:
    """Print the curve of a round."""
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
    pools = (f">{text(pool)}" for pool in found.problem.pools.pool)
    money = (">budget", ">spent", ">added", ">value", ">at most", ">gap", ">1 $/h more", ">jobs")
    rows = [
        (
            *(math.inf if budget is None else budget, spent, added),
            *(text(value, 6), text(bound, 6), percent(gap)),
            *more,
        )
        for budget, spent, added, value, bound, gap, *more in map(dict.values, found.rows())
    ]
    title = "plans (budget: the largest looked at that buys nothing better; by pool: GPUs)"
    show([Table(title, (*money, *pools), rows)], head)


def _show_jobs(found: JobsFrontier) -> None:
    """Print the ways of the jobs, and their sums."""
    ways = found.rows()
    cells: list[Sequence[Any]] = [
        (
            *(w["job_id"], w["pool"], w["gpus"]),
            f"{100 * w['useful_share']:.4g} %",
            *(w["hours"], w["dollars"], w["added_dollars"]),
            "x" if w["hull"] else "",
        )
        for w in ways
        if w["front"]
    ]
    columns = ("job", "pool", ">GPUs", ">useful", ">hours", ">listed $", ">added $", "hull")
    title = "ways to the end that no other of the job beats in both (hull: nor a mix of two)"
    made = [Table(title, columns, cells)]
    head = [
        (
            f"snapshot {text(found.problem.name)}: {len(ways)} ways to run {len(found.ways.name)} "
            f"job{'s' if len(found.ways.name) > 1 else ''} to the end, starting now"
        ),
        TO_THE_END[found.dollars],
    ]
    if found.found is not None:
        names = tuple(map(text, found.ways.name)) if len(found.ways.name) <= 8 else ()
        cells = [
            (
                *(p["budget"], p["spent"]),
                *(text(p[name], 5) for name in ("weighted_hours", "bound")),
                percent(p["gap"]),
                p["hours_per_dollar"],
                text(p["without_limits"], 5),
                *(p["jobs"][n] for n in (found.ways.name if names else ())),
            )
            for p in found.plans()
        ]
        dollars = (">at most $", ">spent $", ">weighted h", ">at least", ">gap", ">h per $ more")
        title = "all at the same time (without limits: the least by mixing if pools had no ends)"
        made.append(Table(title, (*dollars, ">without limits", *names), cells))
        best = int(found.fits.sum())
        head.append(
            f"{len(found.fits)} corners without limits of pools and tenants, {best} of them keep"
            f" the limits; {len(found.found.answers)} solves with limits,"
            f" {percent(found.found.open_share)} of the area between the plans is open"
        )
    show(made, head)


def _describe_kept(kept: CheapestPlan) -> list[str]:
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
