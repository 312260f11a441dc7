"""The pricing of plans as array operations over many jobs at once, for use without numba.

This is the recursion of formulations/horizon/pricing_compiled.py without its search. A plan is read
from the tables by the exact work done, rounded down to a unit, so it may have a little less value
than the best plan. The indices of a table are the state before (0 idle, 1 another option, 2 the
option held now), the job of the block, and the units done.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.horizon.intervals import ENOUGH
from formulations.horizon.pricing_compiled import NEAR, NEVER, SNAP
from formulations.model.linear import Bools, Floats, Ints

SmallInts = NDArray[np.int16]


def price(
    start: Ints,
    rate: Floats,
    pause: Floats,
    remaining: Floats,
    units: Ints,
    reach: Ints,
    current: Ints,
    mandatory: Bools,
    D: float,
    credit: Floats,
    later: Floats,
    reward: Floats,
    slope: Floats,
    held: Floats,
    rent: Floats,
    slack: Floats,
    nodes: int,
    jobs: Ints,
    best: Floats,
    plan: Ints,
) -> None:
    """Fill best (J,) and plan (J, H) of the jobs, see `pricing_compiled.price`.

    slack and nodes are not used.
    """
    js, size = jobs, np.diff(start)
    block = _Block(
        start[js],
        size[js],
        rate,
        pause,
        remaining[js],
        units[js],
        reach[js],
        current[js],
        mandatory[js],
        D,
        credit[js],
        later[js],
        reward[js],
        slope[js],
        held,
        rent,
    )
    best[js], plan[js] = block.price()


@dataclass(frozen=True)
class _Block:
    """Some jobs and their arrays; the arrays of options are those of all jobs."""

    start: Ints
    size: Ints
    rate: Floats
    pause: Floats
    remaining: Floats
    units: Ints
    reach: Ints
    current: Ints
    mandatory: Bools
    D: float
    credit: Floats
    later: Floats
    reward: Floats
    slope: Floats
    held: Floats
    rent: Floats

    @property
    def unit(self) -> Floats:
        """Work of one unit, (n,)."""
        return np.asarray(self.remaining / np.maximum(1, self.units), dtype=np.float64)

    def price(self) -> tuple[Floats, Ints]:
        """Return the best value and the plan of each job."""
        n, H = self.credit.shape
        every, all_done, K = np.arange(n), np.maximum(self.units, 1), int(self.size.max(initial=0))
        states = int(all_done.max(initial=1))
        slot = self.start[:, None] + np.minimum(
            np.arange(max(1, K)), np.maximum(self.size, 1)[:, None] - 1
        )
        # The last jobs may have no options, and then start after the last one.
        slot = np.minimum(slot, len(self.rate) - 1)
        F = np.zeros((H + 1, 3, n, states + 1))
        option = np.full((H, 3, n, states), -1, dtype=np.int16)
        length = np.ones((H, 3, n, states), dtype=np.int16)
        done = self.reward + self.slope * self.D
        for h in range(H - 1, -1, -1):
            top = min(int(self.reach[:, h].max(initial=0)), states - 1) + 1
            into = F[h, :2, :, :top]
            into[:] = np.where(self.mandatory[:, None], NEVER, F[h + 1, 0, :, :top])
            for place in range(K):
                k = slot[:, place]
                self._run(
                    place,
                    k,
                    h,
                    self.pause[k].T,
                    self.size > place,
                    F,
                    into,
                    option[h, :2, :, :top],
                    length[h, :2, :, :top],
                )
            # the job is done at the end of the previous interval
            if h > 0:
                F[h, :, every, all_done] = done[:, h - 1, None]
        runs, k = self.current >= 0, np.maximum(self.current, 0)
        for tables in (F, option, length):
            tables[0, 2, :, 0] = tables[0, 1, :, 0]
        if runs.any():
            self._run(
                k - self.start,
                k,
                0,
                np.zeros((1, n)),
                runs,
                F,
                F[0, 2:, :, :1],
                option[0, 2:, :, :1],
                length[0, 2:, :, :1],
            )
        return F[0, np.where(runs, 2, 0), every, 0], self._lead(option, length)

    def _run(
        self,
        place: Ints | int,
        k: Ints,
        h: int,
        a: Floats,
        owned: Bools,
        F: Floats,
        into: Floats,
        option: SmallInts,
        length: SmallInts,
    ) -> None:
        """Hold option k for every length from interval h on, after a pause of `a` seconds (S, n).

        k (n,) are places among the options of each job. Better values go to `into` (S, n, b), the
        choices to the tables `option` and `length`.
        """
        D, H, b = self.D, self.credit.shape[1], np.arange(into.shape[2])
        rate, held, rent = self.rate[k], self.held[k], self.rent[k]
        V, W = np.zeros(a.shape), np.zeros(a.shape)
        finished = np.where(owned, into.shape[2], 0) * np.ones(a.shape, dtype=np.int64)
        open_end, states = self.units > 0, F.shape[3] - 1
        rest = self.remaining[:, None] - b * self.unit[:, None]
        row = np.arange(len(k))[None, :, None] * (states + 1)
        for m in range(1, H - h + 1):
            i = h + m - 1
            did = rate * (np.maximum(0.0, m * D - a) - np.maximum(0.0, (m - 1) * D - a))
            low = np.clip(np.ceil(self.units - (W + did) / self.unit - NEAR), 0, finished)
            low = np.where(open_end, low, finished).astype(np.int64)
            v = np.full(into.shape, NEVER)
            if (low < finished).any():
                left = np.maximum(0.0, rest - W[:, :, None])
                t = np.minimum(
                    D, np.maximum(0.0, a - (m - 1) * D)[:, :, None] + left / rate[:, None]
                )
                ends = (V - rent[:, i] + self.reward[:, i])[:, :, None] + self.credit[
                    :, i, None
                ] * left
                ends += (held[:, i] + self.slope[:, i])[:, None] * t
                v = np.where((b >= low[:, :, None]) & (b < finished[:, :, None]), ends, v)
            V = V + self.credit[:, i] * did + held[:, i] * D - rent[:, i]
            W, finished = W + did, low
            if low.any():
                on = V[:, :, None]
                if h + m < H:
                    c = np.where(open_end, np.ceil(W / self.unit - SNAP), 0.0)
                    lost = np.where(
                        open_end, np.maximum(0.0, self.later[:, i + 1] * (c * self.unit - W)), 0.0
                    )
                    to = np.minimum(b + c.astype(np.int64)[:, :, None], states)
                    on = np.take(F[i + 1, 1].ravel(), to + row) + (V + lost)[:, :, None]
                v = np.where(b < low[:, :, None], on, v)
            better = v > into
            np.copyto(into, v, where=better)
            option[better] = np.broadcast_to(np.reshape(place, (-1, 1)), into.shape)[better]
            length[better] = m
            if not low.any():
                return

    def _lead(self, option: SmallInts, length: SmallInts) -> Ints:
        """Return the plans that the tables describe, (n, H)."""
        (n, H), D = self.credit.shape, self.D
        every, plan = np.arange(n), np.full((n, H), -1)
        done, pause, left = np.zeros(n), np.zeros(n), np.zeros(n, dtype=np.int64)
        before, hold = np.where(self.current >= 0, 2, 0), np.full(n, -1)
        for h in range(H if len(self.rate) else 0):
            b = np.minimum(np.floor(done / self.unit + 1e-6), self.reach[:, h])
            b = np.where(self.units > 0, b, 0).astype(np.int64)
            over, asks = done >= self.remaining * ENOUGH, left == 0
            place = option[h, before, every, b]
            hold = np.where(asks, np.where(place >= 0, self.start + place, -1), hold)
            left = np.where(asks, length[h, before, every, b], left) - 1
            on, k = (hold >= 0) & ~over, np.maximum(hold, 0)
            fresh = np.where(
                (before == 2) & (hold == self.current), 0.0, self.pause[k, np.minimum(before, 1)]
            )
            pause = np.where(asks, fresh, pause)
            done += np.where(on, self.rate[k] * np.maximum(0.0, D - pause), 0.0)
            pause = np.maximum(0.0, pause - D)
            plan[:, h], before = np.where(on, hold, -1), on.astype(np.int64)
        return plan
