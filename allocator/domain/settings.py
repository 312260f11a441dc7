"""Parsed config.toml: the values of CONFIG, and those of its tables, CONFIG_TABLES."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.domain.findings import Findings, quote, suggest_setting
from allocator.domain.grid import ParsedTable
from allocator.domain.schema.cells import parse_value
from allocator.domain.schema.columns import (
    CONFIG,
    CONFIG_TABLES,
    LEVELS,
    MOST_ROUNDS,
    NODES,
    RULE,
    Column,
)
from allocator.domain.snapshot import Snapshot
from allocator.errors import UsageError

FILE = "config.toml"


@dataclass(frozen=True)
class Settings:
    """Hold every key of CONFIG, and the tables of CONFIG_TABLES, such as [solver] and [horizon].

    A key that is not given is None, and a table that is not given is {}.
    """

    values: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels of the topology, the nearest first."""
        return tuple(self.tables["topology"].get("levels") or LEVELS)


def settings(snapshot: Snapshot, found: Findings, known: tuple[Column, ...] = CONFIG) -> Settings:
    """Parse the configuration and fill in the defaults of the known keys.

    Faults are added to `found`.
    """
    values: dict[str, Any] = {c.name: None if c.default == RULE else c.default for c in known}
    tables: dict[str, Mapping[str, Any]] = {name: {} for name in CONFIG_TABLES}
    spare = [key for key in (*values, *tables) if key not in snapshot.config]
    for key, value in snapshot.config.items():
        line = snapshot.config_lines.get(key)
        if key not in tables:
            values |= _read(known, key, value, line, spare, found)
        elif isinstance(value, Mapping):
            tables[key] = _table(key, value, snapshot.config_lines, found)
        else:
            found.fault(FILE, line, f"{key} must be a table, [{key}]")
    has_longrun = not {"average_per_hour", "amount"}.isdisjoint(tables["longrun"])
    if has_longrun and "average_per_hour" in tables["rental"]:
        found.fault(
            FILE,
            snapshot.config_lines.get("rental"),
            "[rental] average_per_hour and [longrun] are both given; the price of a dollar follows"
            " one of them",
        )
    return Settings(values, tables)


def _read(
    known: Sequence[Column],
    key: str,
    value: Any,
    line: int | None,
    spare: Sequence[str],
    found: Findings,
    table: str = "",
) -> dict[str, Any]:
    """Parse one key of the settings.

    An unknown key gives a warning, which suggests the nearest of the keys that may still be given.
    """
    column = next((c for c in known if c.name == key), None)
    if column is None:
        words = f"{quote(str(key))} is not known and is ignored{suggest_setting(str(key), spare)}"
        found.warn(FILE, line, table + words)
        return {}
    parsed, message = parse_value(column, value)
    if message is not None:
        found.fault(FILE, line, table + message)
    return {key: parsed}


def _table(
    name: str, given: Mapping[str, Any], lines: Mapping[str, int], found: Findings
) -> Mapping[str, Any]:
    """Parse the keys of a table."""
    values: dict[str, Any] = {}
    columns = CONFIG_TABLES[name]
    spare = [c.name for c in columns if c.name not in given]
    for key, value in given.items():
        line = lines.get(f"{name}.{key}", lines.get(name))
        values |= _read(columns, key, value, line, spare, found, f"[{name}] ")
    for level in values.get("levels") or ():
        if level in {column.name for column in NODES.columns} - {"rack"}:
            found.fault(
                FILE, lines.get(name), f"[{name}] levels: {level} is no level of a topology"
            )
    if name == "longrun":
        for message in longrun_faults(set(values)):
            found.fault(FILE, lines.get(name), f"[{name}] {message}")
    return values


def longrun_faults(given: Collection[str]) -> Iterator[str]:
    """Yield the faults of the keys, or filled cells, of a long-run budget."""
    if "average_per_hour" in given and "amount" in given:
        yield "average_per_hour and amount are both given; a budget is one of them"
    if ("amount" in given) != ("until_s" in given):
        here, missing = ("amount", "until_s") if "amount" in given else ("until_s", "amount")
        yield f"{here} needs {missing}: an amount is spent until a date"


def checked_horizon(rounds: int) -> int:
    """Return the intervals of a look ahead.

    Raises UsageError unless they are from 1 to MOST_ROUNDS.
    """
    if not 1 <= rounds <= MOST_ROUNDS:
        raise UsageError(f"horizon {rounds} must be from 1 to {MOST_ROUNDS} intervals")
    return rounds


def now(given: float | None, jobs: ParsedTable) -> float:
    """Return now_s: as given, else the latest submitted_s, 0 without jobs."""
    if given is not None:
        return float(given)
    times = jobs["submitted_s"][jobs.ok("submitted_s")]
    return float(times.max(initial=-math.inf)) if np.isfinite(times).any() else 0.0
