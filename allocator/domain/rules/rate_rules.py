"""Rules of speeds: rates, curves, slowdowns and pauses, and which rows of rates.csv are shapes.

A row with `spread` = k is the speed on k nodes. Where a pool of its GPU type has nodes, the fewest
nodes that hold so many GPUs are the packed shape, and every larger k is a shape of its own. Where
no such pool has nodes, nobody knows on how many nodes a job is: there the row is an alternative to
the other rows of its size.
"""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from allocator.domain.findings import quote, suggest_names
from allocator.domain.grid import ParsedTable, number_names
from allocator.domain.problem import Bools, Ints, Isolation
from allocator.domain.rules.rule import Check, Round, Rule
from allocator.domain.schema.cells import parse_value
from allocator.domain.schema.columns import CURVE_PARAMETERS

ALTERNATIVES = ("batch_size", "accumulation", "memory_gb", "variant", "observed")
"""Columns that distinguish rows of one model, GPU type, size and number of nodes."""


def _check_curves(x: Round) -> None:
    """Check the parameters of speed curves."""
    curves = x["models.csv"]
    for i in np.flatnonzero(curves.ok("kind", "parameters")).tolist():
        _, wrong, strange = curve_parameters(curves.shown("kind", i), curves["parameters"][i])
        for message in wrong:
            curves.fault(i, f"parameters: {message}")
        for message in strange:
            words = f"parameters: {message}"
            x.findings.warn(curves.schema.file, curves.lines[i], words, "unknown parameters")


# the curves of the next round have the same numbers
_read_number = lru_cache(maxsize=1 << 14, typed=True)(parse_value)


def curve_parameters(
    kind: str, given: Mapping[str, object]
) -> tuple[dict[str, float], list[str], list[str]]:
    """Return the parameters of a curve with defaults, their faults, and their warnings."""
    columns = {c.name: c for c in CURVE_PARAMETERS[kind]}
    values: dict[str, float] = {}
    hint = suggest_names([name for name in given if name not in columns], columns)
    strange = [
        f"{quote(name)} is not a parameter of kind {kind}{words}" for name, words in hint.items()
    ]
    wrong = [
        f"{name} is missing; kind {kind} needs it"
        for name, c in columns.items()
        if c.required and name not in given
    ]
    for name, column in columns.items():
        if name in given:
            is_plain = isinstance(given[name], int | float)
            read = _read_number if is_plain else parse_value
            values[name], message = read(column, given[name])
            wrong += [message] if message is not None else []
        elif column.default is not None:
            values[name] = column.default
    if not wrong and values["max_gpus"] < values["min_gpus"]:
        wrong.append(f"max_gpus {values['max_gpus']:g} is below min_gpus {values['min_gpus']:g}")
    return values, wrong, strange


def _check_rates(x: Round) -> None:
    """Warn of rates that need more memory than any GPU of their type has, and of speeds of 0."""
    rates, pools = x["rates.csv"], x["pools.csv"]
    largest: dict[str, float] = {}
    # an unknown memory may have any size
    memory_gb = np.nan_to_num(pools["memory_gb"], nan=math.inf)
    for gpu_type, gb in zip(pools["gpu_type"], memory_gb.tolist(), strict=True):
        largest[gpu_type] = max(largest.get(gpu_type, 0.0), gb)
    most = np.array([largest.get(gpu_type, math.inf) for gpu_type in rates["gpu_type"]])
    with np.errstate(invalid="ignore"):
        over = rates["memory_gb"] > most
    rates.warnings(
        over & rates.ok("memory_gb", "gpu_type"),
        "memory_gb {memory_gb} is more than any {gpu_type} GPU of pools.csv has, {most:g}",
        "memory_gb above that of every pool",
        most=most,
    )
    rates.warnings(
        rates.ok("work_per_s", "model") & (rates["work_per_s"] == 0),
        "work_per_s 0: model {model} is taken as not able to run at {gpus} x {kind}",
        "speeds of 0",
        kind=rates["gpu_type"],
    )


def find_largest_nodes(
    pools: Iterable[tuple[str, str, int]], with_nodes: Container[str]
) -> dict[str, int]:
    """Return the most GPUs of a node by GPU type, for the types of pools that have nodes.

    `pools` has the name, the GPU type and gpus_per_node of each pool.
    """
    largest: dict[str, int] = {}
    for name, gpu_type, gpus in pools:
        if name in with_nodes:
            largest[gpu_type] = max(gpus, largest.get(gpu_type, 0))
    return largest


