"""Features of pools, speeds and what changes over time, see matrix.py."""

from __future__ import annotations

import numpy as np
from matrix_rounds import Change, Tables, feature, of, of_jobs, pick
from second_objectives import RISKY
from second_reading import Row


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


@feature("pools.csv: hazard_by_age", "jobs.csv: synchronous", acts=RISKY)
def revocations_by_age(rng: np.random.Generator, r: Tables) -> None:
    r.pools[1]["hazard_by_age"] = pick(rng, "0:8|0.5:0.4", "0:0.1|1:3")
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


@feature("pools.csv: price_per_gb_hour", "jobs.csv: memory_gb", acts=("cost",))
def priced_memory(rng: np.random.Generator, r: Tables) -> None:
    """The first pool has a price of memory, and all jobs need memory."""
    r.pools[0]["price_per_gb_hour"] = pick(rng, 0.03, 0.2)
    for j in r.jobs:
        j["memory_gb"] = pick(rng, 10.0, 24.0)


@feature("pools.csv: price_per_gb_hour", "rates.csv: memory_gb", "config.toml: dollar_price")
def priced_memory_of_rows(rng: np.random.Generator, r: Tables) -> None:
    """More GPUs need less memory of each, and may cost less; dollars count in every objective."""
    r.config |= {"dollar_price": pick(rng, 0.02, 0.3), "budget_per_hour": pick(rng, 6.0, 12.0)}
    for p in r.pools:
        p |= {"price_per_gb_hour": pick(rng, 0.1, 0.4), "memory_gb": 40.0}
    for row in r.rates:
        row["memory_gb"] = pick(rng, 20.0, 30.0) / row["gpus"] ** pick(rng, 1, 2)
    r.rates += [row | {"memory_gb": 50.0, "work_per_s": 2 * row["work_per_s"]} for row in r.rates]


@feature(*of_jobs("synchronous", "checkpoint_s"), "pools.csv: revocations_per_gpu_hour", acts=RISKY)
def asynchronous_on_spot(rng: np.random.Generator, r: Tables) -> None:
    revocations(rng, r)
    for j in r.jobs:
        j |= {"synchronous": False, "checkpoint_s": 4.0}
    r.jobs[2]["checkpoint_every_s"] = 120.0


@feature("pools.csv: straggler_cv")
def stragglers(rng: np.random.Generator, r: Tables) -> None:
    r.pools[0]["straggler_cv"], r.pools[1]["straggler_cv"] = pick(rng, 0.2, 1.0), 0.5
    r.jobs[1]["synchronous"] = False


@feature("jobs.csv: modes", "pools.csv: straggler_cv", "pools.csv: revocations_per_gpu_hour")
def modes(rng: np.random.Generator, r: Tables) -> None:
    revocations(rng, r)
    for p in r.pools:
        p |= {"straggler_cv": pick(rng, 0.1, 0.5, 1.0), "startup_s": 60.0}
    r.jobs[0] |= {"modes": ["bulk", "backup:1", "replicated:2"], "checkpoint_s": 5.0}
    r.jobs[1] |= {"modes": ["bulk", "asynchronous:0.8"], "checkpoint_s": 5.0}
    r.jobs[2] |= {"modes": ["backup:2", "bulk"], "checkpoint_every_s": 120.0}


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


@feature(
    *of("rates.csv", "compute_s", "codec_s", "volume_gb", "ratio"),
    "pools.csv: link_gb_s",
    "rates.csv: variant",
)
def codecs(rng: np.random.Generator, r: Tables) -> None:
    r.pools[0]["link_gb_s"], r.pools[1]["link_gb_s"] = pick(rng, 0.5, 50.0), 3.0
    for row in list(r.rates):
        row |= {"compute_s": 0.4, "volume_gb": 0.2 * (row["gpus"] - 1)}
        r.rates.append(row | {"codec_s": 0.05, "ratio": 8.0, "variant": "topk"})


@feature("rates.csv: observed", "config.toml: unknown_models")
def a_model_without_rates(rng: np.random.Generator, r: Tables) -> None:
    r.jobs[1]["model"], r.config["unknown_models"] = "x", "assume"
    r.rates.append({"model": "x", "gpu_type": "A", "gpus": 1, "work_per_s": 0.7, "observed": True})


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
