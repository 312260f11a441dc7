"""Estimate classes of jobs from past submissions, one class per model.

A class has arrivals, mean work and a speed-up table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from allocator.domain.phases import find_phases
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
        span = float(np.ptp(self.submitted_s)) if len(self.model) else 0.0
        if n < 2 or span <= 0:
            raise InvalidInput(
                [
                    Fault(
                        self.source,
                        None,
                        f"{n} jobs submitted within {span:g} s say nothing about how "
                        "many come per hour; give --hours",
                    )
                ]
            )
        return span * n / (n - 1) / HOUR

    def split_phases(self, models: tuple[str, ...]) -> History:
        """Return the history in which every phase of a job is a job of its own, with its work."""
        parts = [self]
        phases = find_phases(models)
        for base in dict.fromkeys(one.model for one in phases):
            mine = [one for one in phases if one.model == base]
            begins = [0.0, *(one.begins for one in mine), 1.0]
            jobs = np.flatnonzero(self.model == base)
            for model, start, end in zip(
                [base, *(one.phase for one in mine)], begins, begins[1:], strict=False
            ):
                part = self.take(jobs)
                work = part.total_work * (end - start)
                parts.append(replace(part, model=np.full(len(jobs), model), total_work=work))
        if not phases:
            return self
        parts[0] = self.take(np.flatnonzero(~np.isin(self.model, [one.model for one in phases])))
        columns = (f.name for f in fields(self)[1:])
        joined = {name: np.concatenate([getattr(p, name) for p in parts]) for name in columns}
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
    hours: float | None = None,
    rented: RentablePools | None = None,
    sizes: Sizes = powers_of_two,
) -> tuple[RentalClasses, tuple[str, ...]]:
    """Estimate the classes; also return warnings of models without a known speed.

    There is one class per model. Arrivals are jobs / hours. The mean work is mean total_work /
    (work per hour of one GPU of the first GPU type). The weight is the mean weight. There is a row
    per GPU type with the known speeds at `sizes`, up to the largest size of its jobs. Where
    one GPU has no speed, the smallest known size divided by its GPUs takes its place.
    """
    over = past.hours() if hours is None else hours
    past = past.split_phases(tuple(models))
    of: list[int] = []
    types: list[str] = []
    points: list[tuple[tuple[int, float], ...]] = []
    relative: list[float] = []
    rows: list[tuple[str, float, float, float]] = []
    lost: list[str] = []
    offered = [
        t for t in range(len(gpu_types)) if rented is None or rented.cheapest(gpu_types[t]) >= 0
    ]
    for m in np.unique(past.model).tolist():
        mine = np.flatnonzero(past.model == m)
        most = int(past.max_gpus[mine].max())
        known = {t: s for t in offered if (s := _speeds(rate, m, t, sizes(t, most)))}
        if not known:
            lost.append(models[m])
            continue
        ones = {t: s[0][1] / s[0][0] for t, s in known.items()}  # work per second of one GPU
        reference = ones[min(ones)]
        for t, speeds in known.items():
            of.append(len(rows))
            types.append(gpu_types[t])
            points.append(tuple((k, s / ones[t]) for k, s in speeds))
            relative.append(ones[t] / reference)
        rows.append(
            (
                models[m],
                len(mine) / over,
                float(past.total_work[mine].mean()) / reference / HOUR,
                float(past.weight[mine].mean()),
            )
        )
    if not rows:
        raise InvalidInput(
            [
                Fault(
                    past.source,
                    None,
                    (
                        "no job is of a model with a known speed on a GPU type that can be rented"
                        if len(past.model)
                        else "no jobs were submitted"
                    ),
                )
            ]
        )
    n, (names, arrivals, work, weight) = len(of), zip(*rows, strict=True)
    return RentalClasses(
        class_id=names,
        arrivals_per_hour=np.array(arrivals),
        mean_work_gpu_hours=np.array(work),
        weight=np.array(weight),
        of=np.array(of),
        gpu_type=tuple(types),
        kind=np.full(n, KINDS.index("table")),
        parameter=np.full(n, np.nan),
        points=tuple(points),
        relative_speed=np.array(relative),
        max_gpus=np.full(n, np.inf),
        rented=rented,
    ), tuple(
        f"{past.source}: no speed of model {name} is known; its jobs are left out" for name in lost
    )


def _speeds(rate: Rate, model: int, gpu_type: int, sizes: Ints) -> list[tuple[int, float]]:
    """Return (GPUs, work per second) of the sizes with a known speed."""
    found = rate(np.full(len(sizes), model), np.full(len(sizes), gpu_type), sizes)
    return [(k, s) for k, s in zip(sizes.tolist(), found.tolist(), strict=True) if s > 0]
