"""The hard rules as users know them: names, where each is set, and which options break it.

The rows themselves are those of formulations/model/single_round.py, here over all options of a
round (`CompiledRound.rows`), and not only over those that a best plan may need.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints
from allocator.options.instance_building import CompiledRound
from allocator.options.quotas import MAX_JOBS
from formulations.model import linear
from formulations.model.linear import Block

BUDGET = "budget"
QUOTA = "quota"
GPUS = "GPUs"
CHANGES = "max_changes"
ROUNDING = 1e-9  # of a bound of a row: sums may miss it by so much


@dataclass(frozen=True)
class Rule:
    """A family of rows as users know it.

    Attributes
    ----------
    limit : str
        What reasons call it, "" = nothing.
    cell : str
        Where it is set, with the row's pool, or the place of its quota; "" = nowhere.
    unit : str
        The unit in which it is changed.
    words : str
        What a conflict calls it, before the name of its row; "" = it is not part of one.
    """

    limit: str = ""
    cell: str = ""
    unit: str = ""
    words: str = ""


HEADROOM_CELL = "interactive.{}.headroom_gpus"
RULES = {
    linear.CAPACITY: Rule(GPUS, "pools.{}.gpus", "GPU", "GPUs of pool"),
    linear.IDLE: Rule(
        GPUS, HEADROOM_CELL, "GPU less", "idle headroom for interactive jobs of pool"
    ),
    linear.HEADROOM: Rule(GPUS, HEADROOM_CELL, "GPU less", "headroom for interactive jobs of pool"),
    linear.RESERVATION: Rule(GPUS),
    linear.REQUESTED: Rule(GPUS, "reservations.{}.gpus", "GPU less"),
    linear.LEAVING: Rule(GPUS, words="GPUs on nodes that do not leave of pool"),
    linear.BUDGET: Rule(BUDGET, "budget_per_hour", "dollar/hour", "budget_per_hour"),
    linear.QUOTA: Rule(QUOTA, "{}.max_gpus", "GPU", "max_gpus of tenant"),
    linear.TENANT_BUDGET: Rule(
        QUOTA, "{}.budget_per_hour", "dollar/hour", "budget_per_hour of tenant"
    ),
    linear.GUARANTEE: Rule("", "{}.guaranteed_gpus", "GPU less", "guaranteed_gpus of tenant"),
    linear.CHURN: Rule(CHANGES, "max_changes", "change", "max_changes"),
    linear.EXPOSURE: Rule(QUOTA, words="max_spot_gpus of tenant"),
    linear.LENDING: Rule(QUOTA, "{}.lend_gpus", "GPU"),
    MAX_JOBS: Rule(QUOTA, "tenants.{}.max_jobs", "job", "max_jobs of tenant"),
}
GPU_HOURS = Rule(QUOTA, "{}.gpu_hours_per_month", "GPU-hour")  # a quota where these leave less
PAIRS = (linear.COLOCATION, linear.TAKEOVER)  # rules that nobody sets


def kinds_of(*limits: str) -> list[str]:
    """Return the kinds of rows that belong to some limits."""
    return [kind for kind, rule in RULES.items() if rule.limit in limits]


def usage_cost(round_: CompiledRound, prices: Floats) -> Floats:
    """Return the price of all that each option of the option table uses, (n,).

    prices (m,) are those of the rows of the round's model.
    """
    total = np.zeros(len(round_.option_table))
    first = {family.kind: family.first for family in round_.model.families}
    for block in round_.rows:
        if block.kind in RULES:
            at = first[block.kind]
            price = np.append(prices[at : at + len(block.upper)], 0.0)
            total += block.coef * price[block.layers].sum(axis=0)
    return total


def find_broken_rows(
    round_: CompiledRound, chosen: Ints, kinds: Collection[str]
) -> Iterator[tuple[Block, Bools]]:
    """Yield the rows of some kinds, and which of them each option would break, (L, n).

    The option takes the place of what its job got in the plan; chosen (J,) are the options of the
    plan, -1 = nothing.
    """
    before = chosen[round_.option_table.job]
    for block in round_.rows:
        if block.kind not in kinds:
            continue
        # the last row stands for none, and the last option for nothing
        row = np.pad(block.layers, ((0, 0), (0, 1)), constant_values=-1)
        coef = np.append(block.coef, 0.0)
        used = np.zeros(len(block.upper) + 1)
        for of_plan in row[:, chosen]:
            np.add.at(used, of_plan, coef[chosen])
        size = np.maximum(1.0, np.fmin(np.abs(block.lower), np.abs(block.upper)))
        low = np.append(block.lower - ROUNDING * size, -np.inf)
        high = np.append(block.upper + ROUNDING * size, np.inf)
        now, was = row[:, :-1], row[:, before]
        after = used[now] + coef[:-1] - np.where(now == was, coef[before], 0.0)
        left = np.where(now == was, after, used[was] - coef[before])
        yield (
            block,
            (after > high[now]) | (after < low[now]) | (left > high[was]) | (left < low[was]),
        )


def find_fitting(round_: CompiledRound, chosen: Ints, kinds: Collection[str]) -> Bools:
    """Find the options that break no row of these kinds in place of what their job got, (n,)."""
    fits = np.ones(len(round_.option_table), dtype=bool)
    for _, broken in find_broken_rows(round_, chosen, kinds):
        fits &= ~broken.any(axis=0)
    return fits
