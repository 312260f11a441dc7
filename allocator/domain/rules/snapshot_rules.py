"""Check a Snapshot by every rule of the tables, and turn it into a Problem.

All faults are reported at once. Cells come first (grid.py, cells.py), then rules between cells
(job_rules.py, cluster_rules.py). If nothing is wrong, names become numbers (here), and pools get
the values in force (cluster.py).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any

import numpy as np

from allocator.domain import cluster
from allocator.domain.cluster import present_models, rows
from allocator.domain.findings import Findings
from allocator.domain.grid import Index, Names, ParsedTable, grids, names
from allocator.domain.problem import (
    Bools,
    Finished,
    Interactive,
    Ints,
    Jobs,
    Level,
    Market,
    Nodes,
    Pauses,
    Problem,
    Quotas,
    Reservations,
    Sharing,
    State,
    Tenants,
    first_primary,
)
from allocator.domain.rules import cluster_rules, job_rules
from allocator.domain.rules.rule import Round
from allocator.domain.schema.cells import ParsedColumn, default_column, parse_mode
from allocator.domain.schema.columns import CONFIG, LONGRUN
from allocator.domain.settings import Settings, now, settings
from allocator.domain.size_rule import sizes_of_pods
from allocator.domain.snapshot import Snapshot
from allocator.errors import InvalidInput

WINDOW_S = next(c for c in LONGRUN if c.name == "window_s").default

ROWS = {
    "nodes": Nodes,
    "sharing": Sharing,
    "pauses": Pauses,
    "quotas": Quotas,
    "interactive": Interactive,
    "reservations": Reservations,
    "finished": Finished,
}
"""Tables that are taken as they are, by name."""
SETTINGS = {field.name for field in fields(Problem)} - {"now_s"}


def validate(snapshot: Snapshot) -> Problem:
    """Check a snapshot against every rule, and return it as arrays.

    Parameters
    ----------
    snapshot : Snapshot
        Tables and settings as they were read.

    Returns
    -------
    allocator.domain.problem.Problem
        The checked problem, with its warnings.

    Raises
    ------
    InvalidInput
        With all faults by file and line, those met while reading included.

    Examples
    --------
    >>> import allocator
    >>> allocator.validate(allocator.read_snapshot("data/snapshots/demo")).pools.gpus.tolist()
    [8, 8]
    """
    findings = Findings(snapshot.faults)
    config = settings(snapshot, findings)
    tables = grids(snapshot, findings, config.levels)
    known = names(tables)
    now_s = now(config["now_s"], tables["jobs.csv"])
    checked = Round(tables, known, config, now_s, findings)
    checked.apply((*job_rules.RULES, *cluster_rules.RULES))
    if findings.faults:
        raise InvalidInput(findings.faults, (*snapshot.warnings, *findings.warnings))

    check_settings(config, tables)
    tables["nodes.csv"] = cluster.nodes_at(
        tables["nodes.csv"], known, now_s, float(config["interval_s"])
    )
    return build_problem(snapshot, config, tables, known, now_s)


def check_settings(config: Settings, tables: Mapping[str, ParsedTable]) -> None:
    """Warn of files and settings without an effect, and of reserved GPUs above the budget."""
    warn = partial(tables["pools.csv"].findings.warn, line=None)
    if len(tables["finished.csv"]) and config["sizes"] != "unknown":
        words = f'counts only where sizes is "unknown"; config.toml says "{config["sizes"]}"'
        warn("finished.csv", message=words)
    pools, budget = tables["pools.csv"], config["budget_per_hour"]
    reserved = pools["market"] == Market.RESERVED
    dollars = float((pools["gpus"] * pools["price_per_gpu_hour"])[reserved].sum())
    if budget is not None and dollars > budget:
        words = (
            f"the reserved GPUs cost {dollars:g} $/h together, more than "
            f"budget_per_hour {budget:g} of config.toml, which counts them: some of them stay idle"
        )
        warn("pools.csv", message=words)
    longrun = config.tables["longrun"]
    window_s = float(longrun.get("window_s", WINDOW_S))
    if "average_per_hour" in longrun and config["interval_s"] > window_s:
        words = (
            f"[longrun] window_s {window_s:g} is shorter than interval_s {config['interval_s']:g}:"
            " no round may cost more than the average, as if it were budget_per_hour"
        )
        warn("config.toml", message=words)
    if len(pools) and reserved.all():
        words = "prices only GPUs that are not reserved, and all pools of pools.csv are"
        keys, tenants = ("average_per_hour", "amount"), tables["tenants.csv"]
        if not longrun.keys().isdisjoint(keys):
            warn("config.toml", message=f"[longrun] {words}")
        if any(tenants.given(key).any() for key in keys):
            warn("tenants.csv", message=f"a long-run budget {words}")


def build_problem(
    snapshot: Snapshot,
    config: Settings,
    tables: Mapping[str, ParsedTable],
    known: Names,
    now_s: float,
) -> Problem:
    """Return the Problem of tables without a fault, with the pools in force at now_s."""
    requested, listed = _rigid(tables["jobs.csv"], tables["rates.csv"], known)
    cells = tables["jobs.csv"].columns
    sizes, size_lists = _encode_lists(listed)
    types, type_lists = _encode_lists(cells["gpu_types"], frozenset)
    modes, mode_lists = _encode_lists(cells["modes"])
    codes = {"requested_gpus": requested, "sizes": sizes, "gpu_types": types, "modes": modes}
    pools = cluster.pools(tables, known, now_s)
    nodes, received = tables["nodes.csv"], tables["received.csv"]
    seconds = np.zeros((len(known.jobs), len(known.gpu_types)))
    types_held = received.codes("gpu_type", known.gpu_types)
    seconds[received.codes("job_id", known.jobs), types_held] = received["seconds"]
    levels = config.levels if len(nodes) else ()
    stated: dict[str, Any] = {
        c.name: c.empty if config[c.name] is None else config[c.name] for c in CONFIG
    }
    return Problem(
        **{name: value for name, value in stated.items() if name in SETTINGS},
        **{name: rows(kind, tables[f"{name}.csv"], known) for name, kind in ROWS.items()},
        name=snapshot.name,
        digest=snapshot.digest,
        now_s=now_s,
        settings=config.tables,
        jobs=_jobs(tables["jobs.csv"], known, float(config["restart_s"]), codes),
        pools=pools,
        tenants=_tenants(tables["tenants.csv"], known),
        rates=cluster.rates(tables, known),
        curves=cluster.curves(tables["models.csv"], known),
        placements=cluster.placements(tables["placements.csv"], known),
        levels=tuple(Level(name, tuple(nodes[name])) for name in levels),
        received=seconds,
        models=tuple(known.models),
        gpu_types=tuple(known.gpu_types),
        size_lists=tuple(np.array(s, dtype=np.int64) for s in size_lists),
        type_sets=tuple(_members(names_, known.gpu_types) for names_ in type_lists),
        mode_sets=tuple(tuple(map(parse_mode, texts)) for texts in mode_lists),
        warnings=(*snapshot.warnings, *nodes.findings.warnings),
        announced=cluster.later(tables, known, now_s),
    )


def _rigid(jobs: ParsedTable, rates: ParsedTable, known: Names) -> tuple[Ints, ParsedColumn]:
    """Return requested_gpus (J,), and the lists of `sizes` of the jobs.

    A job of pods that lists no sizes may have any number of pods. A job whose model has no given
    rate may run at the requested size and at observed sizes only. If its `sizes` lack the requested
    size, the next smaller one of them replaces it, or else the smallest.
    """
    pod = jobs["gpus_per_pod"]
    least = -(-jobs["min_gpus"] // pod) * pod
    requested = np.where(jobs.given("requested_gpus"), jobs["requested_gpus"], least)
    given = jobs.columns["sizes"]
    unrated = set(jobs.distinct("model")) - known.given_models.keys()
    gangs = np.flatnonzero((pod > 1) & ~jobs.given("sizes"))
    if not (unrated or len(gangs)):
        return requested, given
    lists = list(given.value)
    rule = cache(sizes_of_pods)
    limits = (x[gangs].tolist() for x in (pod, jobs["min_gpus"], jobs["max_gpus"], requested))
    for i, *ends in zip(gangs.tolist(), *limits, strict=True):
        lists[i] = rule(*ends)
    observed: dict[str, set[int]] = {}
    for i in np.flatnonzero(rates["observed"]).tolist():
        observed.setdefault(rates["model"][i], set()).add(int(rates["gpus"][i]))
    for i, model in enumerate(jobs["model"]):
        if model not in unrated:
            continue
        low, high = int(jobs["min_gpus"][i]), int(jobs["max_gpus"][i])
        own = [k for k in lists[i] if low <= k <= high]
        if own and requested[i] not in own:
            requested[i] = max((k for k in own if k < requested[i]), default=own[0])
        seen = {k for k in observed.get(model, ()) if low <= k <= high and (not own or k in own)}
        lists[i] = tuple(sorted({int(requested[i]), *seen}))
    return requested, replace(given, value=lists)


def _jobs(jobs: ParsedTable, known: Names, restart_s: float, codes: Mapping[str, Ints]) -> Jobs:
    running = jobs["state"] == State.RUNNING
    secondary = job_rules.secondary_of_jobs(jobs, known)

    def default(column: str, otherwise: Any) -> Any:
        return np.where(jobs.given(column), jobs[column], otherwise)

    total_work = default("total_work", jobs["remaining_work"])
    share_done = 1.0 - jobs["remaining_work"] / total_work
    model = jobs.codes("model", known.models)
    gpus = np.where(running, jobs["gpus"], 0)
    return rows(
        Jobs,
        jobs,
        known,
        model=present_models(tuple(known.models), model, share_done),
        total_work=total_work,
        pool=np.where(running, jobs.codes("pool", known.pools), -1),
        gpus=gpus,
        restart_s=default("restart_s", restart_s),
        largest_gpus=default("largest_gpus", gpus),
        primary=first_primary(secondary),
        shared_by=secondary,
        **codes,
    )


def _tenants(tenants: ParsedTable, known: Names) -> Tenants:
    """Return the listed tenants, then those only named by jobs, with default values."""
    extra = len(known.tenants) - len(tenants)
    columns: dict[str, Any] = {
        column.name: np.append(
            cluster.values(column, tenants.columns[column.name], known),
            cluster.values(column, default_column(column, extra), known),
        )
        for column in tenants.schema.columns
    }
    return Tenants(**columns | {"tenant": tuple(known.tenants)})


def _encode_lists(
    lists: ParsedColumn, alike: Callable[[Any], Any] = tuple
) -> tuple[Ints, list[Any]]:
    """Return the number of each job's list, (J,), -1 = not given, and the distinct lists.

    `alike` maps equal lists to the same key.
    """
    distinct, code = lists.factors
    number: dict[Any, int] = {alike(()): -1}
    for value in distinct:
        number.setdefault(alike(value), len(number) - 1)
    place = np.array([number[alike(value)] for value in distinct], dtype=np.int64)
    return place[code], list(number)[1:]


def _members(chosen: Iterable[str], known: Index) -> Bools:
    """Return which names are chosen, (T,)."""
    out = np.zeros(len(known), dtype=bool)
    out[[known[name] for name in chosen]] = True
    return out
