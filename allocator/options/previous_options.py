"""The options of the round before: only jobs that changed are listed anew.

What a job is offered depends on its own columns, on the GPUs and nodes of the pools, on which rows
rates.csv has, and on nothing else. A job whose columns are those of a job of the round before has
its options. Rates that were corrected are looked up again, and values are always computed anew, as
they depend on the time and on the work that is left. So the table is the same, to the last bit, as
one that is built from nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from itertools import repeat
from typing import Any

import numpy as np

from allocator.domain.problem import Bools, Ints, Problem
from allocator.options.option_table import (
    ListedOptions,
    OptionTable,
    find_blocked_jobs,
    held_shapes,
    list_options,
    value_options,
)
from allocator.options.staying import Staying
from allocator.performance.table import RateTable
from formulations.model.ragged import ragged, starts

# columns of jobs that change no list of options, or that other facts stand for
OTHER_COLUMNS = {
    "job_id",
    "submitted_s",
    "remaining_work",
    "total_work",
    "tenant",
    "weight",
    "deadline_s",
    "after",
    "attained_gpu_s",
    "restarts",
    "largest_gpus",
    "primary",
    "shared_by",
    "placement",
    "sizes",
    "gpu_types",
    "modes",
}
MOST_CHANGED = 0.5  # largest share of changed jobs for which a part is listed


@dataclass(frozen=True)
class _Kept:
    """A round: its problem, what the options of each job depend on (J,), and its options."""

    problem: Problem
    facts: dict[str, Any]
    listed: ListedOptions
    start: Ints


class PreviousOptions:
    """Hold the options of the last round for the next one."""

    def __init__(self) -> None:
        self._kept: _Kept | None = None
        self._numbers: dict[Hashable, int] = {}

    def option_table(self, problem: Problem) -> OptionTable:
        """Return all options of all jobs as `option_table.option_table` does, and keep them."""
        facts = self._facts(problem)
        kept = self._kept
        listed = None
        if kept is not None and _has_same_offers(kept.problem, problem):
            listed = _update_options(kept, facts, problem)
        if listed is None:
            listed = list_options(problem)
        for column in vars(listed).values():
            column.flags.writeable = False
        self._kept = _Kept(problem, facts, listed, starts(listed.job, len(problem.jobs)))
        return value_options(problem, listed)

    def _facts(self, problem: Problem) -> dict[str, Any]:
        """Return what the options of each job depend on, (J,) each, alike in all rounds."""
        jobs = problem.jobs
        staying = Staying.of(problem)
        facts = {name: x for name, x in vars(jobs).items() if name not in OTHER_COLUMNS}
        facts |= {
            "blocked": find_blocked_jobs(problem),
            "stays": staying.stays,
            "homeless": staying.homeless,
            "assumed": staying.assumed,
            "shape": held_shapes(problem),
            "sizes": self._number([x.tobytes() for x in problem.size_lists])[jobs.sizes],
            "gpu_types": self._number([x.tobytes() for x in problem.type_sets])[jobs.gpu_types],
            "modes": self._number(problem.mode_sets)[jobs.modes],
        }
        if problem.has_nodes.any():
            facts["placement"] = self._number(jobs.placement)[:-1]
        return facts

    def _number(self, contents: Sequence[Hashable]) -> Ints:
        """Return a number for each content, the same in all rounds, and at the end -1 for none."""
        numbers = [self._numbers.setdefault(x, len(self._numbers)) for x in contents]
        return np.array([*numbers, -1], np.int64)


def _has_same_offers(old: Problem, new: Problem) -> bool:
    """Return whether pools, nodes and rows of rates.csv are the same but for prices and speeds."""
    return (
        (old.models, old.gpu_types, old.levels) == (new.models, new.gpu_types, new.levels)
        and _are_equal(old.pools, new.pools, "price_per_gpu_hour")
        and _are_equal(old.nodes, new.nodes)
        and _are_equal(old.curves, new.curves)
        and _are_equal(old.rates, new.rates, "rate")
        and bool(((old.rates.rate > 0) == (new.rates.rate > 0)).all())
    )


def _are_equal(a: Any, b: Any, but: str = "") -> bool:
    """Return whether all fields of two records of columns are equal, but for one."""
    pairs = ((getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.name != but)
    return a is b or all(
        x is y or (x.shape == y.shape and not _differ(x, y).any())
        if isinstance(x, np.ndarray)
        else x == y
        for x, y in pairs
    )


def _differ(a: Any, b: Any) -> Bools:
    """Find where two arrays differ; nan equals nan."""
    out: Bools = a != b
    return out & ~(np.isnan(a) & np.isnan(b)) if a.dtype.kind == "f" else out


def _update_options(kept: _Kept, facts: dict[str, Any], problem: Problem) -> ListedOptions | None:
    """Return the options of a round from those of the round before, None if too much changed."""
    if not len(kept.listed):
        return None
    count = len(problem.jobs)
    old = _find_old_rows(kept.problem.jobs.job_id, problem.jobs.job_id)
    is_changed = old < 0
    for name, column in facts.items():
        is_changed |= _differ(column, kept.facts[name][old])
    if is_changed.sum() > MOST_CHANGED * count:
        return None
    new = list_options(problem, is_changed)
    first = starts(new.job, count)
    begin = np.where(is_changed, len(kept.listed) + first[:-1], kept.start[old])
    end = np.where(is_changed, len(kept.listed) + first[1:], kept.start[old + 1])
    job, source = ragged(begin, end)
    at = np.flatnonzero(source >= len(kept.listed))
    source[at] = 0
    columns = {}
    for name, column in vars(kept.listed).items():
        if name != "job":
            columns[name] = np.take(column, source, mode="clip")
            columns[name][at] = getattr(new, name)
    listed = ListedOptions(job=job, **columns)
    start = np.append(0, np.cumsum(end - begin))
    _look_up_corrected_rates(kept.problem, problem, listed, start)
    return listed


def _find_old_rows(before: Sequence[str], now: Sequence[str]) -> Ints:
    """Return the row of each name in the round before, (n,), -1 = it is new."""
    place = dict(zip(before, range(len(before)), strict=True))
    return np.fromiter(map(place.get, now, repeat(-1)), dtype=np.int64, count=len(now))


def _look_up_corrected_rates(
    old: Problem, problem: Problem, listed: ListedOptions, start: Ints
) -> None:
    """Give the options, those of job j at start[j] .. start[j+1], the speeds of this round."""
    table, rates = RateTable.of(problem), problem.rates
    corrected = np.flatnonzero(rates.rate != old.rates.rate)
    if not len(corrected):
        return
    is_corrected = np.zeros((len(problem.models), len(problem.gpu_types)), bool)
    is_corrected[rates.model[corrected], rates.gpu_type[corrected]] = True
    of_model = np.asarray(is_corrected.any(axis=1))
    is_corrected |= (table.unrated & of_model)[:, None]  # by any type's speed
    at = np.flatnonzero(np.repeat(of_model[problem.jobs.model], np.diff(start)))
    model = problem.jobs.model[listed.job[at]]
    stays = is_corrected[model, problem.pools.gpu_type[listed.pool[at]]]
    at, model = at[stays], model[stays]
    rate, row = table.rate_in_pools(
        problem.pools,
        model,
        listed.pool[at],
        listed.gpus[at],
        listed.keep[at],
        listed.nodes[at],
    )
    listed.rate[at] = rate * listed.pace[at]
    listed.row[at] = row
