"""Features of pools, speeds and what changes over time, see matrix.py."""

from __future__ import annotations

from matrix_rounds import Change, Tables, feature
from second_objectives import RISKY
from second_reading import Row


@feature
def small_nodes(r: Tables) -> None:
    for p in r.pools:
        p["gpus_per_node"] = 3


@feature(acts=("cost",))
def reserved_pools(r: Tables) -> None:
    r.pools[0]["market"] = "reserved"


@feature
def slow_starts(r: Tables) -> None:
    r.pools[0]["startup_s"], r.pools[1]["startup_s"] = (
        r.pick(20.0, 290.0),
        r.pick(70.0, 400.0),
    )


@feature(acts=RISKY)
def revocations(r: Tables) -> None:
    r.pools[1]["revocations_per_gpu_hour"] = r.pick(0.3, 2.0, 15.0)


@feature(acts=RISKY)
def checkpoints_on_spot(r: Tables) -> None:
    revocations(r)
    for j in r.jobs:
        j["checkpoint_s"] = r.pick(5.0, 30.0)
    r.jobs[1]["checkpoint_every_s"] = 120.0


@feature(acts=RISKY)
def hopeless_spot(r: Tables) -> None:
    r.pools[1]["revocations_per_gpu_hour"] = 1e6  # nothing useful is left


@feature(acts=RISKY)
def lifetimes(r: Tables) -> None:
    r.pools[1] |= {
        "lifetime_s": r.pick(900.0, 86400.0),
        "revocations_per_gpu_hour": r.pick(0.0, 0.5),
    }
    r.jobs[1]["synchronous"] = False
    for j in r.jobs:
        j["checkpoint_s"] = 4.0


@feature(acts=RISKY)
def revocations_by_age(r: Tables) -> None:
    r.pools[1]["hazard_by_age"] = r.pick("0:8|0.5:0.4", "0:0.1|1:3")
    r.jobs[1]["synchronous"] = False
    for j in r.jobs:
        j["checkpoint_s"] = 4.0


@feature(acts=("cost",))
def rare_spot(r: Tables) -> None:
    r.pools[1]["availability"] = r.pick(0.1, 0.9)


@feature(acts=("cost",))
def billed_by_the_hour(r: Tables) -> None:
    for p in r.pools:
        p["min_billing_s"] = 3600.0


@feature
def little_memory(r: Tables) -> None:
    r.pools[0]["memory_gb"], r.pools[1]["memory_gb"] = 16.0, 10.0
    for row in r.rates:
        row["memory_gb"] = r.pick(8.0, 12.0, 20.0) if row["gpus"] < 4 else None


@feature(acts=("cost",))
def priced_memory(r: Tables) -> None:
    """The first pool has a price of memory, and all jobs need memory."""
    r.pools[0]["price_per_gb_hour"] = r.pick(0.03, 0.2)
    for j in r.jobs:
        j["memory_gb"] = r.pick(10.0, 24.0)


@feature
def priced_memory_of_rows(r: Tables) -> None:
    """More GPUs need less memory of each, and may cost less; dollars count in every objective."""
    r.config |= {"dollar_price": r.pick(0.02, 0.3), "budget_per_hour": r.pick(6.0, 12.0)}
    for p in r.pools:
        p |= {"price_per_gb_hour": r.pick(0.1, 0.4), "memory_gb": 40.0}
    for row in r.rates:
        row["memory_gb"] = r.pick(20.0, 30.0) / row["gpus"] ** r.pick(1, 2)
    r.rates += [row | {"memory_gb": 50.0, "work_per_s": 2 * row["work_per_s"]} for row in r.rates]


@feature(acts=RISKY)
def asynchronous_on_spot(r: Tables) -> None:
    revocations(r)
    for j in r.jobs:
        j |= {"synchronous": False, "checkpoint_s": 4.0}
    r.jobs[2]["checkpoint_every_s"] = 120.0


@feature
def stragglers(r: Tables) -> None:
    r.pools[0]["straggler_cv"], r.pools[1]["straggler_cv"] = r.pick(0.2, 1.0), 0.5
    r.jobs[1]["synchronous"] = False


@feature
def modes(r: Tables) -> None:
    revocations(r)
    for p in r.pools:
        p |= {"straggler_cv": r.pick(0.1, 0.5, 1.0), "startup_s": 60.0}
    r.jobs[0] |= {"modes": ["bulk", "backup:1", "replicated:2"], "checkpoint_s": 5.0}
    r.jobs[1] |= {"modes": ["bulk", "asynchronous:0.8"], "checkpoint_s": 5.0}
    r.jobs[2] |= {"modes": ["backup:2", "bulk"], "checkpoint_every_s": 120.0}


@feature
def alternatives(r: Tables) -> None:
    r.rates += [
        row
        | {
            "work_per_s": row["work_per_s"] * float(r.rng.uniform(0.7, 1.3)),
            "batch_size": 64,
            "accumulation": 2,
            "spread": 1,
            "variant": "compressed",
        }
        for row in r.rates
    ]


@feature(acts=())
def labels_of_rates(r: Tables) -> None:
    for row in r.rates:
        row |= {"batch_size": 128, "accumulation": 4, "spread": 2, "variant": "async"}


@feature
def codecs(r: Tables) -> None:
    r.pools[0]["link_gb_s"], r.pools[1]["link_gb_s"] = r.pick(0.5, 50.0), 3.0
    for row in list(r.rates):
        row |= {"compute_s": 0.4, "volume_gb": 0.2 * (row["gpus"] - 1)}
        r.rates.append(row | {"codec_s": 0.05, "ratio": 8.0, "variant": "topk"})


@feature
def a_model_without_rates(r: Tables) -> None:
    r.jobs[1]["model"], r.config["unknown_models"] = "x", "assume"
    r.rates.append({"model": "x", "gpu_type": "A", "gpus": 1, "work_per_s": 0.7, "observed": True})


@feature
def efficiency(r: Tables) -> None:
    for row in r.rates:
        row["efficiency"] = round(float(r.rng.uniform(0.4, 1)), 3)


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

    def change(r: Tables) -> None:
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
    feature(by_curve(_kind))
