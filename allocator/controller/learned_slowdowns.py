"""Learn how much colocated jobs slow each other down, for the next snapshot.

A round says how fast it believes each colocated job to be alone, with the passes of the
colocation. Between two rounds every job that worked next to the same jobs all the time gives one
sample of its slowdown. Estimates and corrected rows of sharing.csv are one value of the table meta.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection

from allocator.domain.allocation import Allocation
from allocator.domain.problem import Bools, Floats, Problem, Sharing, join_names, other_jobs
from allocator.objects import Json
from allocator.performance.fit.feedback import Estimate
from allocator.performance.fit.learned_slowdowns import LearnedSlowdowns, speeds_alone
from allocator.queue import cluster_tables

Beliefs = Mapping[str, tuple[str, float]]
"""By colocated job: the other jobs, as shared_with, and the believed work per second alone."""


class Colocation(NamedTuple):
    """The other jobs on the GPUs of a job, its believed speed alone, and since when all ran."""

    others: str
    alone: float
    since_s: float


class Sample(NamedTuple):
    """One observed slowdown of a model next to another one.

    The pairs of a job with several primary jobs are one sample, with the same number.
    """

    number: int
    model: str
    other: str
    gpu_type: str
    gpus: int
    alone: float
    observed: float


def compute_beliefs(problem: Problem, plan: Allocation) -> Beliefs:
    """Return what a round believes of the speeds of its colocated jobs."""
    primary = np.flatnonzero(plan.secondary >= 0)
    secondary, names = plan.secondary[primary], problem.jobs.job_id
    alone = speeds_alone(problem, primary, secondary, plan.pool[primary], plan.gpus)
    speeds = dict(zip(primary.tolist(), alone[0].tolist(), strict=True))
    speeds |= dict(zip(secondary.tolist(), alone[1].tolist(), strict=True))
    others = other_jobs(plan.secondary)
    return {
        names[j]: (join_names(sorted(names[k] for k in others[j])), speed)
        for j, speed in speeds.items()
        if speed > 0
    }


def find_colocations(
    beliefs: Beliefs,
    before: Mapping[str, Colocation],
    others: Mapping[str, Sequence[str]],
    known: Mapping[str, bool],
    at_s: Mapping[str, float],
) -> dict[str, Colocation]:
    """Return the colocations that run as the last round wanted them, by job.

    Parameters
    ----------
    before : mapping
        The same, one round earlier.
    others : mapping of str to sequence of str
        The other jobs on the GPUs of each running job that has some, by name.
    known : mapping of str to bool
        Whether each running allocation ran one round earlier.
    at_s : mapping of str to float
        When each running job was observed, seconds.
    """
    out: dict[str, Colocation] = {}
    for name, (cell, alone) in beliefs.items():
        all_jobs = (name, *others.get(name, ()))
        if join_names(all_jobs[1:]) != cell or not at_s.keys() >= set(all_jobs):
            continue
        old = before.get(name)
        goes_on = old is not None and old.others == cell and all(known[job] for job in all_jobs)
        since_s = old.since_s if old and goes_on else max(at_s[job] for job in all_jobs)
        out[name] = Colocation(cell, alone, since_s)
    return out


def find_samples(
    before: Mapping[str, Colocation],
    names: Sequence[str],
    others: Mapping[str, Sequence[str]],
    is_working: Bools,
    since_s: Floats,
) -> list[tuple[int, int, float]]:
    """Return the jobs that were colocated all the time since their sample began.

    Parameters
    ----------
    before : mapping
        Colocations of one round earlier.
    names : sequence of str
        The running jobs.
    others : mapping of str to sequence of str
        The other jobs on the GPUs of each running job that has some, by name.
    is_working : (n,)
        Whether the job has worked all the time since its sample began.
    since_s : (n,)
        When the sample of each job began, seconds.

    Returns
    -------
    list of (int, int, float)
        Index of the job, index of another job on its GPUs, and believed speed alone; of a job with
        several primary jobs one for each of them.
    """
    place = {name: i for i, name in enumerate(names)}
    out = []
    for name, colocation in before.items():
        all_jobs = (name, *others.get(name, ()))
        if join_names(all_jobs[1:]) != colocation.others or not place.keys() >= set(all_jobs):
            continue
        i, *rest = (place[job] for job in all_jobs)
        if is_working[[i, *rest]].all() and colocation.since_s <= since_s[i]:
            out += [(i, j, colocation.alone) for j in rest]
    return out


def correct_slowdowns(
    connection: Connection, problem: Problem, samples: Sequence[Sample], now_s: float
) -> None:
    """Take samples of slowdowns, and correct the rows of sharing.csv for the next snapshot.

    `problem` has the rows of sharing.csv as they were given.
    """
    sharing, models, types = problem.sharing, problem.models, problem.gpu_types
    model_code = {models[m]: m for m in {*sharing.model_a.tolist(), *sharing.model_b.tolist()}}
    type_code = {types[t]: t for t in set(sharing.gpu_type.tolist())}
    stored = cluster_tables.read_meta(connection, cluster_tables.SLOWDOWNS, {})
    estimates = {
        (model_code[a], model_code[b], type_code[kind], gpus): Estimate.of(state)
        for a, b, kind, gpus, state in stored.get("estimates", ())
        if a in model_code and b in model_code and kind in type_code
    }
    learned = LearnedSlowdowns(sharing, len(models), len(types), estimates)
    fine = [
        s for s in samples if {s.model, s.other} <= model_code.keys() and s.gpu_type in type_code
    ]
    if fine:
        codes = [
            (model_code[s.model], model_code[s.other], type_code[s.gpu_type], s.gpus, s.number)
            for s in fine
        ]
        model, other, gpu_type, gpus, number = np.array(codes, dtype=np.int64).T
        alone, observed = np.array([(s.alone, s.observed) for s in fine]).T
        learned.observe(model, other, gpu_type, gpus, alone, observed, now_s, number)
    corrected = learned.corrected(now_s)
    given_rows, rows = (
        list(zip(*(getattr(x, f.name).tolist() for f in fields(Sharing)), strict=True))
        for x in (sharing, corrected)
    )
    value: Json = {
        "estimates": [
            [models[a], models[b], types[kind], gpus, estimate.to_dict()]
            for (a, b, kind, gpus), estimate in learned.estimates.items()
        ],
        "rows": [
            [models[a], models[b], types[kind], gpus, *slowdowns]
            for i, (a, b, kind, gpus, *slowdowns) in enumerate(rows)
            if rows[i : i + 1] != given_rows[i : i + 1]
        ],
    }
    cluster_tables.write_meta(connection, cluster_tables.SLOWDOWNS, value)
