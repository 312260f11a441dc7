"""`allocator frontier`: time or progress against money, of one job, several, or a whole round."""

import math
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from allocator import UsageError
from allocator.cli.output import (
    Answer,
    Columns,
    Table,
    format_csv,
    percent,
    progress_bar,
    text,
)
from allocator.cli.parsing import read_limits
from allocator.cli.plan.plan_show import show_plan
from allocator.cli.sources import read_problem
from allocator.engine.frontier.jobs import JobsFrontier, job_ways, jobs_frontier
from allocator.engine.frontier.rounds import CheapestPlan, RoundFrontier, keep, round_frontier
from allocator.engine.frontier.sweep import Effort
from allocator.io.plans import to_csv, to_json, write_plan
from allocator.report.charts.choices import draw_jobs_frontier, draw_round_frontier
from allocator.solvers.registry import find

MOST_NAMED = 8  # jobs, of which each has a column of the joint plans
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


def frontier(args: Namespace) -> Answer:
    given = {
        "--objective": args.objective is not None,
        "--max-budget": args.max_budget < math.inf,
        "--keep": args.keep is not None,
    }
    wrong = [
        f"{name} is of a round, --jobs of jobs to their end: give one of them"
        for name, is_given in given.items()
        if args.jobs and is_given
    ]
    if wrong:
        raise UsageError("\n".join(wrong))
    solver = find(args.solver)
    problem = read_problem(args.snapshot)
    points = args.points or (25 if args.keep is None else 60)
    effort = Effort(read_limits(args), solver, points)
    with progress_bar(is_counted=True) as bar:
        row = bar.add_task("plans", total=points)

        def tell(done: int) -> None:
            bar.update(row, completed=done)

        if args.jobs:
            ways = job_ways(problem, args.jobs, args.dollars)
            return _answer_jobs(jobs_frontier(problem, ways, effort, args.dollars, tell))
        options = {
            "objective": args.objective,
            "dollars": args.dollars,
            "max_budget": args.max_budget,
            "tell": tell,
        }
        if args.keep is not None:
            return _answer_kept(args, keep(problem, effort, *args.keep, **options))
        curve = round_frontier(problem, effort, **options)
    return _answer(curve, format_csv(curve.rows()), draw_round_frontier, _show_round(curve))


def _answer_jobs(curve: JobsFrontier) -> Answer:
    ways = format_csv(curve.rows())
    if curve.found is None:
        return _answer(curve, ways, draw_jobs_frontier, _show_jobs(curve))
    plans = format_csv(curve.plans())
    return _answer(curve, plans, draw_jobs_frontier, _show_jobs(curve), **{"ways.csv": ways})


def _answer(
    curve: Any, rows: str, draw: Callable[[Any], bytes], shown: Iterable[str | Table], **more: str
) -> Answer:
    """Return the answer with the files of a curve."""
    document = curve.to_dict()
    return Answer(
        document,
        shown,
        rows,
        files={
            "frontier.csv": rows,
            **more,
            "frontier.json": document,
            "frontier.svg": partial(draw, curve),
        },
    )


def _answer_kept(args: Namespace, kept: CheapestPlan) -> Answer:
    if args.out is not None:
        write_plan(kept.result, args.out)
    lines = _describe_kept(kept)
    return Answer(
        partial(to_json, kept.result),
        show_plan(kept.result, head=lines),
        partial(to_csv, kept.result),
        notes=() if args.format == "table" else lines,
        files={"keep.json": kept.to_dict()},
    )


def _show_round(curve: RoundFrontier) -> Iterator[str | Table]:
    """Yield the curve of a round."""
    yield from (
        (
            f"snapshot {text(curve.problem.name)}: {curve.problem.objective} against dollars per"
            f" hour, {len(curve.found.answers)} solves, {len(curve.found.plans)} plans that nothing"
            " found beats"
        ),
        MEANT[curve.dollars],
        (
            f"no plan keeps the rules for less than {text(curve.found.least)} $/h; between the"
            f" plans {percent(curve.found.open_share)} of the area is open"
        ),
    )
    columns: Columns = {
        ">budget": lambda r: math.inf if r["budget_per_hour"] is None else r["budget_per_hour"],
        ">spent": "spent_per_hour",
        ">added": "added_per_hour",
        ">value": lambda row: text(row["value"], 6),
        ">at most": lambda row: text(row["bound"], 6),
        ">gap": lambda row: percent(row["gap"]),
        ">1 $/h more": "dollar_value",
        ">jobs": "jobs_running",
        **{f">{text(pool)}": f"gpus:{pool}" for pool in curve.problem.pools.pool},
    }
    title = "plans (budget: the largest looked at that buys nothing better; by pool: GPUs)"
    yield Table.of(title, curve.rows(), columns)


def _show_jobs(curve: JobsFrontier) -> list[str | Table]:
    """Return the ways of the jobs, and their sums."""
    ways = curve.rows()
    columns: Columns = {
        "job": "job_id",
        "pool": "pool",
        ">GPUs": "gpus",
        ">useful": lambda way: f"{100 * way['useful_share']:.4g} %",
        ">hours": "hours",
        ">listed $": "dollars",
        ">added $": "added_dollars",
        "hull": lambda way: "x" if way["hull"] else "",
    }
    title = "ways to the end that no other of the job beats in both (hull: nor a mix of two)"
    tables = [Table.of(title, [way for way in ways if way["front"]], columns)]
    head = [
        (
            f"snapshot {text(curve.problem.name)}: {len(ways)} ways to run {len(curve.ways.name)} "
            f"job{'s' if len(curve.ways.name) > 1 else ''} to the end, starting now"
        ),
        TO_THE_END[curve.dollars],
    ]
    if curve.found is not None:
        columns = {
            ">at most $": "budget",
            ">spent $": "spent",
            ">weighted h": lambda plan: text(plan["weighted_hours"], 5),
            ">at least": lambda plan: text(plan["bound"], 5),
            ">gap": lambda plan: percent(plan["gap"]),
            ">h per $ more": "hours_per_dollar",
            ">without limits": lambda plan: text(plan["without_limits"], 5),
        }
        if len(curve.ways.name) <= MOST_NAMED:
            columns |= {text(name): name for name in curve.ways.name}
        title = "all at the same time (without limits: the least by mixing if pools had no ends)"
        tables.append(Table.of(title, [plan | plan["jobs"] for plan in curve.plans()], columns))
        best = int(curve.fits.sum())
        head.append(
            f"{len(curve.fits)} corners without limits of pools and tenants, {best} of them keep"
            f" the limits; {len(curve.found.answers)} solves with limits,"
            f" {percent(curve.found.open_share)} of the area between the plans is open"
        )
    return [*head, *tables]


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
