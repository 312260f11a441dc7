"""Branch and bound in plain loops; compiled by numba.

Every group takes exactly one of its columns; nothing is a column without entries:

    max sum_c v_c x_c   s.t.  sum_{c of g} x_c = 1,   y_r = sum_c a_rc x_c,   low_r <= y_r <= high_r

The rows of the groups are kept implicitly, as by Dantzig and van Slyke (1967, "Generalized upper
bounding techniques"): one column of every group is its key, and x_key = 1 - the others. The basis
then has a row for each coupling row only. A basic variable is a column c that is not a key, or the
activity y_r of a row, which is written k + r. A node of the tree is a set of banned columns and the
bounds of the rows.

A node is closed by no number of the simplex method itself. For any prices p no plan of the node has
a value above

    sum_r p_r (high_r if p_r > 0 else low_r) + sum_g max_c (v_c - a_c'p)

and this is computed anew from the prices of every step, with more than its rounding errors. Faults
of the simplex method therefore cost time and prove nothing wrong.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

PIVOT = 1e-7  # smaller entries of a simplex row count as 0
SINGULAR = 1e-11
FEASIBLE = 1e-8  # a variable may exceed its bounds by so much
WHOLE = 1e-6  # a value is whole if it is so close to a whole number
SLACK = 1e-9  # relative: by how much columns may exceed a row before they are banned
UNIT_SLACK = 1e-8  # by how much an activity may differ from whole units
ROUNDING = 1e-13  # relative to the sum of all terms of a bound
# Numbers that are passed are no whole ones: numba compiles a function anew for each whole constant.
STEPS = 60.0  # of the simplex method, until the basis is inverted anew
ROOT, INNER = 4000.0, 400.0  # most steps at the root, and at other nodes
LITTLE = 1e-6  # share of the gap that every branch is taken to gain
AHEAD, LOOKS = 30.0, 20.0  # most steps of a look at a branch, most variables that are looked at
PASSES = 4  # of banning columns
FEW = 500.0  # free places: with fewer, nodes that end soon come first
# what becomes of a node
CLOSED, OPTIMAL, UNCLEAR, BRANCHED = 0, 1, 2, 3


class Field(NamedTuple):
    """The columns of G groups; group g owns first[g] .. first[g+1].

    `start`, `index`, `entry` are the entries of the columns. Group g has entries in the rows
    rows[of[g]] .. rows[of[g + 1]]. All entries of row r are whole
    multiples of unit[r], or it is 0, and total[r] is the sum of their sizes. `base` is added to the
    value of every plan, and `size` is at least the sum of the sizes of its values.
    """

    base: Any
    size: Any
    total: Any
    first: Any
    group: Any
    value: Any
    start: Any
    index: Any
    entry: Any
    unit: Any
    of: Any
    rows: Any


class Node(NamedTuple):
    """A node of the tree: bounds of the rows, banned columns, and a basis.

    side[r] is 1 if y_r is at its upper bound, -1 at the lower one, and 0 if it is basic. place[c]
    is the place of c in `basic`, -1 if it is not basic, and -2 if it is a key.
    """

    low: Any
    high: Any
    banned: Any
    basic: Any
    key: Any
    side: Any
    place: Any
    inverse: Any
    level: Any
    price: Any


class Spare(NamedTuple):
    """Memory of single steps. `low`, `high` are the rows of the root.

    `tally` is the number of steps so far, the rounding of the last bound, and that bound. `ahead`
    is a branch that is looked at; the values of the variables `open` have the parts `part`. The
    least `ratio`, what enters there, and its entry `pivot` are those of a variable that has to
    shrink, and to grow.
    """

    low: Any
    high: Any
    square: Any
    row: Any
    column: Any
    other: Any
    reduced: Any
    best: Any
    rest: Any
    others: Any
    least: Any
    most: Any
    tally: Any
    ahead: Any
    open: Any
    part: Any
    ratio: Any
    enter: Any
    pivot: Any


class Waiting(NamedTuple):
    """Nodes that wait, each with its bound; that of a free place is -inf."""

    bound: Any
    low: Any
    high: Any
    banned: Any
    basic: Any
    key: Any
    side: Any


def fill(to: Any, of: Any) -> None:
    """Copy an array (n,)."""
    for i in range(len(of)):
        to[i] = of[i]


def fill_basis(field: Any, node: Any, square: Any) -> None:
    """Fill the columns of the basic variables, each less the key of its group."""
    R, k = len(node.basic), len(field.group)
    square[:] = 0.0
    for i in range(R):
        c = node.basic[i]
        if c >= k:
            square[c - k, i] = -1.0
            continue
        for q, sign in ((c, 1.0), (node.key[field.group[c]], -1.0)):
            for e in range(field.start[q], field.start[q + 1]):
                square[field.index[e], i] += sign * field.entry[e]


def invert(square: Any, inverse: Any) -> bool:
    """Fill the inverse of a matrix, which is overwritten; False if it is singular."""
    R = len(square)
    for r in range(R):
        for i in range(R):
            inverse[r, i] = 1.0 if r == i else 0.0
    for i in range(R):
        at = i
        for r in range(i + 1, R):
            if abs(square[r, i]) > abs(square[at, i]):
                at = r
        if abs(square[at, i]) < SINGULAR:
            return False
        for s in range(R):
            square[i, s], square[at, s] = square[at, s], square[i, s]
            inverse[i, s], inverse[at, s] = inverse[at, s], inverse[i, s]
        pivot = 1.0 / square[i, i]
        for s in range(R):
            square[i, s] *= pivot
            inverse[i, s] *= pivot
        for r in range(R):
            factor = square[r, i]
            if r != i and factor != 0.0:
                for s in range(R):
                    square[r, s] -= factor * square[i, s]
                    inverse[r, s] -= factor * inverse[i, s]
    return True


def find_levels(field: Any, node: Any, spare: Any) -> None:
    """Fill the values of the basic variables."""
    R = len(node.basic)
    for r in range(R):
        spare.other[r] = 0.0
        if node.side[r] > 0:
            spare.other[r] = node.high[r]
        elif node.side[r] < 0:
            spare.other[r] = node.low[r]
    for g in range(len(node.key)):
        q = node.key[g]
        for e in range(field.start[q], field.start[q + 1]):
            spare.other[field.index[e]] -= field.entry[e]
    for i in range(R):
        total = 0.0
        for r in range(R):
            total += node.inverse[i, r] * spare.other[r]
        node.level[i] = total


def find_prices(field: Any, node: Any) -> None:
    """Fill the prices of the basis."""
    R, k = len(node.basic), len(field.group)
    node.price[:] = 0.0
    for i in range(R):
        c = node.basic[i]
        if c < k:
            more = field.value[c] - field.value[node.key[field.group[c]]]
            for r in range(R):
                node.price[r] += more * node.inverse[i, r]


def find_rest(field: Any, node: Any, spare: Any) -> None:
    """Fill the value of every key, and the number of the other basic columns of its group."""
    spare.rest[:], spare.others[:] = 1.0, 0
    for i in range(len(node.basic)):
        c = node.basic[i]
        if c < len(field.group):
            spare.rest[field.group[c]] -= node.level[i]
            spare.others[field.group[c]] += 1


def bound_plans(field: Any, node: Any, price: Any, spare: Any) -> float:
    """Return a value that no plan of the node exceeds; fill reduced values and the best ones."""
    bound, size = field.base, field.size
    for r in range(len(price)):
        edge = 0.0
        if price[r] > 0.0:
            edge = node.high[r]
        elif price[r] < 0.0:
            edge = node.low[r]
        if math.isinf(edge):  # the row has no bound on this side
            price[r], edge = 0.0, 0.0
        bound += price[r] * edge
        size += abs(price[r]) * (abs(edge) + field.total[r])
    for g in range(len(node.key)):
        best = -np.inf
        for c in range(field.first[g], field.first[g + 1]):
            if node.banned[c] and node.place[c] == -1:
                continue
            own = field.value[c]
            for e in range(field.start[c], field.start[c + 1]):
                own -= field.entry[e] * price[field.index[e]]
            spare.reduced[c] = own
            if not node.banned[c]:
                best = max(best, own)
        if best == -np.inf:
            return -np.inf
        spare.best[g] = best
        bound += best
    spare.tally[1] = ROUNDING * size
    spare.tally[2] = bound + spare.tally[1]
    return float(spare.tally[2])


def replace_keys(field: Any, node: Any, spare: Any) -> bool:
    """Replace banned keys of groups without other basic columns; return whether one was."""
    changed = False
    for g in range(len(node.key)):
        if spare.others[g] == 0 and node.banned[node.key[g]]:
            at = -1
            for c in range(field.first[g], field.first[g + 1]):
                if not node.banned[c] and (at < 0 or spare.reduced[c] > spare.reduced[at]):
                    at = c
            node.place[node.key[g]] = -1
            node.place[at] = -2
            node.key[g] = at
            changed = True
    return changed


def fill_key_row(field: Any, node: Any, g: int, row: Any) -> int:
    """Fill the simplex row of the key of group g; return a place of the group in the basis."""
    R, at = len(node.basic), -1
    row[:] = 0.0
    for i in range(R):
        c = node.basic[i]
        if c < len(field.group) and field.group[c] == g:
            at = i
            for r in range(R):
                row[r] -= node.inverse[i, r]
    return at


def lack_of(field: Any, node: Any, place: int) -> float:
    """Return by how much a basic variable has to grow to keep its bounds, less than 0 to shrink."""
    c, level = node.basic[place], node.level[place]
    r = c - len(field.group)
    lack = 0.0
    if r >= 0:
        slack = FEASIBLE * (1.0 + abs(level))
        if level < node.low[r] - slack:
            lack = node.low[r] - level
        elif level > node.high[r] + slack:
            lack = node.high[r] - level
    elif level < -FEASIBLE or (node.banned[c] and level > FEASIBLE):
        lack = -level
    return lack


def choose_leaving(field: Any, node: Any, spare: Any) -> tuple[int, int, float]:
    """Return the place that leaves the basis, and 1 if it has to grow or -1; place -1 if none.

    The group is that of the key that leaves, or -1. The variable breaks its bounds most, relative
    to the length of its row.
    """
    R = len(node.basic)
    most, place, group, sign = 0.0, -1, -1, 1.0
    for i in range(R):
        lack = lack_of(field, node, i)
        if lack != 0.0:
            length = 1e-12
            for r in range(R):
                length += node.inverse[i, r] ** 2
            if lack * lack > most * length:
                most, place, group = lack * lack / length, i, -1
                sign = 1.0 if lack > 0 else -1.0
    for g in range(len(node.key)):
        rest = spare.rest[g]
        lacks = rest < -FEASIBLE or (node.banned[node.key[g]] and rest > FEASIBLE)
        if lacks and spare.others[g] > 0:
            at = fill_key_row(field, node, g, spare.row)
            length = 1e-12
            for r in range(R):
                length += spare.row[r] ** 2
            if rest * rest > most * length:
                most, place, group = rest * rest / length, at, g
                sign = 1.0 if rest < 0 else -1.0
    return place, group, sign


def swap_key(field: Any, node: Any, spare: Any, g: int, place: int) -> None:
    """Exchange the key of a group with its column at a place of the basis."""
    fill_key_row(field, node, g, spare.row)
    fill(node.inverse[place], spare.row)
    old, new = node.key[g], node.basic[place]
    node.key[g], node.basic[place] = new, old
    node.place[new], node.place[old] = -2, place
    node.level[place] = spare.rest[g]


def keep_ratio(spare: Any, way: int, loss: float, size: float, what: int) -> None:
    """Keep the variable of the least loss per unit, and of the largest entry among these."""
    ratio = loss / size
    if ratio < spare.ratio[way] or (ratio == spare.ratio[way] and size > spare.pivot[way]):
        spare.ratio[way], spare.enter[way], spare.pivot[way] = ratio, what, size


def find_ratios(field: Any, node: Any, spare: Any, row: Any, own: int) -> None:
    """Fill how much of the bound a unit of the variable costs, and which variable enters.

    `row` (R,) is the simplex row of the variable, and `own` its group if it is a key, or -1. Place
    0 is for a variable that has to shrink, 1 for one that has to grow. The variable that enters is
    -1 if none can.
    """
    R, k = len(node.basic), len(field.group)
    spare.ratio[:], spare.enter[:], spare.pivot[:] = np.inf, -1, 0.0
    for g in range(len(node.key)):
        q, base = node.key[g], np.nan
        for c in range(field.first[g], field.first[g + 1]):
            if node.banned[c] or node.place[c] != -1:
                continue
            if math.isnan(base):
                base = -1.0 if g == own else 0.0
                for e in range(field.start[q], field.start[q + 1]):
                    base += field.entry[e] * row[field.index[e]]
            a = -base
            for e in range(field.start[c], field.start[c + 1]):
                a += field.entry[e] * row[field.index[e]]
            if abs(a) > PIVOT:
                loss = max(0.0, spare.reduced[q] - spare.reduced[c])
                keep_ratio(spare, int(a < 0.0), loss, abs(a), c)
    for r in range(R):
        a = -row[r]
        if node.side[r] != 0 and abs(a) > PIVOT and node.low[r] < node.high[r]:
            keep_ratio(spare, int(node.side[r] * a > 0.0), abs(node.price[r]), abs(a), k + r)


def fill_column(field: Any, node: Any, enter: int, column: Any) -> None:
    """Fill the simplex column of a variable that is not basic."""
    R, k = len(node.basic), len(field.group)
    for i in range(R):
        column[i] = -node.inverse[i, enter - k] if enter >= k else 0.0
    if enter >= k:
        return
    for e in range(field.start[enter], field.start[enter + 1]):
        for i in range(R):
            column[i] += field.entry[e] * node.inverse[i, field.index[e]]
    q = node.key[field.group[enter]]
    for e in range(field.start[q], field.start[q + 1]):
        for i in range(R):
            column[i] -= field.entry[e] * node.inverse[i, field.index[e]]


def exchange(field: Any, node: Any, spare: Any, place: int, enter: int, sign: float) -> None:
    """Exchange the variable at a place of the basis with one that enters."""
    R, k = len(node.basic), len(field.group)
    leave, column = node.basic[place], spare.column
    goal, now = 0.0, 0.0
    if leave >= k:
        goal = node.low[leave - k] if sign > 0 else node.high[leave - k]
        node.side[leave - k] = -1 if sign > 0 else 1
    else:
        node.place[leave] = -1
    if enter >= k:
        now = node.high[enter - k] if node.side[enter - k] > 0 else node.low[enter - k]
        node.side[enter - k] = 0
    else:
        node.place[enter] = place
    move = (node.level[place] - goal) / column[place]
    for i in range(R):
        node.level[i] -= move * column[i]
    node.level[place] = now + move
    node.basic[place] = enter
    pivot = 1.0 / column[place]
    for r in range(R):
        node.inverse[place, r] *= pivot
    for i in range(R):
        factor = column[i]
        if i != place and factor != 0.0:
            for r in range(R):
                node.inverse[i, r] -= factor * node.inverse[place, r]


def begin_anew(field: Any, node: Any, spare: Any) -> bool:
    """Invert the basis, and fill values and prices; False if it is singular."""
    fill_basis(field, node, spare.square)
    if not invert(spare.square, node.inverse):
        return False
    find_levels(field, node, spare)
    find_prices(field, node)
    return True


def begin_near(field: Any, node: Any, spare: Any) -> None:
    """Turn prices into a basis of no higher bound.

    Every activity y_r is basic at first, and costs its price p_r, so that no column gains. Row by
    row the price moves to where the bound falls, until it is 0, or a variable enters for y_r.
    """
    R, k = len(node.basic), len(field.group)
    for r in range(R):
        for s in range(R):
            node.inverse[r, s] = -1.0 if r == s else 0.0
    find_levels(field, node, spare)
    for r in range(R):
        price = node.price[r]
        if price == 0.0 or node.basic[r] != k + r:
            continue
        edge = node.high[r] if price > 0.0 else node.low[r]
        sign = 1.0 if node.level[r] < edge else -1.0
        fill(spare.row, node.inverse[r])
        bound_plans(field, node, node.price, spare)
        find_ratios(field, node, spare, spare.row, -1)
        ratio, enter = spare.ratio[int(sign > 0.0)], spare.enter[int(sign > 0.0)]
        own = sign * spare.row[r]
        end = abs(price / own) if own * price < 0.0 else np.inf
        if end <= ratio and end < np.inf:
            for s in range(R):
                node.price[s] += sign * end * spare.row[s]
            node.price[r] = 0.0
            continue
        if enter < 0:
            continue
        fill_column(field, node, enter, spare.column)
        if abs(spare.column[r]) < 0.1 * PIVOT:
            continue
        for s in range(R):
            node.price[s] += sign * ratio * spare.row[s]
        exchange(field, node, spare, r, enter, -1.0 if price > 0.0 else 1.0)
        spare.tally[0] += 1.0


def bound_along(
    field: Any, node: Any, spare: Any, place: int, sign: float, bound: float, enough: float
) -> float:
    """Return the bound far along a row that no variable can enter: no plan keeps its bounds."""
    c = node.basic[place]
    r = c - len(field.group)
    goal = 0.0
    if r >= 0:
        goal = node.low[r] if sign > 0 else node.high[r]
    far = 2.0 * (bound - enough) / abs(node.level[place] - goal)
    for s in range(len(node.basic)):
        spare.other[s] = node.price[s] + sign * far * spare.row[s]
    return bound_plans(field, node, spare.other, spare)


def reoptimise(
    field: Any, node: Any, spare: Any, enough: float, most: float, age: float
) -> tuple[int, float]:
    """Solve the relaxation of a node by the dual simplex method; return what it is and its bound.

    It is CLOSED as soon as its bound is at most `enough`, and UNCLEAR after `most` steps. `age` is
    the number of steps since the basis was inverted.
    """
    R = len(node.basic)
    lowest, steps = np.inf, 0.0
    while True:
        if age >= STEPS:
            age = 0.0
            if not begin_anew(field, node, spare):
                return UNCLEAR, lowest
        bound = bound_plans(field, node, node.price, spare)
        lowest = min(lowest, bound)
        if bound <= enough:
            return CLOSED, lowest
        find_rest(field, node, spare)
        if replace_keys(field, node, spare):
            find_levels(field, node, spare)
            find_rest(field, node, spare)
        place, group, sign = choose_leaving(field, node, spare)
        if place < 0:
            return OPTIMAL, lowest
        if steps >= most:
            return UNCLEAR, lowest
        steps += 1.0
        age += 1.0
        spare.tally[0] += 1.0
        if group >= 0:
            swap_key(field, node, spare, group, place)
            group = -1
        fill(spare.row, node.inverse[place])
        find_ratios(field, node, spare, spare.row, group)
        ratio, enter = spare.ratio[int(sign > 0.0)], spare.enter[int(sign > 0.0)]
        if enter < 0:
            bound = bound_along(field, node, spare, place, sign, bound, enough)
            return (CLOSED if bound <= enough else UNCLEAR), min(lowest, bound)
        fill_column(field, node, enter, spare.column)
        for r in range(R):
            node.price[r] += sign * ratio * spare.row[r]
        if abs(spare.column[place]) < 0.1 * PIVOT:
            return UNCLEAR, lowest
        exchange(field, node, spare, place, enter, sign)


def find_uses(field: Any, node: Any, spare: Any) -> bool:
    """Fill the least and the most use of every row by every group, and by all; False if none can.

    `least` and `most` are (G+1, R), and the last line is that of all groups.
    """
    R, G = len(node.low), len(node.key)
    least, most = spare.least, spare.most
    for r in range(R):
        least[G, r], most[G, r] = 0.0, 0.0
    for g in range(G):
        count = 0
        for i in range(field.of[g], field.of[g + 1]):
            r = field.rows[i]
            least[g, r], most[g, r], spare.row[r] = np.inf, -np.inf, 0.0
        for c in range(field.first[g], field.first[g + 1]):
            if node.banned[c]:
                continue
            count += 1
            for e in range(field.start[c], field.start[c + 1]):
                r = field.index[e]
                least[g, r] = min(least[g, r], field.entry[e])
                most[g, r] = max(most[g, r], field.entry[e])
                spare.row[r] += 1.0
        if count == 0:
            return False
        for i in range(field.of[g], field.of[g + 1]):
            r = field.rows[i]
            if spare.row[r] < count:  # a column does not use the row
                least[g, r] = min(least[g, r], 0.0)
                most[g, r] = max(most[g, r], 0.0)
            least[G, r] += least[g, r]
            most[G, r] += most[g, r]
    return True


def ban_columns(field: Any, node: Any, spare: Any) -> bool:
    """Ban the columns that fit with no columns of the other groups; False if no plan is left."""
    R, G = len(node.low), len(node.key)
    least, most = spare.least, spare.most
    changed = True
    for _ in range(PASSES):
        if not changed:
            break
        changed = False
        if not find_uses(field, node, spare):
            return False
        for r in range(R):
            over = least[G, r] - node.high[r] > SLACK * (1.0 + abs(node.high[r]))
            under = node.low[r] - most[G, r] > SLACK * (1.0 + abs(node.low[r]))
            if over or under or node.low[r] > node.high[r]:
                return False
        for c in range(len(field.group)):
            if node.banned[c]:
                continue
            g = field.group[c]
            for e in range(field.start[c], field.start[c + 1]):
                r = field.index[e]
                more = least[G, r] - least[g, r] + field.entry[e] - node.high[r]
                if more > SLACK * (1.0 + abs(node.high[r])):
                    node.banned[c] = True
                    changed = True
                    break
    return True


def ban_dominated(field: Any, node: Any, spare: Any) -> None:
    """Ban every column that another one of its group can replace in any plan without a loss.

    The other one has no less value, and uses no more of a row that has an upper bound and no less
    of a row that has a lower one.
    """
    for c in range(len(field.group)):
        g = field.group[c]
        for at in range(field.of[g], field.of[g + 1]):
            spare.row[field.rows[at]] = 0.0
        for e in range(field.start[c], field.start[c + 1]):
            spare.row[field.index[e]] = field.entry[e]
        for d in range(field.first[g], field.first[g + 1]):
            if d == c or node.banned[d] or field.value[d] < field.value[c]:
                continue
            stands, i, end = True, field.start[d], field.start[d + 1]
            for at in range(field.of[g], field.of[g + 1]):
                r, use = field.rows[at], 0.0
                if i < end and field.index[i] == r:
                    use = field.entry[i]
                    i += 1
                more = use - spare.row[r]
                if (more > 0.0 and node.high[r] < np.inf) or (more < 0.0 and node.low[r] > -np.inf):
                    stands = False
                    break
            if stands:
                node.banned[c] = True
                break


def ban_losses(field: Any, node: Any, spare: Any, enough: float) -> float:
    """Ban the columns of no plan above `enough` by the last bound, which is returned."""
    bound = float(spare.tally[2])
    for c in range(len(field.group)):
        if node.banned[c] or node.place[c] != -1:
            continue
        if bound + spare.reduced[c] - spare.best[field.group[c]] <= enough:
            node.banned[c] = True
    return bound


def take_plan(field: Any, node: Any, spare: Any, low: Any, high: Any, plan: Any) -> float:
    """Fill the plan (G,) of a relaxation without parts, and return its value.

    It is NaN if a group has parts of several columns, and -inf if the plan breaks a row.
    """
    k = len(field.group)
    for g in range(len(node.key)):
        if min(spare.rest[g], 1.0 - spare.rest[g]) > WHOLE:
            return np.nan
        plan[g] = node.key[g]
    for i in range(len(node.basic)):
        c = node.basic[i]
        if c < k:
            if min(node.level[i], 1.0 - node.level[i]) > WHOLE:
                return np.nan
            if node.level[i] > 0.5:
                plan[field.group[c]] = c
    value = field.base
    spare.other[:] = 0.0
    for g in range(len(node.key)):
        c = plan[g]
        value += field.value[c]
        for e in range(field.start[c], field.start[c + 1]):
            spare.other[field.index[e]] += field.entry[e]
    for r in range(len(low)):
        if spare.other[r] > high[r] or spare.other[r] < low[r]:
            return -np.inf
    return float(value)


def branch(field: Any, low: Any, high: Any, banned: Any, what: int, value: float, way: int) -> None:
    """Restrict a node to a branch: a variable at most (way 0) or at least a whole number.

    `value` is that of an activity in its units. A column can only be 0 or 1.
    """
    k = len(field.group)
    if what >= k:
        r = what - k
        unit = field.unit[r]
        if way:
            low[r] = max(low[r], (math.ceil(value) - UNIT_SLACK) * unit)
        else:
            high[r] = min(high[r], (math.floor(value) + UNIT_SLACK) * unit)
    elif way:
        g = field.group[what]
        for c in range(field.first[g], field.first[g + 1]):
            if c != what:
                banned[c] = True
    else:
        banned[what] = True


def look_ahead(
    field: Any, node: Any, spare: Any, what: int, value: float, way: int, here: float, enough: float
) -> float:
    """Return by how much the bound `here` of a node falls in a few steps of a branch.

    It is here - enough if the branch is closed.
    """
    to = spare.ahead
    fill(to.banned, node.banned)
    fill(to.place, node.place)
    fill(to.key, node.key)
    fill(to.low, node.low)
    fill(to.high, node.high)
    fill(to.price, node.price)
    fill(to.basic, node.basic)
    fill(to.side, node.side)
    fill(to.level, node.level)
    for r in range(len(node.inverse)):
        fill(to.inverse[r], node.inverse[r])
    branch(field, to.low, to.high, to.banned, what, value, way)
    slack = here - enough
    if not ban_columns(field, to, spare):
        return slack
    status, bound = reoptimise(field, to, spare, enough, AHEAD, 0.0)
    return slack if status == CLOSED else min(max(here - bound, 0.0), slack)


def find_open(field: Any, node: Any, spare: Any) -> int:
    """Fill the variables with a part, by place, and their values in units; return their number.

    A place above those of the basis is that of a key. By how much an activity may exceed its bounds
    is no part.
    """
    R, k, count = len(node.basic), len(field.group), 0
    for t in range(R + len(node.key)):
        whole = WHOLE
        if t < R:
            r, value = node.basic[t] - k, node.level[t]
            if r >= 0:
                if field.unit[r] == 0.0:
                    continue
                whole += 2.0 * FEASIBLE * (1.0 + abs(value)) / field.unit[r]
                value /= field.unit[r]
        else:
            if spare.others[t - R] == 0:
                continue
            value = spare.rest[t - R]
        if whole < value - math.floor(value) < 1.0 - whole:
            spare.open[count], spare.part[count] = t, value
            count += 1
    return count


def find_gains(
    field: Any, node: Any, spare: Any, t: int, value: float, slack: float
) -> tuple[float, float]:
    """Return by how much a step of the dual simplex method lowers the bound, down and up.

    It is a lower estimate of what a branch gains (Driebeek 1966, "An algorithm for the solution of
    mixed integer programming problems").
    """
    own, size = t - len(node.basic), 1.0
    if own >= 0:
        fill_key_row(field, node, own, spare.row)
    else:
        own = -1
        if node.basic[t] >= len(field.group):
            size = field.unit[node.basic[t] - len(field.group)]
        fill(spare.row, node.inverse[t])
    part = value - math.floor(value)
    find_ratios(field, node, spare, spare.row, own)
    down, up = part * size * spare.ratio[0], (1.0 - part) * size * spare.ratio[1]
    return min(down, slack), min(up, slack)


def choose_branch(
    field: Any, node: Any, spare: Any, here: float, enough: float
) -> tuple[int, float, int, bool]:
    """Return what to branch on, its value in its units, the better way, and if it is the only one.

    A way is down 0 or up 1. It is the variable with a part whose branches lower the bound most, by
    the product of both, and -1 if none has a part. Where a step tells of no gain at all, as where
    values tie, the branches are looked at (strong branching: Applegate et al. 1995, "Finding cuts
    in the TSP").
    """
    R, slack = len(node.basic), here - enough
    least, best, pick, pick_value, pick_way = LITTLE * slack, -1.0, -1, 0.0, 0
    count = find_open(field, node, spare)
    for looks in (False, True):
        for i in range(count):
            t, value = spare.open[i], spare.part[i]
            what = node.basic[t] if t < R else node.key[t - R]
            if looks:
                if i >= LOOKS:
                    break
                down = look_ahead(field, node, spare, what, value, 0, here, enough)
                up = look_ahead(field, node, spare, what, value, 1, here, enough)
                if max(down, up) >= slack:
                    return what, value, 1 if up <= down else 0, True
            else:
                down, up = find_gains(field, node, spare, t, value, slack)
            score = max(down, least) * max(up, least)
            if score > best:
                best, pick, pick_value, pick_way = score, what, value, 1 if up <= down else 0
        if best > 2.0 * least * least:
            break
    return pick, pick_value, pick_way, False


def choose_waiting(waiting: Any, enough: float) -> int:
    """Return the place of the node to go on with: that of the highest bound.

    Where few places are free it is that of the lowest bound that is not closed.
    """
    low, high, free = 0, 0, 0.0
    for s in range(len(waiting.bound)):
        bound = waiting.bound[s]
        if bound > waiting.bound[high]:
            high = s
        if bound <= enough:
            free += 1.0
        elif bound < waiting.bound[low] or waiting.bound[low] <= enough:
            low = s
    return low if free < FEW else high


def let_wait(node: Any, waiting: Any, s: int, bound: float) -> None:
    """Keep a node for later."""
    waiting.bound[s] = bound
    fill(waiting.banned[s], node.banned)
    fill(waiting.low[s], node.low)
    fill(waiting.high[s], node.high)
    fill(waiting.basic[s], node.basic)
    fill(waiting.side[s], node.side)
    fill(waiting.key[s], node.key)


def take_node(field: Any, node: Any, waiting: Any, s: int) -> float:
    """Go on with a node that waits; return its bound."""
    fill(node.banned, waiting.banned[s])
    fill(node.low, waiting.low[s])
    fill(node.high, waiting.high[s])
    fill(node.basic, waiting.basic[s])
    fill(node.side, waiting.side[s])
    fill(node.key, waiting.key[s])
    node.place[:] = -1
    for r in range(len(node.basic)):
        if node.basic[r] < len(field.group):
            node.place[node.basic[r]] = r
    for q in node.key:
        node.place[q] = -2
    bound, waiting.bound[s] = waiting.bound[s], -np.inf
    return float(bound)


def visit(
    field: Any,
    node: Any,
    spare: Any,
    waiting: Any,
    low: Any,
    high: Any,
    plan: Any,
    enough: float,
    above: float,
    age: float,
) -> tuple[int, float, float]:
    """Look at a node; return what it is, its bound, and the value of the plan found, -inf if none.

    If it is BRANCHED, the node is its better branch, and the other one waits. `above` is the bound
    of the node before, and `plan` is overwritten.
    """
    if not ban_columns(field, node, spare):
        return CLOSED, -np.inf, -np.inf
    most = ROOT if above == np.inf else INNER
    status, bound = reoptimise(field, node, spare, enough, most, age)
    bound = min(bound, above)
    if status != OPTIMAL:
        return status, bound, -np.inf
    value = take_plan(field, node, spare, low, high, plan)
    if value == -np.inf:
        return UNCLEAR, bound, value
    if not math.isnan(value):
        is_exact = bound <= max(enough, value + 2.0 * spare.tally[1])
        return (CLOSED if is_exact else UNCLEAR), bound, value
    here = ban_losses(field, node, spare, enough)
    if here <= enough:
        return CLOSED, bound, -np.inf
    what, part, way, is_only = choose_branch(field, node, spare, here, enough)
    if is_only:
        branch(field, node.low, node.high, node.banned, what, part, way)
        return BRANCHED, bound, -np.inf
    s = waiting.bound.argmin()
    if what < 0 or waiting.bound[s] > enough:
        return UNCLEAR, bound, -np.inf
    let_wait(node, waiting, s, bound)
    branch(field, waiting.low[s], waiting.high[s], waiting.banned[s], what, part, 1 - way)
    branch(field, node.low, node.high, node.banned, what, part, way)
    return BRANCHED, bound, -np.inf


def match(
    one: Any,
    own: Any,
    two: Any,
    its: Any,
    at: Any,
    moves: Any,
    first: Any,
    low: Any,
    high: Any,
    least: float,
    looks: float,
    pairs: Any,
) -> int:
    """Fill pairs of lines (N, K) whose sums are low .. high and score above `least`; count them.

    The lines of `two` that are in cell h are first[h] .. first[h + 1], and `its` descends there.
    Line a is looked for in the cells at[a] + moves.
    """
    count = 0
    for a in range(len(one)):
        for move in moves:
            h = (at[a] + move) & (len(first) - 2)
            for b in range(first[h], first[h + 1]):
                looks -= 1.0
                if own[a] + its[b] <= least:
                    break
                fits = True
                for r in range(len(low)):
                    use = one[a, r] + two[b, r]
                    if use > high[r] or use < low[r]:
                        fits = False
                        break
                if fits:
                    pairs[count, 0], pairs[count, 1] = a, b
                    count += 1
                    if count == len(pairs):
                        return count
        if looks < 0.0:
            break
    return count


def search(
    field: Any,
    node: Any,
    spare: Any,
    waiting: Any,
    plan: Any,
    trial: Any,
    value: float,
    gap: float,
    steps: float,
) -> tuple[float, float]:
    """Search all plans of a node; return the best value and a bound on all plans of the node.

    `plan` (G,) is overwritten by every better plan. The search ends after so many steps.
    """
    low, high = spare.low, spare.high
    fill(low, node.low)
    fill(high, node.high)
    ban_dominated(field, node, spare)
    begin_near(field, node, spare)
    unclear, above, age, visits = -np.inf, np.inf, STEPS, 0.0
    while True:
        enough = value + gap * abs(value)
        status, bound, level = visit(
            field, node, spare, waiting, low, high, trial, enough, above, age
        )
        if status == UNCLEAR:
            unclear = max(unclear, bound)
        if level > value:
            value = level
            enough = value + gap * abs(value)
            fill(plan, trial)
        s = choose_waiting(waiting, enough)
        if status == BRANCHED:
            above, age = bound, 0.0
        elif waiting.bound[s] <= enough:
            return value, max(unclear, enough)
        else:
            above, age = take_node(field, node, waiting, s), STEPS
        visits += 1.0  # where columns tie, a visit may take no step
        spare.tally[0] = max(spare.tally[0], visits)
        if spare.tally[0] >= steps:
            return value, max(unclear, above, waiting.bound.max(), enough)
