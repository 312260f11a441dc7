"""Learn from observations: progress corrects rates, and missing progress finds stuck jobs.

Between two rounds every running job gives one sample of its speed. A job that was colocated in that
time gives one of its slowdown instead (learned_slowdowns.py). A job on more nodes than its size
needs gives none where rates.csv has a speed of that shape: it would teach the speed of another one.
A job with modes, or in a pool with stragglers or link_gb_s, gives none either: rates.csv has speeds
of even workers whose exchange takes no time. A sample teaches the phase of the model that the job
is in; one across two phases does not count. Of models that trials measure (profiling.py), only
samples of trials count. Some facts about each open allocation are remembered from round to round:
where the sample began, when work was last done, and with which job it was colocated. They are one
value of the table meta, written with the corrected rates.

The gradient noise that a job reports teaches that of its model, where models.csv or rates.csv has
it.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import compress, count, repeat
from statistics import median
from typing import Any

import numpy as np
from sqlalchemy import Connection

from allocator.controller import profiling
from allocator.controller.learned_slowdowns import (
    Beliefs,
    Colocation,
    Sample,
    correct_slowdowns,
    find_colocations,
    find_samples,
)
from allocator.domain.cluster import find_phases, present_models
from allocator.domain.problem import Bools, Floats, Ints, Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.columns import ASSUMED_RATE
from allocator.domain.settings import has_trials
from allocator.domain.snapshot import Snapshot, Table
from allocator.loop.executor import Observation, Phase
from allocator.performance.fit import feedback
from allocator.performance.fit.learned_noise import LearnedNoise
from allocator.performance.fit.loss_curves import describe_fault
from allocator.performance.table import RateTable
from allocator.queue import cluster_tables, lease, observations
from allocator.queue.database.rows import as_columns, execute_many, query
from allocator.queue.database.schema import OPEN, OWNED
from allocator.queue.holdings import parse_parts, read_others
from allocator.queue.snapshot import PreviousRows

PROGRESS_KEY = "samples"  # key of meta
# of an allocation: the work when its sample began, since when, and the seconds without progress
PROGRESS = np.dtype(
    [
        ("generation", "<i8"),
        ("work", "<f8"),
        ("since_s", "<f8"),
        ("quiet_s", "<f8"),
        ("is_colocated", "?"),
    ]
)
# what is read of a running job
_COLUMNS = (
    "job_id",
    "generation",
    "pool",
    "gpu_type",
    "gpus",
    "nodes",
    "work_at_start",
    "work_done",
    "observed_s",
    "since_s",
    "reported",
    "model",
    "modes",
    "total_work",
    "target_loss",
)
_RUNNING = (
    f"SELECT {', '.join(f'j.{name}' if name in OWNED else f'a.{name}' for name in _COLUMNS)}"
    " FROM allocations a JOIN jobs j ON j.job_id = a.job_id "
    # both conditions: the index covers open allocations
    f"WHERE a.phase = 'running' AND a.phase IN {OPEN}"
)
# pools where not all workers are alike, or their exchange takes time
_UNEVEN = "SELECT pool FROM pools WHERE straggler_cv > 0 OR link_gb_s IS NOT NULL"
OPTIONAL = ("models.csv", "nodes.csv", "sharing.csv")  # tables of a profile that may be empty
Key = tuple[str, str, int]  # model, GPU type, GPUs
SpeedSample = tuple[float, float]  # work per second, unix seconds
# beginning of `detail` of an allocation that is stopped because it is stuck
STUCK = "no progress for"
UNRATED = {cluster_tables.UNRATED: True}


def mark_stuck_as_failed(observation: Observation, detail: str) -> Observation:
    """Return the observation, changed to "failed" if it is the stop of a stuck job.

    `detail` is the recorded detail of the allocation, which says that the job was stuck.
    """
    if observation.phase == Phase.STOPPED and detail.startswith(STUCK):
        return replace(observation, phase=Phase.FAILED, detail=detail)
    return observation


def learn(
    connection: Connection,
    token: int,
    now_s: float,
    rows: PreviousRows,
    *,
    patience_s: float,
    interval_s: float,
    corrects: bool,
    reports: bool,
    beliefs: Beliefs,
) -> list[str]:
    """Take one sample of every running allocation, correct rates, and order the stop of stuck jobs.

    Parameters
    ----------
    token : int
        Fencing token of the controller.
    now_s : float
        Time of the round in seconds.
    rows : PreviousRows
        The jobs as of the round's snapshot.
    patience_s : float
        Seconds without progress after which a job is stuck.
    interval_s : float
        Seconds between rounds.
    corrects : bool
        Rates are corrected.
    reports : bool
        All jobs are known to report progress. Otherwise only a job that has reported some can be
        stuck.
    beliefs : Beliefs
        What the last round believes of colocated jobs.

    Returns
    -------
    list of str
        The names of stuck jobs.

    Raises
    ------
    LeaseLost
        If the token is not the current one.
    """
    lease.check(connection, token)
    (
        names,
        generations,
        pools,
        types,
        sizes,
        nodes,
        starts,
        works,
        seen_s,
        turns_s,
        reported,
        models,
        modes,
        totals,
        targets,
    ) = _read_running(connection, rows)
    done, at_s = np.array(works, dtype=np.float64), _floats_or(seen_s, now_s)
    known, past, looked_s, before = _load_progress(connection, names, generations, now_s)
    work, since_s = past["work"], past["since_s"]
    others = read_others(connection)
    is_colocated = np.array([name in others for name in names], dtype=np.bool_)
    alone = ~is_colocated & ~past["is_colocated"] & (_floats_or(turns_s, -np.inf) <= since_s)
    uneven = query(connection, _UNEVEN)
    alone &= np.array(
        [m is None and (pool,) not in uneven for m, pool in zip(modes, pools, strict=True)],
        dtype=np.bool_,
    )
    moved = known & (done > work)
    # no sample before the first work: that time includes the start-up
    is_working = moved & (work > 0) & (at_s > since_s)
    speed = np.divide(done - work, at_s - since_s, out=np.zeros(len(names)), where=is_working)
    samples = np.flatnonzero(is_working & alone)
    together = find_samples(before, names, others, is_working, since_s) if before else []
    by_name = (dict(zip(names, x.tolist(), strict=True)) for x in (known, at_s))
    colocations = find_colocations(beliefs, before, others, *by_name) if beliefs else {}
    # counted round by round, so that no job is stuck because a clock jumps or no controller ran
    # for a while
    passed_s = min(max(0.0, now_s - looked_s), 2 * interval_s)
    quiet_s = np.where(known & ~moved, past["quiet_s"] + passed_s, 0.0)
    since_s = np.where(~known | moved | (work <= 0), at_s, since_s)
    stuck = np.flatnonzero(known & (quiet_s > patience_s) & (reports | (done > 0))).tolist()
    execute_many(
        connection,
        "UPDATE allocations SET phase = 'stopping', stop_ordered_s = ?, detail = ? "
        "WHERE job_id = ? AND generation = ? AND phase = 'running'",
        [(now_s, f"{STUCK} {quiet_s[j]:.0f} s", names[j], generations[j]) for j in stuck],
    )
    present = np.rec.fromarrays((generations, done, since_s, quiet_s, is_colocated), dtype=PROGRESS)
    text = b64encode(present.tobytes()).decode("ascii")
    cluster_tables.write_meta(connection, PROGRESS_KEY, [now_s, names, text, colocations])
    if not corrects:
        return [names[j] for j in stuck]
    total = np.array(totals)
    _record_losses(connection, names, targets, total - starts + done, reported)
    profile = load_profile(connection)
    heard = [j for j in np.flatnonzero(moved).tolist() if reported[j]]
    if (profile.shapes or profile.has_phases) and (len(samples) or together or heard):
        left = np.array(starts) / total
        at_begin, phase = (
            profile.present_names(models, 1.0 - left + x / total) for x in (work, done)
        )
        fits = [
            at_begin[j] == phase[j]
            and not profile.is_spread((phase[j], types[j], sizes[j]), nodes[j])
            for j in range(len(names))
        ]
        samples = samples[np.array(fits)[samples]]
        changed = {i for i, j, _ in together if not (fits[i] and fits[j])}
        together = [pair for pair in together if pair[0] not in changed]
        models = tuple(phase)
    if together:
        slowed = [
            Sample(
                i, models[i], models[j], types[i], min(sizes[i], sizes[j]), alone_per_s, speed[i]
            )
            for i, j, alone_per_s in together
        ]
        correct_slowdowns(connection, profile.problem, slowed, now_s)
    _record_noise(connection, [(models[j], reported[j]) for j in heard], profile.models)
    if has_trials(cluster_tables.config(connection)):
        samples = _take_trials(connection, profile.profiled, names, models, samples, speed)
    of_key: dict[Key, list[int]] = {}
    for j in samples.tolist():
        of_key.setdefault((models[j], types[j], sizes[j]), []).append(j)
    # one sample per size, the median of all jobs of that size
    medians = {
        key: (median(speed[jobs].tolist()), float(at_s[jobs].max())) for key, jobs in of_key.items()
    }
    correct(connection, profile, medians, now_s)
    return [names[j] for j in stuck]


def _read_running(connection: Connection, rows: PreviousRows) -> Sequence[Sequence[Any]]:
    """Return _COLUMNS of the running jobs."""
    present = rows.list_present(connection)
    if present is None:
        return as_columns(query(connection, _RUNNING), len(_COLUMNS))
    runs = [phase == Phase.RUNNING for phase in present["phase"]]
    return [tuple(compress(present[name], runs)) for name in _COLUMNS]


def _record_losses(
    connection: Connection,
    names: Sequence[str],
    targets: Sequence[float | None],
    done: Floats,
    reported: Sequence[str],
) -> None:
    """Add what jobs with a target loss reported; `done` (n,) is the work they have done in all."""
    heard = []
    for name, target, work, text in zip(names, targets, done.tolist(), reported, strict=True):
        if target is None or not text:
            continue
        report = json.loads(text)
        at, loss = report.get("loss_at", work), report.get("loss", math.nan)
        if at >= 0 and describe_fault(loss) is None:
            heard.append(observations.Heard(name, target, at, loss))
    observations.record_losses(connection, heard)


def _record_noise(
    connection: Connection, heard: Sequence[tuple[str, str]], models: Collection[str]
) -> None:
    """Add what jobs reported, (model, JSON) each, to the gradient noise of known models."""
    if not heard:
        return
    known = cluster_tables.read_noise(connection)
    before = dict(known)
    for model, text in heard:
        noise = known.get(model, LearnedNoise()).add_report(json.loads(text))
        if noise.reports and model in models:
            known[model] = noise
    if known != before:
        cluster_tables.write_meta(connection, cluster_tables.NOISE, known)


def _take_trials(
    connection: Connection,
    profiled: Collection[str],
    names: Sequence[str],
    models: Sequence[str],
    samples: Ints,
    speed: Floats,
) -> Ints:
    """Add the speeds of trials to what is known of them, and return the other samples.

    Models that trials measure are fitted to these, so no other samples correct their speeds.
    """
    known = profiling.read(connection)
    trials = {trial.job_id: trial.at for trial in known.open}
    for j in samples.tolist():
        if names[j] in trials and speed[j] > 0:
            known = known.add_sample(trials[names[j]], float(speed[j]))
    profiling.write(connection, known)
    return samples[[models[j] not in profiled for j in samples.tolist()]]


def _load_progress(
    connection: Connection, names: Sequence[str], generations: Sequence[int], now_s: float
) -> tuple[Bools, Any, float, dict[str, Colocation]]:
    """Return what the last round remembered of these allocations, when that was, and colocations.

    It is whether each allocation is known, (n,), and a record PROGRESS of each, (n,).
    """
    stored = cluster_tables.read_meta(connection, PROGRESS_KEY, [now_s, [], "", {}])
    looked_s, old_names, text, colocations = stored
    place = dict(zip(old_names, count()))
    old = np.append(np.frombuffer(b64decode(text), PROGRESS), np.zeros(1, PROGRESS))
    past = old[np.array(list(map(place.get, names, repeat(-1))), dtype=np.int64)]
    known = past["generation"] == np.array(generations, dtype=np.int64)
    past[~known] = 0
    return known, past, looked_s, {name: Colocation(*row) for name, row in colocations.items()}


def _floats_or(values: Sequence[float | None], otherwise: float) -> Floats:
    """Return values of the database as floats, with another number for NULL."""
    out = np.array(values, dtype=np.float64)
    return np.where(np.isnan(out), otherwise, out)


def correct(
    connection: Connection, base_profile: Profile, samples: Mapping[Key, SpeedSample], now_s: float
) -> None:
    """Correct rates by samples, one per size.

    If a model has no given rates, the speeds at the observed sizes are learned directly, and
    nothing is inferred about other sizes.
    """
    known: dict[Key, feedback.Estimate] = {
        (r["model"], r["gpu_type"], r["gpus"]): feedback.Estimate.of(r["state"])
        for r in cluster_tables.read_learned_rates(connection)
        # others were learned against another profile
        if bool(r["state"].get(cluster_tables.UNRATED)) == (r["model"] not in base_profile.models)
    }
    touched = set[Key]()
    for key, (rate, at_s) in samples.items():
        prior, before = base_profile.rate(key), known.get(key)
        if prior > 0 and rate > 0:
            most = feedback.MOST if key[0] in base_profile.models else math.inf
            ratio = math.log(rate / prior)
            known[key] = feedback.update(before or feedback.Estimate(), ratio, at_s, most)
            if known[key] != before:
                touched.add(key)
    rows = list[cluster_tables.LearnedRate]()
    for model in dict.fromkeys(key[0] for key in touched):
        is_rated = model in base_profile.models
        seen: dict[str, dict[int, feedback.Estimate]] = {}
        for (name, kind, gpus), estimate in known.items():
            if name == model:
                seen.setdefault(kind, {})[gpus] = estimate
        offered = {kind: sorted(k) for (m, kind), k in base_profile.sizes.items() if m == model}
        for kind, sizes in seen.items():
            offered[kind] = sorted({*sizes, *offered.get(kind, ())})
        correction = (
            feedback.correct_model(seen, offered, now_s)
            if is_rated
            else {(kind, k): e.mean for kind, sizes in seen.items() for k, e in sizes.items()}
        )
        for kind, gpus in [(kind, k) for kind, sizes in offered.items() for k in sizes]:
            if is_rated or (model, kind, gpus) in touched:
                prior, x = base_profile.rate((model, kind, gpus)), correction.get((kind, gpus))
                own = known.get((model, kind, gpus))
                speed = prior * math.exp(x) if x is not None and prior > 0 else None
                state = {} if own is None else own.to_dict() | ({} if is_rated else UNRATED)
                rows.append((model, kind, gpus, speed, state))
    cluster_tables.learn(connection, rows, now_s)


class Profile:
    """The speeds that owners of the cluster gave, on the GPUs with the most memory of each type.

    `sizes` has the sizes with rows in rates.csv, by model and GPU type, and `shapes` the sizes with
    a number of nodes.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._table, self._rates = RateTable.of(problem), dict[Key, float]()
        self.models = frozenset(problem.models)  # models with a given rate
        self.profiled = profiling.profiled_models(problem)
        self.has_phases = len(find_phases(problem.models)) > 0
        self._model = {name: m for m, name in enumerate(problem.models)}
        self._type = {name: t for t, name in enumerate(problem.gpu_types)}
        self.sizes: dict[tuple[str, str], set[int]] = {}
        self.shapes = set[tuple[Key, int]]()
        r = problem.rates
        columns = (r.model, r.gpu_type, r.gpus, r.nodes)
        for m, t, k, n in zip(*(column.tolist() for column in columns), strict=True):
            model, kind = problem.models[m], problem.gpu_types[t]
            if n:
                self.shapes.add(((model, kind, k), n))
            else:
                self.sizes.setdefault((model, kind), set()).add(k)

    def present_names(self, models: Sequence[str], share_done: Floats) -> list[str]:
        """Return the name of each job's model in its present phase, (n,)."""
        number = np.array([self._model.get(name, -1) for name in models], dtype=np.int64)
        present = present_models(self.problem.models, number, share_done).tolist()
        names = self.problem.models
        return [names[m] if m >= 0 else name for m, name in zip(present, models, strict=True)]

    def is_spread(self, key: Key, nodes: str) -> bool:
        """Return whether a size on these nodes, as the queue stores them, is a spread shape."""
        return (key, len({part.node for part in parse_parts(nodes)})) in self.shapes

    def rate(self, key: Key) -> float:
        """Return the work per second, nan if it is not known; ASSUMED_RATE of unrated models."""
        if key[0] not in self._model:
            return ASSUMED_RATE
        if key not in self._rates:
            kind, pools = self._type.get(key[1], -1), self.problem.pools
            largest_gb = pools.memory_gb[pools.gpu_type == kind].max(initial=0.0)
            model, gpus = self._model[key[0]], key[2]
            rates = self._table.rate(
                np.array([model]), np.array([kind]), np.array([gpus]), largest_gb
            )
            self._rates[key] = math.nan if kind < 0 else float(rates[0][0])
        return self._rates[key]


def load_profile(connection: Connection) -> Profile:
    """Return the given speeds of the queue's cluster, without learned rates."""
    stored = {
        file: cluster_tables.read_stored_columns(connection, file)
        for file in ("pools.csv", "rates.csv", *OPTIONAL)
    }
    return _load_profile(json.dumps(stored))


@lru_cache(maxsize=2)
def _load_profile(text: str) -> Profile:
    """Return the profile of tables that are given as text, so that it is cached."""
    tables = {
        file: cluster_tables.build_table(file, columns)
        for file, columns in json.loads(text).items()
        if file not in OPTIONAL or any(columns.values())
    }
    heads = ("job_id", "model", "submitted_s", "remaining_work", "max_gpus")
    tables["jobs.csv"] = Table("jobs.csv", {n: [] for n in heads}, range(0))
    return Profile(validate(Snapshot("profile", {}, tables)))
