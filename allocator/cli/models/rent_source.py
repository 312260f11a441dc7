"""Read the classes of jobs for `allocator rent`: classes.csv, a workload, or a queue's history."""

import math
from collections.abc import Sequence

import numpy as np

from allocator import Fault, InvalidInput, read_workload, validate
from allocator.cli.output import warn
from allocator.domain.problem import Problem
from allocator.domain.schema.rental_columns import CLASSES, KINDS, RENTED_POOLS
from allocator.io.tables.csv_table import csv_text
from allocator.io.tables.one_table import read_table, require_sound
from allocator.market.classes import RentablePools, RentalClasses, classes, parse_pools
from allocator.market.history import History


def from_file(path: str, pools: str | None, dollars: bool) -> RentalClasses:
    """Read classes.csv and, if given, the pools. Raises InvalidInput with every fault of both."""
    rented, wrong = (None, ()) if pools is None else _pools(pools, dollars)
    table = read_table(path, CLASSES)
    made, found = classes(table, None if wrong else rented), table.found
    if wrong:
        raise InvalidInput((*wrong, *found.faults), found.warnings)
    require_sound(table)
    warn(found.warnings)
    return made


def from_workload(
    folder: str, pools: str | None, dollars: bool, hours: float | None
) -> RentalClasses:
    """Make a class per model of a workload, with its own pools unless others are given."""
    problem = read_workload(folder).problem
    j = problem.jobs
    past = History(problem.name, j.model, j.submitted_s, j.total_work, j.weight, j.max_gpus)
    return _estimate_classes(past, problem, pools, dollars, hours)


def from_queue(path: str, pools: str | None, dollars: bool, hours: float | None) -> RentalClasses:
    """Make a class per model of the jobs of a queue that are done or under way.

    The pools are those of the queue unless others are given.
    """
    from allocator.queue.jobs.past import read_history
    from allocator.queue.queue import Queue

    with Queue(path) as queue:
        problem = validate(queue.snapshot())
        with queue.store.read() as connection:
            past, gone = read_history(connection, path, problem.models)
    warn(f"{path}: no speed of model {name} is known; its jobs are left out" for name in gone)
    return _estimate_classes(past, problem, pools, dollars, hours)


def text(made: RentalClasses) -> str:
    """Return the classes as classes.csv; reading it again gives the same classes."""
    rows = []
    for r, i in enumerate(made.of.tolist()):
        p = float(made.parameter[r])
        most = float(made.max_gpus[r])
        rows.append(
            [
                made.class_id[i],
                *(
                    float(column[i])
                    for column in (made.arrivals_per_hour, made.mean_work_gpu_hours)
                ),
                KINDS[int(made.kind[r])],
                "" if math.isnan(p) else p,
                "|".join(f"{k}:{s!r}" for k, s in made.points[r]),
                float(made.weight[i]),
                made.gpu_type[r],
                float(made.relative_speed[r]),
                "" if math.isinf(most) else int(most),
            ]
        )
    return csv_text([c.name for c in CLASSES.columns], rows)


def _pools(path: str, dollars: bool) -> tuple[RentablePools, Sequence[Fault]]:
    table = read_table(path, RENTED_POOLS)
    rented, found = parse_pools(table, dollars), table.found
    if not len(table) and not found.faults:
        found.fault(table.schema.file, None, f"has no rows; it holds {table.schema.doc}")
    warn(found.warnings)
    return rented, found.faults


def _estimate_classes(
    past: History, problem: Problem, pools: str | None, dollars: bool, hours: float | None
) -> RentalClasses:

    from allocator.loop.live_rental import estimate

    if pools is not None:
        rented, wrong = _pools(pools, dollars)
        if wrong:
            raise InvalidInput(wrong)
    else:
        p = problem.pools
        rented = RentablePools(
            p.pool,
            tuple(problem.gpu_types[t] for t in p.gpu_type.tolist()),
            p.price_per_gpu_hour,
            p.gpus.astype(np.float64),
        )
    made, warnings = estimate(problem, past, hours, rented)
    warn(warnings)
    return made
