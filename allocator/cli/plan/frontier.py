"""`allocator frontier`: time or progress against money, of one job, several, or a whole round."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.cli.output import (
    has_progress,
    note,
    progress_console,
    show_result,
    write_results,
)
from allocator.cli.parsing import (
    add_effort,
    add_format,
    add_objective,
    number,
    parse_integer,
    words,
)

if TYPE_CHECKING:
    from allocator.domain.problem import Problem
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


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "frontier",
        examples=EXAMPLES,
        description=ABOUT,
        help="what money buys: time-cost frontier of jobs or of a round",
    )
    parser.add_argument("snapshot", metavar="SNAPSHOT", help="snapshot folder")
    parser.add_argument(
        "--jobs", type=words, metavar="A,B", help="of these jobs to their end, instead of the round"
    )
    parser.add_argument(
        "--points",
        type=parse_integer(2, 100_000),
        metavar="N",
        help="plans to look for at most (default: 25; with --keep 60)",
    )
    parser.add_argument(
        "--dollars",
        choices=("listed", "added"),
        default="listed",
        help=(
            "which count: listed prices of all pools, as in budget_per_hour (default), or what is "
            "added to the bill: reserved pools are paid for anyway"
        ),
    )
    add_objective(parser)
    parser.add_argument(
        "--max-budget",
        type=number(),
        metavar="USD",
        help=(
            "dollars per hour at the right end (default: what the best plan without a budget"
            " spends)"
        ),
    )
    parser.add_argument(
        "--keep",
        type=_parse_value,
        metavar="V|P%",
        help="instead of the curve: the cheapest plan of value V, or P %% of the best plan",
    )
    add_effort(parser, PLAN_S, "each plan")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help=(
            "write frontier.json, frontier.csv, frontier.svg, with "
            "--jobs ways.csv; with --keep plan.json, plan.csv, "
            "keep.json"
        ),
    )
    add_format(output, "table", "json", "csv")
    parser.set_defaults(call=call)


def _parse_value(text: str) -> tuple[float, bool]:
    """Return (value, whether it is a share) of '95%' or '12.5'."""
    share = text.strip().endswith("%")
    value = float(text.strip().removesuffix("%")) / (100.0 if share else 1.0)
    if not math.isfinite(value) or (share and not 0 <= value <= 1):
        raise argparse.ArgumentTypeError(f"{text} is neither a value nor a share from 0% to 100%")
    return value, share


_parse_value.__name__ = "value or share"


def call(args: argparse.Namespace) -> int:
    from allocator.cli.models.sources import read_problem
    from allocator.engine.frontier.sweep import Effort
    from allocator.errors import UsageError
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
    effort = Effort(SolveLimits(args.time_limit, args.gap, args.threads, args.seed), solver, points)
    with _bar(points) as tell:
        if args.jobs:
            return _jobs(args, problem, effort, tell)
        if args.keep is not None:
            return _keep(args, problem, effort, tell)
        return _round(args, problem, effort, tell)


def _round(args: argparse.Namespace, problem: Problem, effort: Effort, tell: Tell) -> int:
    from allocator.cli.plan import frontier_show
    from allocator.engine.frontier.rounds import round_frontier
    from allocator.report.charts import frontier

    found = round_frontier(
        problem,
        effort,
        objective=args.objective,
        dollars=args.dollars,
        max_budget=math.inf if args.max_budget is None else args.max_budget,
        tell=tell,
    )
    rows = frontier_show.csv_text(found.rows())
    if args.out is not None:
        _write(
            args.out,
            found.to_dict(),
            {"frontier.csv": rows},
            lambda: frontier.of_round(found),
        )
    show_result(args.format, found.to_dict(), lambda: frontier_show.round_(found), lambda: rows)
    return 0


def _jobs(args: argparse.Namespace, problem: Problem, effort: Effort, tell: Tell) -> int:
    from allocator.cli.plan import frontier_show
    from allocator.engine.frontier.jobs import jobs_frontier
    from allocator.engine.frontier.ways import job_ways
    from allocator.report.charts import frontier

    found = jobs_frontier(
        problem, job_ways(problem, args.jobs, args.dollars), effort, args.dollars, tell
    )
    files = {"frontier.csv": frontier_show.csv_text(found.rows())}
    if found.found is not None:
        files["ways.csv"] = files["frontier.csv"]
        files["frontier.csv"] = frontier_show.csv_text(found.plans())
    if args.out is not None:
        _write(args.out, found.to_dict(), files, lambda: frontier.of_jobs(found))
    show_result(
        args.format,
        found.to_dict(),
        lambda: frontier_show.jobs(found),
        lambda: files["frontier.csv"],
    )
    return 0


def _keep(args: argparse.Namespace, problem: Problem, effort: Effort, tell: Tell) -> int:
    from allocator.cli.plan import frontier_show
    from allocator.engine.frontier.rounds import keep
    from allocator.io.plans import dumps, to_csv, to_json, write_files, write_plan

    value, share = args.keep
    kept = keep(
        problem,
        effort,
        value,
        share,
        objective=args.objective,
        dollars=args.dollars,
        max_budget=math.inf if args.max_budget is None else args.max_budget,
        tell=tell,
    )
    if args.out is not None:
        write_files(args.out, {"keep.json": dumps(kept.to_dict()) + "\n"})
        write_plan(kept.result, args.out)
    if args.format == "json":
        sys.stdout.write(to_json(kept.result))
    elif args.format == "csv":
        sys.stdout.write(to_csv(kept.result))
    else:
        frontier_show.kept(kept)
        return 0
    note(*frontier_show.kept_lines(kept))
    return 0


def _write(folder: Path, document: dict[str, Any], files: dict[str, str], picture: Any) -> None:
    """Write the files of a curve."""
    from allocator.io.plans import dumps

    write_results(
        folder, {**files, "frontier.json": dumps(document) + "\n"}, "frontier.svg", picture
    )


@contextmanager
def _bar(points: int) -> Iterator[Tell]:
    """Show a bar on standard error if it is a terminal."""
    if not has_progress():
        yield lambda _done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("plans"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=progress_console(), transient=True) as bar:
        row = bar.add_task("", total=points)

        def tell(done: int) -> None:
            bar.update(row, completed=done)

        yield tell
