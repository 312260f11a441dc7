"""`allocator configure`: for one job, time and cost of every pool, size and batch."""

from __future__ import annotations

import argparse
import math
from typing import Any

from allocator.cli.output import show_result, write_results
from allocator.cli.parsing import HOUR_S, add_format, duration, number

EXAMPLES = """
allocator configure data/snapshots/demo pretrain --deadline 12 --cost 90
allocator configure data/snapshots/demo pretrain --out choices      configure.csv and configure.svg
allocator configure data/examples/tuning tune --profile             what to measure next
"""
FIELDS = (
    "pool",
    "gpus",
    "batch_size",
    "accumulation",
    "variant",
    "work_per_s",
    "error",
    "measured",
    "memory_gb",
    "hours",
    "dollars",
    "front",
    "chosen_as",
)


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "configure",
        examples=EXAMPLES,
        help="time and cost of one job over pool, size and batch",
        description=(
            "What it takes to run one job to its end, alone: hours and dollars of every pool, size"
            " and batch that fits the memory; the knee, the fastest within --cost, the cheapest"
            " within --deadline. The table shows what nothing beats in both; csv and json have all."
        ),
    )
    parser.add_argument("snapshot", metavar="SNAPSHOT", help="snapshot folder")
    parser.add_argument("job", metavar="JOB", help="job_id of the job")
    parser.add_argument(
        "--cost", type=number(), default=math.inf, metavar="USD", help="most dollars to the end"
    )
    parser.add_argument(
        "--deadline",
        type=duration(unit_s=HOUR_S),
        default=None,
        metavar="TIME",
        help=(
            "hours from now it may take (default: deadline_s of the job or of those after it, if"
            " any)"
        ),
    )
    parser.add_argument(
        "--profile", action="store_true", help="the few configurations to measure next, instead"
    )
    parser.add_argument("--out", metavar="DIR", help="write configure.csv and configure.svg there")
    add_format(parser, "table", "json", "csv")
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    from allocator.cli.models.sources import read_problem
    from allocator.errors import UsageError
    from allocator.options.configure import configure, job_number
    from allocator.performance.pipelines import due_s

    if args.profile and args.out:
        raise UsageError(
            "--profile says what to measure next and writes no files; leave --out away"
        )
    problem = read_problem(args.snapshot)
    own = float(due_s(problem)[job_number(problem, args.job)] - problem.now_s) / 3600.0
    deadline = (
        args.deadline
        if args.deadline is not None
        else math.inf
        if math.isnan(own)
        else max(0.0, own)
    )
    ways = configure(problem, args.job)
    if args.profile:
        _profile(ways, args)
        return 0
    chosen = {
        "knee": ways.knee,
        "fastest": ways.fastest(args.cost),
        "cheapest": ways.cheapest(deadline),
    }
    rows = _csv(ways, chosen)
    if args.out:
        write_results(
            args.out, {"configure.csv": rows}, "configure.svg", lambda: _draw(ways, chosen)
        )
    document = {
        "job_id": ways.job,
        "cost_limit": args.cost,
        "deadline_hours": deadline,
        **{name: _way_record(ways, i, chosen) for name, i in chosen.items()},
        "ways": [_way_record(ways, i, chosen) for i in range(len(ways))],
    }
    show_result(
        args.format, document, lambda: _table(ways, chosen, args.cost, deadline), lambda: rows
    )
    return 0


def _way_record(ways: Any, i: int, chosen: dict[str, int]) -> dict[str, Any]:
    """Return the fields of FIELDS of one way to run the job."""
    values = (
        ways.pool[i],
        ways.gpus[i],
        ways.batch[i] or None,
        ways.accumulation[i] or None,
        ways.variant[i] or None,
        ways.rate[i],
        ways.error[i],
        bool(ways.measured[i]),
        ways.memory_gb[i] or None,
        ways.hours[i],
        ways.cost[i],
        bool(ways.front[i]),
        "|".join(name for name, way in chosen.items() if way == i) or None,
    )
    return {f: v.item() if hasattr(v, "item") else v for f, v in zip(FIELDS, values, strict=True)}


def _csv(ways: Any, chosen: dict[str, int]) -> str:
    from allocator.io.tables.csv_table import csv_text

    return csv_text(
        FIELDS,
        (
            [
                str(v).lower() if isinstance(v, bool) else f"{v:.7g}" if isinstance(v, float) else v
                for v in _way_record(ways, i, chosen).values()
            ]
            for i in range(len(ways))
        ),
    )


def _draw(ways: Any, chosen: dict[str, int]) -> bytes:
    from allocator.report.charts.configure import draw

    return draw(ways, chosen)


def _table(ways: Any, chosen: dict[str, int], cost: float, deadline: float) -> None:
    from allocator.cli.tables import Table, show, text

    said = {
        "knee": "knee: beyond it money buys little time",
        "fastest": "fastest" + (f" within {cost:g} $" if cost < math.inf else ""),
        "cheapest": "cheapest" + (f" within {deadline:.4g} hours" if deadline < math.inf else ""),
    }
    shown = sorted(
        {i for i in range(len(ways)) if ways.front[i]} | set(chosen.values()),
        key=lambda i: ways.cost[i],
    )
    rows = [
        [
            text(ways.pool[i]),
            str(ways.gpus[i]),
            text(int(ways.batch[i]) or None),
            text(ways.variant[i] or None),
            text(float(ways.rate[i])),
            f"{100 * ways.error[i]:.0f} %",
            text(float(ways.hours[i])),
            text(float(ways.cost[i])),
            "; ".join(said[n] for n, way in chosen.items() if way == i),
        ]
        for i in shown
    ]
    numbers = frozenset({"GPUs", "batch", "work/s", "error", "hours", "$"})
    show(
        [
            Table(
                "ways that nothing beats in both, cheapest first",
                ("pool", "GPUs", "batch", "variant", "work/s", "error", "hours", "$", ""),
                rows,
                numbers,
            )
        ],
        [f"job {text(ways.job)}: {len(ways)} ways to run it to its end"],
    )


def _profile(ways: Any, args: argparse.Namespace) -> None:
    from allocator.cli.tables import Table, show, text
    from allocator.io.tables.csv_table import csv_text

    tried = ways.next_to_try()
    fields = ("pool", "gpus", "batch_size", "why", "gain")
    rows = [
        (ways.pool[i], int(ways.gpus[i]), int(ways.batch[i]) or None, why, gain)
        for i, why, gain in tried
    ]
    table = Table(
        "measure next (gain: expected fall of time x cost of the choice, by its square root)",
        ("pool", "GPUs", "batch", "why", "gain"),
        [[text(p), str(k), text(b), why, f"{100 * g:.2f} %"] for p, k, b, why, g in rows],
        frozenset({"GPUs", "batch", "gain"}),
    )
    show_result(
        args.format,
        {"job_id": ways.job, "next": [dict(zip(fields, row, strict=True)) for row in rows]},
        lambda: show([table]),
        lambda: csv_text(
            fields, ([f"{v:.4g}" if isinstance(v, float) else v for v in row] for row in rows)
        ),
    )
