"""Checked tables as arrays: names become numbers, and pools get the present prices and GPUs.

Models whose speeds change as their jobs go on have phases. A model MODEL@SHARE of rates.csv or
models.csv says how MODEL runs from this share of its total_work on, up to the next such share.
Speeds of a phase are looked up as those of any other model. A job of MODEL enters the phase by
itself, once it has done that share of its work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from allocator.domain.grid import Names, ParsedTable
from allocator.domain.problem import (
    NO_CHANGES,
    Bools,
    Changes,
    Curves,
    Floats,
    Ints,
    Market,
    Nodes,
    Placements,
    Pools,
    Rates,
    State,
    held_gpus,
    usable_gpus,
)
from allocator.domain.rules.cluster_rules import curve_parameters, find_shapes
from allocator.domain.rules.job_rules import secondary_of_jobs
from allocator.domain.schema.cells import ParsedColumn
from allocator.domain.schema.columns import Column

# for one job, with which others compete: measured in docs/results.md
SPOT_AVAILABILITY = 0.4
# tables with changes of pools over time; only workloads have the second
MOVES = ("prices.csv", "capacity.csv")
T = TypeVar("T")


def rows(kind: type[T], table: ParsedTable, names: Names, /, **columns: Any) -> T:
    """Return a table as arrays: the columns that `kind` has as fields, and those given here."""
    needed = {field.name for field in fields(kind)} - columns.keys()  # type: ignore[arg-type]
    for column in table.schema.columns:
        if column.name in needed:
            columns[column.name] = values(column, table.columns[column.name], names)
    return kind(**columns)


def values(column: Column, parsed: ParsedColumn, names: Names) -> Any:
    """Return the cells of a column: an array, or a tuple of texts."""
    if column.names:
        return parsed.codes(getattr(names, column.names))
    if column.empty is not None:
        return np.where(parsed.given, parsed.value, column.empty)
    return parsed.value if isinstance(parsed.value, np.ndarray) else tuple(parsed.value)


def pools(grids: Mapping[str, ParsedTable], names: Names, now_s: float) -> Pools:
    """Return the pools with the price and the GPUs in force at now_s.

    Nodes take precedence over capacity.csv (which only workloads have), capacity.csv over
    prices.csv of the same time, and both over pools.csv.
    """
    table = grids["pools.csv"]
    moves, places = _list_moves(grids, names)
    gpus, at = _in_force(table["gpus"], moves, moves.gpus, moves.gpus >= 0, now_s)
    dollars = moves.price_per_gpu_hour
    price, _ = _in_force(table["price_per_gpu_hour"], moves, dollars, ~np.isnan(dollars), now_s)
    usual = np.where(table["market"] == Market.SPOT, SPOT_AVAILABILITY, 1.0)
    return rows(
        Pools,
        table,
        names,
        gpus=_up(grids, names, gpus, ["", *places], at + 1),
        price_per_gpu_hour=price,
        availability=np.where(table.given("availability"), table["availability"], usual),
    )


def nodes_at(table: ParsedTable, names: Names, now_s: float, interval_s: float) -> ParsedTable:
    """Return nodes.csv with the states and absences of a round (R70)."""
    if not table.given("leaves_s").any():
        return table
    now = rows(Nodes, table, names).at(now_s, interval_s)
    columns = {
        name: replace(table.columns[name], value=getattr(now, name))
        for name in ("state", "leaves_s", "returns_s")
    }
    return replace(table, columns={**table.columns, **columns})


def _list_moves(grids: Mapping[str, ParsedTable], names: Names) -> tuple[Changes, list[str]]:
    """Return every row of MOVES, and where it is, such as "prices.csv:7"."""
    every, places = NO_CHANGES, []
    for table in (grids[file] for file in MOVES if file in grids):
        unknown = {"price_per_gpu_hour": np.full(len(table), np.nan)}
        columns = {} if table.columns.keys() >= unknown.keys() else unknown
        every = every.append(rows(Changes, table, names, **columns))
        places += [f"{table.schema.file}:{line}" for line in table.lines]
    return every, places


def _in_force(
    usual: Any, moves: Changes, value: Any, given: Bools, now_s: float
) -> tuple[Any, Ints]:
    """Return the present value of each pool, (P,), and the row of MOVES that gives it, -1 = none.

    It is that of the latest row not after now_s with a value; at the same time the last one counts.
    """
    valid = np.flatnonzero(given & (moves.at_s <= now_s))
    valid = valid[np.argsort(moves.at_s[valid], kind="stable")]
    row = np.full(len(usual), -1)
    row[moves.pool[valid]] = valid
    return np.where(row >= 0, np.append(value, 0)[row], usual), row


def later(grids: Mapping[str, ParsedTable], names: Names, now_s: float) -> Changes:
    """Return the rows of prices.csv and capacity.csv after now_s, in order of time.

    There is one row for each time and pool.
    """
    every, _ = _list_moves(grids, names)
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
    grids: Mapping[str, ParsedTable], names: Names, gpus: Ints, places: Sequence[str], at: Ints
) -> Ints:
    """Return the GPUs of the nodes of each pool, (P,), see `usable_gpus`.

    A pool without any node in nodes.csv keeps its GPUs.

    Parameters
    ----------
    gpus : (P,)
        GPUs without regard to nodes.
    places, at : sequence of str and (P,)
        Lines, and which of them gives the GPUs of a pool; "" = pools.csv.
    """
    table, jobs = grids["pools.csv"], grids["jobs.csv"]
    listed = rows(Nodes, grids["nodes.csv"], names)
    if not len(listed):
        return gpus
    pinned = (jobs["state"] == State.RUNNING) & ~jobs["preemptible"]
    placed = placements(grids["placements.csv"], names)
    pool = jobs.codes("pool", names.pools)
    held = held_gpus(jobs["gpus"], secondary_of_jobs(jobs, names))
    total = usable_gpus(listed, placed, pinned, pool, held, len(table))
    # a pool may count the GPUs of nodes that are away as was announced
    there = replace(listed, state=np.where(listed.leaves_s < np.inf, 0, listed.state))
    usual = usable_gpus(there, placed, pinned, pool, held, len(table))
    has = np.bincount(listed.pool, minlength=len(table)) > 0

    def before(p: int) -> str:
        return f"gpus {gpus[p]}" + (f" by {places[at[p]]}" if places[at[p]] else "")

    table.warnings(
        ~has,
        lambda p: f"no node of it is in nodes.csv; {before(p)} count",
        "pools without a node in nodes.csv",
    )
    table.warnings(
        has & (total != gpus) & (usual != gpus),
        lambda p: f"{before(p)}, but its up nodes in nodes.csv have {total[p]}; {total[p]} count",
        "pools whose nodes have another number of GPUs",
    )
    return np.where(has, total, gpus)


def rates(grids: Mapping[str, ParsedTable], names: Names) -> Rates:
    """Return the rows of rates.csv; the rate that counts is work_per_s x efficiency."""
    table = grids["rates.csv"]
    rate = table["work_per_s"] * table["efficiency"]
    return rows(Rates, table, names, rate=rate, nodes=find_shapes(grids))


def curves(table: ParsedTable, names: Names) -> Curves:
    """Return the rows of models.csv with the defaults of their parameters."""
    choices = table.schema.column("kind").choices
    kind = tuple(choices[k] for k in table["kind"])
    given = zip(kind, table["parameters"], strict=True)
    parameters = tuple(curve_parameters(k, q)[0] for k, q in given)
    return rows(Curves, table, names, kind=kind, parameters=parameters)


def placements(table: ParsedTable, names: Names) -> Placements:
    """Return the rows of placements.csv."""
    return rows(Placements, table, names, job=table.codes("job_id", names.jobs))


ROUNDING = 1e-6  # a job whose share of work is less than this below the begin of a phase is in it


class Phase(NamedTuple):
    """One phase of a model.

    `model` is the number of MODEL, `begins` the share of work at which the phase begins, and
    `phase` the number of MODEL@SHARE.
    """

    model: int
    begins: float
    phase: int


@lru_cache(maxsize=16)
def find_phases(models: tuple[str, ...]) -> tuple[Phase, ...]:
    """Return the phases among the models, by model and share."""
    number = {name: m for m, name in enumerate(models)}
    phases = []
    for name, m in number.items():
        base, _, share = name.rpartition("@")
        if base in number and 0.0 < (begins := _as_number(share)) < 1.0:
            phases.append(Phase(number[base], begins, m))
    return tuple(sorted(phases))


def _as_number(text: str) -> float:
    """Return the number that the text holds, -1 if it holds none."""
    try:
        return float(text)
    except ValueError:
        return -1.0


def present_models(models: Sequence[str], model: Ints, share_done: Floats) -> Ints:
    """Return the model of each job in its present phase, (n,).

    `share_done` (n,) is the share of its work that each job has done.
    """
    out = model
    for phase in find_phases(tuple(models)):
        is_in = (model == phase.model) & (share_done >= phase.begins - ROUNDING)
        out = np.where(is_in, phase.phase, out)
    return out


def next_begin(models: Sequence[str], model: Ints, share_done: Floats) -> Floats:
    """Return the share of work at which the next phase of each job begins, 1 without one, (n,)."""
    out = np.ones(len(model))
    for phase in reversed(find_phases(tuple(models))):
        is_ahead = (model == phase.model) & (share_done < phase.begins - ROUNDING)
        out = np.where(is_ahead, phase.begins, out)
    return out
