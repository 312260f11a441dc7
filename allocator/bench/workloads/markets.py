"""Generators of workloads on clusters with spot machines, which come and go."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from allocator.bench.workloads.parts import availability
from allocator.bench.workloads.parts.draw import Asked
from allocator.bench.workloads.parts.jobs import checkpoints, draw_demand
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload, columns_of
from allocator.io.markets.base import Steps
from allocator.objects import Json

DAY_S = 86_400.0
MACHINE = 4  # GPUs that come and go together, at least
REGIONS = (("west", 3), ("east", 2))  # zones of each
ZONES = [f"{region}-{'abc'[i]}" for region, count in REGIONS for i in range(count)]
LIFE_H = 6.2  # mean run of a zone: what policies believe a machine lives
SPOT_PER_H = 0.076  # revocations per GPU-hour: 0.61 per hour and machine of 8
RESERVED, V100, A100 = 1.95, 2.95, 3.67  # dollars per GPU-hour: reserved, and on demand
STARTUP_S = 78  # start of a GPU machine, median of 100


def _pool(name: str, gpus: int, market: str, price: float, per_h: float = 0) -> Json:
    """Return a row of pools.csv of V100s; a spot pool is a region of its own."""
    return {
        "pool": name,
        "gpu_type": "V100",
        "gpus": gpus,
        "gpus_per_node": MACHINE,
        "market": market,
        "price_per_gpu_hour": price,
        "region": name if market == "spot" else "",
        "startup_s": 0 if market == "reserved" else STARTUP_S,
        "revocations_per_gpu_hour": per_h,
    }


def _zone_pools(there: Sequence[Steps], walks: Sequence[Steps]) -> list[Json]:
    return [
        _pool(name, int(z.value[0]) * MACHINE, "spot", float(p[0]), round(1 / LIFE_H / MACHINE, 4))
        for name, z, (_, p) in zip(ZONES, there, walks, strict=True)
    ]


def _window(
    there: Sequence[Steps], others: int, gpu_s: float, end: float, faster: float = 1.0
) -> float:
    """Return when so many GPU-seconds were there, of some machines, so much faster, and others."""
    machines = availability.combine(np.sum, there)
    gpus = others + machines.value * MACHINE * faster
    given = np.append(0.0, np.cumsum(np.diff(machines.at_s, append=end) * gpus))
    return float(np.interp(gpu_s, given, np.append(machines.at_s, end)))


def _changes(
    names: Sequence[str], there: Sequence[Steps], walks: Sequence[Steps], until_s: float
) -> dict[str, Columns]:
    """Return capacity.csv and prices.csv: every change after time 0 up to until_s.

    `there` has the available machines of each pool, and `walks` its prices.
    """

    def rows(column: str, steps: Sequence[tuple[Any, Any]]) -> Columns:
        listed = sorted(
            (t, name, value)
            for name, (at, values) in zip(names, steps, strict=True)
            for t, value in zip(at[1:].tolist(), values[1:].tolist(), strict=True)
            if t <= until_s
        )
        return {key: [row[i] for row in listed] for i, key in enumerate(("at_s", "pool", column))}

    return {
        "capacity": rows("gpus", [(z.at_s, z.value * MACHINE) for z in there]),
        "prices": rows("price_per_gpu_hour", walks),
    }


def spot(asked: Asked) -> GeneratedWorkload:
    """Return reserved V100s, and A100s on the spot market, whose number and price change.

    Groups of spot machines are available and gone in turn. The lengths are mixtures of a short and
    a long exponential, since measured ones are heavy-tailed. (One V100 in us-west-2 was available
    88 % of the time, with runs of 6 hours in the mean and one in the median, and gaps of one hour
    and of 23 minutes.) A removal takes one machine or several, because groups have several sizes.
    The spot price varies slowly above a floor of 0.30 of the price on demand, as on AWS in 2020.

    `load` is the V100-hours demanded at the requested sizes / the V100-hours available while jobs
    are submitted.
    """
    rng, total = asked.rng, asked.total
    reserved = MACHINE * max(1, round(total * (1 / 3) / MACHINE))
    machines = max(1, round((total - reserved) / MACHINE))
    both = [{"gpu_type": "V100"}, {"gpu_type": "A100"}]
    _, training = draw_demand(asked, reserved, both)
    faster = training.speed_up["A100"]
    horizon = 3.0 * training.demand / (reserved * asked.load) + DAY_S
    there = availability.groups(rng, machines, horizon)
    window = _window([there], reserved, training.demand / asked.load, horizon, faster)
    until = 3.0 * window + DAY_S
    walk = availability.prices(rng, A100, until)
    submitted = asked.draw_submissions(window)
    wide = asked.draw_largest(training.requested, 16)
    first = int(there.value[0]) * MACHINE
    pools = [
        _pool("v100", reserved, "reserved", RESERVED) | {"gpus_per_node": 8},
        _pool("a100-spot", first, "spot", float(walk.value[0]), SPOT_PER_H) | {"gpu_type": "A100"},
    ]
    for pool in pools:
        del pool["region"]
    return training.workload(
        asked,
        window,
        submitted,
        wide,
        pools,
        checkpoints(asked.jobs),
        **_changes(["a100-spot"], [there], [walk], until),
    )


def zones(asked: Asked) -> GeneratedWorkload:
    """Return spot pools in five zones of two regions, with reserved and on-demand machines.

    All GPUs are V100s at list prices. A policy decides where jobs run and what replaces lost spot
    machines. Availability and prices of the zones come from availability.py. Every job has a
    deadline: its submission plus 1.5 to 4 times its run time at the requested size. It writes
    checkpoints, so that losing a machine costs minutes.

    `load` is the GPU-hours demanded at the requested sizes / the GPU-hours available, including
    on-demand ones.
    """
    rng, total = asked.rng, asked.total
    reserved = rented = MACHINE * max(1, round(total * 0.25 / MACHINE))
    machines = max(1, round((total - reserved - rented) / MACHINE / len(ZONES)))
    run_s, training = draw_demand(asked, reserved)
    horizon = 3.0 * training.demand / ((reserved + rented) * asked.load) + 4 * DAY_S
    there = availability.zones(rng, [count for _, count in REGIONS], machines, horizon)
    window = _window(there, reserved + rented, training.demand / asked.load, horizon)
    until = min(horizon, 3.0 * window + 2 * DAY_S)
    submitted = asked.draw_submissions(window)
    slack_s = rng.uniform(1.5, 4.0, asked.jobs) * run_s
    wide = asked.draw_largest(training.requested, 16)
    walks = [availability.prices(rng, V100, until) for _ in ZONES]
    pools = [
        _pool("reserved", reserved, "reserved", RESERVED),
        _pool("on-demand", rented, "on_demand", V100),
        *_zone_pools(there, walks),
    ]
    return training.workload(
        asked,
        window,
        submitted,
        wide,
        pools,
        {"deadline_s": np.ceil(submitted + slack_s), **checkpoints(asked.jobs)},
        **_changes(ZONES, there, walks, until),
    )


def deadlines(asked: Asked) -> GeneratedWorkload:
    """Return jobs with deadlines, on-demand machines without limit, and cheap spot zones.

    Spot machines cost a third of on-demand ones. All GPUs are V100s at list prices, in zones like
    those of `zones`. A policy decides only which machine to take and when to wait for a cheap one.
    Every job has a deadline: its submission plus 600 s plus 1.5 to 3 times its run time at the
    requested size. It writes checkpoints, so that losing a machine costs minutes.

    `load` is the GPU-hours demanded at the requested sizes / the GPU-hours available on spot;
    `gpus` are the spot GPUs when all are available.
    """
    rng, jobs = asked.rng, asked.jobs
    machines = max(1, round(asked.total / MACHINE / len(ZONES)))
    most = machines * MACHINE * len(ZONES)
    run_s, training = draw_demand(asked, most)
    wide = asked.draw_largest(training.requested, 16)
    slack_s = 600.0 + rng.uniform(1.5, 3.0, jobs) * run_s
    horizon = 6.0 * training.demand / (most * asked.load) + 8 * DAY_S
    there = availability.zones(rng, [count for _, count in REGIONS], machines, horizon)
    walks = [availability.prices(rng, V100, horizon) for _ in ZONES]
    window = max(1.0, _window(there, 0, training.demand / asked.load, horizon))
    submitted = asked.draw_submissions(window)
    # on-demand GPUs are always enough: 16 for each spot GPU
    plenty = 16 * MACHINE * int(max(z.value.max() for z in there)) * len(ZONES)
    pools = [_pool("on-demand", plenty, "on_demand", V100), *_zone_pools(there, walks)]
    return training.workload(
        asked,
        window,
        submitted,
        wide,
        pools,
        {"deadline_s": np.ceil(submitted + slack_s), **checkpoints(jobs)},
        **_changes(ZONES, there, walks, 3.0 * window + 2 * DAY_S),
    )


SPOT_JOBS: Mapping[Any, float] = {0: 0.2, 4: 0.2, None: 0.6}
"""Share of the jobs by the most GPUs on spot."""


def exposure(asked: Asked) -> GeneratedWorkload:
    """Return the jobs of `deadlines`, with limits on what tenants hold in one spot zone.

    Two tenants have guaranteed GPUs and a limit, as a share of these, on what they hold on the spot
    machines of any one zone. The third tenant has neither. A fifth of the jobs never runs on spot
    GPUs, and another fifth on at most 4.
    """
    f = asked.figures
    workload = deadlines(replace(asked, name="deadlines"))
    rng = np.random.default_rng([asked.seed, 1])
    tenants = columns_of(f["tenants"])
    owned: Columns = {
        **workload.tables["workload.csv"],
        "tenant": rng.choice(tenants["tenant"], asked.jobs, p=f["shares"]),
        "max_spot_gpus": rng.choice(list(SPOT_JOBS), asked.jobs, p=list(SPOT_JOBS.values())),
    }
    tables = {**workload.tables, "workload.csv": owned, "tenants.csv": tenants}
    return replace(workload, name="exposure", tables=tables)
