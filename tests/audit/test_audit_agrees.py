"""The audit agrees with a second reading of the rules (second_reading.py), written on plain
rows with loops.

Tiny random rounds with every rule and broken clusters; plans drawn from what looks plausible, legal
or not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from builders import problem
from examples import count
from second_quotas import rights, usable
from second_reading import Option, Row
from second_values import Reading
from test_audit import plan

from allocator.audit import audit
from allocator.domain.allocation import Repairs
from allocator.options.instance_building import compile_round
from formulations.objectives import BUILT_IN as OBJECTIVES


def context(rng: np.random.Generator) -> Reading:
    """Two to four jobs on one or two small pools, some already broken."""

    def pick(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    pools = [
        {
            "pool": f"p{i}",
            "gpu_type": pick("A", "B"),
            "gpus": pick(2, 3, 4, 6, 8),
            "gpus_per_node": pick(2, 4, 8),
            "price_per_gpu_hour": pick(0.0, 0.7, 2.1),
            "startup_s": pick(0, 20, 400),
            "market": pick("reserved", "on_demand", "spot", "spot"),
            "region": pick("west", "east"),
            "min_billing_s": pick(0, 0, 250),
            "availability": pick(0.4, 0.7, 1.0),
        }
        for i in range(pick(1, 2))
    ]
    rates = [
        {"gpu_type": t, "gpus": k, "work_per_s": round(k**0.8 * pick(1.0, 1.7), 3)}
        for t in ("A", "B")
        for k in pick((1, 4, 8), (1, 2), (2, 3, 4))
    ]
    jobs = []
    for i in range(pick(2, 3, 4)):
        low, high = sorted((pick(1, 1, 2, 3), pick(2, 4, 8)))
        job = {
            "job_id": f"j{i}",
            "tenant": pick("t", "u"),
            "state": pick("queued", "running", "running", "paused", "held"),
            "min_gpus": low,
            "max_gpus": high,
            "requested_gpus": pick(low, high),
            "sizes": pick([], [], sorted({low, high, min(high, low + 1)})),
            "gpu_types": pick([], [], ["A"], ["A", "B"]),
            "max_spot_gpus": pick(None, None, None, 0, 2),
            "weight": pick(1.0, 2.5),
            "remaining_work": pick(50.0, 3000.0),
            "restart_s": pick(0, 30),
            "deadline_s": pick(None, 200, 700, 2000),
            "submitted_s": -pick(0.0, 0.0, 900.0),
            "attained_gpu_s": pick(0.0, 1500.0),
            "restarts": pick(0, 0, 3),
            "preemptible": pick(True, True, False),
            "resizes_left": pick(None, None, 0, 2),
            "after": pick([], [], ["j0"], ["gone"]) if i else [],
            "pool": None,
            "gpus": None,
        }
        job["total_work"] = job["remaining_work"] * pick(1.0, 1.0, 3.0)
        if job["state"] == "running":
            job |= {"pool": pick(*pools)["pool"], "gpus": pick(1, 2, 3, 4)}
        jobs.append(job)
    tenants = [
        {
            "tenant": t,
            "weight": pick(1.0, 1.0, 3.0),
            "max_gpus": pick(4, 8, 12),
            "guaranteed_gpus": pick(0, 0, 3, 4),
            "budget_per_hour": pick(math.inf, math.inf, 3.0),
            "max_spot_gpus": pick(None, None, 2, 4),
            "max_spot_share": pick(None, None, None, 0.5),
            "dollar_price": pick(0.0, 0.0, 0.3),
        }
        for t in ("t", "u")
    ]
    config = {
        "interval_s": 300.0,
        "now_s": 0.0,
        "objective": pick(
            "progress",
            "throughput",
            "response",
            "cost",
            "completion",
            "progress=2,response=0.5",
            "completion > progress",
            "progress > cost=3,throughput > response",
            "utility",
            "fairness",
            "maxmin",
            "makespan",
            "flow",
            "flow > progress",
            "tardiness",
            "tardiness > throughput",
        ),
        "dollar_price": pick(0.0, 0.0, 0.5),
        "budget_per_hour": pick(math.inf, 5.0, 8.4),
        "max_changes": pick(0, 1, 99),
        "spread_pauses": pick(False, True),
    }
    return Reading(jobs, pools, rates, tenants, config)


def drawn(reading: Reading, rng: np.random.Generator) -> dict[str, Option]:
    """A plan: mostly keeps and options, now and then anything."""
    gets: dict[str, Option] = {}
    for j in reading.jobs:
        option_table: list[Option | None] = [None, *reading.options(j)]
        held = reading.held(j)
        if held and rng.random() < 0.6:
            option_table = [held]
        elif rng.random() < 0.05:
            option_table = [(reading.pools[0]["pool"], k) for k in range(1, 6)]
        got = option_table[int(rng.integers(len(option_table)))]
        if got:
            gets[j["job_id"]] = got
    return gets


def cells(rows: list[Row]) -> list[Row]:
    return [{k: None if v in ([], math.inf) else v for k, v in row.items()} for row in rows]


@pytest.mark.parametrize("part", range(4))
def test_second_reading_agrees(part: int) -> None:
    """Same verdict on every plan, same value of every legal one; both verdicts come up often."""
    rng = np.random.default_rng(part)
    verdicts = []
    for _ in range(count(30, 60)):
        r = context(rng)
        p = problem(
            cells(r.jobs),
            cells(r.pools),
            r.rates,
            tenants=cells(r.tenants),
            config={k: v for k, v in r.config.items() if v != math.inf},
        )
        gone = r.released()
        mended = Repairs(
            np.array([j["job_id"] in gone for j in r.jobs]),
            max(r.config["max_changes"], r.forced(gone)),
            np.array([usable(r, right) for right in rights(r)]),
        )
        for _ in range(8):
            gets = drawn(r, rng)
            told = audit(p, plan(p, gets), mended)
            legal = r.legal(gets, gone)
            assert (not told.faults) == legal, (r, gets, told.faults)
            verdicts.append(legal)
            if legal:
                option_value = [
                    r.option_value(j, gets[j["job_id"]]) if j["job_id"] in gets else 0.0
                    for j in r.jobs
                ]
                assert told.value.tolist() == pytest.approx(option_value, rel=1e-12)
                assert told.objective_value == pytest.approx(sum(option_value), rel=1e-12)
    assert 0.1 < np.mean(verdicts) < 0.9


@pytest.mark.parametrize(
    "objective", [*OBJECTIVES, "progress=2,utility=0.5", "fairness > cost", "cost > completion"]
)
def test_what_a_policy_maximises_is_what_the_audit_counts(objective: str) -> None:
    """The value of every option of random rounds is that of the plan in which
    its job alone gets it.
    """
    rng = np.random.default_rng(5)
    seen = 0
    for _ in range(12):
        r = context(rng)
        p = problem(
            cells(r.jobs),
            cells(r.pools),
            r.rates,
            tenants=cells(r.tenants),
            config={**{k: v for k, v in r.config.items() if v != math.inf}, "objective": objective},
        )
        round_ = compile_round(p, prunes=False)
        m = round_.option_table
        for o in np.flatnonzero(m.primary < 0).tolist():
            alone = plan(p, {p.jobs.job_id[m.job[o]]: (p.pools.pool[m.pool[o]], int(m.gpus[o]))})
            told = audit(p, alone, round_.repairs).value[m.job[o]]
            assert told == pytest.approx(float(m.value[o]), rel=1e-9, abs=1e-12)
            seen += 1
    assert seen > 30
