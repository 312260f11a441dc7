"""Features of tenants, nodes, pairs and config.toml, see matrix.py."""

from __future__ import annotations

from matrix_cluster import by_curve
from matrix_jobs import old_jobs
from matrix_rounds import EVERY, Tables, feature


@feature
def changed_pools(r: Tables) -> None:
    r.further["prices"] = [
        {"at_s": 100, "pool": "p0", "price_per_gpu_hour": 5.0, "gpus": 8},
        {"at_s": 900, "pool": "p0", "gpus": 2},
        {"at_s": 950, "pool": "p1", "price_per_gpu_hour": 2},
    ]


@feature(acts=())
def announced_changes(r: Tables) -> None:
    r.further["prices"] = [{"at_s": 1100, "pool": "p0", "price_per_gpu_hour": 5.0, "gpus": 1}]


def owners(r: Tables) -> None:
    for j, name in zip(r.jobs, "tut", strict=True):
        j["tenant"] = name
    r.tenants[:] = [{"tenant": "t"}, {"tenant": "u"}]


@feature(acts=())
def named_tenants(r: Tables) -> None:
    owners(r)


@feature(acts=("fairness", "maxmin"))
def weights_of_tenants(r: Tables) -> None:
    owners(r)
    r.tenants[0]["weight"] = 4.0


@feature
def quotas(r: Tables) -> None:
    owners(r)
    r.tenants[0]["max_gpus"], r.tenants[1]["max_gpus"] = 2, 1


@feature
def guarantees(r: Tables) -> None:
    owners(r)
    r.tenants[1]["guaranteed_gpus"] = 4
    r.jobs[1]["weight"] = 1e-3


@feature
def budgets_of_tenants(r: Tables) -> None:
    owners(r)
    r.tenants[0]["budget_per_hour"], r.tenants[1]["budget_per_hour"] = 2.0, 0.5


def tree(r: Tables) -> None:
    """Tenants t and u below "dept"."""
    owners(r)
    r.tenants.append({"tenant": "dept"})
    for row in r.tenants[:2]:
        row["parent"] = "dept"


@feature
def quotas_of_trees(r: Tables) -> None:
    tree(r)
    r.tenants[1]["max_gpus"], r.tenants[2]["max_gpus"] = 2, 3


@feature
def budgets_of_trees(r: Tables) -> None:
    tree(r)
    r.tenants[2] |= {"budget_per_hour": 2.0, "guaranteed_gpus": 2}


@feature
def quotas_by_type(r: Tables) -> None:
    tree(r)
    r.further["quotas"] = [
        {"tenant": "dept", "gpu_type": "A", "max_gpus": 2},
        {"tenant": "t", "gpu_type": "B", "max_gpus": 1},
    ]


@feature
def guarantees_by_pool(r: Tables) -> None:
    tree(r)
    r.further["quotas"] = [
        {"tenant": "u", "pool": "p0", "guaranteed_gpus": 3},
        {"tenant": "dept", "guaranteed_gpus": 5},
    ]
    r.jobs[1]["weight"] = 1e-3


@feature
def gpus_not_lent(r: Tables) -> None:
    tree(r)
    r.tenants.append({"tenant": "idle", "parent": r.pick(None, "dept")})
    r.further["quotas"] = [
        {"tenant": "idle", "gpu_type": "A", "guaranteed_gpus": 3, "lend_gpus": 1},
        {"tenant": "idle", "pool": "p1", "guaranteed_gpus": 2, "lend_gpus": 1},
        {"tenant": "u", "gpu_type": "A", "guaranteed_gpus": 2, "lend_gpus": 1},
        {"tenant": "dept", "guaranteed_gpus": 3, "lend_gpus": 2},
    ]


@feature
def spot_by_region(r: Tables) -> None:
    owners(r)
    r.pools[0] |= {"market": "spot", "region": "west"}
    r.pools[1]["region"] = r.pick("west", "east")
    r.tenants[0]["max_spot_gpus"] = 2


@feature
def spot_by_share(r: Tables) -> None:
    owners(r)
    r.pools[0]["market"] = "spot"
    r.tenants[0] |= {"max_spot_share": 0.5, "guaranteed_gpus": 3}


