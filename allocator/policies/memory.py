"""The memory of a round for the next one: prices by the names of their rows, and look-ahead plans.

Successive rounds replace few jobs and change few values, so the last prices are almost the next
ones, and finding those takes a fraction of the time. The plan needs no memory: running jobs are in
the snapshot, and "change nothing" is always among the starts. Options of jobs that did not
change are kept apart (options/previous_options.py). A look ahead starts from the previous plans,
shifted by the intervals that have passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from allocator.options.announced_capacity import option_columns
from allocator.options.instance_building import CompiledRound
from formulations.model.linear import AT_MOST_ONE, Floats, Ints, LinearModel

# (pool, GPUs, intervals), one after the other; "" = nothing
Steps = tuple[tuple[str, int, int], ...]


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
        job_id -> what it holds.
    """

    at_s: float
    interval_s: float
    prices: Mapping[tuple[str, str], tuple[float, ...]]
    jobs: Mapping[str, Steps]

    @classmethod
    def of(cls, round_: CompiledRound, rows: Ints, plan: Ints, prices: Floats) -> LookAheadPlans:
        """Build the memory from a plan (J, H) and the prices (H, R) of coupling rows.

        The plan has columns of the round. Coupling rows are the model's rows `rows` (R,).
        """
        i = round_.instance
        problem = round_.problem
        of_row = dict(zip(rows.tolist(), prices.T.tolist(), strict=True))
        priced = {
            (f.kind, label): tuple(of_row[row])
            for f in round_.model.families
            for row, label in enumerate(f.labels, f.first)
            if row in of_row and any(of_row[row])
        }
        new = np.ones(plan.shape, dtype=bool)
        new[:, 1:] = plan[:, 1:] != plan[:, :-1]
        pools = problem.pools.pool
        out = {}
        for j in np.flatnonzero((plan >= 0).any(axis=1)).tolist():
            begin = np.flatnonzero(new[j])
            lengths = np.diff(np.append(begin, plan.shape[1]))
            out[problem.jobs.job_id[j]] = tuple(
                ("", 0, m) if c < 0 else (pools[i.pool[c]], int(i.gpus[c]), m)
                for c, m in zip(plan[j, begin].tolist(), lengths.tolist(), strict=True)
            )
        return cls(problem.now_s, problem.interval_s, priced, out)

    def restart_from(
        self, round_: CompiledRound, rows: Ints, intervals: int
    ) -> tuple[Ints, Floats]:
        """Return plan and prices in columns (J, H) and coupling rows (H, R) of another round.

        Intervals that have passed are left out, and the last one continues. New jobs and rows have
        neither.
        """
        problem = round_.problem
        model = round_.model
        elapsed = max(0, round((problem.now_s - self.at_s) / self.interval_s))
        pool = {name: p for p, name in enumerate(problem.pools.pool)}
        held = np.full((len(problem.jobs), intervals), -1)
        gpus = np.zeros_like(held)
        for j, job_id in enumerate(problem.jobs.job_id):
            at = -elapsed
            for name, k, m in self.jobs.get(job_id, ()):
                # the last one continues, so each holds to the end until the next one begins
                held[j, max(at, 0) :], gpus[j, max(at, 0) :] = pool.get(name, -1), k
                at += m
        job = np.repeat(np.arange(len(held)), intervals)
        plan = option_columns(
            round_, job, np.maximum(held.ravel(), 0), gpus.ravel(), held.ravel() >= 0
        )
        prices = np.zeros((intervals, model.m))
        place = np.minimum(np.arange(intervals) + elapsed, self.interval_count - 1)
        for f in model.families:
            for row, label in enumerate(f.labels, f.first):
                if (known := self.prices.get((f.kind, label))) is not None:
                    prices[:, row] = np.array(known)[place]
        return plan.reshape(held.shape), prices[:, rows]

    @property
    def interval_count(self) -> int:
        """Number of intervals."""
        for one in self.prices.values():
            return len(one)
        return sum(m for *_, m in next(iter(self.jobs.values()), (("", 0, 1),)))


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
        return cls(
            objective,
            {
                (f.kind, label): float(p)
                for f in model.families
                if f.kind != AT_MOST_ONE
                for label, p in zip(f.labels, prices[f.first : f.stop], strict=True)
            },
            plans,
        )

    def row_prices(self, model: LinearModel) -> tuple[Floats, int]:
        """Return the remembered prices of another round's rows, (m,), and the number of known rows.

        A new row has the price 0.
        """
        prices = np.zeros(model.m)
        known = 0
        for f in model.families:
            if f.kind != AT_MOST_ONE:
                found = [self.prices.get((f.kind, label)) for label in f.labels]
                prices[f.first : f.stop] = [p or 0.0 for p in found]
                known += sum(p is not None for p in found)
        return prices, known
