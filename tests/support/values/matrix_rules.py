"""Features of tenants, nodes, pairs and config.toml, see matrix.py."""

from __future__ import annotations

import numpy as np
from matrix_cluster import by_curve
from matrix_jobs import old_jobs
from matrix_rounds import EVERY, Tables, feature, of, pick


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


def tree(r: Tables) -> None:
    """Tenants t and u below "dept"."""
    owners(r)
    r.tenants.append({"tenant": "dept"})
    for row in r.tenants[:2]:
        row["parent"] = "dept"


@feature("tenants.csv: parent", "tenants.csv: max_gpus")
def quotas_of_trees(rng: np.random.Generator, r: Tables) -> None:
    tree(r)
    r.tenants[1]["max_gpus"], r.tenants[2]["max_gpus"] = 2, 3


@feature("tenants.csv: parent", "tenants.csv: budget_per_hour", "tenants.csv: guaranteed_gpus")
def budgets_of_trees(rng: np.random.Generator, r: Tables) -> None:
    tree(r)
    r.tenants[2] |= {"budget_per_hour": 2.0, "guaranteed_gpus": 2}


@feature(*of("quotas.csv", "tenant", "gpu_type", "max_gpus"))
def quotas_by_type(rng: np.random.Generator, r: Tables) -> None:
    tree(r)
    r.further["quotas"] = [
        {"tenant": "dept", "gpu_type": "A", "max_gpus": 2},
        {"tenant": "t", "gpu_type": "B", "max_gpus": 1},
    ]


@feature(*of("quotas.csv", "pool", "guaranteed_gpus"))
def guarantees_by_pool(rng: np.random.Generator, r: Tables) -> None:
    tree(r)
    r.further["quotas"] = [
        {"tenant": "u", "pool": "p0", "guaranteed_gpus": 3},
        {"tenant": "dept", "guaranteed_gpus": 5},
    ]
    r.jobs[1]["weight"] = 1e-3


@feature(*of("quotas.csv", "lend_gpus", "guaranteed_gpus"))
def gpus_not_lent(rng: np.random.Generator, r: Tables) -> None:
    tree(r)
    r.tenants.append({"tenant": "idle", "parent": pick(rng, None, "dept")})
    r.further["quotas"] = [
        {"tenant": "idle", "gpu_type": "A", "guaranteed_gpus": 3, "lend_gpus": 1},
        {"tenant": "idle", "pool": "p1", "guaranteed_gpus": 2, "lend_gpus": 1},
        {"tenant": "u", "gpu_type": "A", "guaranteed_gpus": 2, "lend_gpus": 1},
        {"tenant": "dept", "guaranteed_gpus": 3, "lend_gpus": 2},
    ]


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


@feature(
    *of("nodes.csv", "rack", "cpus", "host_memory_gb"),
    *of("placements.csv", "job_id", "node", "gpus"),
    *of("jobs.csv", "cpus_per_gpu", "host_memory_gb_per_gpu", "placement"),
    "[topology]: levels",
    acts=(),
)
def places(rng: np.random.Generator, r: Tables) -> None:
    """One node holds all jobs of its pool, so nodes change nothing."""
    r.config["topology"] = {"levels": ["rack"]}
    node = {"node": "n", "pool": "p0", "gpus": r.pools[0]["gpus"], "rack": "r"}
    r.further["nodes"] = [node | {"cpus": 64, "host_memory_gb": 512}]
    r.further["placements"] = [{"job_id": "j0", "node": "n", "gpus": 2}]
    for j in r.jobs:
        j |= {"cpus_per_gpu": 2, "host_memory_gb_per_gpu": 8, "placement": "same_rack"}


@feature("jobs.csv: gpu_fraction", "placements.csv: gpu")
def shares_of_gpus(rng: np.random.Generator, r: Tables) -> None:
    """A share of a GPU; the pool without nodes gives it a whole one."""
    one = {"max_gpus": 1, "min_gpus": 1, "requested_gpus": 1, "gpu_fraction": 0.5}
    r.jobs[0] |= one | {"state": "running", "pool": "p0", "gpus": 1}
    r.further["nodes"] = [{"node": "n", "pool": "p0", "gpus": r.pools[0]["gpus"]}]
    r.further["placements"] = [{"job_id": "j0", "node": "n", "gpus": 1, "gpu": 0}]


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


@feature("jobs.csv: best_effort", *of("pools.csv", "sharing", "isolation"))
def best_effort(rng: np.random.Generator, r: Tables) -> None:
    shared_gpus(rng, r)
    for p in r.pools:
        p |= {"sharing": "best_effort", "isolation": pick(rng, 1.0, 1.1, 1.3)}
    for j in r.jobs[1::2]:
        j |= {"best_effort": True, "weight": 0.5}


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


