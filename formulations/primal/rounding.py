"""From prices to a plan: take the best columns, repair broken rows, use what is left.

This is the strong greedy ("marginal") policy: the Lagrangian heuristic of the multiple-choice
knapsack literature (Kellerer, Pferschy and Pisinger 2004, "Knapsack Problems", ch. 11). It serves
as hint, fallback and policy, so it must find a plan in practically every round that has one. It is
deterministic.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from formulations.bounds.lagrangian import (
    Dual,
    evaluate,
    excludes_every_plan,
    project_prices,
    spread_prices,
)
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints, begins_run
from formulations.primal.moves import Board, Moves, NearTies, focus_on_near_ties

PAIRS = 1500  # moves that are combined into pairs
TRIALS = 400  # moves of one pass for which a second move is searched
REPAIRS = 50_000  # moves considered in one pass of a repair
SINGLES = 20_000  # single moves considered in one pass
LARGEST_LOSS = 0.5  # of the gap that is enough: what a column of a first plan may lose
IDLE = 1.0  # of the gap that is enough: the price of idle units for which all columns are tried
PASSES = 3  # of one filling
BEYOND = 2  # passes that improve a first plan once it is good enough: later ones gain little
CHUNK = 512  # pairs that are checked at once
EPS = 1e-12


def round_dual(
    choices: Choices,
    dual: Dual,
    until: float = math.inf,
    enough: float | None = None,
    beyond: int = BEYOND,
) -> Ints | None:
    """Return the plan that the prices suggest, repaired and filled.

    The result is None if the bound proves that there is no plan, if every start fails, or at
    `until` (time.monotonic).

    Parameters
    ----------
    enough : float, optional
        Relative gap that is enough. A first attempt uses no column that alone loses half of it, so
        that many small groups make way and not one large group.
    beyond : int
        Passes that improve a plan beyond that gap.
    """
    if excludes_every_plan(choices, dual):
        return None
    if enough is None:
        return _round(choices, dual, until, partial(fill, choices, prices=dual.prices, until=until))
    enough_value = dual.bound / (1.0 + math.copysign(enough, dual.bound))
    improve = partial(
        fill,
        choices,
        prices=dual.prices,
        until=until,
        enough_value=enough_value,
        beyond=beyond,
    )
    most_loss = LARGEST_LOSS * (dual.bound - enough_value)
    ties = focus_on_near_ties(choices, dual.prices, most_loss)
    best: Ints | None = None
    most_idle = IDLE * (dual.bound - enough_value)
    for attempt in _attempts(choices, dual, ties, until, improve, most_idle):
        if best is None or choices.value_of(attempt) > choices.value_of(best):
            best = attempt
        if choices.value_of(best) >= enough_value:
            break
    return best


def _attempts(
    choices: Choices,
    dual: Dual,
    ties: NearTies | None,
    until: float,
    improve: Callable[..., Ints],
    most_idle: float,
) -> Iterator[Ints]:
    """Yield plans that the prices suggest: with near ties only, or else with all columns.

    Where the repair left units of a row idle whose price is more than `most_idle`, any column may
    take them first: a scarce unit is often not needed by any near tie.
    """
    board = None
    if ties is not None:
        focus = ties.around(dual.choice)
        board = _repair(focus.view, focus.narrow(dual.choice), focus.prices, until)
        if board is not None:
            yield improve(focus.widen(board.choice), ties=ties)
    if board is None:
        plan = _round(choices, dual, until, improve)
        if plan is not None:
            yield plan
    if board is not None and board.rent().max(initial=0.0) > most_idle:
        yield improve(_fill_singly(choices, focus.widen(board.choice), dual.prices), ties=ties)


def _round(choices: Choices, dual: Dual, until: float, improve: Callable[..., Ints]) -> Ints | None:
    """Return the plan that the prices suggest, filled."""
    prices = dual.prices
    ties = focus_on_near_ties(choices, dual.prices)
    for turn in range(8):
        start = dual.choice if turn == 0 else evaluate(choices, prices).choice
        plan = repair(choices, start, prices, until, ties if turn == 0 else None)
        if plan is not None:
            return improve(plan, ties=ties)
        prices = _sharpen(choices, start, prices, dual, turn)
    return None


def _sharpen(choices: Choices, choice: Ints, prices: Floats, dual: Dual, turn: int) -> Floats:
    """Move prices against the rows that the choice breaks: a subgradient step of growing length."""
    board = Board(choices, choice, project_prices(choices, prices))
    up = board.use > choices.high
    down = board.use < choices.low
    # the best columns keep all rows and only the repair failed: prices of binding rows change
    if not (up | down).any():
        up = dual.prices[choices.rows] > 0
        down = dual.prices[choices.rows] < 0
    mean_value = float(np.abs(choices.value).mean()) if choices.n else 1.0
    step = 0.25 * 1.6**turn * max(mean_value, 1e-300) / board.unit
    return spread_prices(
        choices, prices[choices.rows] + np.where(up, step, 0.0) - np.where(down, step, 0.0)
    )


def repair(
    choices: Choices,
    choice: Ints,
    prices: Floats,
    until: float = math.inf,
    ties: NearTies | None = None,
) -> Ints | None:
    """Return a choice near the given one that keeps all rows.

    Moves with the least loss (at the prices) per violation removed come first, then pairs of moves
    where single ones fail. Large models are repaired among near ties first.

    Parameters
    ----------
    choice : (J,)
        The choice to repair.
    prices : (m,)
        Prices of the model's rows.
    until : float
        Latest end (time.monotonic).
    ties : NearTies, optional
        The near ties at the prices, if they are known.

    Returns
    -------
    repaired : (J,) or None
        None if the repair fails, if a mandatory group owns no column, or at `until`.
    """
    ties = focus_on_near_ties(choices, prices) if ties is None else ties
    if ties is not None:
        focus = ties.around(choice)
        own = _repair(focus.view, focus.narrow(choice), focus.prices, until)
        if own is not None:
            return focus.widen(own.choice)
    board = _repair(choices, choice, prices, until)
    return None if board is None else board.choice


def _repair(choices: Choices, choice: Ints, prices: Floats, until: float) -> Board | None:
    board = Board(choices, choice, project_prices(choices, prices))
    if not _fill_must(board):
        return None
    for _ in range(200):
        if not board.excess().any():
            break
        if time.monotonic() >= until or (not _relieve(board) and not _relieve_pair(board)):
            return None
        board.refresh()
    return board if choices.feasible(board.choice) else None


def fill(
    choices: Choices,
    choice: Ints,
    prices: Floats,
    passes: int = PASSES,
    until: float = math.inf,
    ties: NearTies | None = None,
    enough_value: float = math.inf,
    beyond: int = 0,
) -> Ints:
    """Improve a feasible choice.

    Moves that gain value and keep all rows come first, the largest gain first; then pairs of moves,
    of which one loses so that the other can gain more. It stops when nothing helps, after `passes`,
    or at `until` (time.monotonic). Large models are filled among near ties.

    Parameters
    ----------
    ties : NearTies, optional
        The near ties at the prices, if they are known.
    enough_value : float
        Value at which a choice is good enough.
    beyond : int
        Passes that improve a choice which is good enough.
    """
    if choices.value_of(choice) >= enough_value and not beyond:
        return choice
    ties = focus_on_near_ties(choices, prices) if ties is None else ties
    if ties is None:
        filled = _fill(choices, choice, prices, passes, until, enough_value, beyond)
    else:
        focus = ties.around(choice)
        own = focus.narrow(choice)
        enough_value += focus.view.value_of(own) - choices.value_of(choice)
        own = _fill(focus.view, own, focus.prices, passes, until, enough_value, beyond)
        filled = focus.widen(own)
    better = choices.value_of(filled) > choices.value_of(choice)
    # the rounding of many sums breaks a row very rarely
    return filled if better and choices.feasible(filled) else choice


def _fill(
    choices: Choices,
    choice: Ints,
    prices: Floats,
    passes: int,
    until: float,
    enough_value: float,
    beyond: int,
) -> Ints:
    board = Board(choices, choice, project_prices(choices, prices))
    for _ in range(passes):
        if choices.value_of(board.choice) >= enough_value:
            if not beyond:
                break
            beyond -= 1
        gained = improve_singly(board)
        board.refresh()
        if time.monotonic() >= until or (not gained and not improve_pairs(board)):
            break
        board.refresh()
    return board.choice


def _fill_singly(choices: Choices, choice: Ints, prices: Floats) -> Ints:
    """Return a feasible choice with what single moves gain, also those that are no near ties."""
    board = Board(choices, choice, project_prices(choices, prices))
    improve_singly(board)
    return board.choice if choices.feasible(board.choice) else choice


def _fill_must(board: Board) -> bool:
    """Give every mandatory group without a column its best one at the prices.

    Return False if a group has no column.
    """
    c = board.choices
    bare = np.flatnonzero(c.mandatory & (board.choice < 0))
    if not len(bare):
        return True
    if (np.diff(c.start)[bare] == 0).any():
        return False
    columns = c.columns_of(bare)
    order = columns[np.lexsort((columns, -board.reduced[columns], c.group[columns]))]
    first = begins_run(c.group[order])
    board.choice[bare] = order[first]
    board.refresh()
    return True


def _relieving_moves(board: Board, most: int) -> Moves:
    """Return the `most` moves of least loss that may reduce the violation of a broken row."""
    c = board.choices
    a = c.matrix
    over = board.use > c.high
    under = board.use < c.low
    # positive and negative entries act in opposite directions
    entry_down = np.where(a.data > 0, under[a.indices], over[a.indices])
    brings = _has_flagged_entry(entry_down, a.indptr)
    on = board.choice >= 0
    rid = np.zeros(c.J, dtype=bool)
    entry_up = np.where(a.data > 0, over[a.indices], under[a.indices])
    rid[on] = _has_flagged_entry(entry_up, a.indptr)[board.choice[on]]
    columns = np.flatnonzero((brings | rid[c.group]) & (board.choice[c.group] != np.arange(c.n)))
    return _moves_of_least_loss(board, columns, np.flatnonzero(rid & ~c.mandatory), most)


def _has_flagged_entry(flag: Bools, indptr: Ints) -> Bools:
    """Return whether any entry of each column is flagged."""
    total = np.concatenate([[0], np.cumsum(flag)])
    return np.asarray(np.diff(total[indptr]) > 0)


def _relieve(board: Board) -> bool:
    """Make one pass of repairing single moves in order of loss per violation removed.

    Return False if none helps.
    """
    moves = _relieving_moves(board, REPAIRS)
    violation_relief, cost = board.violation_relief(moves)
    good = np.flatnonzero(violation_relief > EPS)
    score = cost[good] / violation_relief[good]
    order = good[np.lexsort((moves.column[good], -violation_relief[good], score))]
    moved = np.zeros(board.choices.J, dtype=bool)
    chunk = 64
    while len(order) and board.excess().any():
        for i in order[:chunk]:
            if not moved[moves.group[i]]:
                now = board.relief_of(moves, int(i))
                if now >= 0.5 * violation_relief[i] and now > EPS:
                    board.apply(moves, int(i))
                    moved[moves.group[i]] = True
        order = order[chunk:]
        now_all = board.violation_relief(moves)[0]
        order = order[
            (now_all[order] >= 0.5 * violation_relief[order])
            & (now_all[order] > EPS)
            & ~moved[moves.group[order]]
        ]
    return bool(moved.any())


def _moves_of_least_loss(board: Board, columns: Ints, leave: Ints, most: int) -> Moves:
    """Return the `most` moves of least loss to columns, or of the groups `leave` to nothing."""
    c = board.choices
    now = np.append(board.reduced, 0.0)[board.choice]
    loss = np.concatenate([now[c.group[columns]] - board.reduced[columns], now[leave]])
    if len(loss) > most:
        near = np.sort(np.argpartition(loss, most)[:most])
        columns, leave = (
            columns[near[near < len(columns)]],
            leave[near[near >= len(columns)] - len(columns)],
        )
    return board.moves(columns, leave)


def _all_moves(board: Board, most: int) -> Moves:
    c = board.choices
    other = board.choice[c.group] != np.arange(c.n)
    return _moves_of_least_loss(
        board, np.flatnonzero(other), np.flatnonzero((board.choice >= 0) & ~c.mandatory), most
    )


def _relieve_pair(board: Board) -> bool:
    """Make the pair of moves that removes most violation per loss, if any removes some."""
    c = board.choices
    touching = _relieving_moves(board, PAIRS // 4)
    counterparts = _all_moves(board, PAIRS)
    row, amount = counterparts.delta.indices, counterparts.delta.data
    high, low, unit = c.high[row], c.low[row], board.unit[row]
    now = float(board.excess().sum())
    best = np.inf
    pair = None
    least = counterparts.loss.min(initial=np.inf)
    for i in np.argsort(touching.loss, kind="stable"):
        # no pair removes more than all of the violation
        if touching.loss[i] + least >= max(0.0, best * now):
            break
        own, change = touching.entries(int(i))
        use = board.use.copy()
        use[own] += change
        excess = np.maximum(np.maximum(use - c.high, c.low - use), 0.0) / board.unit
        new = use[row] + amount
        after = np.maximum(np.maximum(new - high, low - new), 0.0) / unit
        more = np.bincount(counterparts.delta.row, after - excess[row], len(counterparts))
        relief = now - excess.sum() - more
        violation_relief = np.where(counterparts.group == touching.group[i], -1.0, relief)
        score = np.where(
            violation_relief > 1e-9,
            (touching.loss[i] + counterparts.loss) / np.maximum(violation_relief, 1e-9),
            np.inf,
        )
        k = int(np.argmin(score)) if len(score) else -1
        if k >= 0 and score[k] < best:
            best = float(score[k])
            pair = (int(i), k)
    if pair is None:
        return False
    board.apply(touching, pair[0])
    board.apply(counterparts, pair[1])
    return True


def improve_singly(board: Board) -> bool:
    """Make one pass of feasible single moves, among those of least loss, the largest gain first.

    Return False if none gains.
    """
    c = board.choices
    now = np.append(c.value, 0.0)[board.choice]
    better = np.flatnonzero(c.value > now[c.group] + EPS)
    loss = np.append(board.reduced, 0.0)[board.choice][c.group[better]] - board.reduced[better]
    # a move gains at most the rent of unused units less its loss
    near = loss < float(board.rent().sum()) + EPS
    better = better[near]
    loss = loss[near]
    if len(better) > SINGLES:
        better = np.sort(better[np.argpartition(loss, SINGLES)[:SINGLES]])
    moves = board.moves(better, np.flatnonzero((now < -EPS) & ~c.mandatory))
    order = np.lexsort((moves.column, -moves.gain))
    moved = np.zeros(c.J, dtype=bool)
    chunk = 32
    # one by one for a while, then all others at once, because most no longer fit
    while len(order):
        order = order[(board.violation_relief(moves)[0][order] >= 0) & ~moved[moves.group[order]]]
        for i in order[:chunk]:
            if not moved[moves.group[i]] and board.relief_of(moves, int(i)) >= 0:
                board.apply(moves, int(i))
                moved[moves.group[i]] = True
        order = order[chunk:]
        chunk = 2 * chunk
    return bool(moved.any())


def improve_pairs(board: Board) -> bool:
    """Make feasible pairs of moves that gain value, the largest gain first.

    Return False if no pair gains.
    """
    c = board.choices
    moves = _all_moves(board, max(100, min(PAIRS, 400_000 // max(1, c.R))))
    D = moves.delta.toarray()
    first, second = _pairs(board, moves, D)
    gain = moves.gain[first] + moves.gain[second]
    order = np.argsort(-gain, kind="stable")
    moved = np.zeros(c.J, dtype=bool)
    while len(order):
        chunk = order[:CHUNK]
        order = order[CHUNK:]
        i = first[chunk]
        k = second[chunk]
        both = D[i] + D[k]
        while len(i):
            new = board.use + both
            fits = (
                ((new <= c.high) & (new >= c.low)).all(axis=1)
                & ~moved[moves.group[i]]
                & ~moved[moves.group[k]]
            )
            i = i[fits]
            k = k[fits]
            both = both[fits]
            if len(i):
                board.apply(moves, int(i[0]))
                board.apply(moves, int(k[0]))
                moved[moves.group[i[0]]] = moved[moves.group[k[0]]] = True
    return bool(moved.any())


def _pairs(board: Board, moves: Moves, D: Floats) -> tuple[Ints, Ints]:
    """Combine moves that gain but break rows with moves that repair them, where both together gain.

    The repairing moves are those of the row that the fewest moves repair.
    """
    c = board.choices
    none = np.zeros(0, dtype=np.int64)
    if c.R == 0 or not len(moves.gain):
        return none, none
    # together they gain at most the rent of unused units less their losses
    fine = (moves.gain > EPS) & (
        moves.loss < float(board.rent().sum()) - moves.loss.min(initial=0.0) + EPS
    )
    trial = np.flatnonzero(fine)
    trial = trial[np.lexsort((moves.column[trial], moves.loss[trial]))][:TRIALS]
    new = board.use + D[trial]
    broken = np.concatenate([new > c.high, new < c.low], axis=1)
    mends = np.concatenate([D < 0, D > 0], axis=1)
    key = np.where(broken, mends.sum(axis=0), len(D) + 1)
    worst = key.argmin(axis=1)
    first = [none]
    second = [none]
    for w in np.unique(worst[broken.any(axis=1)]):
        r = w % c.R
        tried = trial[(worst == w) & broken.any(axis=1)]
        counterpart = np.flatnonzero(mends[:, w])
        row = board.use[r] + D[tried, r][:, None] + D[counterpart, r]
        fits = (row <= c.high[r]) & (row >= c.low[r])
        fits &= moves.gain[tried][:, None] + moves.gain[counterpart] > EPS
        fits &= moves.group[tried][:, None] != moves.group[counterpart]
        a, b = np.nonzero(fits)
        first.append(tried[a])
        second.append(counterpart[b])
    return np.concatenate(first), np.concatenate(second)
