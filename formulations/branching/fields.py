"""Build the field of a search in plain loops; compiled by numba.

The entries of column c are begin[c] .. begin[c + 1], its rows in ascending order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ODD = 1e-12  # relative: by how much a use may differ from whole units


def sort(owner: Any, count: int) -> tuple[Any, Any]:
    """Return the stable order of things by owner, and where those of each begin, (count+1,)."""
    begin, order = np.zeros(count + 1, np.int64), np.zeros(len(owner), np.int64)
    begin[1:] = np.cumsum(np.bincount(owner, minlength=count))
    at = begin.copy()
    for i in range(len(owner)):
        order[at[owner[i]]] = i
        at[owner[i]] += 1
    return order, begin


def find_columns(groups: Any, start: Any, near: Any, nothing: Any) -> tuple[Any, Any]:
    """Return the columns of the groups (G,), -1 for nothing, and the number of each one's group."""
    most = (start[groups + 1] - start[groups] + 1).sum()
    column, owner, k = np.full(most, -1), np.zeros(most, np.int64), 0
    for g in range(len(groups)):
        for c in range(start[groups[g]], start[groups[g] + 1]):
            if near[c]:
                column[k], owner[k] = c, g
                k += 1
        if nothing[groups[g]]:
            owner[k] = g
            k += 1
    return column[:k], owner[:k]


def take_entries(column: Any, indptr: Any, indices: Any, data: Any) -> tuple[Any, Any, Any]:
    """Return the matrix entries of some columns, column by column, without those that are 0.

    These are the place where each column begins, (k+1,), and the row and the use of each entry.
    """
    begin, e = np.zeros(len(column) + 1, np.int64), 0
    most = (indptr[column + 1] - indptr[column])[column >= 0].sum()
    row, use = np.zeros(most, np.int64), np.zeros(most)
    for i in range(len(column)):
        c = column[i]
        for at in range(indptr[c] if c >= 0 else 0, indptr[c + 1] if c >= 0 else 0):
            if data[at] == 0.0:
                continue
            s = e
            while s > begin[i] and row[s - 1] > indices[at]:
                row[s], use[s] = row[s - 1], use[s - 1]
                s -= 1
            row[s], use[s] = indices[at], data[at]
            e += 1
        begin[i + 1] = e
    return begin, row[:e], use[:e]


def find_ranges(first: Any, begin: Any, row: Any, use: Any, R: int) -> Any:
    """Return the least and the most that all groups together use of each row, (2, R)."""
    total, own, count = np.zeros((2, R)), np.zeros((2, R)), np.zeros(R, np.int64)
    for g in range(len(first) - 1):
        for e in range(begin[first[g]], begin[first[g + 1]]):
            r = row[e]
            own[0, r] = min(own[0, r], use[e]) if count[r] else use[e]
            own[1, r] = max(own[1, r], use[e]) if count[r] else use[e]
            count[r] += 1
        for e in range(begin[first[g]], begin[first[g + 1]]):
            r = row[e]
            if 0 < count[r] < first[g + 1] - first[g]:  # a column does not use the row
                own[0, r], own[1, r] = min(own[0, r], 0.0), max(own[1, r], 0.0)
            if count[r]:
                total[:, r] += own[:, r]
            count[r] = 0
    return total


def find_units(row: Any, use: Any, R: int, units: Any) -> Any:
    """Return the largest unit of which all uses of a row are multiples, (R,), or 0."""
    unit = np.zeros(R)
    for multiple in units:
        count = use / multiple
        odd = np.abs(count - np.rint(count)) > ODD * np.abs(count)
        unit[np.bincount(row[odd], minlength=R) == 0] = multiple
    return unit


def add_parts(
    begin: Any, row: Any, use: Any, binds: Any, priced: Any, unit: Any
) -> tuple[Any, Any, Any, int]:
    """Return the entries of the rows that bind, and of further rows, and the number of these.

    Further rows are what the columns of priced rows use of rows in whole units. A node can be
    branched on these as well, such as the GPUs of every pool that a tenant with a tight budget
    holds. Rows that do not bind are no rows to branch on otherwise. No two rows are the same.
    """
    R, k, rows = len(binds), len(begin) - 1, binds.sum()
    column, total = np.repeat(np.arange(k), np.diff(begin)), np.bincount(row, minlength=R)
    by_row, place = sort(row, R)
    # entries of the parts, one part after the other, and the row of which each is a part
    entries = np.zeros(np.diff(begin)[column[priced[row]]].sum(), np.int64)
    ends, of = [0], [-1]
    for p in np.flatnonzero(priced):
        size, columns = np.zeros(R, np.int64), column[by_row[place[p] : place[p + 1]]]
        for c in columns:
            size[row[begin[c] : begin[c + 1]]] += 1
        for r in np.flatnonzero((size > 0) & (unit > 0) & ((size < total) | ~binds)):
            end, is_new = ends[-1], True
            for c in columns:
                for e in range(begin[c], begin[c + 1]):
                    if row[e] == r:
                        entries[end] = e
                        end += 1
            for s in range(1, len(of)):
                if of[s] == r and ends[s] - ends[s - 1] == size[r]:
                    old = entries[ends[s - 1] : ends[s]]
                    is_new &= (old != entries[ends[-1] : end]).any()
            if is_new:
                ends.append(end)
                of.append(int(r))
    kept, parts = np.flatnonzero(binds[row]), np.arange(len(of) - 1)
    index = np.append(
        (np.cumsum(binds) - 1)[row[kept]], rows + np.repeat(parts, np.diff(np.array(ends)))
    )
    chosen = np.append(kept, entries[: ends[-1]])
    order, begin = sort(column[chosen], k)
    return begin, index[order], use[chosen[order]], rows + len(parts)


def find_rows(first: Any, begin: Any, row: Any, R: int) -> tuple[Any, Any]:
    """Return where the rows that each group uses begin, (G+1,), and these rows."""
    G = len(first) - 1
    uses = np.zeros(G * R, np.bool_)
    for g in range(G):
        uses[g * R + row[begin[first[g]] : begin[first[g + 1]]]] = True
    at = np.flatnonzero(uses)
    return sort(at // max(R, 1), G)[1], at % max(R, 1)


def build_field(
    groups: Any,
    start: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    near: Any,
    nothing: Any,
    low: Any,
    high: Any,
    price: Any,
    units: Any,
) -> Any:
    """Return columns, rows, and field of the groups (G,) with a choice.

    `near` (n,) are the columns that are searched, `nothing` (J,) the groups that may go without
    one, and `low`, `high` (R,) what the other groups leave of the rows. The result are the columns
    (k,), bounds and prices of the rows, whether these can hold, and parts of `loops.Field`.
    """
    R, G = len(low), len(groups)
    column, owner = find_columns(groups, start, near, nothing)
    first = sort(owner, G)[1]
    begin, row, use = take_entries(column, indptr, indices, data)
    least, most = find_ranges(first, begin, row, use, R)
    can_hold = (least <= high).all() and (most >= low).all()
    binds, unit = (most > high) | (least < low), find_units(row, use, R, units)
    priced = binds & (unit == 0) & (price != 0)
    begin, row, use, R = add_parts(begin, row, use, binds, priced, unit)
    free = np.full(R - binds.sum(), np.inf)
    sides = np.append(low[binds], -free), np.append(high[binds], free)
    prices = np.append(price[binds], 0.0 / free)
    entries = begin, row, use, find_units(row, use, R, units), *find_rows(first, begin, row, R)
    return (
        column,
        (*sides, prices),
        can_hold,
        (np.bincount(row, np.abs(use), R), first, owner),
        entries,
    )
