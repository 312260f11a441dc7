"""Estimate classes of jobs from past submissions, one class per model.

A class has arrivals, mean work and a speed-up table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from allocator.domain.cluster import find_phases
from allocator.domain.problem import Floats, Ints
from allocator.domain.schema.rental_columns import KINDS
from allocator.errors import Fault, InvalidInput
from allocator.market.classes import RentablePools, RentalClasses

HOUR = 3600.0
# model, GPU type, GPUs (n,) -> work per second, nan = not known
Rate = Callable[[Ints, Ints, Ints], Floats]
Sizes = Callable[[int, int], Ints]  # GPU type, largest size -> sizes to look at


@dataclass(frozen=True)
class History:
    """Hold n submitted jobs; arrays (n,).

    Attributes
    ----------
    source : str
        Where the jobs come from.
    model : (n,)
        Number of the model.
    submitted_s : (n,)
        Time of submission, seconds.
    total_work : (n,)
        Work in the model's unit.
    weight : (n,)
        Weight.
    max_gpus : (n,)
        Largest size, GPUs.
    """

    source: str
    model: Ints
    submitted_s: Floats
    total_work: Floats
    weight: Floats
    max_gpus: Ints

    def hours(self) -> float:
        """Return the hours in which the jobs arrived.

        They are n gaps of the mean length of the n - 1 observed ones. Raises InvalidInput.
        """
        n = len(self.model)
        span = float(np.ptp(self.submitted_s)) if n else 0.0
        if n < 2 or span <= 0:
            raise _says_nothing(
                self,
                f"{n} jobs submitted within {span:g} s say nothing about how many come per hour;"
                " give --hours",
            )
        return span * n / (n - 1) / HOUR

    def split_phases(self, models: tuple[str, ...]) -> History:
        """Return the history in which every phase of a job is a job of its own, with its work."""
        phases = find_phases(models)
        if not phases:
            return self
        parts = [self.take(np.flatnonzero(~np.isin(self.model, [phase.model for phase in phases])))]
        for base in dict.fromkeys(phase.model for phase in phases):
            later = [phase for phase in phases if phase.model == base]
            begins = [0.0, *(phase.begins for phase in later), 1.0]
            part = self.take(np.flatnonzero(self.model == base))
            for n, model in enumerate([base, *(phase.phase for phase in later)]):
                work = part.total_work * (begins[n + 1] - begins[n])
                parts.append(replace(part, model=np.full_like(part.model, model), total_work=work))
        names = [f.name for f in fields(self)[1:]]
        joined = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
        return History(self.source, **joined)

    def take(self, jobs: Ints) -> History:
        """Return some of the jobs."""
        columns = (f.name for f in fields(self)[1:])
        return History(self.source, **{name: getattr(self, name)[jobs] for name in columns})


def powers_of_two(gpu_type: int, most: int) -> Ints:
    """Return the powers of two up to the largest size, and the largest size."""
    return np.unique(np.append(2 ** np.arange(most.bit_length()), most)).astype(np.int64)


def estimate_classes(
    past: History,
    models: Sequence[str],
    gpu_types: Sequence[str],
    rate: Rate,
    hours: float | None,
    rented: RentablePools | None,
    sizes: Sizes,
) -> tuple[RentalClasses, tuple[str, ...]]:
    """Estimate the classes; also return warnings of models without a known speed.

    There is one class per model. Arrivals are jobs / hours. The mean work is mean total_work /
    (work per hour of one GPU of the first GPU type). The weight is the mean weight. There is a row
    per GPU type with the known speeds at `sizes`, up to the largest size of its jobs. Where
    one GPU has no speed, the smallest known size divided by its GPUs takes its place.
    """
    over = past.hours() if hours is None else hours
    past = past.split_phases(tuple(models))
    rows: list[tuple[str, float, float, float]] = []
    curves: list[tuple[int, str, tuple[tuple[int, float], ...], float]] = []
    lost: list[str] = []
    offered = [t for t, kind in enumerate(gpu_types) if not rented or rented.cheapest(kind) >= 0]
    for m in np.unique(past.model).tolist():
        of_model = past.take(np.flatnonzero(past.model == m))
        most = int(of_model.max_gpus.max())
        known = {t: s for t in offered if (s := _speeds(rate, m, t, sizes(t, most)))}
        if not known:
            lost.append(models[m])
            continue
        ones = {t: s[0][1] / s[0][0] for t, s in known.items()}  # work per second of one GPU
        reference = ones[min(ones)]
        for t, speeds in known.items():
            points = tuple((k, s / ones[t]) for k, s in speeds)
            curves.append((len(rows), gpu_types[t], points, ones[t] / reference))
        work = float(of_model.total_work.mean()) / reference / HOUR
        rows.append((models[m], len(of_model.model) / over, work, float(of_model.weight.mean())))
    if not rows:
        why = "no job is of a model with a known speed on a GPU type that can be rented"
        raise _says_nothing(past, why if len(past.model) else "no jobs were submitted")
    names, arrivals, means, weight = zip(*rows, strict=True)
    of, types, tables, relative = zip(*curves, strict=True)
    return RentalClasses(
        class_id=names,
        arrivals_per_hour=np.array(arrivals),
        mean_work_gpu_hours=np.array(means),
        weight=np.array(weight),
        of=np.array(of),
        gpu_type=types,
        kind=np.full(len(of), KINDS.index("table")),
        parameter=np.full(len(of), np.nan),
        points=tables,
        relative_speed=np.array(relative),
        max_gpus=np.full(len(of), np.inf),
        rented=rented,
    ), tuple(
        f"{past.source}: no speed of model {name} is known; its jobs are left out" for name in lost
    )


def _says_nothing(past: History, why: str) -> InvalidInput:
    return InvalidInput([Fault(past.source, None, why)])


def _speeds(rate: Rate, model: int, gpu_type: int, sizes: Ints) -> list[tuple[int, float]]:
    """Return (GPUs, work per second) of the sizes with a known speed."""
    speed = rate(np.full(len(sizes), model), np.full(len(sizes), gpu_type), sizes)
    return [(k, s) for k, s in zip(sizes.tolist(), speed.tolist(), strict=True) if s > 0]
