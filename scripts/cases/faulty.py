"""Small folders that break one rule each.

- `fault-*`: a rule of the input
- `infeasible-*`: hard rules that cannot all hold
- `repaired-*`: a hard rule that the present state breaks, and that the plan repairs

All are changes of one snapshot of four jobs without a fault. A folder may have an expected.txt with
the expected standard error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scripts.cases.folders import Folder, csv_of_rows

Rows = list[dict[str, Any]]


def sound_tables() -> tuple[dict[str, Any], dict[str, Rows]]:
    """Return config and tables of a snapshot without a fault: two pools, four jobs, two tenants."""
    jobs: Rows = [
        {
            "job_id": "bert-1",
            "model": "bert",
            "submitted_s": 100,
            "remaining_work": 9_000,
            "tenant": "red",
            "state": "running",
            "pool": "big",
            "gpus": 4,
            "min_gpus": 1,
            "max_gpus": 8,
        },
        {
            "job_id": "bert-2",
            "model": "bert",
            "submitted_s": 200,
            "remaining_work": 5_000,
            "tenant": "blue",
            "state": "queued",
            "min_gpus": 1,
            "max_gpus": 4,
        },
        {
            "job_id": "resnet-1",
            "model": "resnet50",
            "submitted_s": 300,
            "remaining_work": 2_000,
            "tenant": "blue",
            "state": "queued",
            "min_gpus": 1,
            "max_gpus": 4,
            "gpu_types": ["A100", "V100"],
        },
        {
            "job_id": "resnet-2",
            "model": "resnet50",
            "submitted_s": 400,
            "remaining_work": 800,
            "tenant": "red",
            "state": "paused",
            "min_gpus": 2,
            "max_gpus": 2,
        },
    ]
    pools: Rows = [
        {"pool": "big", "gpu_type": "A100", "gpus": 8, "price_per_gpu_hour": 2},
        {"pool": "small", "gpu_type": "V100", "gpus": 4, "price_per_gpu_hour": 0.5},
    ]
    rates: Rows = [
        {"model": m, "gpu_type": t, "gpus": k, "work_per_s": round(f * g * k**0.9, 3)}
        for m, f in (("bert", 1), ("resnet50", 2))
        for t, g in (("A100", 2), ("V100", 1))
        for k in (1, 2, 4, 8)
    ]
    tenants: Rows = [
        {"tenant": "red", "max_gpus": 8, "guaranteed_gpus": 2},
        {"tenant": "blue", "guaranteed_gpus": 1},
    ]
    config = {"now_s": 1_000, "interval_s": 300, "restart_s": 30}
    return config, {
        "jobs.csv": jobs,
        "pools.csv": pools,
        "rates.csv": rates,
        "tenants.csv": tenants,
    }


Change = Callable[[dict[str, Any], dict[str, Rows]], Mapping[str, bytes] | None]


def _set(file: str, row: int, **cells: Any) -> Change:
    """Return the change that overwrites cells of one row."""

    def change(_: dict[str, Any], tables: dict[str, Rows]) -> None:
        tables[file][row].update(cells)

    return change


def _all(*changes: Change) -> Change:
    """Combine several changes in one folder."""

    def change(config: dict[str, Any], tables: dict[str, Rows]) -> Mapping[str, bytes]:
        raw: dict[str, bytes] = {}
        for one in changes:
            raw |= one(config, tables) or {}
        return raw

    return change


def _rename(file: str, old: str, new: str) -> Change:
    def change(_: dict[str, Any], tables: dict[str, Rows]) -> None:
        tables[file] = [{new if k == old else k: v for k, v in row.items()} for row in tables[file]]

    return change


def _add(file: str, **cells: Any) -> Change:
    def change(_: dict[str, Any], tables: dict[str, Rows]) -> None:
        tables.setdefault(file, []).append(cells)

    return change


def _drop(file: str) -> Change:
    def change(_: dict[str, Any], tables: dict[str, Rows]) -> None:
        del tables[file]

    return change


def _text(file: str, edit: Callable[[bytes], bytes]) -> Change:
    """Return the change that edits the bytes of a written file."""

    def change(_: dict[str, Any], tables: dict[str, Rows]) -> Mapping[str, bytes]:
        return {file: edit(csv_of_rows(file, tables[file]).encode() if file in tables else b"")}

    return change


def _config(**keys: Any) -> Change:
    def change(config: dict[str, Any], _: dict[str, Rows]) -> None:
        config.update(keys)

    return change


JOBS, POOLS, RATES, TENANTS = "jobs.csv", "pools.csv", "rates.csv", "tenants.csv"
BERT_1, BERT_2, RESNET_1, RESNET_2 = range(4)

FAULTS: Mapping[str, Change] = {
    "column-misspelt": _rename(JOBS, "remaining_work", "remaning_work"),
    "model-misspelt": _set(JOBS, BERT_2, model="brt"),
    "gpu-type-misspelt": _set(JOBS, RESNET_1, gpu_types=["A100", "V10"]),
    "duplicate-job": _set(JOBS, RESNET_1, job_id="bert-2"),
    "min-above-max": _set(JOBS, BERT_2, min_gpus=8),
    "requested-outside-range": _set(JOBS, BERT_2, requested_gpus=16),
    "more-left-than-total": _set(JOBS, BERT_2, total_work=4_000),
    "negative-work": _set(JOBS, BERT_2, remaining_work=-5_000),
    "negative-price": _set(POOLS, 0, price_per_gpu_hour=-2),
    "not-a-number": _set(JOBS, BERT_2, remaining_work="nan"),
    "infinite-rate": _set(RATES, 3, work_per_s="inf"),
    "text-in-a-number": _set(JOBS, RESNET_1, max_gpus="four"),
    "fraction-of-a-gpu": _set(JOBS, RESNET_1, max_gpus=2.5),
    "running-without-pool": _set(JOBS, BERT_1, pool=None, gpus=None),
    "queued-with-pool": _set(JOBS, BERT_2, pool="big", gpus=2),
    "unknown-pool": _set(JOBS, BERT_1, pool="bgi"),
    "unknown-state": _set(JOBS, BERT_2, state="waiting"),
    "sizes-outside-range": _set(JOBS, BERT_2, sizes=[16, 32]),
    "sizes-not-numbers": _set(JOBS, BERT_2, sizes="1,2,4"),
    "cyclic-after": _all(
        _set(JOBS, BERT_2, after="resnet-1"), _set(JOBS, RESNET_1, after="bert-2")
    ),
    "missing-value": _set(JOBS, BERT_2, max_gpus=None),
    "missing-file": _all(_config(unknown_models="refuse"), _drop(RATES)),
    "empty-file": _text(POOLS, lambda _: b""),
    "encoding": _text(TENANTS, lambda text: text.replace(b"blue", b"bl\xfc")),
    "ragged-row": _text(JOBS, lambda text: text.replace(b"blue,queued", b"blue,queued,,,", 1)),
    "config-not-toml": _text("config.toml", lambda _: b"now_s = 1000\ninterval_s = five minutes\n"),
    "config-wrong-values": _config(interval_s=0, max_changes=-1, objective="progres"),
    "unknown-node": _all(
        _add("nodes.csv", node="n1", pool="big", gpus=8),
        _add("nodes.csv", node="n2", pool="small", gpus=4),
        _add("placements.csv", job_id="bert-1", node="n3", gpus=4),
    ),
    "curve-not-json": _add(
        "models.csv", model="bert", gpu_type="A100", kind="amdahl", parameters="rate 12"
    ),
    "several-at-once": _all(
        _set(JOBS, BERT_1, gpus=-4),
        _set(JOBS, BERT_2, min_gpus=6, weight=0),
        _set(JOBS, RESNET_1, model="resnt50"),
        _set(POOLS, 1, gpus="4 or 5"),
        _set(TENANTS, 1, tenant="red"),
        _config(restart_s="soon"),
    ),
}

INFEASIBLE: Mapping[str, Change] = {
    # red and blue have guarantees of 8 GPUs each, which the jobs of either could hold alone;
    # the cluster has 12
    "guarantees-above-capacity": _all(
        _set(TENANTS, 0, guaranteed_gpus=8),
        _set(TENANTS, 1, guaranteed_gpus=8),
        _set(JOBS, RESNET_2, min_gpus=1, max_gpus=4),
    ),
    # bert-1 holds 4 A100 at $2 = $8 per hour and is not preemptible
    "fixed-above-budget": _all(_set(JOBS, BERT_1, preemptible=False), _config(budget_per_hour=6)),
    # red has a guarantee of 6 GPUs and a quota of 4
    "guarantee-above-quota": _set(TENANTS, 0, guaranteed_gpus=6, max_gpus=4),
    # bert-1 of red holds 4 GPUs; the quota of red was cut to 2, and no running job may change
    "quota-cut-without-changes": _all(_set(TENANTS, 0, max_gpus=2), _config(max_changes=0)),
}

REPAIRED: Mapping[str, Change] = {
    # of the 8 A100 only 2 are left; bert-1 is not preemptible and held 4 of them
    "drained-under-fixed": _all(_set(JOBS, BERT_1, preemptible=False), _set(POOLS, 0, gpus=2)),
}


def broken_folder(name: str, change: Change) -> Folder:
    """Return the snapshot without a fault, with one change."""
    config, tables = sound_tables()
    raw = change(config, tables) or {}
    return Folder(name, {} if "config.toml" in raw else config, tables, raw)


def folders() -> list[Folder]:
    """Return all folders of this file, without their expected.txt."""
    kinds = (("fault", FAULTS), ("infeasible", INFEASIBLE), ("repaired", REPAIRED))
    return [
        broken_folder(f"{kind}-{name}", change)
        for kind, changes in kinds
        for name, change in changes.items()
    ]
