"""What observations teach: progress corrects rates, and its absence finds stuck jobs.

Between two rounds every running job gives one sample of its speed. What is remembered of each open allocation (where
the sample began, when work was last done) is one value of the table meta, written with the corrected rates.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.control.executor import Observation, Phase
from allocator.domain.problem import Problem
from allocator.domain.snapshot import Snapshot, Table
from allocator.domain.validate import validate
from allocator.performance import feedback
from allocator.performance.table import RateTable
from allocator.queue import cluster, lease
from allocator.queue.bulk import many
from allocator.queue.schema import allocations as table
from allocator.queue.schema import jobs
from allocator.service.journal import dumps, loads

MARKS = "progress"              # key of meta
_NEEDED = ("job_id", "generation", "observed_s", "work_done", "gpu_type", "gpus")
_RUNNING = sa.select(*(table.c[n] for n in _NEEDED), jobs.c.model).join(
    jobs, jobs.c.job_id == table.c.job_id).where(table.c.phase == "running")
Key = tuple[str, str, int]      # model, GPU type, GPUs
Sample = tuple[Key, float, float]       # work per second, unix seconds
MARK = 5                        # numbers of one: generation, work, when it was reached, quiet seconds, last round
STUCK = "no progress for"       # beginning of `detail` of an allocation that is stopped because of it


def judged(one: Observation, detail: str) -> Observation:
    """The observation with what the controller knows (detail: of the allocation): a stuck job that stops has failed."""
    if one.phase == Phase.STOPPED and detail.startswith(STUCK):
        return replace(one, phase=Phase.FAILED, detail=detail)
    return one


def learn(connection: Connection, token: int, now_s: float, *, patience_s: float, interval_s: float,
          corrects: bool, reports: bool) -> tuple[list[str], int]:
    """Take one sample of every running allocation, correct rates, and order the stop of jobs that are stuck.

    patience_s: without progress for so long is stuck. interval_s: between rounds. corrects: rates are learned.
    reports: jobs are known to report progress; else only those that once did can be stuck. Returns the names of stuck
    jobs and the number of corrected rates. Raises LeaseLost.
    """
    lease.check(connection, token)
    old: dict[str, list[float]] = loads(cluster.get_meta(connection, MARKS)) or {}
    marks: dict[str, list[float]] = {}
    samples: list[Sample] = []
    stuck: list[tuple[float, str, str, int]] = []
    rows: Sequence[Any] = connection.execute(_RUNNING).all()
    for job_id, generation, observed_s, done, gpu_type, gpus, model in rows:
        at_s = now_s if observed_s is None else observed_s
        mark = old.get(job_id)
        if mark is None or mark[0] != generation or len(mark) != MARK:
            marks[job_id] = [generation, done, at_s, 0.0, now_s]
            continue
        _, work, since_s, quiet_s, looked_s = mark
        moved = done > work
        if moved and work > 0 and at_s > since_s:           # the first stretch has the start in it
            samples.append(((model, gpu_type, gpus), (done - work) / (at_s - since_s), at_s))
        # counted round by round, so that a clock that jumps or a controller that was away makes nobody stuck
        quiet_s = 0.0 if moved else quiet_s + min(max(0.0, now_s - looked_s), 2 * interval_s)
        marks[job_id] = [generation, done, at_s if moved or work <= 0 else since_s, quiet_s, now_s]
        if quiet_s > patience_s and (reports or done > 0):
            stuck.append((now_s, f"{STUCK} {quiet_s:.0f} s", job_id, generation))
    many(connection, "UPDATE allocations SET phase = 'stopping', stop_ordered_s = ?, detail = ? "
         "WHERE job_id = ? AND generation = ? AND phase = 'running'", stuck)
    cluster.put_meta(connection, MARKS, dumps(marks))
    number = correct(connection, samples, now_s) if corrects and samples else 0
    return [job_id for _, _, job_id, _ in stuck], number


def correct(connection: Connection, samples: list[Sample], now_s: float) -> int:
    """Let samples correct the rates; returns how many rates are corrected."""
    believed = profile(connection)
    known: dict[Key, feedback.Estimate] = {
        (r["model"], r["gpu_type"], r["gpus"]): feedback.Estimate.of(r["state"])
        for r in cluster.learned_rates(connection)}
    before = dict(known)
    for key, (rate, at_s) in _medians(samples).items():
        prior = believed.rate(key)
        if prior > 0 and rate > 0:
            known[key] = feedback.update(known.get(key, feedback.Estimate()), math.log(rate / prior), at_s)
    groups: dict[tuple[str, str], dict[int, feedback.Estimate]] = {}
    for (model, kind, gpus), estimate in known.items():
        groups.setdefault((model, kind), {})[gpus] = estimate
    rows, corrected = [], 0
    for (model, kind), sizes in groups.items():
        touched = any(before.get((model, kind, k)) != e for k, e in sizes.items())
        offered = sorted({*sizes, *believed.sizes.get((model, kind), ())})
        for gpus, (mean, deviation) in feedback.posterior(sizes, offered, now_s).items():
            prior = believed.rate((model, kind, gpus))
            counts = feedback.counts(mean, deviation) and prior > 0
            corrected += counts
            if touched:
                own = sizes.get(gpus)
                rows.append({"model": model, "gpu_type": kind, "gpus": gpus,
                             "work_per_s": prior * math.exp(mean) if counts else None,
                             "state": {} if own is None else own.to_dict()})
    cluster.learn(connection, rows, now_s)
    return corrected


class Profile:
    """The speeds that owners of the cluster gave. sizes: those that rates.csv has rows for, by model and GPU type."""

    def __init__(self, problem: Problem) -> None:
        self._table, self._rates = RateTable.of(problem), dict[Key, float]()
        self._model = {name: m for m, name in enumerate(problem.models)}
        self._type = {name: t for t, name in enumerate(problem.gpu_types)}
        self.sizes: dict[tuple[str, str], set[int]] = {}
        r = problem.rates
        for m, t, k in zip(r.model.tolist(), r.gpu_type.tolist(), r.gpus.tolist(), strict=True):
            self.sizes.setdefault((problem.models[m], problem.gpu_types[t]), set()).add(k)

    def rate(self, key: Key) -> float:
        """Work per second, nan where none is known."""
        if key not in self._rates:
            model, kind = self._model.get(key[0], -1), self._type.get(key[1], -1)
            self._rates[key] = math.nan if model < 0 or kind < 0 else float(self._table.rate(
                np.array([model]), np.array([kind]), np.array([key[2]]))[0][0])
        return self._rates[key]


def profile(connection: Connection) -> Profile:
    """The speeds of the queue's cluster, without what was learned."""
    stored = {file: cluster.stored(connection, file) for file in ("pools.csv", "models.csv", "rates.csv")}
    return _checked(tuple((file, tuple((n, tuple(c)) for n, c in columns.items()))
                          for file, columns in stored.items()))


@lru_cache(maxsize=2)
def _checked(content: tuple[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]], ...]) -> Profile:
    """The profile of tables as values: they hardly ever change."""
    tables = {file: cluster.table_of(file, {name: list(cells) for name, cells in columns})
              for file, columns in content if file != "models.csv" or columns[0][1]}
    heads = ("job_id", "model", "submitted_s", "remaining_work", "max_gpus")
    tables["jobs.csv"] = Table("jobs.csv", {n: [] for n in heads}, range(0))
    return Profile(validate(Snapshot("profile", {}, tables)))


def _medians(samples: list[Sample]) -> dict[Key, tuple[float, float]]:
    """One sample per size and round, (work per second, unix seconds): jobs that run alike say the same thing."""
    by_key: dict[Key, list[tuple[float, float]]] = {}
    for key, rate, at_s in samples:
        by_key.setdefault(key, []).append((rate, at_s))
    return {key: (statistics.median(rate for rate, _ in found), max(at_s for _, at_s in found))
            for key, found in by_key.items()}