@feature
def dollar_prices_of_tenants(r: Tables) -> None:
    owners(r)
    r.tenants[0]["dollar_price"], r.pools[0]["min_billing_s"] = 0.2, 900.0


@feature(acts=())
def long_run_budgets(r: Tables) -> None:
    owners(r)  # controllers and simulations make budgets of rounds of it
    r.tenants[0]["average_per_hour"] = 0.1
    r.tenants[1] |= {"amount": 3.0, "until_s": 9000.0}
    account = {"opened_s": 0.0, "at_s": 0.0}
    r.config["longrun"] = {
        **r.pick({"average_per_hour": 0.1}, {"amount": 1.0, "until_s": 9000.0}),
        "window_s": 7200.0,
        "account": account,
        "tenants": {"t": account},
    }


@feature
def drained_nodes(r: Tables) -> None:
    r.further["nodes"] = [
        {"node": "a", "pool": "p0", "gpus": 2},
        {"node": "c", "pool": "p0", "gpus": 1, "state": "down"},
        {"node": "b", "pool": "p0", "gpus": 4, "state": "drain"},
    ]


@feature(acts=())
def places(r: Tables) -> None:
    """One node holds all jobs of its pool, so nodes change nothing."""
    r.config["topology"] = {"levels": ["rack"]}
    node = {"node": "n", "pool": "p0", "gpus": r.pools[0]["gpus"], "rack": "r"}
    r.further["nodes"] = [node | {"cpus": 64, "host_memory_gb": 512}]
    r.further["placements"] = [{"job_id": "j0", "node": "n", "gpus": 2}]
    for j in r.jobs:
        j |= {"cpus_per_gpu": 2, "host_memory_gb_per_gpu": 8, "placement": "same_rack"}


@feature
def shares_of_gpus(r: Tables) -> None:
    """A share of a GPU; the pool without nodes gives it a whole one."""
    one = {"max_gpus": 1, "min_gpus": 1, "requested_gpus": 1, "gpu_fraction": 0.5}
    r.jobs[0] |= one | {"state": "running", "pool": "p0", "gpus": 1}
    r.further["nodes"] = [{"node": "n", "pool": "p0", "gpus": r.pools[0]["gpus"]}]
    r.further["placements"] = [{"job_id": "j0", "node": "n", "gpus": 1, "gpu": 0}]


@feature(acts=EVERY - {"makespan"})
def ageing(r: Tables) -> None:
    old_jobs(r)
    r.config["ageing_s"] = r.pick(600.0, 5000.0)
    r.further["received"] = [
        {"job_id": "j0", "gpu_type": "A", "seconds": 50.0},
        {"job_id": "j0", "gpu_type": "B", "seconds": 30.5},
    ]


@feature
def own_pauses(r: Tables) -> None:
    r.further["pauses"] = [
        {"model": "m", "from_gpus": 2, "to_gpus": 4, "pause_s": 5.0},
        {"model": "m", "from_gpus": 2, "to_gpus": 1, "pause_s": 200.0, "gpu_type": "A"},
        {"model": "m", "from_gpus": 2, "to_gpus": 1, "pause_s": 100.0},
    ]


@feature
def shared_gpus(r: Tables) -> None:
    for p in r.pools:
        p |= {"memory_gb": 16.0, "sharing": r.pick("any", "tenant")}
    for j in r.jobs:
        j |= {"memory_gb": r.pick(4.0, 7.0)}
    r.further["sharing"] = [
        {
            "model_a": a,
            "model_b": b,
            "gpu_type": t,
            "gpus": k,
            "slowdown_a": float(r.rng.uniform(1, 1.5)),
            "slowdown_b": float(r.rng.uniform(1, 1.5)),
        }
        for a, b in ("mm", "mn", "nn")
        for t in "AB"
        for k in (1, 4)
    ]


@feature
def best_effort(r: Tables) -> None:
    shared_gpus(r)
    for p in r.pools:
        p |= {"sharing": "best_effort", "isolation": r.pick(1.0, 1.1, 1.3)}
    for j in r.jobs[1::2]:
        j |= {"best_effort": True, "weight": 0.5}


