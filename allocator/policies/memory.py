"""The memory of a round for the next one: prices by the names of their rows, and look-ahead plans.

Successive rounds replace few jobs and change few values, so the last prices are almost the next
ones, and finding those takes a fraction of the time. The plan needs no memory: running jobs are in
the snapshot, and "change nothing" is always among the starts. A look ahead starts from the previous
plans, shifted by the intervals that have passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from allocator.options.instance_building import CompiledRound
from formulations.model.linear import AT_MOST_ONE, Floats, Ints, LinearModel


@dataclass(frozen=True)
class LookAheadPlans:
    """Plans of a look ahead, by names.

    Attributes
    ----------
    at_s, interval_s : float
        Start of the first interval, and length of each, seconds.
    prices : mapping
        (kind, label) of a coupling row -> price in every interval.
    jobs : mapping
        job_id -> the pool, "" = none, and the GPUs that it holds in every interval.
    """

    at_s: float
    interval_s: float
    prices: Mapping[tuple[str, str], tuple[float, ...]]
    jobs: Mapping[str, tuple[tuple[str, int], ...]]

    @classmethod
    def of(cls, round_: CompiledRound, rows: Ints, plan: Ints, prices: Floats) -> LookAheadPlans:
        """Build the memory from a plan (J, H) and the prices (H, R) of coupling rows.

        The plan has columns of the round. Coupling rows are the model's rows `rows` (R,).
        """
        i = round_.instance
        problem = round_.problem
        names = {row: name for name, row in _list_rows(round_.model)}
        of_rows = zip(rows.tolist(), prices.T.tolist(), strict=True)
        priced = {names[row]: tuple(of_row) for row, of_row in of_rows if any(of_row)}
        pool = np.array([*problem.pools.pool, ""], object)[np.append(i.pool, -1)[plan]]
        gpus = np.append(i.gpus, 0)[plan]
        jobs = {
            problem.jobs.job_id[j]: tuple(zip(pool[j].tolist(), gpus[j].tolist(), strict=True))
            for j in np.flatnonzero((plan >= 0).any(axis=1)).tolist()
        }
        return cls(problem.now_s, problem.interval_s, priced, jobs)

    def restart_from(
        self, round_: CompiledRound, rows: Ints, intervals: int
    ) -> tuple[Ints, Floats]:
        """Return plan and prices in columns (J, H) and coupling rows (H, R) of another round.

        Intervals that have passed are left out, and the last one continues. New jobs and rows have
        neither.
        """
        problem, model = round_.problem, round_.model
        elapsed = max(0, round((problem.now_s - self.at_s) / self.interval_s))
        pool = {name: p for p, name in enumerate(problem.pools.pool)}
        planned = [
            (pool.get(name, -1), gpus)
            for job_id in problem.jobs.job_id
            for steps in [self.jobs.get(job_id, (("", 0),))]
            for name, gpus in (*steps[elapsed:], *steps[-1:] * intervals)[:intervals]
        ]
        place, gpus = np.array(planned, np.int64).reshape(-1, 2).T
        whose = np.repeat(np.arange(len(problem.jobs)), intervals)
        plan = np.where(place < 0, -1, round_.columns_at(whose, np.maximum(place, 0), gpus))
        prices = np.zeros((intervals, model.m))
        for name, row in _list_rows(model):
            if of_row := self.prices.get(name):
                prices[:, row] = (*of_row[elapsed:], *of_row[-1:] * intervals)[:intervals]
        return plan.reshape(-1, intervals), prices[:, rows]


@dataclass(frozen=True)
class Memory:
    """Prices of the last round.

    Attributes
    ----------
    objective : str
        Unit of the prices.
    prices : mapping
        (kind, label) of a coupling row -> price.
    plans : LookAheadPlans or None
        None if the policy makes none.
    """

    objective: str
    prices: Mapping[tuple[str, str], float]
    plans: LookAheadPlans | None = None

    @classmethod
    def of(
        cls, objective: str, model: LinearModel, prices: Floats, plans: LookAheadPlans | None = None
    ) -> Memory:
        """Build the memory of a round with row prices (m,)."""
        return cls(objective, {name: float(prices[row]) for name, row in _list_rows(model)}, plans)

    def row_prices(self, model: LinearModel) -> tuple[Floats, int]:
        """Return the remembered prices of another round's rows, (m,), and the number of known rows.

        A new row has the price 0.
        """
        prices, known = np.zeros(model.m), 0
        for name, row in _list_rows(model):
            prices[row] = self.prices.get(name, 0.0)
            known += name in self.prices
        return prices, known


def _list_rows(model: LinearModel) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield the names of coupling rows, (kind, label), and the rows."""
    for f in model.families:
        if f.kind != AT_MOST_ONE:
            for row, label in enumerate(f.labels, f.first):
                yield (f.kind, label), row
