"""Which rows diagrams keep: those of few groups, with sums in whole units, and their blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from formulations.bounds.lagrangian import project_prices
from formulations.model.choices import Choices
from formulations.model.linear import Floats, Ints, begins_run

NARROW = 0.34  # a row that concerns more than this share of the groups is not kept ...
WIDEST = 600  # ... nor one of more groups, because a diagram has a layer for each
SLOTS = 3  # sums that one block counts at most
KEYS = 2**50  # sums of a block that have more values together are not tried
UNITS = (1.0, 0.5, 0.25, 0.1, 0.05, 0.01)
NO_LIMIT = 2**40


@dataclass(frozen=True)
class Sum:
    """Rows with the same coefficients: low <= sum of sizes <= high, in whole units.

    `columns` (k,) are the columns with a size `size` (k,), `groups` their groups. A size of 1 is
    `unit` in the rows. `slot` is the place of the sum among those of its block.
    """

    rows: Ints
    columns: Ints
    size: Ints
    groups: Ints
    unit: float
    low: int
    high: int
    slot: int = 0


def count_priced(c: Choices, prices: Floats) -> int:
    """Return how many rows that diagrams may keep have a price."""
    a = c.matrix.transpose()
    priced = np.flatnonzero(project_prices(c, prices)).tolist()
    groups = [int(begins_run(c.group[a.entries_of(r)[0]]).sum()) for r in priced]
    return sum(1 < count <= min(NARROW * c.J, WIDEST) for count in groups)


def find_sums(c: Choices) -> list[Sum]:
    """List the sums of rows of few groups that can break, those of few units first."""
    a = c.matrix.transpose()
    mark = np.random.default_rng(0).random(c.n)
    _, alike = np.unique(a @ mark, return_inverse=True)
    order = np.argsort(alike, kind="stable")
    sums = []
    for marked in np.split(order, np.flatnonzero(np.diff(alike[order])) + 1):
        columns, coef = a.entries_of(marked[0])
        # equal rows have equal marks, and different rows almost never
        same = (all(map(np.array_equal, a.entries_of(r), (columns, coef))) for r in marked)
        rows = marked[np.fromiter(same, dtype=bool)]
        most = np.zeros(c.J)
        np.maximum.at(most, c.group[columns], coef)
        low, high = c.low[rows].max(), c.high[rows].min()
        groups = np.flatnonzero(most)
        if not 1 < len(groups) <= min(NARROW * c.J, WIDEST) or (low <= 0 and high >= most.sum()):
            continue
        if unit := unit_of(coef):
            # bounds carry the model's tolerance of 1e-9, more than the rounding errors of sums
            low, high = np.ceil(low / unit - 1e-6), np.floor(high / unit + 1e-6)
            size = np.rint(coef / unit).astype(np.int64)
            least, largest = int(max(low, -NO_LIMIT)), int(min(high, NO_LIMIT))
            sums.append(Sum(rows, columns, size, groups, unit, least, largest))
    return sorted(sums, key=_count_units)


def _count_units(row_sum: Sum) -> int:
    return row_sum.high if row_sum.high < NO_LIMIT else row_sum.low


def select_sums(c: Choices, sums: list[Sum]) -> tuple[list[Sum], Ints]:
    """Select sums in order, as long as no block has more than SLOTS of them or too many sums.

    Also return a label of the block of each group, (J,): groups that a sum connects share it.
    """
    label, keys, slots = np.arange(c.J), np.ones(c.J), np.zeros(c.J, dtype=np.int64)
    selected = []
    for row_sum in sums:
        blocks = np.unique(label[row_sum.groups])
        own = (_count_units(row_sum) + 2.0) * float(keys[blocks].prod())
        count = 1 + int(slots[blocks].sum())
        if own <= KEYS and count <= SLOTS:
            label[np.isin(label, blocks)] = blocks[0]
            keys[blocks[0]], slots[blocks[0]] = own, count
            selected.append(row_sum)
    used = np.zeros(c.J, dtype=np.int64)
    for number, row_sum in enumerate(selected):
        block = label[row_sum.groups[0]]
        selected[number] = replace(row_sum, slot=int(used[block]))
        used[block] += 1
    return selected, label


def unit_of(k: Floats) -> float:
    """Return the largest of UNITS that divides all positive coefficients, else 0."""
    if not len(k) or not (k > 0).all():
        return 0.0
    return next((u for u in UNITS if _are_multiples(k[:100], u) and _are_multiples(k, u)), 0.0)


def _are_multiples(k: Floats, u: float) -> bool:
    return bool((np.abs(k / u - np.rint(k / u)) <= 1e-12 * k / u).all())
