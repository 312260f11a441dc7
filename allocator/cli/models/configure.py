"""`allocator configure`: for one job, time and cost of every pool, size and batch."""

import math
from argparse import Namespace
from functools import partial

from allocator import UsageError
from allocator.cli.output import Answer, Columns, Table, Values, format_csv, text
from allocator.cli.sources import read_problem
from allocator.options.configure import RunConfigurations, configure as find_ways, job_number
from allocator.performance.pipelines import due_s
from allocator.report.charts.choices import draw_configurations


def configure(args: Namespace) -> Answer:
    if args.profile and args.out:
        raise UsageError(
            "--profile says what to measure next and writes no files; leave --out away"
        )
    problem = read_problem(args.snapshot)
    deadline = args.deadline
    if deadline is None:
        own = float(due_s(problem)[job_number(problem, args.job)] - problem.now_s) / 3600.0
        deadline = math.inf if math.isnan(own) else max(0.0, own)
    ways = find_ways(problem, args.job)
    if args.profile:
        return _profile(ways)
    chosen = {
        "knee": ways.knee,
        "fastest": ways.fastest(args.cost),
        "cheapest": ways.cheapest(deadline),
    }
    records = [_way_record(ways, i, chosen) for i in range(len(ways))]
    rows = format_csv(records, 7)
    document = {
        "job_id": ways.job,
        "cost_limit": args.cost,
        "deadline_hours": deadline,
        **{name: records[i] for name, i in chosen.items()},
        "ways": records,
    }
    words = {
        "knee": "knee: beyond it money buys little time",
        "fastest": "fastest" + (f" within {args.cost:g} $" if args.cost < math.inf else ""),
        "cheapest": "cheapest" + (f" within {deadline:.4g} hours" if deadline < math.inf else ""),
    }
    shown = sorted(
        {i for i, r in enumerate(records) if r["front"]} | set(chosen.values()),
        key=lambda i: ways.cost[i],
    )
    columns: Columns = {
        "pool": "pool",
        ">GPUs": "gpus",
        ">batch": "batch_size",
        "variant": "variant",
        ">work/s": "work_per_s",
        ">error": lambda r: f"{100 * r['error']:.0f} %",
        ">hours": "hours",
        ">$": "dollars",
        "": lambda r: "; ".join(words[name] for name, i in chosen.items() if records[i] is r),
    }
    head = f"job {text(ways.job)}: {len(ways)} ways to run it to its end"
    title = "ways that nothing beats in both, cheapest first"
    return Answer(
        document,
        [head, Table.of(title, [records[i] for i in shown], columns)],
        rows,
        files={"configure.csv": rows, "configure.svg": partial(draw_configurations, ways, chosen)},
    )


def _way_record(ways: RunConfigurations, i: int, chosen: dict[str, int]) -> Values:
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


def _profile(ways: RunConfigurations) -> Answer:
    rows: list[Values] = [
        {
            "pool": ways.pool[i],
            "gpus": int(ways.gpus[i]),
            "batch_size": int(ways.batch[i]) or None,
            "why": why,
            "gain": gain,
        }
        for i, why, gain in ways.next_to_try()
    ]
    table = Table.of(
        "measure next (gain: expected fall of time x cost of the choice, by its square root)",
        [row | {"gain": f"{100 * row['gain']:.2f} %"} for row in rows],
    )
    return Answer({"job_id": ways.job, "next": rows}, [table], partial(format_csv, rows, 4))
