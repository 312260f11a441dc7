"""The fewest GPUs that keep a deadline: minimum satisfactory shares of the GPUs that are free.

Source: Gu et al., ElasticFlow, ASPLOS 2023, section 4.1 (minimum satisfactory share, progressive
filling) for jobs of one kind of GPU; the letters differ. Time is cut into slots of D seconds from
now on; free_t GPUs are free in slot t.

    size_t(k) = the largest size <= min(k, free_t)
    work_t(k) = rate(size_t) max(0, D - pause where the size changes)
    share     = the smallest k with sum_t work_t(k) >= R

In the last slot only the time up to the deadline counts. Without such a k the deadline cannot be
kept. A job holds its GPUs to the end of the slot in which it is done, so a chain of fills can be
carried out in rounds of D seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from formulations.model.linear import Floats, Ints


@dataclass(frozen=True)
class DeadlineNeed:
    """One job in one pool.

    Attributes
    ----------
    sizes : (S,)
        GPUs, ascending.
    rate : (S,)
        Work per second at each size.
    work : float
        Remaining work R.
    due_s : float
        Deadline, seconds from now.
    pause_s, change_s : float
        Seconds lost at a start and at a change of size.
    held : int
        GPUs that the job has there now, 0 = none.
    """

    sizes: Ints
    rate: Floats
    work: float
    due_s: float
    pause_s: float
    change_s: float
    held: int

    @property
    def least_gpu_s(self) -> float:
        """GPU-seconds of its work at the size that takes fewest."""
        return float((self.sizes / self.rate).min()) * self.work


@dataclass(frozen=True)
class Reservation:
    """GPUs `size` (T',) in the slots up to the end of the job, and `done_s`, seconds from now."""

    size: Ints
    done_s: float

    def gpu_s(self, slot_s: float) -> float:
        """Return the GPU-seconds that are held."""
        return float(self.size.sum()) * slot_s


def reservation(need: DeadlineNeed, free: Ints, slot_s: float) -> Reservation | None:
    """Return the smallest share that keeps the deadline in slots with `free` (T,) GPUs.

    The result is None if no share does.
    """
    slots = min(len(free), int(np.ceil(need.due_s / slot_s - 1e-9)))
    if slots <= 0 or not len(need.sizes):
        return None
    usable_gpus = np.minimum(need.sizes[:, None], free[:slots])
    # (S, slots): number of sizes that fit
    index = np.searchsorted(need.sizes, usable_gpus, side="right")
    work, useful = _work(need, index, slots, slot_s)
    done = np.cumsum(work, axis=1)
    enough = done[:, -1] >= need.work * (1 - 1e-12)
    if not enough.any():
        return None
    k = int(enough.argmax())
    last = int(np.searchsorted(done[k], need.work * (1 - 1e-12)))
    before = done[k, last - 1] if last else 0.0
    rate = need.rate[index[k, last] - 1]
    size = np.where(index[k, : last + 1] > 0, need.sizes[index[k, : last + 1] - 1], 0)
    lost = slot_s - useful[k, last]
    return Reservation(size, last * slot_s + lost + (need.work - before) / rate)


def soonest(need: DeadlineNeed, free: Ints, slot_s: float) -> float:
    """Return the seconds until the job could be done on free GPUs, whatever its deadline.

    This is the earliest deadline that could be promised, over all shares. It is inf if the job
    cannot be done in these slots.
    """
    best = np.inf
    for k in range(len(need.sizes)):
        only = replace(need, sizes=need.sizes[: k + 1], rate=need.rate[: k + 1], due_s=np.inf)
        index = np.searchsorted(only.sizes, np.minimum(only.sizes[-1], free), side="right")
        work, useful = _work(only, index[None, :], len(free), slot_s)
        done = np.cumsum(work[0])
        if not len(done) or done[-1] < need.work * (1 - 1e-12):
            continue
        last = int(np.searchsorted(done, need.work * (1 - 1e-12)))
        before = done[last - 1] if last else 0.0
        best = min(
            best,
            last * slot_s
            + slot_s
            - useful[0, last]
            + (need.work - before) / only.rate[index[last] - 1],
        )
    return float(best)


def _work(need: DeadlineNeed, index: Ints, slots: int, slot_s: float) -> tuple[Floats, Floats]:
    """Return work and useful seconds of each slot at the given sizes, (S, slots) each.

    `index` is the number of the size in each slot; 0 means no GPUs.
    """
    held = int(np.searchsorted(need.sizes, need.held, side="right")) if need.held else 0
    before = np.concatenate([np.full((len(index), 1), held), index[:, :-1]], axis=1)
    pause = np.where(index == before, 0.0, np.where(before == 0, need.pause_s, need.change_s))
    ends = np.minimum(slot_s, need.due_s - slot_s * np.arange(slots))
    useful = np.maximum(0.0, slot_s - pause)
    there = np.maximum(0.0, ends - pause)
    rate = np.concatenate([[0.0], need.rate])
    return rate[index] * np.where(index > 0, there, 0.0), useful
