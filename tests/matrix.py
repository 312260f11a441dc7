"""Tiny generated rounds, one per feature of the input: every column of every file, and every key of
config.toml.

`FEATURES` is the list; test_value_matrix.py crosses it with all objectives, and fails for a column
that no feature names. A feature is a function that changes a round of three jobs and two pools so
that the feature is active there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from builders import snapshot
from second_reading import Row
from second_values import RISKY

from allocator.domain.columns import CONFIG, CONFIG_TABLES, OBJECTIVES, TABLES
from allocator.domain.problem import Problem
from allocator.domain.validate import validate

MIXED = (
    "progress=2,response=0.5",
    "completion > progress",
    "flow > cost",
    "tardiness > makespan,fairness=2",
    "progress > cost=3,throughput > maxmin",
)
CROSSED = (*OBJECTIVES, *MIXED)  # single objectives, a sum, ranks
EVERY = frozenset(OBJECTIVES)


@dataclass
class Tables:
    """Rows of a round; further: tables by name."""

    jobs: list[Row]
    pools: list[Row]
    rates: list[Row]
    tenants: list[Row] = field(default_factory=list)
    config: Row = field(default_factory=dict)
    further: dict[str, list[Row]] = field(default_factory=dict)

    def problem(self) -> Problem:
        """The validated problem."""
        further = {
            name: [
                {k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()}
                for row in rows
            ]
            for name, rows in self.further.items()
        }
        return validate(
            snapshot(
                self.jobs,
                self.pools,
                self.rates,
                tenants=self.tenants or None,
                config=self.config,
                **further,
            )
        )


Change = Callable[[np.random.Generator, Tables], None]


@dataclass(frozen=True)
class Feature:
    """columns: "jobs.csv: weight", "config.toml: now_s", "[profiling]: share". acts: objectives in
    which some option, or the best plan, is worth something else with the feature than without; in
    all others nothing changes."""

    name: str
    columns: tuple[str, ...]
    acts: frozenset[str]
    change: Change


FEATURES: dict[str, Feature] = {}


def feature(*columns: str, acts: Any = EVERY) -> Callable[[Change], Change]:
    """Put a function on the list."""

    def put(change: Change) -> Change:
        FEATURES[change.__name__] = Feature(change.__name__, columns, frozenset(acts), change)
        return change

    return put


def of_jobs(*names: str) -> tuple[str, ...]:
    return tuple(f"jobs.csv: {name}" for name in names)


def of_pools(*names: str) -> tuple[str, ...]:
    return tuple(f"pools.csv: {name}" for name in names)


def of(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{file}: {name}" for name in names)


def schema() -> set[str]:
    """Every column of a snapshot and every key of config.toml, by the names of `Feature.columns`.
    """
    return (
        {f"{file}: {c.name}" for file, table in TABLES.items() for c in table.columns}
        | {f"config.toml: {c.name}" for c in CONFIG}
        | {f"[{name}]: {c.name}" for name, columns in CONFIG_TABLES.items() for c in columns}
    )


def pick(rng: np.random.Generator, *values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


BASE = frozenset(
    (
        *of_jobs(
            "job_id", "model", "submitted_s", "remaining_work", "max_gpus", "state", "pool", "gpus"
        ),
        *of_pools("pool", "gpu_type", "gpus", "price_per_gpu_hour", "market"),
        *of("rates.csv", "model", "gpu_type", "gpus", "work_per_s"),
        "config.toml: now_s",
        "config.toml: objective",
    )
)
"""In every round."""


def base(seed: int) -> Tables:
    """Three jobs, one of them running, two GPU types, one pool on demand and one of spot GPUs; a
    round of 300 s.

    Speeds, weights and what is left are uneven numbers, so that no two plans are worth the same by
    chance.
    """
    rng = np.random.default_rng([1, seed])
    pools = [
        {
            "pool": "p0",
            "gpu_type": "A",
            "gpus": pick(rng, 3, 4),
            "market": "on_demand",
            "price_per_gpu_hour": 1.3,
        },
        {
            "pool": "p1",
            "gpu_type": "B",
            "gpus": pick(rng, 2, 3),
            "market": "spot",
            "price_per_gpu_hour": 0.4,
        },
    ]
    rates = [
        {
            "model": m,
            "gpu_type": t,
            "gpus": k,
            "work_per_s": round(float(fast * k ** rng.uniform(0.6, 0.95)), 4),
        }
        for m in ("m", "n")
        for t, fast in (("A", 1.0), ("B", 0.55))
        for k in (1, 2, 4)
    ]
    jobs = [
        {
            "job_id": f"j{i}",
            "model": m,
            "submitted_s": 1000.0,
            "max_gpus": 4,
            "requested_gpus": 2,
            "remaining_work": round(float(np.exp(rng.uniform(5.5, 9.5))), 3),
        }
        for i, m in enumerate("mnm")
    ]
    jobs[0] |= {"state": "running", "pool": "p0", "gpus": 2}
    return Tables(jobs, pools, rates, config={"now_s": 1000.0})


def made(name: str, seed: int, onto: Tables | None = None) -> Tables:
    """The round of that seed with the feature active, or another round with the feature on top."""
    tables = deepcopy(base(seed) if onto is None else onto)
    FEATURES[name].change(np.random.default_rng([2, seed, *name.encode()]), tables)
    return tables


# ---------------------------------------------------------------------- jobs.csv


@feature("jobs.csv: remaining_work", acts=EVERY - {"utility"})
def ends_in_this_round(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[1]["remaining_work"], r.jobs[0]["remaining_work"] = 40.0, 170.0


@feature("jobs.csv: submitted_s", acts=("fairness", "maxmin", "flow"))
def old_jobs(rng: np.random.Generator, r: Tables) -> None:
    for j in r.jobs:
        j["submitted_s"] = 1000.0 - float(rng.uniform(100, 9000))


@feature("jobs.csv: total_work", acts=("fairness", "maxmin", "flow"))
def done_before(rng: np.random.Generator, r: Tables) -> None:
    old_jobs(rng, r)
    for j in r.jobs:
        j["total_work"] = j["remaining_work"] * float(rng.uniform(1, 3))


@feature("jobs.csv: state", acts=())
def paused(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[1]["state"] = "paused"  # starts like one that never ran


@feature("jobs.csv: state")
def held_by_its_owner(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[2]["state"] = "held"


@feature("jobs.csv: after")
def after_others(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[2]["after"] = ["j1", "gone"]


@feature("jobs.csv: after", "jobs.csv: deadline_s")
def stages_with_a_deadline(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[2] |= {"after": ["j1", "j0"], "deadline_s": 1000.0 + float(rng.uniform(2000, 30000))}


@feature("jobs.csv: min_gpus")
def wide_jobs(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[1]["min_gpus"] = 2


@feature("jobs.csv: max_gpus")
def narrow_jobs(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[1] |= {"max_gpus": 1, "requested_gpus": 1}


@feature("jobs.csv: requested_gpus", acts=("throughput", "cost"))
def other_requests(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["requested_gpus"], r.jobs[1]["requested_gpus"] = 1, 3


@feature("jobs.csv: requested_gpus", "jobs.csv: min_gpus", acts=EVERY)
def requests_without_a_rate(rng: np.random.Generator, r: Tables) -> None:
    r.rates[:] = [row for row in r.rates if row["gpus"] != 4]
    r.jobs[1] |= {"requested_gpus": 4}


@feature("jobs.csv: sizes")
def listed_sizes(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["sizes"], r.jobs[1]["sizes"] = [1, 4], [3]


@feature("jobs.csv: gpu_types")
def one_type_only(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["gpu_types"], r.jobs[1]["gpu_types"] = ["B"], ["A"]


@feature("jobs.csv: weight", acts=EVERY - {"makespan"})
def weights(rng: np.random.Generator, r: Tables) -> None:
    for j in r.jobs:
        j["weight"] = float(rng.uniform(0.3, 4))


@feature("jobs.csv: deadline_s", acts=("cost", "tardiness"))
def deadlines(rng: np.random.Generator, r: Tables) -> None:
    for j in r.jobs:
        j["deadline_s"] = 1000.0 + float(rng.uniform(0.1, 4)) * j["remaining_work"]


@feature(
    "jobs.csv: deadline_s",
    "jobs.csv: total_work",
    "jobs.csv: checkpoint_every_s",
    acts=("cost", "tardiness", "fairness", "maxmin", "flow"),
)
def deadlines_on_spot(rng: np.random.Generator, r: Tables) -> None:
    done_before(rng, r)
    deadlines(rng, r)
    for j in r.jobs:
        j["checkpoint_every_s"] = 500.0


@feature("jobs.csv: preemptible")
def bound_to_stay(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["preemptible"] = False


@feature("jobs.csv: preemptible", "pools.csv: gpus")
def bound_to_lost_gpus(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["preemptible"], r.pools[0]["gpus"] = False, 1


@feature("jobs.csv: restart_s")
def slow_restarts(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["restart_s"] = pick(rng, 0.0, 120.0, 1000.0)


@feature("jobs.csv: resizes_left")
def no_resizes(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["resizes_left"] = 0


@feature(*of_jobs("checkpoint_s", "checkpoint_every_s"), acts=set(RISKY) - {"utility"})
def checkpoints(rng: np.random.Generator, r: Tables) -> None:
    for j in r.jobs:
        j |= {
            "checkpoint_s": pick(rng, 5.0, 20.0, 90.0),
            "checkpoint_every_s": pick(rng, 60.0, 300.0, 600.0),
        }


@feature("jobs.csv: max_spot_gpus")
def few_spot_gpus(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[1]["max_spot_gpus"], r.jobs[2]["max_spot_gpus"] = 0, 1


@feature(*of_jobs("synchronous", "checkpoint_s"), "pools.csv: revocations_per_gpu_hour", acts=RISKY)
def asynchronous_on_spot(rng: np.random.Generator, r: Tables) -> None:
    revocations(rng, r)
    for j in r.jobs:
        j |= {"synchronous": False, "checkpoint_s": 4.0}
    r.jobs[2]["checkpoint_every_s"] = 120.0


@feature("jobs.csv: attained_gpu_s", acts=("utility",))
def served_before(rng: np.random.Generator, r: Tables) -> None:
    for j in r.jobs:
        j["attained_gpu_s"] = float(rng.uniform(0, 5000))


@feature("jobs.csv: restarts", "jobs.csv: submitted_s", acts=("flow", "fairness", "maxmin"))
def restarted_before(rng: np.random.Generator, r: Tables) -> None:
    old_jobs(rng, r)
    for j in r.jobs:
        j["restarts"] = int(rng.integers(0, 9))


@feature(*of_jobs("largest_gpus", "every_s", "times"), acts=())
def columns_of_queues_and_policies(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0] |= {"largest_gpus": 4}
    r.jobs[1] |= {"every_s": 600.0, "times": 3}


@feature(
    *of("interactive.csv", "pool", "headroom_gpus", "shrinkable_share"),
    *of_jobs("interactive", "shrinkable"),
)
def headroom(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[2]["interactive"], r.jobs[1]["shrinkable"] = True, True
    r.further["interactive"] = [
        {"pool": "p0", "headroom_gpus": 2, "shrinkable_share": 0.5},
        {"pool": "p1", "headroom_gpus": 2},
    ]


@feature(*of("interactive.csv", "sessions_per_hour", "session_s", "session_gpus", "late_share"))
def headroom_for_sessions(rng: np.random.Generator, r: Tables) -> None:
    r.further["interactive"] = [
        {
            "pool": p,
            "sessions_per_hour": 2.0,
            "session_s": 500.0,
            "session_gpus": 2,
            "late_share": 0.2,
        }
        for p in ("p0", "p1")
    ]


# ---------------------------------------------------------------------- pools.csv


@feature("pools.csv: gpus_per_node")
def small_nodes(rng: np.random.Generator, r: Tables) -> None:
    for p in r.pools:
        p["gpus_per_node"] = 3


@feature("pools.csv: market", "pools.csv: price_per_gpu_hour", acts=("cost",))
def reserved_pools(rng: np.random.Generator, r: Tables) -> None:
    r.pools[0]["market"] = "reserved"


@feature("pools.csv: startup_s")
def slow_starts(rng: np.random.Generator, r: Tables) -> None:
    r.pools[0]["startup_s"], r.pools[1]["startup_s"] = (
        pick(rng, 20.0, 290.0),
        pick(rng, 70.0, 400.0),
    )


@feature("pools.csv: revocations_per_gpu_hour", acts=RISKY)
def revocations(rng: np.random.Generator, r: Tables) -> None:
    r.pools[1]["revocations_per_gpu_hour"] = pick(rng, 0.3, 2.0, 15.0)


@feature(
    "pools.csv: revocations_per_gpu_hour",
    *of_jobs("checkpoint_s", "checkpoint_every_s"),
    acts=RISKY,
)
def checkpoints_on_spot(rng: np.random.Generator, r: Tables) -> None:
    revocations(rng, r)
    for j in r.jobs:
        j["checkpoint_s"] = pick(rng, 5.0, 30.0)
    r.jobs[1]["checkpoint_every_s"] = 120.0


@feature("pools.csv: revocations_per_gpu_hour", acts=RISKY)
def hopeless_spot(rng: np.random.Generator, r: Tables) -> None:
    r.pools[1]["revocations_per_gpu_hour"] = 1e6  # nothing useful is left


@feature("pools.csv: lifetime_s", "jobs.csv: synchronous", acts=RISKY)
def lifetimes(rng: np.random.Generator, r: Tables) -> None:
    r.pools[1] |= {
        "lifetime_s": pick(rng, 900.0, 86400.0),
        "revocations_per_gpu_hour": pick(rng, 0.0, 0.5),
    }
    r.jobs[1]["synchronous"] = False
    for j in r.jobs:
        j["checkpoint_s"] = 4.0


@feature("pools.csv: availability", acts=("cost",))
def rare_spot(rng: np.random.Generator, r: Tables) -> None:
    r.pools[1]["availability"] = pick(rng, 0.1, 0.9)


@feature("pools.csv: min_billing_s", acts=("cost",))
def billed_by_the_hour(rng: np.random.Generator, r: Tables) -> None:
    for p in r.pools:
        p["min_billing_s"] = 3600.0


@feature("pools.csv: memory_gb", "rates.csv: memory_gb")
def little_memory(rng: np.random.Generator, r: Tables) -> None:
    r.pools[0]["memory_gb"], r.pools[1]["memory_gb"] = 16.0, 10.0
    for row in r.rates:
        row["memory_gb"] = pick(rng, 8.0, 12.0, 20.0) if row["gpus"] < 4 else None


# ---------------------------------------------------------------------- rates.csv, models.csv


@feature(
    "rates.csv: work_per_s", *of("rates.csv", "batch_size", "accumulation", "spread", "variant")
)
def alternatives(rng: np.random.Generator, r: Tables) -> None:
    r.rates += [
        row
        | {
            "work_per_s": row["work_per_s"] * float(rng.uniform(0.7, 1.3)),
            "batch_size": 64,
            "accumulation": 2,
            "spread": 1,
            "variant": "compressed",
        }
        for row in r.rates
    ]


@feature(*of("rates.csv", "batch_size", "accumulation", "spread", "variant"), acts=())
def labels_of_rates(rng: np.random.Generator, r: Tables) -> None:
    for row in r.rates:
        row |= {"batch_size": 128, "accumulation": 4, "spread": 2, "variant": "async"}


@feature("rates.csv: efficiency")
def efficiency(rng: np.random.Generator, r: Tables) -> None:
    for row in r.rates:
        row["efficiency"] = round(float(rng.uniform(0.4, 1)), 3)


CURVES: dict[str, Row] = {
    "amdahl": {"rate_1": 0.9, "parallel": 0.93},
    "power": {"rate_1": 1.1, "exponent": 0.8},
    "overhead": {"rate_1": 1.2, "c": 0.2},
    "capped": {"rate_1": 1.0, "cap": 2.5},
    "iteration": {"compute": 0.9, "sync": 0.4, "constant": 0.3, "min_batch": 24},
    "goodput": {
        "alpha_c": 0.1,
        "beta_c": 0.5,
        "alpha_r": 0.2,
        "beta_r": 0.1,
        "alpha_n": 0.5,
        "beta_n": 0.2,
        "gamma": 1.7,
        "batch_0": 24,
        "max_local": 10,
    },
}


def by_curve(kind: str) -> Change:
    """Model m is measured on one GPU only, n not at all on B; curves say the rest."""

    def change(rng: np.random.Generator, r: Tables) -> None:
        r.rates[:] = [
            row
            for row in r.rates
            if (row["model"], row["gpu_type"]) == ("n", "A") or row["gpus"] == 1
        ]
        r.further["models"] = [
            {
                "model": m,
                "gpu_type": t,
                "kind": kind,
                "parameters": CURVES[kind] | {"max_gpus": 4, "error": 0.2},
            }
            for m, t in (("m", "A"), ("m", "B"), ("n", "B"))
        ]

    change.__name__ = f"curve_{kind}"
    return change


for _kind in CURVES:
    feature(*of("models.csv", "model", "gpu_type", "kind", "parameters"))(by_curve(_kind))


# ---------------------------------------------------------------------- over time, tenants, nodes


@feature(*of("prices.csv", "at_s", "pool", "price_per_gpu_hour", "gpus"))
def changed_pools(rng: np.random.Generator, r: Tables) -> None:
    r.further["prices"] = [
        {"at_s": 100, "pool": "p0", "price_per_gpu_hour": 5.0, "gpus": 8},
        {"at_s": 900, "pool": "p0", "gpus": 2},
        {"at_s": 950, "pool": "p1", "price_per_gpu_hour": 2},
    ]


@feature(*of("prices.csv", "at_s", "pool", "price_per_gpu_hour", "gpus"), acts=())
def announced_changes(rng: np.random.Generator, r: Tables) -> None:
    r.further["prices"] = [{"at_s": 1100, "pool": "p0", "price_per_gpu_hour": 5.0, "gpus": 1}]


def owners(r: Tables) -> None:
    for j, name in zip(r.jobs, "tut", strict=True):
        j["tenant"] = name
    r.tenants[:] = [{"tenant": "t"}, {"tenant": "u"}]


@feature("jobs.csv: tenant", "tenants.csv: tenant", acts=())
def named_tenants(rng: np.random.Generator, r: Tables) -> None:
    owners(r)


@feature("tenants.csv: weight", acts=("fairness", "maxmin"))
def weights_of_tenants(rng: np.random.Generator, r: Tables) -> None:
    owners(r)
    r.tenants[0]["weight"] = 4.0


@feature("tenants.csv: max_gpus")
def quotas(rng: np.random.Generator, r: Tables) -> None:
    owners(r)
    r.tenants[0]["max_gpus"], r.tenants[1]["max_gpus"] = 2, 1


@feature("tenants.csv: guaranteed_gpus")
def guarantees(rng: np.random.Generator, r: Tables) -> None:
    owners(r)
    r.tenants[1]["guaranteed_gpus"] = 4
    r.jobs[1]["weight"] = 1e-3


@feature("tenants.csv: budget_per_hour")
def budgets_of_tenants(rng: np.random.Generator, r: Tables) -> None:
    owners(r)
    r.tenants[0]["budget_per_hour"], r.tenants[1]["budget_per_hour"] = 2.0, 0.5


@feature("tenants.csv: max_spot_gpus", "pools.csv: region")
def spot_by_region(rng: np.random.Generator, r: Tables) -> None:
    owners(r)
    r.pools[0] |= {"market": "spot", "region": "west"}
    r.pools[1]["region"] = pick(rng, "west", "east")
    r.tenants[0]["max_spot_gpus"] = 2


@feature("tenants.csv: max_spot_share", "tenants.csv: guaranteed_gpus")
def spot_by_share(rng: np.random.Generator, r: Tables) -> None:
    owners(r)
    r.pools[0]["market"] = "spot"
    r.tenants[0] |= {"max_spot_share": 0.5, "guaranteed_gpus": 3}


@feature("tenants.csv: dollar_price", "pools.csv: min_billing_s")
def dollar_prices_of_tenants(rng: np.random.Generator, r: Tables) -> None:
    owners(r)
    r.tenants[0]["dollar_price"], r.pools[0]["min_billing_s"] = 0.2, 900.0


@feature(
    *of("tenants.csv", "average_per_hour", "amount", "until_s"),
    *of("[longrun]", "average_per_hour", "amount", "until_s", "window_s", "account", "tenants"),
    acts=(),
)
def long_run_budgets(rng: np.random.Generator, r: Tables) -> None:
    owners(r)  # controllers and simulations make budgets of rounds of it
    r.tenants[0]["average_per_hour"] = 0.1
    r.tenants[1] |= {"amount": 3.0, "until_s": 9000.0}
    r.config["longrun"] = pick(
        rng, {"average_per_hour": 0.1, "window_s": 7200.0}, {"amount": 1.0, "until_s": 9000.0}
    )


@feature(*of("nodes.csv", "node", "pool", "gpus", "state"))
def drained_nodes(rng: np.random.Generator, r: Tables) -> None:
    r.further["nodes"] = [
        {"node": "a", "pool": "p0", "gpus": 2},
        {"node": "c", "pool": "p0", "gpus": 1, "state": "down"},
        {"node": "b", "pool": "p0", "gpus": 4, "state": "drain"},
    ]


@feature("nodes.csv: rack", *of("placements.csv", "job_id", "node", "gpus"), acts=())
def places(rng: np.random.Generator, r: Tables) -> None:
    r.further["nodes"] = [
        {"node": f"n{i}", "pool": "p0", "gpus": 1, "rack": "r"} for i in range(r.pools[0]["gpus"])
    ]
    r.further["placements"] = [{"job_id": "j0", "node": f"n{i}", "gpus": 1} for i in range(2)]


@feature(
    *of("received.csv", "job_id", "gpu_type", "seconds"),
    "config.toml: ageing_s",
    "jobs.csv: submitted_s",
    acts=EVERY - {"makespan"},
)
def ageing(rng: np.random.Generator, r: Tables) -> None:
    old_jobs(rng, r)
    r.config["ageing_s"] = pick(rng, 600.0, 5000.0)
    r.further["received"] = [
        {"job_id": "j0", "gpu_type": "A", "seconds": 50.0},
        {"job_id": "j0", "gpu_type": "B", "seconds": 30.5},
    ]


@feature(*of("pauses.csv", "model", "from_gpus", "to_gpus", "pause_s", "gpu_type"))
def own_pauses(rng: np.random.Generator, r: Tables) -> None:
    r.further["pauses"] = [
        {"model": "m", "from_gpus": 2, "to_gpus": 4, "pause_s": 5.0},
        {"model": "m", "from_gpus": 2, "to_gpus": 1, "pause_s": 200.0, "gpu_type": "A"},
        {"model": "m", "from_gpus": 2, "to_gpus": 1, "pause_s": 100.0},
    ]


@feature(
    *of("sharing.csv", "model_a", "model_b", "gpu_type", "gpus", "slowdown_a", "slowdown_b"),
    "pools.csv: sharing",
    "jobs.csv: memory_gb",
)
def shared_gpus(rng: np.random.Generator, r: Tables) -> None:
    for p in r.pools:
        p |= {"memory_gb": 16.0, "sharing": pick(rng, "any", "tenant")}
    for j in r.jobs:
        j |= {"memory_gb": pick(rng, 4.0, 7.0)}
    r.further["sharing"] = [
        {
            "model_a": a,
            "model_b": b,
            "gpu_type": t,
            "gpus": k,
            "slowdown_a": float(rng.uniform(1, 1.5)),
            "slowdown_b": float(rng.uniform(1, 1.5)),
        }
        for a, b in ("mm", "mn", "nn")
        for t in "AB"
        for k in (1, 4)
    ]


@feature("jobs.csv: shared_with")
def running_pairs(rng: np.random.Generator, r: Tables) -> None:
    shared_gpus(rng, r)
    r.jobs[2] |= {"state": "running", "pool": "p0", "gpus": 2, "shared_with": "j0"}


@feature("jobs.csv: shared_with", "rates.csv: accumulation", "rates.csv: memory_gb")
def pairs_in_passes(rng: np.random.Generator, r: Tables) -> None:
    running_pairs(rng, r)
    r.rates[:] = [
        row
        | {
            "memory_gb": 10.0 / passes + 2.0,
            "accumulation": passes,
            "work_per_s": row["work_per_s"] / (1 + 0.1 * passes),
        }
        for row in r.rates
        for passes in (1, 2)
    ]


# ---------------------------------------------------------------------- config.toml


@feature("config.toml: interval_s")
def long_rounds(rng: np.random.Generator, r: Tables) -> None:
    r.config["interval_s"] = pick(rng, 60.0, 1800.0)


@feature("config.toml: budget_per_hour")
def budgets(rng: np.random.Generator, r: Tables) -> None:
    r.config["budget_per_hour"] = pick(rng, 0.7, 2.7)


@feature("config.toml: restart_s")
def slow_restarts_of_all(rng: np.random.Generator, r: Tables) -> None:
    r.config["restart_s"] = pick(rng, 0.0, 150.0)


@feature("config.toml: max_changes")
def no_changes(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0] |= {"gpus": 1}
    r.config["max_changes"] = 0


@feature(
    "config.toml: sizes",
    "config.toml: size_error",
    "jobs.csv: total_work",
    acts=EVERY - {"utility"},
)
def predicted_sizes(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["total_work"] = 3 * r.jobs[0]["remaining_work"]
    r.config |= {"sizes": "predicted", "size_error": pick(rng, 0.3, 1.0)}


@feature("config.toml: sizes", "jobs.csv: total_work", acts=EVERY - {"utility"})
def unknown_sizes(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[0]["total_work"] = 1.4 * r.jobs[0]["remaining_work"]
    r.config |= {"sizes": "unknown"}


@feature("config.toml: dollar_price")
def dollar_price(rng: np.random.Generator, r: Tables) -> None:
    r.config["dollar_price"] = pick(rng, 0.02, 0.3)


@feature(*of("[profiling]", "share", "rounds"), "models.csv: parameters")
def exploring(rng: np.random.Generator, r: Tables) -> None:
    by_curve("amdahl")(rng, r)
    r.config["profiling"] = {"share": 1.0, "rounds": 9.0}


@feature("config.toml: unknown_tenants", "[horizon]: rounds", acts=())
def keys_beside_the_round(rng: np.random.Generator, r: Tables) -> None:
    r.config |= {"horizon": {"rounds": 3}, "solver": {"threads": 1}, "unknown_tenants": "warn"}
