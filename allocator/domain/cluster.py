"""The cluster of a valid snapshot as arrays: names become numbers, and present prices and GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

import numpy as np

from allocator.domain.findings import Findings
from allocator.domain.grid import ParsedTable
from allocator.domain.problem import (
    Bools,
    Changes,
    Curves,
    Finished,
    Floats,
    Interactive,
    Ints,
    Level,
    Market,
    Nodes,
    Pauses,
    Placements,
    Pools,
    Quotas,
    Rates,
    Sharing,
    State,
    usable_gpus,
)
from allocator.domain.rules.cluster_rules import curve_parameters
from allocator.domain.rules.spread_rules import find_shapes
from allocator.domain.schema.names import Index, Names

# for one job, with which others compete: measured in docs/results.md
SPOT_AVAILABILITY = 0.4


def encode_names(column: Sequence[str], known: Index) -> Ints:
    """Return the number of each name, (n,), -1 for unknown ones."""
    return np.fromiter(map(known.get, column, repeat(-1)), dtype=np.int64, count=len(column))


def pools(grids: Mapping[str, ParsedTable], names: Names, now_s: float, found: Findings) -> Pools:
    """Return the pools with the price and the GPUs in force at now_s.

    Nodes take precedence over capacity.csv (which only workloads have), capacity.csv over
    prices.csv of the same time, and both over pools.csv.
    """
    table = grids["pools.csv"]
    moves = [grids[file] for file in ("prices.csv", "capacity.csv") if file in grids]
    gpus, source = values_in_force(table, moves, names, "gpus", now_s)
    price, _ = values_in_force(table, moves, names, "price_per_gpu_hour", now_s)
    return Pools(
        pool=tuple(table["pool"]),
        gpu_type=encode_names(table["gpu_type"], names.gpu_types),
        gpus=_up(grids, names, gpus.astype(np.int64), source, found),
        gpus_per_node=table["gpus_per_node"],
        market=table["market"],
        price_per_gpu_hour=price,
        price_per_gb_hour=table["price_per_gb_hour"],
        region=tuple(table["region"]),
        startup_s=table["startup_s"],
        revocations_per_gpu_hour=table["revocations_per_gpu_hour"],
        memory_gb=table["memory_gb"],
        min_billing_s=table["min_billing_s"],
        availability=np.where(
            table.given("availability"),
            table["availability"],
            np.where(table["market"] == Market.SPOT, SPOT_AVAILABILITY, 1.0),
        ),
        lifetime_s=np.where(table.given("lifetime_s"), table["lifetime_s"], np.inf),
        sharing=table["sharing"],
        isolation=np.where(table.given("isolation"), table["isolation"], np.inf),
        straggler_cv=table["straggler_cv"],
        link_gb_s=np.where(table.given("link_gb_s"), table["link_gb_s"], np.inf),
        hazard_by_age=tuple(table["hazard_by_age"]),
    )


def values_in_force(
    table: ParsedTable, moves: Sequence[ParsedTable], names: Names, column: str, now_s: float
) -> tuple[Floats, list[str]]:
    """Return the present value of the column, (P,), and where it comes from.

    It is that of the latest row of `moves` not after now_s with a value; at the same time the last
    table counts. Without such a row it is that of pools.csv. The source is such as "prices.csv:7",
    or "" for pools.csv.
    """
    value = table[column].astype(np.float64)
    source = [""] * len(table)
    latest = np.full(len(table), -np.inf)
    for moved in (m for m in moves if column in m.columns):
        at_s = moved["at_s"]
        valid = np.flatnonzero(moved.given(column) & (at_s <= now_s))
        valid = valid[np.argsort(at_s[valid], kind="stable")]
        row = np.full(len(table), -1)
        # of several rows the last one counts
        row[encode_names(moved["pool"], names.pools)[valid]] = valid
        for p in np.flatnonzero(row >= 0).tolist():
            if at_s[row[p]] >= latest[p]:
                value[p], latest[p] = moved[column][row[p]], at_s[row[p]]
                source[p] = f"{moved.schema.file}:{moved.lines[row[p]]}"
    return value, source


def later(grids: Mapping[str, ParsedTable], names: Names, now_s: float) -> Changes:
    """Return the rows of prices.csv and capacity.csv after now_s, in order of time.

    There is one row for each time and pool.
    """
    moves = [grids[file] for file in ("prices.csv", "capacity.csv") if file in grids]
    price = [
        m["price_per_gpu_hour"] if "price_per_gpu_hour" in m.columns else np.full(len(m), np.nan)
        for m in moves
    ]
    every = Changes(
        np.concatenate([m["at_s"] for m in moves]),
        np.concatenate([encode_names(m["pool"], names.pools) for m in moves]),
        np.concatenate([m["gpus"] for m in moves]),
        np.concatenate(price),
    )
    return merge_changes(every, every.at_s > now_s)


def merge_changes(changes: Changes, use: Bools) -> Changes:
    """Merge the rows of `use` (C,): one for each time and pool.

    Of several rows the last with a value counts. Rows without values are left out.
    """
    rows = np.flatnonzero(use & ((changes.gpus >= 0) | ~np.isnan(changes.price_per_gpu_hour)))
    rows = rows[np.lexsort((changes.pool[rows], changes.at_s[rows]))]
    at_s, pool = changes.at_s[rows], changes.pool[rows]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (at_s[1:] != at_s[:-1]) | (pool[1:] != pool[:-1])
    group = np.cumsum(new) - 1
    gpus, price = np.full(int(new.sum()), -1, dtype=np.int64), np.full(int(new.sum()), np.nan)
    for out, values, given in (
        (gpus, changes.gpus[rows], changes.gpus[rows] >= 0),
        (price, changes.price_per_gpu_hour[rows], ~np.isnan(changes.price_per_gpu_hour[rows])),
    ):
        out[group[given]] = values[given]
    return Changes(at_s[new], pool[new], gpus, price)


def _up(
    grids: Mapping[str, ParsedTable],
    names: Names,
    gpus: Ints,
    source: Sequence[str],
    found: Findings,
) -> Ints:
    """Return the GPUs of the nodes of each pool, (P,), see `usable_gpus`.

    A pool without any node in nodes.csv keeps its GPUs.

    Parameters
    ----------
    gpus : (P,)
        GPUs without regard to nodes.
    source : (P,)
        The line that gives them, "" = pools.csv.
    """
    table, listed, jobs = grids["pools.csv"], nodes(grids["nodes.csv"], names), grids["jobs.csv"]
    if not len(listed):
        return gpus
    pinned = (jobs["state"] == State.RUNNING) & ~jobs["preemptible"]
    placed = placements(grids["placements.csv"], names)
    pool = encode_names(jobs["pool"], names.pools)
    total = usable_gpus(listed, placed, pinned, pool, jobs["gpus"], len(table))
    has = np.bincount(listed.pool, minlength=len(table)) > 0

    def before(p: int) -> str:
        return f"gpus {gpus[p]}" + (f" by {source[p]}" if source[p] else "")

    table.warnings(
        found,
        ~has,
        lambda p: f"no node of it is in nodes.csv; {before(p)} count",
        "pools without a node in nodes.csv",
    )
    table.warnings(
        found,
        has & (total != gpus),
        lambda p: f"{before(p)}, but its up nodes in nodes.csv have {total[p]}; {total[p]} count",
        "pools whose nodes have another number of GPUs",
    )
    return np.where(has, total, gpus)


def rates(grids: Mapping[str, ParsedTable], names: Names) -> Rates:
    """Return the rows of rates.csv; the rate that counts is work_per_s x efficiency."""
    table = grids["rates.csv"]
    return Rates(
        model=encode_names(table["model"], names.models),
        gpu_type=encode_names(table["gpu_type"], names.gpu_types),
        gpus=table["gpus"],
        rate=table["work_per_s"] * table["efficiency"],
        batch_size=table["batch_size"],
        accumulation=table["accumulation"],
        memory_gb=table["memory_gb"],
        spread=table["spread"],
        variant=tuple(table["variant"]),
        compute_s=table["compute_s"],
        codec_s=table["codec_s"],
        volume_gb=table["volume_gb"],
        ratio=table["ratio"],
        observed=table["observed"],
        nodes=find_shapes(grids),
    )


def curves(table: ParsedTable, names: Names) -> Curves:
    """Return the rows of models.csv with the defaults of their parameters."""
    choices = table.schema.column("kind").choices
    kind = tuple(choices[k] for k in table["kind"])
    return Curves(
        model=encode_names(table["model"], names.models),
        gpu_type=encode_names(table["gpu_type"], names.gpu_types),
        kind=kind,
        parameters=tuple(
            curve_parameters(k, q)[0] for k, q in zip(kind, table["parameters"], strict=True)
        ),
    )


def nodes(table: ParsedTable, names: Names) -> Nodes:
    """Return the rows of nodes.csv."""
    return Nodes(
        node=tuple(table["node"]),
        pool=encode_names(table["pool"], names.pools),
        gpus=table["gpus"],
        state=table["state"],
        rack=tuple(table["rack"]),
        cpus=np.where(table.given("cpus"), table["cpus"], np.inf),
        host_memory_gb=np.where(table.given("host_memory_gb"), table["host_memory_gb"], np.inf),
    )


def levels(table: ParsedTable, named: Sequence[str]) -> tuple[Level, ...]:
    """Return the levels of the topology that [topology] names, the nearest first."""
    return tuple(Level(name, tuple(table[name])) for name in named) if len(table) else ()


def placements(table: ParsedTable, names: Names) -> Placements:
    """Return the rows of placements.csv."""
    return Placements(
        job=encode_names(table["job_id"], names.jobs),
        node=encode_names(table["node"], names.nodes),
        gpus=table["gpus"],
        gpu=table["gpu"],
    )


def received(table: ParsedTable, names: Names) -> Floats:
    """Return the seconds of received.csv, (J, T), 0 without a row."""
    out = np.zeros((len(names.jobs), len(names.gpu_types)))
    out[
        encode_names(table["job_id"], names.jobs), encode_names(table["gpu_type"], names.gpu_types)
    ] = table["seconds"]
    return out


def interactive(table: ParsedTable, names: Names) -> Interactive:
    """Return the rows of interactive.csv."""
    return Interactive(
        encode_names(table["pool"], names.pools),
        *(
            table[name]
            for name in (
                "headroom_gpus",
                "sessions_per_hour",
                "session_s",
                "session_gpus",
                "late_share",
                "shrinkable_share",
            )
        ),
    )


def pauses(table: ParsedTable, names: Names) -> Pauses:
    """Return the rows of pauses.csv."""
    return Pauses(
        model=encode_names(table["model"], names.models),
        from_gpus=table["from_gpus"],
        to_gpus=table["to_gpus"],
        pause_s=table["pause_s"],
        gpu_type=encode_names(table["gpu_type"], names.gpu_types),
    )


def quotas(table: ParsedTable, names: Names) -> Quotas:
    """Return the rows of quotas.csv."""
    return Quotas(
        tenant=encode_names(table["tenant"], names.tenants),
        gpu_type=encode_names(table["gpu_type"], names.gpu_types),
        pool=encode_names(table["pool"], names.pools),
        guaranteed_gpus=table["guaranteed_gpus"],
        max_gpus=np.where(table.given("max_gpus"), table["max_gpus"], np.inf),
        lend_gpus=np.where(table.given("lend_gpus"), table["lend_gpus"], np.inf),
    )


def finished(table: ParsedTable, names: Names) -> Finished:
    """Return the rows of finished.csv."""
    return Finished(encode_names(table["model"], names.models), table["total_work"])


def sharing(table: ParsedTable, names: Names) -> Sharing:
    """Return the rows of sharing.csv."""
    return Sharing(
        model_a=encode_names(table["model_a"], names.models),
        model_b=encode_names(table["model_b"], names.models),
        gpu_type=encode_names(table["gpu_type"], names.gpu_types),
        gpus=table["gpus"],
        slowdown_a=table["slowdown_a"],
        slowdown_b=table["slowdown_b"],
    )
