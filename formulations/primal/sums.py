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

import numpy as np

from formulations.bounds.lagrangian import project_prices
from formulations.branching.branch_and_bound import kernel
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints, begins_run, ragged
from formulations.primal.moves import Losses

SIZE = 2_000_000  # most pairs of two lists, times the number of rows
PAIRS = 20  # pairs that are kept for each combination of a list
SAMPLE = 1_000  # pairs that are drawn to find an amount that some pair uses
LOOKS = 2e7  # most pairs of sums that are looked at
FIND = 5  # most rows by which pairs are found
PRIME = 1_000_003  # spreads the cells of several rows over the table
EPS = 1e-9

Sums = tuple[Floats, Floats, Ints]  # losses (N,), uses (N, K), candidates (N, z)


def find_sum(
    c: Choices,
    prices: Floats,
    losses: Losses,
    open_: tuple[Bools, Bools],
    value: float,
    aim: float,
    random: np.random.Generator,
) -> Ints | None:
    """Return a plan above a value, as far as rounding allows, or None.

    Parameters
    ----------
    open_ : (n,) and (J,)
        Columns, and groups that may hold nothing.
    aim : float
        A plan is searched within this share of what it may lose.
    """
    columns, idle = (np.flatnonzero(may) for may in open_)
    group, column = np.append(c.group[columns], idle), np.append(columns, np.full(len(idle), -1))
    loss = np.append(losses.column[columns], losses.nothing[idle])
    rows = np.unique(c.matrix[columns].indices)
    use = np.zeros((len(group), len(rows)))
    use[: len(columns)] = c.matrix[columns].toarray()[:, rows]
    order = np.lexsort((loss, group))
    group, column, loss, use = group[order], column[order], loss[order], use[order]
    first = np.flatnonzero(begins_run(group))
    size = np.diff(np.append(first, len(group)))
    best = np.repeat(first, size)
    base, most = use[first].sum(axis=0), losses.bound - value - loss[first].sum()
    low, high, price = c.low[rows] - base, c.high[rows] - base, project_prices(c, prices)[rows]
    loss, use = loss - loss[best], use - use[best]
    up, down = np.flatnonzero(price > 0), np.flatnonzero(price < 0)
    least = price[up] @ high[up] + price[down] @ low[down] - most * (1 - EPS)
    low[up] = np.maximum(low[up], high[up] - aim * most / price[up])
    high[down] = np.minimum(high[down], low[down] - aim * most / price[down])
    groups = random.permutation(np.flatnonzero(size > 1))
    N = SIZE // max(1, len(rows))
    near = loss[first[groups] + 1]  # of the cheapest change
    parts = (groups[i::4][np.argsort(near[i::4], kind="stable")] for i in range(4))
    lists = [_least(first[g], size[g], loss, use, N // PAIRS, most) for g in parts]
    one, two = lists[:2]
    spread = 3 * (one[1].std(axis=0) + two[1].std(axis=0)) + EPS
    share = np.where(high > low, (high - low) / spread, 1.0)
    order = np.argsort(share)[: np.count_nonzero(share < 1)]
    count = np.cumprod(np.append(len(one[0]) * len(two[0]), share[order]))
    tight, rest = np.split(order, [min(FIND, int((count > N).sum()))])
    # the first two lists use about half of what is left: an amount that pairs of them do use
    sample = random.choice(one[1], SAMPLE) + random.choice(two[1], SAMPLE)
    goal = (high + np.array([1, 1, -1, -1]) @ [use.mean(axis=0) for _, use, _ in lists]) / 2
    amount = sample[np.argmin(np.abs(sample - goal), axis=0), np.arange(len(rows))]
    free, slip = np.full(len(rows), np.inf), EPS * (1 + np.abs(amount))
    free[tight] = 0.0
    with np.errstate(invalid="ignore"):  # nan is no bound
        halves = [
            match_sums(
                pair,
                end - (high - low) / 2 - free,
                end + slip + free,
                tight,
                0 * price,
                -most - EPS,
                N,
            )
            for pair, end in ((lists[:2], amount), (lists[2:], high - amount))
        ]
    pairs = match_sums(halves, low, high, rest[:FIND], price, float(least), N)
    if not len(pairs[0]):
        return None
    found = pairs[2][np.argmax(pairs[1] @ price - pairs[0])]
    plan = np.full(c.J, -1)
    plan[group[first]] = column[first]
    plan[group[found]] = column[found]
    return plan


def _least(first: Ints, count: Ints, loss: Floats, use: Floats, N: int, most: float) -> Sums:
    """Return up to N combinations of groups that lose least, and at most `most`.

    Each group has so many candidates from its first one; `loss` ascends there.
    """
    sums, total, chosen = np.zeros(1), np.zeros((1, use.shape[1])), np.zeros((1, 0), dtype=int)
    for begin, size in zip(first.tolist(), count.tolist(), strict=True):
        limit = sums[-1] if len(sums) == N else most
        if loss[begin + 1] > limit:
            break
        fits = np.searchsorted(sums, limit - loss[begin : begin + size], side="right")
        own, index = ragged(np.zeros_like(fits), fits)
        added = sums[index] + loss[begin + own]
        keep = np.argsort(added, kind="stable")[:N]
        own, index, sums = begin + own[keep], index[keep], added[keep]
        total, chosen = total[index] + use[own], np.column_stack([chosen[index], own])
    return sums, total, chosen


def match_sums(
    lists: list[Sums],
    low: Floats,
    high: Floats,
    rows: Ints,
    price: Floats,
    least: float,
    count: int,
    compiled: bool = True,
) -> Sums:
    """Return up to `count` sums of two lists with uses low .. high.

    What they use at the prices less what they lose is above `least`. They are found by some rows,
    (z,): `low` is below `high` there, and both are finite.
    """
    (_, a, _), (_, b, _) = one, two = lists
    width = (high - low)[rows]
    own, its = (use @ price - loss for loss, use, _ in lists)
    factor = PRIME ** np.arange(len(rows))
    near = np.ndindex((2,) * len(rows))
    moves = np.array([np.dot(move, factor) for move in near], dtype=int)
    at, cell = (np.floor(lines[:, rows] / width).astype(int) @ factor for lines in (low - a, b))
    cells = 1 << len(b).bit_length()
    cell &= cells - 1
    order = np.lexsort((-its, cell))
    begin = np.searchsorted(cell[order], np.arange(cells + 1))
    pairs = np.zeros((count, 2), dtype=int)
    match = kernel(compiled, "match")
    count = match(a, own, b[order], its[order], at, moves, begin, low, high, least, LOOKS, pairs)
    i, j = pairs[:count, 0], order[pairs[:count, 1]]
    return one[0][i] + two[0][j], a[i] + b[j], np.hstack([one[2][i], two[2][j]])
