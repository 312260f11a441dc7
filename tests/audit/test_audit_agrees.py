"""The audit agrees with a second reading of the rules (second_reading.py), written on plain
rows with loops.

Tiny rounds with several features at once, broken clusters and trees of quotas among them; plans
drawn from what looks plausible, legal or not.
"""

from __future__ import annotations

import numpy as np
import pytest
from examples import count, series
from matrix import CROSSED, FEATURES, Tables, base
from second_quotas import rights, usable
from second_reading import Option
from second_values import Reading
from test_audit import plan
from test_quotas import random_tree
from test_value_matrix import onto, reading

from allocator.audit import audit
from allocator.domain.allocation import Repairs
from allocator.options.instance_building import compile_round


def context(rng: np.random.Generator) -> Tables:
    """A tree of quotas, or a round with five features on top of each other; nobody shares GPUs, and
    pools have no nodes."""
    seed = int(rng.integers(10**6))
    if rng.random() < 0.3:
        return random_tree(seed)
    tables, lost = base(seed), ["bound_to_lost_gpus"] if rng.random() < 0.3 else []
    for name in [*lost, *rng.choice(list(FEATURES), 5)]:
        more = onto(str(name), seed, tables)
        if not more.further.keys() & {"sharing", "nodes"}:
            tables = more
    return tables


def drawn(r: Reading, rng: np.random.Generator) -> dict[str, Option]:
    """A plan: mostly keeps and options, now and then anything."""
    gets: dict[str, Option] = {}
    for j in r.jobs:
        choices: list[Option | None] = [None, *r.options(j)]
        held = r.held(j)
        if held and rng.random() < 0.6:
            choices = [held]
        elif rng.random() < 0.05:
            choices = [(r.pools[0]["pool"], k) for k in range(1, 6)]
        got = choices[int(rng.integers(len(choices)))]
        if got:
            gets[j["job_id"]] = got
    return gets


@pytest.mark.parametrize("part", series(range(4), 1))
def test_second_reading_agrees(part: int) -> None:
    """Same verdict on every plan, same value of every legal one; both verdicts come up often."""
    rng = np.random.default_rng(part)
    verdicts = []
    for n in range(count(30, 60)):
        tables = context(rng)
        tables.config["objective"] = CROSSED[n % len(CROSSED)]
        round_ = compile_round(tables.problem(), prunes=False)
        p, m = round_.problem, round_.option_table
        r = reading(tables, p.objective)
        gone = r.released()
        mended = Repairs(
            np.array([j["job_id"] in gone for j in r.jobs]),
            max(r.config["max_changes"], r.forced(gone)),
            np.array([usable(r, right) for right in rights(r)]),
        )
        for _ in range(8):
            gets = drawn(r, rng)
            tried = plan(p, gets)
            for o in np.flatnonzero((tried.pool[m.job] == m.pool) & (tried.gpus[m.job] == m.gpus)):
                tried.row[m.job[o]] = m.row[o]
            told = audit(p, tried, mended, round_.offer)
            legal = r.legal(gets, gone)
            assert (not told.faults) == legal, (tables, gets, told.faults)
            verdicts.append(legal)
            if legal:
                assert told.objective_value == pytest.approx(r.value_of(gets), rel=1e-9, abs=1e-9)
    assert 0.1 < np.mean(verdicts) < 0.9
