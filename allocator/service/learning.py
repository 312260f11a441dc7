"""What observations teach: progress corrects rates, and its absence finds stuck jobs.

Between two rounds every running job gives one sample of its speed. What is remembered of each open allocation (where
the sample began, when work was last done) is one value of the table meta, written with the corrected rates.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from allocator.control.executor import Observation, Phase
from allocator.domain.problem import Problem
from allocator.domain.snapshot import Snapshot, Table
from allocator.domain.validate import validate
from allocator.performance import feedback
from allocator.performance.table import RateTable
from allocator.queue import cluster, lease
from allocator.queue.schema import allocations as table
from allocator.queue.schema import jobs, rates
from allocator.service.journal import dumps, loads

MARKS = "progress"              # key of meta
NEEDED = ("job_id", "generation", "observed_s", "work_done", "gpu_type", "gpus")
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
    stuck: list[tuple[Any, float]] = []
    running = sa.select(*(table.c[n] for n in NEEDED), jobs.c.model).join(jobs, jobs.c.job_id == table.c.job_id)
    for a in connection.execute(running.where(table.c.phase == "running")).all():
        at_s = a.observed_s if a.observed_s is not None else now_s
        mark = old.get(a.job_id)
        if mark is None or mark[0] != a.generation or len(mark) != MARK:
            marks[a.job_id] = [a.generation, a.work_done, at_s, 0.0, now_s]
            continue
        _, work, since_s, quiet_s, looked_s = mark
        moved = a.work_done > work
        if moved and work > 0 and at_s > since_s:           # the first stretch has the start in it
            samples.append(((a.model, a.gpu_type, a.gpus), (a.work_done - work) / (at_s - since_s), at_s))
        # counted round by round, so that a clock that jumps or a controller that was away makes nobody stuck
        quiet_s = 0.0 if moved else quiet_s + min(max(0.0, now_s - looked_s), 2 * interval_s)
        marks[a.job_id] = [a.generation, a.work_done, at_s if moved or work <= 0 else since_s, quiet_s, now_s]
        if quiet_s > patience_s and (reports or a.work_done > 0):
            stuck.append((a, quiet_s))
    for a, quiet_s in stuck:
        connection.execute(sa.update(table).where(
            table.c.job_id == a.job_id, table.c.generation == a.generation, table.c.phase == "running").values(
            phase="stopping", stop_ordered_s=now_s, detail=f"{STUCK} {quiet_s:.0f} s"))
    cluster.put_meta(connection, MARKS, dumps(marks))
    number = correct(connection, samples, now_s) if corrects and samples else 0
    return [a.job_id for a, _ in stuck], number


def correct(connection: Connection, samples: list[Sample], now_s: float) -> int:
    """Let samples correct the rates; returns how many rates are corrected."""
    problem = profile(connection)
    believed = RateTable.of(problem)
    known: dict[Key, feedback.Estimate] = {
        (r["model"], r["gpu_type"], r["gpus"]): feedback.Estimate.of(r["state"])
        for r in cluster.learned_rates(connection)}
    before = dict(known)
    for key, (rate, at_s) in _medians(samples).items():
        prior = _prior(problem, believed, key)
        if prior > 0 and rate > 0:
            known[key] = feedback.update(known.get(key, feedback.Estimate()), math.log(rate / prior), at_s)
    groups: dict[tuple[str, str], dict[int, feedback.Estimate]] = {}
    for (model, kind, gpus), estimate in known.items():
        groups.setdefault((model, kind), {})[gpus] = estimate
    rows, corrected = [], 0
    for (model, kind), sizes in groups.items():
        touched = any(before.get((model, kind, k)) != e for k, e in sizes.items())
        offered = sorted({*sizes, *_measured(problem, model, kind)})
        for gpus, (mean, deviation) in feedback.posterior(sizes, offered, now_s).items():
            prior = _prior(problem, believed, (model, kind, gpus))
            counts = feedback.counts(mean, deviation) and prior > 0
            corrected += counts
            if touched:
                own = sizes.get(gpus)
                rows.append({"model": model, "gpu_type": kind, "gpus": gpus,
                             "work_per_s": prior * math.exp(mean) if counts else None,
                             "state": {} if own is None else own.to_dict()})
    cluster.learn(connection, rows, now_s)
    return corrected


def profile(connection: Connection) -> Problem:
    """The speeds that owners of the cluster gave, without what was learned, as a problem without jobs."""
    tables = {file: t for file, t in cluster.tables(connection).items() if file in ("pools.csv", "models.csv")}
    names = [c.name for c in rates.c if c.name != "position"]
    found = connection.execute(sa.select(*(rates.c[n] for n in names)).order_by(rates.c.position)).all()
    columns: Mapping[str, list[str]] = {n: [row[i] for row in found] for i, n in enumerate(names)}
    needed = ("model", "gpu_type", "gpus", "work_per_s")
    tables["rates.csv"] = Table("rates.csv", {n: c for n, c in columns.items() if n in needed or any(c)},
                                range(2, len(found) + 2))
    return _checked(tuple((file, tuple((n, tuple(c)) for n, c in t.columns.items())) for file, t in tables.items()))


@lru_cache(maxsize=2)
def _checked(content: tuple[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]], ...]) -> Problem:
    """The problem of tables as values: profiles hardly ever change."""
    tables = {file: Table(file, dict(columns), range(2, len(columns[0][1]) + 2)) for file, columns in content}
    heads = ("job_id", "model", "submitted_s", "remaining_work", "max_gpus")
    tables["jobs.csv"] = Table("jobs.csv", {n: [] for n in heads}, range(0))
    return validate(Snapshot("profile", {}, tables))


def _medians(samples: list[Sample]) -> dict[Key, tuple[float, float]]:
    """One sample per size and round, (work per second, unix seconds): jobs that run alike say the same thing."""
    by_key: dict[Key, list[tuple[float, float]]] = {}
    for key, rate, at_s in samples:
        by_key.setdefault(key, []).append((rate, at_s))
    return {key: (statistics.median(rate for rate, _ in found), max(at_s for _, at_s in found))
            for key, found in by_key.items()}


def _prior(problem: Problem, believed: RateTable, key: tuple[str, str, int]) -> float:
    import numpy as np

    model, kind, gpus = key
    if model not in problem.models or kind not in problem.gpu_types:
        return math.nan
    one = [np.array([v], dtype=np.int64) for v in (problem.models.index(model), problem.gpu_types.index(kind), gpus)]
    return float(believed.rate(one[0], one[1], one[2])[0][0])


def _measured(problem: Problem, model: str, kind: str) -> list[int]:
    """Sizes that rates.csv has rows for."""
    if model not in problem.models or kind not in problem.gpu_types:
        return []
    r = problem.rates
    mine = (r.model == problem.models.index(model)) & (r.gpu_type == problem.gpu_types.index(kind))
    return sorted(set(r.gpus[mine].tolist()))


