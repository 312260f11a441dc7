"""One measurement of the solver benchmarks as data: what to run, and on which problem."""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path

from allocator.bench.solvers.engines import check
from allocator.bench.solvers.instances import EVERYTHING, PLAIN, SIZES, TENANTS, generate
from allocator.bench.solvers.next_round import next_round
from allocator.errors import UsageError
from allocator.io.model_files.knapsacks import read_knapsacks
from allocator.io.model_files.sia_ilp import read_sia_ilp
from allocator.io.performance_models import arrays_of, read_instance
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
- warm: what it found for a round; it then solves the next round (next_round.py)
"""
CUSTOM = re.compile(r"[1-9]\d*x[1-9]\d*x[1-8]")


@dataclass(frozen=True, order=True)
class SolverRun:
    """One measurement.

    Attributes
    ----------
    instance : a key of SIZES, "JOBSxGPUSxTYPES", or a file with rules FILE.
    seed : of the random numbers; with a file the number of its problem, from 0.
    engine : a name of engines.py.
    gap : relative gap that the engine is asked for.
    limit_s : wall seconds that the engine is given. It is killed some time later.
    """

    instance: str
    rules: str
    seed: int
    engine: str
    gap: float
    limit_s: float
    threads: int = 1
    round: str = COLD

    @property
    def key(self) -> tuple[str, ...]:
        """Return the texts of the CSV that identify the measurement; a file counts by its name."""
        name = Path(self.instance).name if self.rules == FILE else self.instance
        return (name, *map(str, astuple(self)[1:]))


KEY = ("instance", "rules", "seed", "engine", "gap_asked", "limit_s", "threads", "round")


def grid(
    engines: Sequence[str],
    sizes: Sequence[str],
    seeds: int,
    rules: Sequence[str],
    *,
    files: Sequence[str] = (),
    gap: Callable[[str, str], float],
    limit_s: float,
    threads: int = 1,
    rounds: Sequence[str] = (COLD,),
) -> list[SolverRun]:
    """Return all runs, instance by instance, so that early results compare engines.

    `gap(size, rules)` returns the gap to ask for. Raises UsageError for names that are not known.
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
    made = list(itertools.product(sizes, rules, range(seeds), rounds))
    made += [(file, FILE, i, COLD) for file in files for i in range(len(_read_models(file)))]
    return [
        SolverRun(s, r, i, e, gap(s, r), limit_s, threads, w)
        for s, r, i, w in made
        for e in engines
    ]


def problems(run: SolverRun) -> tuple[Callable[[], LinearModel], ...]:
    """Return the functions that make the problems of a run.

    A warm run has two: the problem that it solves before, and its own.
    """
    if run.rules == FILE:
        model = _read_models(run.instance)[run.seed]
        return (lambda: model,)
    size = SIZES.get(run.instance) or tuple(map(int, run.instance.split("x")))
    rounds = [generate(size, run.seed, RULES[run.rules])]
    if run.round == WARM:
        rounds.append(next_round(rounds[0], run.seed))
    return tuple(partial(build_model, instance) for instance in rounds)


def _read_models(path: str) -> list[LinearModel]:
    if not path.endswith(".npz"):
        return read_knapsacks(path)
    is_sia = {"G", "restart", "lam"} <= set(arrays_of(path))
    return [read_sia_ilp(path) if is_sia else read_instance(path)]
