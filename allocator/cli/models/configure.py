"""`allocator configure`: for one job, time and cost of every pool, size and batch."""

from __future__ import annotations

import argparse
import math
from typing import Any

from allocator.cli.models.sources import read_problem
from allocator.cli.output import format_csv, show_result, write_results
from allocator.cli.parsing import (
    HOUR_S,
    SNAPSHOT,
    command,
    duration,
    flag,
    formats,
    number,
    option,
)
from allocator.cli.tables import Table, show, text

EXAMPLES = """
allocator configure data/snapshots/demo pretrain --deadline 12 --cost 90
allocator configure data/snapshots/demo pretrain --out choices      configure.csv and configure.svg
allocator configure data/examples/tuning tune --profile             what to measure next
"""


@command(
    "configure",
    "time and cost of one job over pool, size and batch",
    "What it takes to run one job to its end, alone: hours and dollars of every pool, size"
    " and batch that fits the memory; the knee, the fastest within --cost, the cheapest"
    " within --deadline. The table shows what nothing beats in both; csv and json have all.",
    EXAMPLES,
    SNAPSHOT,
    option("job", "JOB", "job_id of the job"),
    option("--cost", "USD", "most dollars to the end", number(), math.inf),
    option(
        "--deadline",
        "TIME",
        "hours from now it may take (default: deadline_s of the job or of those after it, if any)",
        duration(unit_s=HOUR_S),
    ),
    flag("--profile", "the few configurations to measure next, instead"),
    option("--out", "DIR", "write configure.csv and configure.svg there"),
    formats("table", "json", "csv"),
)
def call(args: argparse.Namespace) -> int:
    from allocator.errors import UsageError
    from allocator.options.configure import configure, job_number
    from allocator.performance.pipelines import due_s
    from allocator.report.charts.choices import draw_configurations

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
    records = [_way_record(ways, i, chosen) for i in range(len(ways))]
    if args.out:
        write_results(
            args.out,
            {
                "configure.csv": format_csv(records, 7),
                "configure.svg": draw_configurations(ways, chosen),
            },
        )
    document = {
        "job_id": ways.job,
        "cost_limit": args.cost,
        "deadline_hours": deadline,
        **{name: records[i] for name, i in chosen.items()},
        "ways": records,
    }
    show_result(
        args.format,
        document,
        lambda: _table(ways, chosen, args.cost, deadline),
        lambda: format_csv(records, 7),
    )
    return 0


def _way_record(ways: Any, i: int, chosen: dict[str, int]) -> dict[str, Any]:
    """Return one way to run the job as plain values."""
    values = {
        "pool": ways.pool[i],
        "gpus": ways.gpus[i],
        "batch_size": ways.batch[i] or None,
        "accumulation": ways.accumulation[i] or None,
        "variant": ways.variant[i] or None,
        "work_per_s": ways.rate[i],
        "error": ways.error[i],
        "measured": bool(ways.measured[i]),
        "memory_gb": ways.memory_gb[i] or None,
        "hours": ways.hours[i],
        "dollars": ways.cost[i],
        "front": bool(ways.front[i]),
        "chosen_as": "|".join(name for name, way in chosen.items() if way == i) or None,
    }
    return {name: v.item() if hasattr(v, "item") else v for name, v in values.items()}


def _table(ways: Any, chosen: dict[str, int], cost: float, deadline: float) -> None:
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
        (
            ways.pool[i],
            ways.gpus[i],
            ways.batch[i] or None,
            ways.variant[i] or None,
            ways.rate[i],
            f"{100 * ways.error[i]:.0f} %",
            ways.hours[i],
            ways.cost[i],
            "; ".join(said[n] for n, way in chosen.items() if way == i),
        )
        for i in shown
    ]
    what = ("pool", ">GPUs", ">batch", "variant", ">work/s", ">error", ">hours", ">$", "")
    show(
        [Table("ways that nothing beats in both, cheapest first", what, rows)],
        [f"job {text(ways.job)}: {len(ways)} ways to run it to its end"],
    )


def _profile(ways: Any, args: argparse.Namespace) -> None:
    rows = [
        {
            "pool": ways.pool[i],
            "gpus": int(ways.gpus[i]),
            "batch_size": int(ways.batch[i]) or None,
            "why": why,
            "gain": gain,
        }
        for i, why, gain in ways.next_to_try()
    ]
    table = Table(
        "measure next (gain: expected fall of time x cost of the choice, by its square root)",
        ("pool", ">GPUs", ">batch", "why", ">gain"),
        [(row | {"gain": f"{100 * row['gain']:.2f} %"}).values() for row in rows],
    )
    show_result(
        args.format,
        {"job_id": ways.job, "next": rows},
        lambda: show([table]),
        lambda: format_csv(rows, 4),
    )
