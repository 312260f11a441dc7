"""Names of a snapshot and their numbers, in order of first appearance."""

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
        Rows of jobs.csv, pools.csv and nodes.csv.
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
    tenants, jobs, rates, curves, sharing, pauses = (
        grids[f"{name}.csv"] for name in ("tenants", "jobs", "rates", "models", "sharing", "pauses")
    )
    rated_models = number_names(rates["model"], curves["model"])
    rated_types = number_names(rates["gpu_type"], curves["gpu_type"])
    return Names(
        **{name: grids[f"{name}.csv"].index for name in ("jobs", "pools", "nodes")},
        listed_tenants=number_names(tenants["tenant"]),
        tenants=number_names(tenants["tenant"], jobs.distinct("tenant")),
        models=number_names(
            rated_models,
            sharing["model_a"],
            sharing["model_b"],
            pauses["model"],
            jobs.distinct("model"),
            grids["finished.csv"]["model"],
        ),
        gpu_types=number_names(
            grids["pools.csv"]["gpu_type"], rated_types, sharing["gpu_type"], pauses["gpu_type"]
        ),
        rated_models=rated_models,
        rated_types=rated_types,
        given_models=number_names(compress(rates["model"], ~rates["observed"]), curves["model"]),
        complete=all(t.whole and bool(t.ok("model", "gpu_type").all()) for t in (rates, curves)),
    )


def number_names(*columns: Iterable[str]) -> dict[str, int]:
    """Number the distinct names of columns, without empty ones."""
    distinct = dict.fromkeys(chain(*columns))
    distinct.pop("", None)
    return {name: i for i, name in enumerate(distinct)}
