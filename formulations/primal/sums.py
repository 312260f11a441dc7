"""Find better plans as sums of four lists of combinations.

Where rows have no slack, changes of a few groups do not fit. So the groups that may change are
split into four parts, and each has a list of the combinations of its columns that lose least at the
prices. Pairs of the first two lists are kept that use a drawn amount of some rows, and pairs of the
others that leave it. Pairs of such pairs that fill all rows are found in a table of cells: millions
of looks find the best of billions of combinations.

Schroeppel and Shamir, "A T = O(2^(n/2)), S = O(2^(n/4)) algorithm for certain NP-complete
problems", 1981; Wagner, "A generalized birthday problem", 2002.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from formulations.bounds.lagrangian import Dual, project_prices
from formulations.branching.branch_and_bound import match_sums
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints
from formulations.model.ragged import begins_run, ragged
from formulations.primal.losses import Losses

ROWS = (3, 7)  # groups that use one of so many drawn rows may change: at least, and less than
SIZE = 2_000_000  # uses of rows by all pairs of two lists
PAIRS = 20  # for each combination of a list
BAND = 1 / 8  # by how much drawn amounts may differ, of the slack that is aimed at
WIDE = 0.4  # slack of a row by which no pairs are found, of the range of its uses
FIND, CELLS = 6, 4  # most rows by which pairs are found, and cells for each combination
SAMPLE = 1_000
EPS = 1e-9


@dataclass(frozen=True)
class _Sums:
    """Combinations: `loss` (N,) and `use` (N, K) beyond those of the best columns.

    `candidates` returns the numbers of the candidates of a combination; all other groups of its
    part have their best ones.
    """

    loss: Floats
    use: Floats
    candidates: Callable[[int], Ints]

    @property
    def spread(self) -> Floats:
        """Range of the uses, (K,)."""
        return np.asarray(2.5 * self.use.std(axis=0))

    def pairs(
        self, other: _Sums, low: Floats, high: Floats, price: Floats, least: float, most: int
    ) -> _Sums:
        """Return up to `most` sums with uses low .. high, or the best one if that is 0.

        What they use at the prices less what they lose is above `least`.
        """
        spread = np.maximum(np.hypot(self.spread, other.spread), EPS)
        share = np.where(high > low, (high - low) / spread, np.inf)
        rows = np.argsort(share)
        cells = np.cumprod(1 / share[rows])
        is_cut = (share[rows] < WIDE) & (np.append(1, cells[:-1]) < CELLS * len(other.loss))
        rows = rows[: min(FIND, np.count_nonzero(is_cut))]
        one, two = ((sums.use, sums.use @ price - sums.loss) for sums in (self, other))
        i, j = match_sums(one, two, low, high, rows, least, most)

        def candidates(n: int) -> Ints:
            return np.append(self.candidates(int(i[n])), other.candidates(int(j[n])))

        return _Sums(self.loss[i] + other.loss[j], self.use[i] + other.use[j], candidates)


def find_better_plan(
    c: Choices, dual: Dual, losses: Losses, plan: Ints, aim: float, random: np.random.Generator
) -> Ints | None:
    """Return a plan that is better, as far as rounding allows, or None.

    Parameters
    ----------
    plan : (J,)
        A feasible plan. Groups that hold nothing, or a column in one of a few drawn rows, may
        change.
    aim : float
        A better plan is searched within this share of what the plan loses.
    """
    price = project_prices(c, dual.prices)
    rows = np.flatnonzero(price)
    rows = random.permutation(rows)[: random.integers(*ROWS)]
    uses = np.bincount(c.matrix.row[np.isin(c.matrix.indices, rows)], minlength=c.n) > 0
    moves = np.append(uses, True)[plan]
    others = losses.of_plan(plan)[~moves].sum()
    near, nothing = losses.leaves(c.value_of(plan) + others)
    near[plan[plan >= 0]], nothing[plan < 0] = True, True
    columns, idle = np.flatnonzero(near & moves[c.group]), np.flatnonzero(nothing & moves)
    group = np.append(c.group[columns], idle)
    loss = np.append(losses.column[columns], losses.nothing[idle])
    column = np.append(columns, np.full(len(idle), -1))
    if not len(group):
        return None
    used = np.unique(c.matrix[columns].indices)
    use = np.zeros((len(group), len(used)))
    use[: len(columns)] = c.matrix[columns].toarray()[:, used]
    sign = np.where(price[used] < 0, -1.0, 1.0)  # so that no row is filled from below
    low, high = np.sort([c.low[used] * sign, c.high[used] * sign], axis=0)
    price, use = price[used] * sign, use * sign
    held = plan[group] == column
    rest = c.use_of(plan)[used] * sign - use[held].sum(axis=0)
    low, high = low - rest, high - rest
    order = np.lexsort((loss, group))
    order = order[_can_fit(group[order], use[order], high)]
    group, column, loss = group[order], column[order], loss[order]
    use, held = use[order], held[order]
    first = np.flatnonzero(begins_run(group))
    best = np.repeat(first, np.diff(np.append(first, len(group))))
    base = use[first].sum(axis=0)
    low, high, loss, use = low - base, high - base, loss - loss[best], use - use[best]
    own_loss, own_use = loss[held].sum(), use[held].sum(axis=0)
    gap = own_loss + float(price @ np.where(price > 0, high - own_use, 0.0))
    found = _join(first, loss, use, low, high, price, gap, aim, random)
    if found is None:
        return None
    best_plan = plan.copy()
    best_plan[group[first]] = column[first]
    best_plan[group[found]] = column[found]
    return best_plan


def _can_fit(group: Ints, use: Floats, high: Floats) -> Bools:
    """Return which candidates (k,), by group, fit beside the least uses of all other groups."""
    first = np.flatnonzero(begins_run(group))
    least = np.minimum.reduceat(use, first)
    own = np.repeat(least, np.diff(np.append(first, len(group))), axis=0)
    return np.asarray((least.sum(axis=0) + use - own <= high + EPS * np.abs(high)).all(axis=1))


def _join(
    first: Ints,
    loss: Floats,
    use: Floats,
    low: Floats,
    high: Floats,
    price: Floats,
    gap: float,
    aim: float,
    random: np.random.Generator,
) -> Ints | None:
    """Return candidates (z,) that lose less than `gap` beside the best ones of other groups."""
    size, free = SIZE // max(1, len(high)), np.zeros(len(high))
    second = np.append(loss, np.inf)[first + 1]
    end = np.append(first[1:], len(loss))
    second[end - first < 2] = np.inf
    groups = random.permutation(np.flatnonzero(second <= gap))
    if len(groups) < max(4, len(high)):  # too few combinations
        return None
    parts = []
    for i in range(4):
        part = groups[i::4][np.argsort(second[groups[i::4]], kind="stable")]
        parts.append(_least(first[part], end[part], loss, use, size // PAIRS, gap))
    with np.errstate(divide="ignore"):
        slack = np.where(price > 0, gap / price, np.inf)
    windows = _draw(parts, low, high, aim * slack, size, random)
    one = parts[0].pairs(parts[1], *windows[0], free, -gap, size)
    two = parts[2].pairs(parts[3], *windows[1], free, -gap, size)
    filled = np.flatnonzero(price)
    low[filled] = np.maximum(low[filled], high[filled] - aim * slack[filled])
    least = float(price[filled] @ high[filled]) - gap * (1 - EPS)
    pair = one.pairs(two, low, high, price, least, 0)
    return pair.candidates(0) if len(pair.loss) else None


def _least(first: Ints, end: Ints, loss: Floats, use: Floats, size: int, most: float) -> _Sums:
    """Return up to `size` combinations of groups that lose least, and at most `most`.

    The groups have the candidates first .. end; those come first that lose least by a change.
    """
    sums, total = np.zeros(1), np.zeros((1, use.shape[1]))
    chosen = np.zeros((1, 0), dtype=np.int64)
    for begin, stop in zip(first.tolist(), end.tolist(), strict=True):
        limit = sums[-1] if len(sums) == size else most
        if loss[begin + 1] > limit:
            break
        count = np.searchsorted(sums, limit - loss[begin:stop], side="right")
        own, index = ragged(np.zeros(len(count), dtype=np.int64), count)
        added = sums[index] + loss[begin + own]
        keep = np.argsort(added, kind="stable")[:size]
        own, index, sums = begin + own[keep], index[keep], added[keep]
        total = total[index] + use[own]
        chosen = np.column_stack([chosen[index], own])
    return _Sums(sums, total, lambda n: chosen[n])


def _draw(
    parts: list[_Sums],
    low: Floats,
    high: Floats,
    slack: Floats,
    size: int,
    random: np.random.Generator,
) -> list[tuple[Floats, Floats]]:
    """Return the least and the most uses of the first two lists, and of the others, (K,) each.

    As many rows have drawn amounts as leave about `size` pairs of each.
    """
    windows = [(np.full(len(low), -np.inf), np.full(len(low), np.inf)) for _ in range(2)]
    a, b = (np.hypot(one.spread, two.spread) for one, two in (parts[:2], parts[2:]))
    share = slack / np.maximum(a + b, EPS)
    count = float(len(parts[0].loss) * len(parts[1].loss))
    middle = [part.use.mean(axis=0) for part in parts]
    for r in np.argsort(share):
        if count <= size or share[r] > WIDE:
            break
        lack = high[r] - sum(use[r] for use in middle)
        goal = middle[0][r] + middle[1][r] + lack * a[r] ** 2 / (a[r] ** 2 + b[r] ** 2)
        # an amount that pairs of the first two lists use
        one, two = (random.choice(part.use[:, r], SAMPLE) for part in parts[:2])
        sample = one + two
        amount = sample[np.argmin(np.abs(sample - goal))]
        band = np.clip(size / count * a[r], BAND * slack[r], slack[r] / 2)
        for (least, most), edge in zip(windows, (amount, high[r] - amount), strict=True):
            most[r] = edge + EPS * (1 + abs(edge))
            least[r] = most[r] - band
        count *= band / max(a[r], EPS)
    return windows