@feature("config.toml: interval_s")
def long_rounds(rng: np.random.Generator, r: Tables) -> None:
    r.config["interval_s"] = pick(rng, 60.0, 1800.0)


@feature("config.toml: budget_per_hour")
def budgets(rng: np.random.Generator, r: Tables) -> None:
    r.config["budget_per_hour"] = pick(rng, 0.7, 2.7)


@feature("config.toml: restart_s")
def slow_restarts_of_all(rng: np.random.Generator, r: Tables) -> None:
    r.config["restart_s"] = pick(rng, 0.0, 150.0)


@feature(
    "config.toml: spread_pauses",
    *of("jobs.csv", "submitted_s", "restarts", "restart_s"),
    "pools.csv: startup_s",
)
def spread_pauses(rng: np.random.Generator, r: Tables) -> None:
    """Pauses that are longer than the round, of jobs of which some are young."""
    for j in r.jobs:
        j |= {"submitted_s": 1000.0 - pick(rng, 0, 2000, 20000), "restarts": pick(rng, 0, 1, 5)}
        j |= {"remaining_work": 50.0 * j["remaining_work"]}
    r.jobs[0] |= {"submitted_s": -19000.0, "restart_s": pick(rng, 60.0, 250.0, 700.0)}
    r.pools[1]["startup_s"] = pick(rng, 40.0, 500.0)
    r.config |= {"spread_pauses": True}


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


@feature(
    *of("finished.csv", "model", "total_work"),
    "config.toml: sizes",
    "jobs.csv: total_work",
    acts=EVERY - {"utility"},
)
def learned_sizes(rng: np.random.Generator, r: Tables) -> None:
    unknown_sizes(rng, r)
    size = r.jobs[0]["remaining_work"]
    r.further["finished"] = [
        {"model": "m", "total_work": size * float(rng.uniform(0.3, 3.0))}
        for _ in range(int(rng.integers(1, 20)))
    ]


@feature(
    *of("jobs.csv", "target_loss", "loss_work", "loss_error", "total_work"),
    "config.toml: sizes",
    acts=EVERY - {"utility"},
)
def sizes_by_loss(rng: np.random.Generator, r: Tables) -> None:
    r.config |= {"sizes": pick(rng, "known", "predicted", "unknown")}
    for j in r.jobs[:2]:
        j["total_work"] = 1.4 * j["remaining_work"]
        j["target_loss"] = 0.5
        j["loss_work"] = j["remaining_work"] * float(rng.uniform(0.2, 1.2))
        j["loss_error"] = float(rng.uniform(0.0, 1.0))


@feature("config.toml: dollar_price")
def dollar_price(rng: np.random.Generator, r: Tables) -> None:
    r.config["dollar_price"] = pick(rng, 0.02, 0.3)


@feature(*of("[profiling]", "share", "rounds"), "models.csv: parameters")
def exploring(rng: np.random.Generator, r: Tables) -> None:
    by_curve("amdahl")(rng, r)
    r.config["profiling"] = {"share": 1.0, "rounds": 9.0}


@feature(
    "config.toml: unknown_tenants",
    "[horizon]: rounds",
    *of("[profiling]", "gpu_hours", "trial_s"),
    *of(
        "[rental]", "wider_share", "average_per_hour", "hours", "every_s", "repay_hours", "account"
    ),
    acts=(),
)
def keys_outside_the_round(rng: np.random.Generator, r: Tables) -> None:
    r.config |= {"horizon": {"rounds": 3}, "solver": {"threads": 1}, "unknown_tenants": "warn"}
    r.config["profiling"] = {"gpu_hours": 2.0, "trial_s": 90.0}
    r.config["rental"] = {"wider_share": 0.5, "average_per_hour": 2.0, "hours": 9, "every_s": 60}
    r.config["rental"] |= {"repay_hours": 99, "account": {"opened_s": 0.0, "at_s": 0.0}}


@feature("[profiling]: share", "pools.csv: memory_gb", "rates.csv: memory_gb")
def exploring_where_memory_differs(rng: np.random.Generator, r: Tables) -> None:
    by_curve("amdahl")(rng, r)
    r.jobs[0]["pool"] = "p1"  # one size has two speeds, by pool
    r.pools[0]["memory_gb"], r.pools[1] = 16.0, r.pools[1] | {"gpu_type": "A", "memory_gb": 10.0}
    r.rates[:] = [
        row | {"memory_gb": gb, "work_per_s": row["work_per_s"] * speed}
        for row in r.rates
        for gb, speed in ((12.0, 1.0), (8.0, 0.6))
    ]
    r.config["profiling"] = {"share": 1.0}
