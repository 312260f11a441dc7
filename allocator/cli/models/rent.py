"""`allocator rent`: the best widths of classes of jobs on a long-run budget, with its price.

The classes come from classes.csv, from the jobs of a workload, or from a queue's history.
"""

import csv
import io
import math
from argparse import Namespace
from collections.abc import Sequence
from functools import partial

import numpy as np

from allocator import Fault, InvalidInput, UsageError, read_workload, validate
from allocator.cli.output import Answer, Columns, Table, Values, format_csv, pick, text, warn
from allocator.domain.problem import Problem
from allocator.domain.schema.rental_columns import CLASSES, KINDS, RENTED_POOLS
from allocator.io.tables.csv_table import csv_text
from allocator.io.tables.one_table import check_rows, read_table, require_sound
from allocator.market.classes import (
    RentablePools,
    RentalClasses,
    classes as parse_classes,
    parse_pools,
)
from allocator.market.history import History
from allocator.market.rent import RentResult, rent as find_widths
from allocator.report.charts.choices import draw_rent

RULES = {
    "fractional_widths": "best widths",
    "equal_widths": "equal widths",
    "equal_spend": "equal spending on every class",
}


def rent(args: Namespace) -> Answer:
    sources = [s for s in (args.classes, args.from_workload, args.from_queue) if s is not None]
    if len(sources) != 1:
        raise UsageError(
            "rent needs the classes from one place: CLASSES.csv, --from-workload or --from-queue"
        )
    if args.budget is None and args.classes is not None:
        raise UsageError(
            "rent needs --budget B: GPUs, or with --dollars US dollars per hour, in the long-run"
            " mean"
        )
    if args.dollars and args.pools is None and args.classes is not None:
        raise UsageError("--dollars needs --pools POOLS.csv with price_per_gpu_hour")
    job_classes = read_classes(
        **pick(args, "classes", "from_workload", "from_queue", "pools", "dollars", "hours")
    )
    if args.budget is None:
        content = classes_csv(job_classes)
        classes = list(csv.DictReader(io.StringIO(content)))
        return Answer({"classes": classes}, content, content, files={"classes.csv": content})
    result = find_widths(
        job_classes,
        args.budget,
        whole=args.whole,
        dollars=args.dollars,
        with_curve=args.curve or args.out is not None,
    )
    warn(
        f'pool "{name}" is free and has {gpus:g} GPUs; the plan keeps {used:.4g} of'
        " them busy on average, so jobs will wait there"
        for name, gpus, used in result.crowded()
    )
    document = result.to_dict()
    if args.curve:
        rows = result.curve_rows()
    else:
        document = {name: value for name, value in document.items() if name != "curve"}
        rows = [
            {"class_id": row["class_id"], **option}
            for row in result.rows()
            for option in row["options"]
        ]
    return Answer(
        document,
        _show(result, args.curve),
        rows,
        files={
            "curve.svg": partial(draw_rent, result),
            "curve.csv": lambda: format_csv(result.curve_rows()),
            "classes.csv": classes_csv(result.classes),
            "rent.json": document,
        },
    )


