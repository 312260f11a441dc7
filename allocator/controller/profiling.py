"""Trials: configurations that jobs run for a while so that the speeds of their model are known.

[profiling] of config.toml with `gpu_hours` enables them. A curve of models.csv that knows batches
and gives its `error` is a belief about the model. As long as `allocator configure --profile` would
ask for measurements of it, one job of the model at a time runs what is asked for: its only option
of the round is that size on that GPU type, with that batch. What it reports is the speed there. The
fit of all measurements (performance/fit) replaces the curve in every round, so that the plan picks
size and batch by it, under all rules of the objective. Where jobs report their gradient noise, it
gives what a sample of each batch counts, as of now; the trials give the seconds of a step.

All trials of a model take at most gpu_hours. A trial begins only if the longest time that it can
take, trial_s and SPARE_ROUNDS rounds, fits into what is left. It is offered only where its GPUs are
free or its own, and if the plan does not take it, there is none in the next round.

What is known is one value of the table meta. It is written with the round and with the samples, so
that another controller goes on where this one stopped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection

from allocator.domain.problem import Floats, Ints, Problem, State
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.columns import PROFILING, RATES
from allocator.domain.snapshot import Snapshot, Table
from allocator.errors import UsageError
from allocator.objects import Json, Record
from allocator.options.configure import RunConfigurations, configure
from allocator.performance.batched import KINDS
from allocator.performance.fit.choose import fit
from allocator.performance.fit.observations import Observations
from allocator.performance.profiling import MOST
from allocator.queue import cluster_tables
from allocator.queue.round_journal import Want
from formulations.training_step import compute_efficiency

KEY = "trials"  # of the table meta
TABLE = "profiling"  # of config.toml
SPARE_ROUNDS = 4  # to start, to see the first work and the first sample, and to end
HOUR = 3600.0
RATE_COLUMNS = ("model", "gpu_type", "gpus", "work_per_s", "batch_size")


class Configuration(NamedTuple):
    """What a trial measures: a model on so many GPUs of a type, with this global batch."""

    model: str
    gpu_type: str
    gpus: int
    batch: int


@dataclass(frozen=True)
class Trial:
    """A trial that was asked for at began_s; its GPU time is counted up to counted_s.

    `rate` is the work per second that was believed.
    """

    job_id: str
    at: Configuration
    rate: float
    began_s: float
    counted_s: float


@dataclass(frozen=True)
class Trials:
    """All that is known from trials.

    `speeds` has the mean log speed and the number of samples of each configuration, with no sample
    where a trial ended without one. `gpu_s` is the GPU time by model. `skips` are models whose last
    trial was not taken up. `noise_at` has the gradient noise scale at which a speed was seen, and
    `noise_scales` the present ones by model, where jobs reported them.
    """

    speeds: Mapping[Configuration, tuple[float, int]] = field(default_factory=dict)
    gpu_s: Mapping[str, float] = field(default_factory=dict)
    open: tuple[Trial, ...] = ()
    skips: frozenset[str] = frozenset()
    noise_at: Mapping[Configuration, float] = field(default_factory=dict)
    noise_scales: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> list[Any]:
        """Return the value that is stored; the present noise scales are stored apart."""
        speeds = [[*at, *seen] for at, seen in self.speeds.items()]
        trials = [asdict(trial) for trial in self.open]
        noise = [[*at, phi] for at, phi in self.noise_at.items()]
        return [speeds, dict(self.gpu_s), trials, sorted(self.skips), noise]

    @classmethod
    def of_json(cls, value: Sequence[Any] | None) -> Trials:
        """Return the trials of a stored value."""
        if value is None:
            return cls()
        speeds, gpu_s, trials, skips, noise = value
        return cls(
            {Configuration(*row[:4]): (row[4], row[5]) for row in speeds},
            gpu_s,
            tuple(Trial(**(stored | {"at": Configuration(*stored["at"])})) for stored in trials),
            frozenset(skips),
            {Configuration(*row[:4]): row[4] for row in noise},
        )

    def report(self) -> dict[str, Json]:
        """Return what was measured of each model, and its GPU-hours, as JSON values for users."""
        return {
            model: {
                "gpu_hours": self.gpu_s.get(model, 0.0) / HOUR,
                "measured": [
                    {
                        "gpu_type": at.gpu_type,
                        "gpus": at.gpus,
                        "batch_size": at.batch,
                        "work_per_s": math.exp(mean) if count else None,
                    }
                    for at, (mean, count) in self.speeds.items()
                    if at.model == model
                ],
            }
            for model in sorted({*self.gpu_s, *(at.model for at in self.speeds)})
        }

    def add_sample(self, at: Configuration, rate: float) -> Trials:
        """Return the trials with one more observed speed, work per second."""
        mean, count = self.speeds.get(at, (0.0, 0))
        new = (mean * count + math.log(rate)) / (count + 1), count + 1
        phi = self.noise_scales.get(at.model)
        noise_at = self.noise_at if phi is None else {**self.noise_at, at: phi}
        return replace(self, speeds={**self.speeds, at: new}, noise_at=noise_at)


@dataclass(frozen=True)
class ProfiledRound:
    """A round with trials: its snapshot and problem, the new state, and the jobs to start anew.

    `restarts` has the batch that each such job runs with now, 0 if it shall start anew in any case.
    """

    snapshot: Snapshot
    problem: Problem
    trials: Trials
    restarts: Mapping[str, int]


def read(connection: Connection) -> Trials:
    """Return what the queue knows from trials."""
    known = Trials.of_json(cluster_tables.read_meta(connection, KEY))
    return replace(known, noise_scales=cluster_tables.read_noise_scales(connection))


def write(connection: Connection, trials: Trials) -> None:
    """Keep what is known from trials."""
    cluster_tables.write_meta(connection, KEY, trials.to_json())


def profiled_models(problem: Problem) -> set[str]:
    """Return the models of which a curve is a belief that trials correct."""
    curves = problem.curves
    rows = zip(curves.model.tolist(), curves.kind, curves.parameters, strict=True)
    return {problem.models[m] for m, kind, q in rows if kind in KINDS and q.get("error", 0) > 0}


def profile(
    snapshot: Snapshot, problem: Problem, known: Trials, interval_s: float
) -> ProfiledRound:
    """Return the round with fitted curves and with the trials that jobs shall run."""
    settings = {c.name: c.default for c in PROFILING} | dict(problem.settings.get(TABLE, {}))
    models = profiled_models(problem)
    longest_s = settings["trial_s"] + SPARE_ROUNDS * interval_s
    trials, restarts = _follow(problem, known, settings["trial_s"], longest_s - interval_s)
    fitted = use_fits(snapshot, trials)
    if fitted is not snapshot:
        problem = validate(fitted)
    busy = {trial.at.model for trial in trials.open} | trials.skips
    new = []
    for model in sorted(models - busy):
        left_s = settings["gpu_hours"] * HOUR - trials.gpu_s.get(model, 0.0)
        trial = _next_trial(problem, model, trials, left_s / longest_s)
        if trial is not None:
            new.append(trial)
            restarts[trial.job_id] = 0
    trials = replace(trials, open=(*trials.open, *new), skips=frozenset())
    if trials.open:
        fitted = _offer(fitted, trials.open)
        problem = validate(fitted)
    return ProfiledRound(fitted, problem, trials, restarts)


def _follow(
    problem: Problem, known: Trials, trial_s: float, longest_s: float
) -> tuple[Trials, dict[str, int]]:
    """Count the GPU time of open trials, and end those that are over."""
    jobs, now = problem.jobs, problem.now_s
    number = {name: j for j, name in enumerate(jobs.job_id)}
    gpu_s, speeds = dict(known.gpu_s), dict(known.speeds)
    still, skips, ended = [], set[str](), {}
    for trial in known.open:
        j = number.get(trial.job_id, -1)
        at = trial.at
        runs = j >= 0 and jobs.state[j] == State.RUNNING and jobs.gpus[j] == at.gpus
        passed_s = max(0.0, now - trial.counted_s)
        if runs or (j < 0 and passed_s > 0):  # a job that is gone was done in the meantime
            gpu_s[at.model] = gpu_s.get(at.model, 0.0) + at.gpus * passed_s
        is_measured = at in speeds and now - trial.began_s >= trial_s
        if runs and not is_measured and now - trial.began_s < longest_s:
            still.append(replace(trial, counted_s=now))
        elif runs:
            speeds.setdefault(at, (0.0, 0))
            ended[trial.job_id] = at.batch
        elif j >= 0:
            skips.add(at.model)
    trials = replace(known, speeds=speeds, gpu_s=gpu_s, open=tuple(still), skips=frozenset(skips))
    return trials, ended


def use_fits(snapshot: Snapshot, trials: Trials) -> Snapshot:
    """Return the snapshot with the curves that the measurements give."""
    seen = [(at, mean) for at, (mean, count) in trials.speeds.items() if count]
    if not seen or "models.csv" not in snapshot.tables:
        return snapshot
    columns = zip(*(at for at, _ in seen), strict=True)
    model, gpu_type, gpus, batch = map(list, columns)
    table = snapshot.tables["models.csv"]
    rate = np.exp([mean for _, mean in seen]) * _follow_noise(table, trials, [at for at, _ in seen])
    rows = Observations.of(model, gpu_type, gpus, rate, batch=batch)
    fits = {
        (f.model, f.gpu_type): f
        for f in fit(rows, noise_scales=trials.noise_scales)
        if f.kind in KINDS
    }
    table = snapshot.tables["models.csv"]
    keys = list(zip(table.texts("model"), table.texts("gpu_type"), strict=True))
    if fits.keys().isdisjoint(keys):
        return snapshot
    kinds = [
        fits[k].kind if k in fits else kind
        for k, kind in zip(keys, table.texts("kind"), strict=True)
    ]
    texts = [
        json.dumps(_within(json.loads(text), fits[k].parameters)) if k in fits else text
        for k, text in zip(keys, table.texts("parameters"), strict=True)
    ]
    return snapshot.with_columns("models.csv", kind=kinds, parameters=texts)


def _follow_noise(table: Table, trials: Trials, seen: Sequence[Configuration]) -> Floats:
    """Return what measured speeds of useful work count now, (n,), as the gradient noise changed."""
    columns = map(table.texts, ("model", "kind", "parameters"))
    least = {
        model: json.loads(text).get(KINDS[kind].least)
        for model, kind, text in zip(*columns, strict=True)
        if kind in KINDS
    }
    batch = np.array([at.batch for at in seen], dtype=np.float64)
    first = np.array([least.get(at.model) or at.batch for at in seen], dtype=np.float64)
    now = np.array([trials.noise_scales.get(at.model, np.nan) for at in seen])
    then = np.array([trials.noise_at.get(at, np.nan) for at in seen])
    gain = compute_efficiency(now, first, batch) / compute_efficiency(then, first, batch)
    return np.where(np.isnan(gain), 1.0, gain)


def _within(believed: Record, fitted: Mapping[str, float]) -> Json:
    """Return fitted parameters with the bounds that the owner of the model gave."""
    bounds = ("min_gpus", "max_gpus", "max_batch", "max_local", "memory_gb", "memory_per_sample_gb")
    kept = {name: believed[name] for name in bounds if name in believed}
    return {name: x for name, x in fitted.items() if name not in bounds and math.isfinite(x)} | kept


def _next_trial(problem: Problem, model: str, trials: Trials, most_gpus: float) -> Trial | None:
    """Return the next trial of a model on at most so many GPUs, None if there is none to make."""
    if sum(at.model == model for at in trials.speeds) >= MOST:
        return None
    for j in _candidates(problem, model):
        try:
            ways = configure(problem, problem.jobs.job_id[j])
        except UsageError:
            continue
        for at, rate in _ask(ways, problem, model, trials):
            if at.gpus <= min(most_gpus, _free_gpus(problem, j, at.gpu_type)):
                return Trial(ways.job, at, rate, problem.now_s, problem.now_s)
    return None


def _candidates(problem: Problem, model: str) -> Iterator[int]:
    """Yield the jobs of a model that may run a trial, the longest first, at most two."""
    jobs = problem.jobs
    able = (jobs.model == problem.models.index(model)) & (jobs.state != State.HELD)
    able &= (jobs.primary < 0) & (jobs.preemptible | (jobs.state != State.RUNNING))
    at = np.flatnonzero(able)
    yield from at[np.argsort(-jobs.remaining_work[at], kind="stable")][:2].tolist()


def _ask(
    ways: RunConfigurations, problem: Problem, model: str, trials: Trials
) -> Iterator[tuple[Configuration, float]]:
    """Yield what `configure --profile` asks for and was not tried, and the speed believed there."""
    for i, _, _ in ways.next_to_try():
        gpu_type = problem.gpu_types[int(ways.gpu_type[i])]
        at = Configuration(model, gpu_type, int(ways.gpus[i]), int(ways.batch[i]))
        if at not in trials.speeds and at.batch > 0:
            yield at, float(ways.rate[i])


def _free_gpus(problem: Problem, j: int, gpu_type: str) -> int:
    """Return the most GPUs of a type that are free in a pool, with those of job j."""
    jobs, pools = problem.jobs, problem.pools
    holds: Ints = np.where((jobs.pool >= 0) & (jobs.primary < 0), jobs.gpus, 0)
    holds[j] = 0
    used = np.bincount(np.maximum(jobs.pool, 0), holds, minlength=len(pools))
    here = pools.gpu_type == problem.gpu_types.index(gpu_type)
    return int((pools.gpus - used)[here].max(initial=0))


def _offer(snapshot: Snapshot, trials: Iterable[Trial]) -> Snapshot:
    """Return the snapshot in which the jobs have nothing but their trials as options.

    Each is of a model of its own, with one row of rates.csv: the speed that is believed there.
    """
    jobs, rates = snapshot.tables["jobs.csv"], snapshot.tables.get("rates.csv")
    runs = {trial.job_id: trial for trial in trials}
    models = [
        _name(runs[name].at) if name in runs else model
        for name, model in zip(jobs.texts("job_id"), jobs.texts("model"), strict=True)
    ]
    rows = {
        _name(trial.at): {
            "model": _name(trial.at),
            "gpu_type": trial.at.gpu_type,
            "gpus": str(trial.at.gpus),
            "work_per_s": repr(trial.rate),
            "batch_size": str(trial.at.batch),
        }
        for trial in runs.values()
    }
    names = list(dict.fromkeys((*(rates.columns if rates is not None else ()), *RATE_COLUMNS)))
    columns = {
        name: [
            *(rates.texts(name) if rates is not None else ()),
            *(row.get(name, "") for row in rows.values()),
        ]
        for name in names
    }
    offered = snapshot.with_columns("jobs.csv", model=models)
    return replace(offered, tables={**offered.tables, "rates.csv": Table.of(RATES, columns)})


def _name(at: Configuration) -> str:
    """Return the name of the model of a trial."""
    return f"{at.model}, trial of {at.gpus} x {at.batch}"


def restart_jobs(wants: dict[str, Want], restarts: Mapping[str, int]) -> dict[str, Want]:
    """Return what is wanted of jobs, with those that begin or end a trial started anew.

    A job that has as many GPUs as before would otherwise go on with the batch that it was told.
    """
    out = dict(wants)
    for job_id, batch in restarts.items():
        if job_id in out and f'"{batch}"' not in out[job_id].environment:
            out[job_id] = out[job_id]._replace(has_to_move=True)
    return out
