"""Knapsacks of rows in plain loops; compiled by numba."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

PATIENCE = 20.0  # steps without a better bound until the step becomes shorter
LENGTH, SHORTER = 0.5, 0.7  # of a step at first, and what it becomes
KEPT = 0.3  # share of the direction before that a step keeps
CELLS = 1e8  # of the table of a knapsack; larger ones are relaxed
EPS = 1e-9


class Items(NamedTuple):
    """The columns of every row: row r owns first[r] .. first[r + 1].

    `weight` is what a column uses of its row, in whole units. `idle` tells which groups may hold
    nothing.
    """

    first: Any
    group: Any
    value: Any
    weight: Any
    idle: Any


def fill_table(gain: Any, weight: Any, which: Any, gains: Any, new_gains: Any, takes: Any) -> None:
    """Find the best gain for every size of a knapsack; item k is taken at size w if takes[k, w].

    The gains are in `gains` after an even number of items, and else in `new_gains`.
    """
    for k in range(len(which)):
        own, w = gain[which[k]], weight[which[k]]
        n, line = max(0, len(gains) - w), takes[k]
        for size in range(min(w, len(gains))):
            new_gains[size], line[size] = gains[size], False
        before, stay, new, is_taken = gains[:n], gains[w:], new_gains[w:], line[w:]
        for size in range(n):
            taken, left = before[size] + own, stay[size]
            is_taken[size] = taken > left
            new[size] = max(taken, left)
        gains, new_gains = new_gains, gains


def fill_knapsack(gain: Any, weight: Any, room: int, taken: Any) -> Any:
    """Mark the items that fit and gain most; return what they gain, or a bound above CELLS.

    At the price of the first item that does not fit, an item that gains or loses more than the
    relaxation is above a plan is settled (Balas and Zemel, "An algorithm for large zero-one
    knapsack problems", 1980). The others are few.
    """
    order = np.argsort(-gain / weight)
    left, value, price, most = room, 0.0, 0.0, -1.0
    for k in order:
        if weight[k] <= left:
            left -= weight[k]
            value += gain[k]
            taken[k] = True
        elif most < 0.0:
            price = gain[k] / weight[k]
            most = value + left * price
    if most <= value:
        return value
    slack = most - value + EPS * most
    above = gain - price * weight
    is_settled, which = above > slack, np.flatnonzero(np.abs(above) <= slack)
    room = min(room - weight[is_settled].sum(), weight[which].sum())
    if len(which) * (room + 1.0) > CELLS:
        return most
    one, other = np.zeros(room + 1), np.zeros(room + 1)
    takes = np.zeros((len(which), room + 1), dtype=np.bool_)
    fill_table(gain, weight, which, one, other, takes)
    value = other[room] if len(which) % 2 else one[room]
    taken[:] = is_settled
    for i in range(len(which) - 1, -1, -1):
        k = which[i]
        taken[k] = takes[i, room]
        if taken[k]:
            room -= weight[k]
    return gain[is_settled].sum() + value


def fill_rows(
    items: Items, rows: Any, room: Any, is_open: Any, price: Any, share: Any, lack: Any
) -> float:
    """Fill rows with columns of open groups at prices; return a bound on what all of them gain.

    `lack` of a group falls by 1 with every column of it that is taken. `share` of a column is a
    running mean of 1 where it is taken and 0 elsewhere.
    """
    total, late = 0.0, 1.0 / PATIENCE
    own = np.empty(len(share), dtype=np.int64)
    for r in rows:
        count = 0
        for c in range(items.first[r], items.first[r + 1]):
            j = items.group[c]
            share[c] *= 1.0 - late
            if is_open[j] and items.value[c] > price[j] and items.weight[c] <= room[r]:
                own[count] = c
                count += 1
        if count:
            columns, taken = own[:count], np.zeros(count, dtype=np.bool_)
            groups = items.group[columns]
            gain = items.value[columns] - price[groups]
            total += fill_knapsack(gain, items.weight[columns], room[r], taken)
            for k in np.flatnonzero(taken):
                share[columns[k]] += late
                lack[groups[k]] -= 1.0
    return total


def improve_prices(
    items: Items,
    rows: Any,
    room: Any,
    is_open: Any,
    price: Any,
    share: Any,
    goal: float,
    steps: float,
) -> Any:
    """Lower the bound of the prices of open groups towards a goal by subgradients; return it.

    `price` (J,) becomes that of the best bound. `share` (n,) is how often late knapsacks take each
    column, the later the more.
    """
    best, stay, length = np.inf, 0.0, LENGTH
    best_price, way = price.copy(), np.zeros(len(price))
    for _ in range(int(steps)):
        lack = np.where(is_open, 1.0, 0.0)
        bound = (price * lack).sum()
        bound += fill_rows(items, rows, room, is_open, price, share, lack)
        stay += 1.0
        if bound < best - EPS * abs(bound):
            best, stay = bound, 0.0
            best_price[:] = price
        elif stay >= PATIENCE:
            length, stay = length * SHORTER, 0.0
            price[:] = best_price
        # the price of a group that may hold nothing is not below 0
        lack = np.where(items.idle & (price <= 0.0) & (lack > 0.0), 0.0, lack)
        way = KEPT * way + (1.0 - KEPT) * lack
        price -= length * max(bound - goal, EPS) / max((way * way).sum(), EPS) * way
        price[:] = np.where(items.idle, np.maximum(price, 0.0), price)
    price[:] = best_price
    return best