def _show(result: RentResult, with_curve: bool) -> list[str | Table]:
    p = result.plan
    dollars = result.unit == "dollars_per_hour"
    step, unit, spend = (
        ("dollar per hour", "$/h", "$/h") if dollars else ("GPU", "GPUs", "GPUs paid")
    )
    by_weight = "" if (p.classes.weight == p.classes.weight[0]).all() else " by weight"
    head = [
        (
            f"budget {text(p.budget)} {unit} in the long-run mean, {text(p.spend)} spent; below "
            f"{text(result.least_budget)} no widths are stable"
        ),
        (
            f"mean response time {text(p.response_h)} h; GPUs rented: mean {text(p.gpus)}, standard"
            f" deviation {text(p.sd_gpus)} (Poisson arrivals)"
        ),
        (
            "more budget buys nothing: every class has its largest width"
            if p.mu == 0
            else (
                f"one more {step} saves {text(result.saved_h)} h of mean response time{by_weight};"
                f" price mu = {text(p.mu)} weighted job-hours per"
                f" {'dollar' if dollars else 'GPU-hour'}"
            )
        ),
    ]
    if result.whole and result.wider_share > 0:
        head.append(
            f"the policy `rental` carries it out with dollar_price = {p.mu:.9g} and, in [rental],"
            f" wider_share = {result.wider_share:.9g}"
        )
    columns: Columns = {
        "class": "class_id",
        "width": lambda row: _width(row["options"]),
        ">response h": "mean_response_h",
        ">jobs": "mean_jobs",
        ">GPUs": "mean_gpus",
        f">{spend}": "spend",
    }
    tables = [Table.of("classes", result.rows(), columns)]
    rules = [("this plan", p), *((RULES[name], other) for name, other in result.rules.items())]
    others = [
        (
            *(name, r.spend, r.response_h, r.weighted_h),
            "-" if r is p else f"{100 * (r.weighted_h / p.weighted_h - 1):+.1f} %",
        )
        for name, r in rules
    ]
    named = ("rule", ">spent", ">response h", ">by weight", ">against this plan")
    tables.append(
        Table("the same budget by other rules (fractions of GPUs allowed)", named, others)
    )
    if with_curve:
        curve = result.curve_rows()
        tables.append(Table.of("what other budgets buy", curve[:: -(-len(curve) // 25)]))
    return [*head, *tables]


def _width(options: list[Values]) -> str:
    """Return text such as '6', '4 x A100', '95 % 4 x A100, 5 % 5 x A100'."""

    def named(option: Values) -> str:
        where = option["pool"] or option["gpu_type"]
        return text(option["width"]) + (f" x {text(where)}" if where else "")

    if len(options) == 1:
        return named(options[0])
    return ", ".join(f"{100 * option['share']:.3g} % {named(option)}" for option in options)


def read_classes(
    classes: str | None = None,
    from_workload: str | None = None,
    from_queue: str | None = None,
    pools: str | None = None,
    dollars: bool = False,
    hours: float | None = None,
) -> RentalClasses:
    """Read classes.csv, or make a class per model of the jobs of a workload or of a queue.

    The pools are those of the file `pools`, else those of the workload or the queue. Raises
    InvalidInput with every fault of both files.
    """
    rented, wrong = (None, ()) if pools is None else _read_pools(pools, dollars)
    if classes is not None:
        table = read_table(classes, CLASSES)
        job_classes, findings = parse_classes(table, None if wrong else rented), table.findings
        if wrong:
            raise InvalidInput((*wrong, *findings.faults), findings.warnings)
        require_sound(table)
        warn(findings.warnings)
        return job_classes
    if wrong:
        raise InvalidInput(wrong)
    from allocator.loop.live_rental import estimate

    if from_workload is not None:
        problem = read_workload(from_workload).problem
        j = problem.jobs
        past = History(problem.name, j.model, j.submitted_s, j.total_work, j.weight, j.max_gpus)
    else:
        problem, past = _read_queue(str(from_queue))
    if rented is None:
        p = problem.pools
        rented = RentablePools(
            p.pool,
            tuple(problem.gpu_types[t] for t in p.gpu_type.tolist()),
            p.price_per_gpu_hour,
            p.gpus.astype(np.float64),
        )
    job_classes, warnings = estimate(problem, past, hours, rented)
    warn(warnings)
    return job_classes


def _read_queue(path: str) -> tuple[Problem, History]:
    """Return the state of a queue, and its jobs that are done or under way."""
    from allocator.queue.jobs.past import read_history
    from allocator.queue.queue import Queue

    with Queue(path) as queue:
        problem = validate(queue.snapshot())
        with queue.store.read() as connection:
            past, gone = read_history(connection, path, problem.models)
    warn(f"{path}: no speed of model {name} is known; its jobs are left out" for name in gone)
    return problem, past


def _read_pools(path: str, dollars: bool) -> tuple[RentablePools, Sequence[Fault]]:
    table = read_table(path, RENTED_POOLS)
    rented, findings = parse_pools(table, dollars), check_rows(table)
    warn(findings.warnings)
    return rented, findings.faults


def classes_csv(job_classes: RentalClasses) -> str:
    """Return the classes as classes.csv; reading it again gives the same classes."""
    rows = []
    for r, i in enumerate(job_classes.of.tolist()):
        p = float(job_classes.parameter[r])
        most = float(job_classes.max_gpus[r])
        rows.append(
            [
                job_classes.class_id[i],
                float(job_classes.arrivals_per_hour[i]),
                float(job_classes.mean_work_gpu_hours[i]),
                KINDS[int(job_classes.kind[r])],
                "" if math.isnan(p) else p,
                "|".join(f"{k}:{s!r}" for k, s in job_classes.points[r]),
                float(job_classes.weight[i]),
                job_classes.gpu_type[r],
                float(job_classes.relative_speed[r]),
                "" if math.isinf(most) else int(most),
            ]
        )
    return csv_text([c.name for c in CLASSES.columns], rows)