def count_fewest_nodes(
    gpu_types: Sequence[str], gpus: Ints | Sequence[int], largest: Mapping[str, int]
) -> Ints:
    """Return the fewest nodes that hold so many GPUs of a type, (n,), 0 where none are known."""
    if not largest:
        return np.zeros(len(gpu_types), dtype=np.int64)
    of_node = np.fromiter((largest.get(t, 0) for t in gpu_types), np.int64, len(gpu_types))
    return np.where(of_node > 0, -(-np.asarray(gpus) // np.maximum(of_node, 1)), 0)


def find_shapes(tables: Mapping[str, ParsedTable]) -> Ints:
    """Return the number of nodes of each row of rates.csv that is a spread shape, else 0, (R,)."""
    fewest, spread = _count_fewest(tables), tables["rates.csv"]["spread"]
    return np.where((fewest > 0) & (spread > fewest), spread, 0)


def _check_spread(x: Round) -> None:
    """Check the column `spread` where pools of the GPU type have nodes."""
    rates = x["rates.csv"]
    if not len(x["nodes.csv"]) or not len(rates):
        return
    given = rates.given("spread") & rates.ok("spread", "gpus", "gpu_type")
    fewest, kind = _count_fewest(x.tables), rates["gpu_type"]
    known = given & (fewest > 0)
    over = known & (rates["spread"] > rates["gpus"])
    words = "spread {spread} is above gpus {gpus}: each node has at least one GPU of a job"
    rates.faults(over, words)
    rates.warnings(
        known & ~over & (rates["spread"] < fewest),
        "spread {spread} is below the {fewest} nodes that {gpus} x {kind} need by gpus_per_node of"
        " pools.csv: the row counts as the packed shape",
        "spread below what sizes need",
        fewest=fewest,
        kind=kind,
    )
    first = _find_duplicates(rates, known)
    words = "model {model} has this spread at {gpus} x {kind} already in line {line}"
    line = np.asarray(rates.lines)[first]
    rates.faults(first >= 0, words, kind=kind, line=line)
    rates.warnings(
        given & (fewest == 0) & np.isin(kind, x["pools.csv"]["gpu_type"]),
        "spread {spread} is no shape of its own: no pool of {gpu_type} has nodes in nodes.csv, so"
        " the row counts as packed",
        "spread of GPU types without nodes",
    )


def _count_fewest(tables: Mapping[str, ParsedTable]) -> Ints:
    pools, rates = tables["pools.csv"], tables["rates.csv"]
    rows = zip(pools["pool"], pools["gpu_type"], pools["gpus_per_node"].tolist(), strict=True)
    largest = find_largest_nodes(rows, set(tables["nodes.csv"]["pool"]))
    return count_fewest_nodes(rates["gpu_type"], rates["gpus"], largest)


def _find_duplicates(rates: ParsedTable, which: Bools) -> Ints:
    """Return the earlier row of the same model, type, size and shape, (R,), -1 = none."""
    out = np.full(len(rates), -1)
    seen: dict[tuple[object, ...], int] = {}
    names = ("model", "gpu_type", "gpus", "spread", *ALTERNATIVES)
    for i in np.flatnonzero(which).tolist():
        first = seen.setdefault(tuple(str(rates[name][i]) for name in names), i)
        out[i] = first if first < i else -1
    return out


def _check_sharing(x: Round) -> None:
    """Warn of slowdowns of colocation that no pool uses."""
    sharing, pools = x["sharing.csv"], x["pools.csv"]
    is_alone = pools["sharing"] == Isolation.NONE
    if len(sharing) and len(pools) and (pools.ok("sharing") & is_alone).all():
        words = "is checked, but no pool of pools.csv lets jobs share GPUs (column sharing)"
        x.findings.warn(sharing.schema.file, None, words)


def _check_finished(x: Round) -> None:
    """Warn of finished jobs whose model has no rate and is that of no job; they teach nothing."""
    finished, jobs = x["finished.csv"], x["jobs.csv"]
    if len(finished) and x.names.complete and jobs.complete:
        known = number_names(x.names.rated_models, jobs["model"])
        sort = "models without a rate and a job"
        finished.refer("model", known, "has no rate and no job", sort)


def check_rated(
    file: str, column: str, why: str = "has no rate", sort: str = "names without a rate"
) -> Check:
    """Return the rule that warns of models, or GPU types, without any rate."""

    def check(x: Round) -> None:
        known = x.names.rated_types if column == "gpu_type" else x.names.rated_models
        if x.names.complete and (known or file != "pools.csv"):
            x[file].refer(column, known, why, sort)

    return check


RULES: tuple[Check, ...] = (
    _check_curves,
    _check_rates,
    *(
        Rule(
            "rates.csv",
            f"{name} needs compute_s, the time that a step computes",
            name,
            lambda t, name=name, usual=usual: (  # type: ignore[misc]
                t.given(name) & (t[name] != usual) & ~t.given("compute_s")
            ),
        )
        for name, usual in (("codec_s", 0.0), ("volume_gb", 0.0), ("ratio", 1.0))
    ),
    _check_spread,
    *(check_rated("pauses.csv", column) for column in ("model", "gpu_type")),
    _check_finished,
    _check_sharing,
    *(check_rated("sharing.csv", column) for column in ("model_a", "model_b", "gpu_type")),
)
"""Rules in the order in which messages about one row are listed."""
