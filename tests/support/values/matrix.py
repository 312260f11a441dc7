"""The matrix of features: importing this puts all of them on the list `FEATURES`.

Most features are in features.toml; here are those that need to look at the round. matrix_rounds.py
has the rounds; test_value_matrix.py crosses features with all objectives, and fails for a column
of the input that no feature changes.
"""

from __future__ import annotations

from matrix_rounds import (
    BASE,
    CROSSED,
    EVERY,
    FEATURES,
    Tables,
    apply,
    base,
    feature,
    made,
    schema,
)

__all__ = ["BASE", "CROSSED", "EVERY", "FEATURES", "Tables", "base", "made", "schema"]


@feature
def passed_over(r: Tables) -> None:
    """No job may be stopped; one of 2 GPUs came first, and the running job leaves one GPU."""
    r.config["reserve_after_s"] = r.pick(0.0, 50.0)
    r.config["due_after_runs"] = r.pick(0.01, 1.0)
    r.pools[0]["gpus"] = 3
    for j in r.jobs:
        j["preemptible"] = False
    r.jobs[1] |= {"max_gpus": 1, "requested_gpus": 1}
    r.jobs[2] |= {"submitted_s": 900.0, "min_gpus": 2, "gpu_types": ["A"]}


@feature
def requests_without_a_rate(r: Tables) -> None:
    r.rates[:] = [row for row in r.rates if row["gpus"] != 4]
    r.jobs[1] |= {"requested_gpus": 4}


@feature
def little_memory(r: Tables) -> None:
    r.pools[0]["memory_gb"], r.pools[1]["memory_gb"] = 16.0, 10.0
    for row in r.rates:
        row["memory_gb"] = r.pick(8.0, 12.0, 20.0) if row["gpus"] < 4 else None


@feature
def priced_memory_of_rows(r: Tables) -> None:
    """More GPUs need less memory of each, and may cost less; dollars count in every objective."""
    r.config |= {"dollar_price": r.pick(0.02, 0.3), "budget_per_hour": r.pick(6.0, 12.0)}
    for p in r.pools:
        p |= {"price_per_gb_hour": r.pick(0.1, 0.4), "memory_gb": 40.0}
    for row in r.rates:
        row["memory_gb"] = r.pick(20.0, 30.0) / row["gpus"] ** r.pick(1, 2)
    r.rates += [row | {"memory_gb": 50.0, "work_per_s": 2 * row["work_per_s"]} for row in r.rates]


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
def measured_on_one_gpu(r: Tables) -> None:
    """Model m is measured on one GPU only, n not at all on B; curves may say the rest."""
    r.rates[:] = [
        row for row in r.rates if (row["model"], row["gpu_type"]) == ("n", "A") or row["gpus"] == 1
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
def pairs_in_passes(r: Tables) -> None:
    apply("running_pairs", r)
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


@feature(acts=EVERY - {"utility"})
def learned_sizes(r: Tables) -> None:
    apply("unknown_sizes", r)
    size = r.jobs[0]["remaining_work"]
    r.further["finished"] = [
        {"model": "m", "total_work": size * float(r.rng.uniform(0.3, 3.0))}
        for _ in range(int(r.rng.integers(1, 20)))
    ]


@feature
def exploring_where_memory_differs(r: Tables) -> None:
    apply("curve_amdahl", r)
    r.jobs[0]["pool"] = "p1"  # one size has two speeds, by pool
    r.pools[0]["memory_gb"], r.pools[1] = 16.0, r.pools[1] | {"gpu_type": "A", "memory_gb": 10.0}
    r.rates[:] = [
        row | {"memory_gb": gb, "work_per_s": row["work_per_s"] * speed}
        for row in r.rates
        for gb, speed in ((12.0, 1.0), (8.0, 0.6))
    ]
    r.config["profiling"] = {"share": 1.0}
