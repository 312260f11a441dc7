"""Promises to several jobs: which deadlines can be kept together.

Source: Gu et al., ElasticFlow, ASPLOS 2023, algorithm 1 (admission control: earliest deadline
first, each job gets its minimum satisfactory share of what earlier jobs leave). Additions here:
several pools, and rows that limit more than GPUs (quotas, budgets) in every slot.

A new job is first planned in what all earlier promises leave, so that no other job's plan changes.
The promises together are a plan: the size of each job in each slot, within all rows. So all of them
can be kept as long as speeds are right and no GPUs are lost. A deadline that is not promised may
still be possible: see `formulations/deadlines/kept_bound.py`.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formulations.deadlines.satisfactory_shares import (
    DeadlineNeed,
    Reservation,
    reservation,
    soonest,
)
from formulations.model.linear import Floats, Ints


@dataclass(frozen=True)
class CandidatePool:
    """A pool in which a job may run.

    Attributes
    ----------
    need : DeadlineNeed
        What the job needs there.
    rows : (r,)
        Rows that limit it.
    per_gpu : (r,)
        Use of each of these rows per GPU.
    home : bool
        Whether the job runs there now.
    """

    pool: int
    need: DeadlineNeed
    rows: Ints
    per_gpu: Floats
    home: bool = False

    def free(self, left: Floats) -> Ints:
        """Return the GPUs that the job may use in each slot, (T,), of what is left, (R, T)."""
        gpus: Ints = np.floor((left[self.rows] / self.per_gpu[:, None]).min(axis=0) + 1e-9).astype(
            np.int64
        )
        return gpus


@dataclass(frozen=True)
class Promise:
    """The pool and the GPUs over time with which a job keeps its deadline."""

    place: CandidatePool
    reservation: Reservation


class ReservationPlan:
    """The promises made so far, and what they leave of every row in every slot.

    Attributes
    ----------
    places : sequence of sequences of CandidatePool
        Candidate pools of every job.
    due : (J,)
        Deadlines, seconds from now.
    left : (R, T)
        What is left of every row in every slot; pools come first.
    """

    def __init__(
        self, places: Sequence[Sequence[CandidatePool]], due: Floats, left: Floats, slot_s: float
    ) -> None:
        self.places = places
        self.due = due
        self.slot_s = slot_s
        self.whole = left
        self._least = np.array(
            [min((p.need.least_gpu_s for p in of), default=0.0) for of in places]
        )
        pools = sorted({p.pool for of in places for p in of})
        # GPU-seconds available until the end of each slot
        self._gpu_s = np.cumsum(left[pools].sum(axis=0)) * slot_s
        self.jobs: list[int] = []
        self.made: list[Promise] = []
        self._key: list[tuple[float, int]] = []
        # what is left before each promise; the last entry is what all promises leave
        self._before: list[Floats] = [left]

    @property
    def left(self) -> Floats:
        """What all promises together leave, (R, T)."""
        return self._before[-1]

    def add(self, j: int) -> bool:
        """Promise job j its deadline together with all others; return False if that fails.

        The other promises do not change if they leave enough GPUs. Otherwise those due later are
        planned again. If it fails, nothing changes.
        """
        at = bisect(self._key, (float(self.due[j]), j))
        promise = self._promise(j, self.left)
        if promise is not None:
            self.jobs.insert(at, j)
            self.made.insert(at, promise)
            self._key.insert(at, (float(self.due[j]), j))
            self._before[at:] = [
                self._before[at],
                *(subtract_reservation(left, promise) for left in self._before[at:]),
            ]
            return True
        return self._fits_before_deadlines(j) and self._replan(at, [j, *self.jobs[at:]])

    def settle(self) -> None:
        """Plan all promises again, by earliest deadline, if all can be kept that way."""
        self._replan(0, list(self.jobs))

    def _replan(self, at: int, jobs: list[int]) -> bool:
        """Plan these jobs in this order, after the first `at` promises; return False if that fails.

        If it fails, nothing changes.
        """
        before = [self._before[at]]
        promises = []
        for job in jobs:
            promise = self._promise(job, before[-1])
            if promise is None:
                return False
            promises.append(promise)
            before.append(subtract_reservation(before[-1], promise))
        self.jobs[at:], self.made[at:], self._before[at:] = jobs, promises, before
        self._key[at:] = [(float(self.due[job]), job) for job in jobs]
        return True

    def _fits_before_deadlines(self, j: int) -> bool:
        """Return False if job j and promised jobs need too many GPU-seconds by some deadline."""
        jobs = np.array([*self.jobs, j], np.int64)
        jobs = jobs[np.argsort(self.due[jobs], kind="stable")]
        until = (
            np.minimum(np.ceil(self.due[jobs] / self.slot_s).astype(np.int64), self.whole.shape[1])
            - 1
        )
        return bool(
            (np.cumsum(self._least[jobs]) <= self._gpu_s[np.maximum(until, 0)] * (1 + 1e-9)).all()
        )

    def soonest(self, j: int) -> float:
        """Return the earliest deadline that could be promised to job j together with all others.

        It is in seconds from now, inf if no slot is late enough.
        """
        return min(
            (soonest(p.need, p.free(self.left), self.slot_s) for p in self.places[j]),
            default=np.inf,
        )

    def _promise(self, j: int, left: Floats) -> Promise | None:
        """Return a promise to job j within what is left, None if no pool suffices.

        The pool in which the job runs now comes first, then the one of the smallest share of its
        rows.
        """
        best: tuple[float, Promise] | None = None
        for place in self.places[j]:
            slots = reservation(place.need, place.free(left), self.slot_s)
            if slots is None:
                continue
            if place.home:
                return Promise(place, slots)
            part = float(
                (place.per_gpu / np.maximum(self.whole[place.rows].sum(axis=1), 1e-9)).max()
            )
            cost = part * float(slots.size.sum())
            if best is None or cost < best[0]:
                best = (cost, Promise(place, slots))
        return best[1] if best else None


def subtract_reservation(left: Floats, promise: Promise) -> Floats:
    """Return what is left once a promise is kept, (R, T)."""
    out: Floats = left.copy()
    size = promise.reservation.size
    place = promise.place
    out[place.rows, : len(size)] -= place.per_gpu[:, None] * size
    return out
