"""Names of a snapshot and their numbers, in order of first appearance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, compress

from allocator.domain.grid import ParsedTable

Index = Mapping[str, int]


@dataclass(frozen=True)
class Names:
    """Map every name of a snapshot to its number.

    Attributes
    ----------
    jobs, pools, nodes : mapping of str to int
        Names in their own files.
    listed_tenants, tenants : mapping of str to int
        Tenants of tenants.csv; the same and those only named by jobs.
    models, gpu_types : mapping of str to int
        All that any table names.
    rated_models, rated_types : mapping of str to int
        Those with a row in rates.csv or models.csv.
    given_models : mapping of str to int
        Models with a row that a user gave, not only rows that a controller observed.
    complete : bool
        True if no rate was lost to a fault.
    """

    jobs: Index
    pools: Index
    nodes: Index
    listed_tenants: Index
    tenants: Index
    models: Index
    gpu_types: Index
    rated_models: Index
    rated_types: Index
    given_models: Index
    complete: bool


def names(grids: Mapping[str, ParsedTable]) -> Names:
    """Return all names of the tables."""
    jobs = grids["jobs.csv"]
    pools = grids["pools.csv"]
    tenants = grids["tenants.csv"]
    rates = grids["rates.csv"]
    curves = grids["models.csv"]
    sharing = grids["sharing.csv"]
    pauses = grids["pauses.csv"]
    rated_models = _number(rates["model"], curves["model"])
    rated_types = _number(rates["gpu_type"], curves["gpu_type"])
    complete = all(t.whole and bool(t.ok("model", "gpu_type").all()) for t in (rates, curves))
    return Names(
        jobs=jobs.index,
        pools=pools.index,
        nodes=grids["nodes.csv"].index,
        listed_tenants=_number(tenants["tenant"]),
        tenants=_number(tenants["tenant"], jobs.distinct("tenant")),
        models=_number(
            rated_models,
            sharing["model_a"],
            sharing["model_b"],
            pauses["model"],
            jobs.distinct("model"),
            grids["finished.csv"]["model"],
        ),
        gpu_types=_number(pools["gpu_type"], rated_types, sharing["gpu_type"], pauses["gpu_type"]),
        rated_models=rated_models,
        rated_types=rated_types,
        given_models=_number(compress(rates["model"], ~rates["observed"]), curves["model"]),
        complete=complete,
    )


def _number(*columns: Iterable[str]) -> dict[str, int]:
    distinct = dict.fromkeys(chain(*columns))
    distinct.pop("", None)
    return {name: i for i, name in enumerate(distinct)}
