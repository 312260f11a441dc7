"""The measurements of the solver benchmarks as tasks of a sweep, and their problems."""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from allocator.bench.solvers.engines import check
from allocator.bench.solvers.instances import (
    EVERYTHING,
    PLAIN,
    SIZES,
    TENANTS,
    generate,
    next_round,
)
from allocator.bench.sweep.tasks import SweepTask, digest
from allocator.errors import UsageError
from allocator.io.performance_models import arrays_of, read_instance
from allocator.io.published_models import read_knapsacks, read_sia_ilp
from formulations.model.linear import LinearModel
from formulations.model.single_round import build_model

RULES = {"standard": PLAIN, "tenants": TENANTS, "all": EVERYTHING}
"""The limits of an instance by name.

- standard: 20 tenants with quotas, and a budget
- tenants: the same with 100 tenants
- all: 100 tenants, guarantees, a limit on changes, and 5 % of the running jobs may not move
"""
FILE = "file"
COLD, WARM = ROUNDS = ("cold", "warm")
"""What an engine knows at the start.

- cold: nothing
- warm: what it found for a round; it then solves the next round (instances.py)
"""
CUSTOM = re.compile(r"[1-9]\d*x[1-9]\d*x[1-8]")
TRACE = "trace.csv"
POINT = ("cpu_s", "wall_s", "value", "bound")
"""Columns of the trace of a measurement: when a plan or a bound got better, and both then."""
START_S = 300.0  # to load the library and make the instance


def late_s(limit_s: float) -> float:
    """Return the seconds after which an engine is killed, which include the check of its answer."""
    return limit_s + max(3.0, 0.1 * limit_s)


def grid(
    engines: Sequence[str],
    sizes: Sequence[str],
    seeds: int,
    rules: Sequence[str],
    rounds: Sequence[str],
    files: Sequence[str],
    **how: float,
) -> list[SweepTask]:
    """Return all measurements, instance by instance, so that early results compare engines.

    A task names the instance as its workload and the engine as its policy; its options are rules,
    round and `how`.

    Parameters
    ----------
    engines : names of engines.py.
    sizes : keys of SIZES, or "JOBSxGPUSxTYPES".
    seeds : how many seeds of the random numbers.
    rules, rounds : of RULES and ROUNDS.
    files : with problems, each of which is a seed, from 0.
    how : `gap_asked`, `limit_s` and `threads`: relative gap that an engine is asked for, wall
    seconds that it is given, and its threads. It is killed some time after the limit.

    Raises
    ------
    UsageError
        For names that are not known.
    """
    for engine in engines:
        check(engine)
    own = [size for size in sizes if CUSTOM.fullmatch(size)]
    for what, names, known, more in (
        ("size", sizes, (*SIZES, *own), ", or JOBSxGPUSxTYPES, at most 8 types"),
        ("rules", rules, RULES, ""),
        ("round", rounds, ROUNDS, ""),
    ):
        for name in names:
            if name not in known:
                raise UsageError(f'unknown {what} "{name}" (known: {", ".join(known)}{more})')
    tasks = [
        SweepTask(size, seed=seed, options={"rules": rule, "round": turn, **how})
        for size, rule, seed, turn in itertools.product(sizes, rules, range(seeds), rounds)
    ]
    for file in files:
        models, path = _read_models(file), Path(file)
        options = {"rules": FILE, "round": COLD, **how}
        key = digest({path.name: path.read_bytes()})
        tasks += [
            SweepTask(path.name, None, "", i, None, key, options, str(path.resolve()))
            for i in range(len(models))
        ]
    return [replace(task, policy=engine) for task in tasks for engine in engines]


def problems(task: SweepTask) -> tuple[Callable[[], LinearModel], ...]:
    """Return the functions that make the problems of a measurement.

    A warm one has two: the problem that it solves before, and its own.
    """
    rules, instance = task.options["rules"], task.workload
    if rules == FILE:
        model = _read_models(task.path)[task.seed]
        return (lambda: model,)
    size = SIZES.get(instance) or tuple(map(int, instance.split("x")))
    rounds = [generate(size, task.seed, RULES[rules])]
    if task.options["round"] == WARM:
        rounds.append(next_round(rounds[0], task.seed))
    return tuple(partial(build_model, instance) for instance in rounds)


def _read_models(path: str) -> list[LinearModel]:
    if not path.endswith(".npz"):
        return read_knapsacks(path)
    is_sia = {"G", "restart", "lam"} <= set(arrays_of(path))
    return [read_sia_ilp(path) if is_sia else read_instance(path)]
