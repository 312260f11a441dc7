"""A few columns of a large model as a small model: those that the prices nearly chose.

Moves of single groups and of pairs inspect every column repeatedly, but at good prices only near
ties need to be inspected (the core of a knapsack: Kellerer, Pferschy and Pisinger 2004, section
5.4). All other groups keep their columns, and their use is subtracted from the bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from formulations.bounds.lagrangian import group_max, project_prices
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints

NEAR, NEAR_PER_ROW = 2_000, 30  # columns of a core: a constant, and for each row


@dataclass(frozen=True)
class Focus:
    """A small model with the same rows as a whole model.

    `groups` (G,) and `columns` (k,) are those of the whole model, and `base` (J,) is a choice of
    the whole model.
    """

    view: Choices
    prices: Floats
    groups: Ints
    columns: Ints
    base: Ints

    def narrow(self, choice: Ints) -> Ints:
        """Translate a choice of the whole (J,) that keeps to these columns to the view (G,)."""
        own = choice[self.groups]
        return np.where(own >= 0, np.searchsorted(self.columns, own), -1)

    def widen(self, own: Ints) -> Ints:
        """Translate a choice of the view (G,) to the whole (J,)."""
        choice = self.base.copy()
        choice[self.groups] = np.append(self.columns, -1)[own]
        return choice


def focus_on_near_ties(
    choices: Choices, prices: Floats, most_loss: float = math.inf
) -> NearTies | None:
    """Return the near ties at model prices (m,), None if they are most of the columns.

    No column loses more than `most_loss`, and groups that lose at most so much may take nothing.
    """
    want = NEAR + NEAR_PER_ROW * choices.R + choices.n // 100
    return None if choices.n < 2 * want else NearTies(choices, prices, want, most_loss)


class NearTies:
    """The columns of a model that lose least at some prices.

    There are about `want` of them, and about `want` / 8 columns of the most valuable groups,
    because these decide how well all others can be packed. No column loses more than `most_loss`,
    and then every group that loses at most so much may take nothing.
    """

    def __init__(
        self, choices: Choices, prices: Floats, want: int, most_loss: float = math.inf
    ) -> None:
        self.choices = choices
        self.p = project_prices(choices, prices)
        reduced = choices.value - choices.matrix @ self.p
        best = group_max(choices, reduced, 0.0)
        best = np.where(choices.mandatory, best, np.maximum(best, 0.0))
        loss = np.repeat(best, np.diff(choices.start)) - reduced
        nothing = np.where(choices.mandatory, np.inf, best)
        other = np.concatenate([loss[loss > 0], nothing[nothing > 0]])
        limit = np.partition(other, want - 1)[want - 1] if want <= len(other) else np.inf
        self._near: Bools = loss <= min(limit, most_loss)
        valuable = choices.columns_of(_valuable(choices, want // 8))
        self._near[valuable[loss[valuable] <= most_loss]] = True
        count = np.bincount(choices.group[self._near], minlength=choices.J)
        limit = limit if most_loss == math.inf else most_loss
        self._bound_to_take: Bools = nothing > limit
        self._free: Bools = count + (nothing <= limit) > 1

    def around(self, choice: Ints) -> Focus:
        """Return the view of these columns and those of a choice (J,).

        Groups with no other column keep what they have in the choice.
        """
        c = self.choices
        near = self._near.copy()
        free = self._free.copy()
        # a group whose column is not a near tie may leave it
        away = np.where(choice >= 0, np.append(~near, False)[choice], self._bound_to_take)
        near[choice[away & (choice >= 0)]] = True
        free |= away
        own = near & free[c.group]
        columns = np.flatnonzero(own)
        groups = np.flatnonzero(free)
        fixed = np.where(free, -1, choice)
        use = c.use_of(fixed)
        view = Choices.of_columns(
            c.value[columns],
            (np.cumsum(free) - 1)[c.group[columns]],
            c.mandatory[groups],
            c.low - use,
            c.high - use,
            c.matrix[columns],
        )
        return Focus(view, self.p, groups, columns, choice)


def _valuable(choices: Choices, most: int) -> Ints:
    """Return the most valuable groups, which own about `most` columns."""
    size = np.diff(choices.start)
    order = np.argsort(-group_max(choices, choices.value, 0.0), kind="stable")
    return order[: int(np.searchsorted(np.cumsum(size[order]), most))]
