"""Spot machines of several zones that come and go together, and their prices.

A zone has spot machines while three on-off processes are on: its own, that of its region, and that
of the whole market. Zones of one region therefore go down together more often than zones of
different regions. The lengths of on and off stretches are mixtures of a short and a long
exponential, since measured ones are heavy-tailed (mean 5 to 10 times the median). Consider two
zones that are each up a share u of the time, and let s be the share of time in which what they have
in common is up. The correlation of being up is u (1 - s) / (s (1 - u)). While a zone is up, its
first machine is available; further groups of machines come and go in addition.

Targets (45 days of one V100 in nine AWS zones, 2023):

- zones are up .88 of the time
- runs of 6 h in the mean and 1 h in the median, gaps of 1 h and .4 h
- correlation .25 to .59 within a region, .03 to .27 between regions

Targets of prices (AWS, 92 days of p3):

- floor .30 of the price on demand, mean .30 to .34
- daily log changes of .7 to 1.6 %
- correlation of days .98
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from allocator.domain.problem import Floats
from allocator.io.markets.base import Steps
from formulations.model.linear import begins_run

HOUR = 3_600.0
Mixture = tuple[tuple[float, float], ...]  # (share, mean hours) of each kind of stretch
GONE_H: Mixture = ((0.70, 0.4), (0.30, 2.4))  # mean 1.0, median .5: gaps of every level
SHORT_H, SHORT = 0.60, 0.52  # SHORT of the runs last SHORT_H hours in the mean
# share of time in which a zone is up, and in which its region and the market alone allow it
UP = 0.88
REGION = 0.966
MARKET = 0.980
# share of time in which a further group is available while its zone is up
DEEPER = 0.55
GROUPS = (1, 1, 2, 4)  # machines that come and go together, in turn
# of a pool whose groups come and go alone: machines of a group, stretches there and away
ALONE_GROUPS = (1, 2, 1, 4)
THERE_H: Mixture = ((0.55, 0.6), (0.45, 13.0))  # mean 6.2, median about 1
AWAY_H: Mixture = ((0.70, 0.4), (0.30, 2.5))  # mean 1.0, median about .45
# price / price on demand: the floor, and the centre of the walk above it
FLOOR = 0.30
ABOVE = 0.03
STEP_S, KEEP, SHAKE = 3_600.0, 0.999, 0.0025  # of ln(price)


def zones(
    rng: np.random.Generator, regions: Sequence[int], machines: int, until_s: float
) -> list[Steps]:
    """Draw the available machines over time in every zone, region by region.

    `regions` has the number of zones of each region, and `machines` is the most machines of a zone.
    """
    market = on_off(rng, MARKET, until_s)
    out = []
    for count in regions:
        region = on_off(rng, REGION, until_s)
        for _ in range(count):
            gate = combine(np.prod, [market, region, on_off(rng, UP / (REGION * MARKET), until_s)])
            parts = []
            for turn, size in enumerate(_group_sizes(machines, GROUPS)):
                group = (
                    on_off(rng, DEEPER, until_s)
                    if turn
                    else Steps(np.zeros(1), np.ones(1, np.int64))
                )
                parts.append(Steps(group.at_s, group.value * size))
            out.append(combine(np.prod, [gate, combine(np.sum, parts)]))
    return out


def _group_sizes(machines: int, sizes: tuple[int, ...]) -> list[int]:
    """Return the machines of each group that comes and goes, of sizes in turn."""
    ends = np.minimum(np.cumsum(np.resize(sizes, machines)), machines)
    return [size for size in np.diff(ends, prepend=0).tolist() if size]


def groups(rng: np.random.Generator, machines: int, until_s: float) -> Steps:
    """Draw the available machines over time of one pool, whose groups come and go alone."""
    runs = 2 + int(2 * until_s / HOUR)
    parts = []
    for size in _group_sizes(machines, ALONE_GROUPS):
        ends = np.cumsum(_draw_in_turn(rng, THERE_H, AWAY_H, runs))
        ends = np.append(0.0, np.ceil(ends)[np.ceil(ends) < until_s])
        parts.append(Steps(ends, size * (1 - np.arange(len(ends)) % 2)))
    return combine(np.sum, parts)


def on_off(rng: np.random.Generator, up: float, until_s: float) -> Steps:
    """Draw a function that is 1 and 0 in turn, and 1 for a share `up` of the time.

    Its first value is 1 with the same probability.
    """
    gap = sum(share * mean for share, mean in GONE_H)
    mean = gap * up / (1.0 - up)
    long_h = (mean - SHORT * SHORT_H) / (1.0 - SHORT)
    runs: Mixture = ((SHORT, SHORT_H), (1.0 - SHORT, max(long_h, SHORT_H)))
    first = int(rng.random() < up)
    count = 4 + int(3 * until_s / HOUR / (mean + gap))
    while True:
        lengths = _draw_in_turn(rng, GONE_H, runs, count, first > 0)
        lengths[0] *= rng.random()  # the function starts somewhere inside a stretch
        ends = np.ceil(np.cumsum(lengths))
        if ends[-1] >= until_s:
            break
        count *= 2
    ends = np.unique(np.maximum(1.0, ends[ends < until_s]))  # two ends in one second cancel
    return Steps(np.append(0.0, ends), (first + np.arange(len(ends) + 1)) % 2)


def prices(rng: np.random.Generator, on_demand: float, until_s: float) -> Steps:
    """Draw times and dollars per GPU-hour.

    The logarithm is a first-order autoregression; the price is never below the floor.
    """
    at = np.arange(0.0, until_s, STEP_S)
    level = float(rng.normal(0.0, SHAKE / np.sqrt(1.0 - KEEP**2)))
    log = np.empty(len(at))
    for i, shock in enumerate(rng.normal(0.0, SHAKE, len(at)).tolist()):
        level = KEEP * level + shock
        log[i] = level
    share = np.maximum(FLOOR, (FLOOR + ABOVE) * np.exp(log))
    return Steps(at, np.round(share * on_demand, 3))


def _draw_in_turn(
    rng: np.random.Generator, one: Mixture, other: Mixture, count: int, ends_with_one: bool = False
) -> Floats:
    """Draw the lengths in seconds of `count` stretches of each kind in turn."""
    both = []
    for kinds in (one, other):
        share, mean_h = np.array(kinds).T
        both.append(rng.exponential(HOUR * mean_h[rng.choice(len(kinds), count, p=share)]))
    return np.stack(both[::-1] if ends_with_one else both, axis=1).ravel()


def combine(by: Callable[..., Any], parts: Sequence[Steps]) -> Steps:
    """Return the product or the sum of functions, without steps that change nothing."""
    at = np.unique(np.concatenate([p.at_s for p in parts]))
    value = by([p.at(at) for p in parts], axis=0)
    moves = begins_run(value)
    return Steps(at[moves], value[moves])