@feature
def running_pairs(r: Tables) -> None:
    shared_gpus(r)
    r.jobs[2] |= {"state": "running", "pool": "p0", "gpus": 2, "shared_with": "j0"}


@feature
def pairs_in_passes(r: Tables) -> None:
    running_pairs(r)
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


@feature
def long_rounds(r: Tables) -> None:
    r.config["interval_s"] = r.pick(60.0, 1800.0)


@feature
def budgets(r: Tables) -> None:
    r.config["budget_per_hour"] = r.pick(0.7, 2.7)


@feature
def slow_restarts_of_all(r: Tables) -> None:
    r.config["restart_s"] = r.pick(0.0, 150.0)


@feature
def spread_pauses(r: Tables) -> None:
    """Pauses that are longer than the round, of jobs of which some are young."""
    for j in r.jobs:
        j |= {"submitted_s": 1000.0 - r.pick(0, 2000, 20000), "restarts": r.pick(0, 1, 5)}
        j |= {"remaining_work": 50.0 * j["remaining_work"]}
    r.jobs[0] |= {"submitted_s": -19000.0, "restart_s": r.pick(60.0, 250.0, 700.0)}
    r.pools[1]["startup_s"] = r.pick(40.0, 500.0)
    r.config |= {"spread_pauses": True}


@feature
def no_changes(r: Tables) -> None:
    r.jobs[0] |= {"gpus": 1}
    r.config["max_changes"] = 0


@feature(acts=EVERY - {"utility"})
def predicted_sizes(r: Tables) -> None:
    r.jobs[0]["total_work"] = 3 * r.jobs[0]["remaining_work"]
    r.config |= {"sizes": "predicted", "size_error": r.pick(0.3, 1.0)}


@feature(acts=EVERY - {"utility"})
def unknown_sizes(r: Tables) -> None:
    r.jobs[0]["total_work"] = 1.4 * r.jobs[0]["remaining_work"]
    r.config |= {"sizes": "unknown"}


@feature(acts=EVERY - {"utility"})
def learned_sizes(r: Tables) -> None:
    unknown_sizes(r)
    size = r.jobs[0]["remaining_work"]
    r.further["finished"] = [
        {"model": "m", "total_work": size * float(r.rng.uniform(0.3, 3.0))}
        for _ in range(int(r.rng.integers(1, 20)))
    ]


@feature(acts=EVERY - {"utility"})
def sizes_by_loss(r: Tables) -> None:
    r.config |= {"sizes": r.pick("known", "predicted", "unknown")}
    for j in r.jobs[:2]:
        j["total_work"] = 1.4 * j["remaining_work"]
        j["target_loss"] = 0.5
        j["loss_work"] = j["remaining_work"] * float(r.rng.uniform(0.2, 1.2))
        j["loss_error"] = float(r.rng.uniform(0.0, 1.0))


@feature
def dollar_price(r: Tables) -> None:
    r.config["dollar_price"] = r.pick(0.02, 0.3)


@feature
def exploring(r: Tables) -> None:
    by_curve("amdahl")(r)
    r.config["profiling"] = {"share": 1.0, "rounds": 9.0}


@feature(acts=())
def keys_outside_the_round(r: Tables) -> None:
    r.config |= {"horizon": {"rounds": 3}, "unknown_tenants": "warn"}
    r.config["profiling"] = {"gpu_hours": 2.0, "trial_s": 90.0}
    r.config["rental"] = {"wider_share": 0.5, "average_per_hour": 2.0, "hours": 9, "every_s": 60}
    r.config["rental"] |= {"repay_hours": 99, "account": {"opened_s": 0.0, "at_s": 0.0}}


@feature
def exploring_where_memory_differs(r: Tables) -> None:
    by_curve("amdahl")(r)
    r.jobs[0]["pool"] = "p1"  # one size has two speeds, by pool
    r.pools[0]["memory_gb"], r.pools[1] = 16.0, r.pools[1] | {"gpu_type": "A", "memory_gb": 10.0}
    r.rates[:] = [
        row | {"memory_gb": gb, "work_per_s": row["work_per_s"] * speed}
        for row in r.rates
        for gb, speed in ((12.0, 1.0), (8.0, 0.6))
    ]
    r.config["profiling"] = {"share": 1.0}
