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
from allocator.market.classes import (
    RentablePools,
    RentalClasses,
    classes as parse_classes,
    parse_pools,
)
from allocator.market.history import History


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
        made, found = parse_classes(table, None if wrong else rented), table.found
        if wrong:
            raise InvalidInput((*wrong, *found.faults), found.warnings)
        require_sound(table)
        warn(found.warnings)
        return made
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
    made, warnings = estimate(problem, past, hours, rented)
    warn(warnings)
    return made


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
    rented, found = parse_pools(table, dollars), table.found
    if not len(table) and not found.faults:
        found.fault(table.schema.file, None, f"has no rows; it holds {table.schema.doc}")
    warn(found.warnings)
    return rented, found.faults


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
