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
from allocator.objects import Json, Record

FILE = "config.toml"


@dataclass(frozen=True)
class Settings:
    """Hold every key of CONFIG, and the tables of CONFIG_TABLES, such as [solver] and [horizon].

    A key that is not given is None, and a table that is not given is {}.
    """

    values: Record
    tables: Mapping[str, Record]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels of the topology, the nearest first."""
        return tuple(self.tables["topology"].get("levels") or LEVELS)


def settings(
    snapshot: Snapshot, findings: Findings, known: tuple[Column, ...] = CONFIG
) -> Settings:
    """Parse the configuration and fill in the defaults of the known keys.

    Faults are added to `findings`.
    """
    config, lines = snapshot.config, snapshot.config_lines
    values = {c.name: None if c.default == RULE else c.default for c in known}
    values |= _read(config, known, lines, findings, others=[*CONFIG_TABLES])
    tables: dict[str, Record] = {name: {} for name in CONFIG_TABLES}
    for name in (key for key in config if key in tables):
        if isinstance(config[name], Mapping):
            tables[name] = _table(name, config[name], lines, findings)
        else:
            findings.fault(FILE, lines.get(name), f"{name} must be a table, [{name}]")
    has_longrun = not {"average_per_hour", "amount"}.isdisjoint(tables["longrun"])
    if has_longrun and "average_per_hour" in tables["rental"]:
        words = (
            "[rental] average_per_hour and [longrun] are both given; the price of a dollar follows"
            " one of them"
        )
        findings.fault(FILE, lines.get("rental"), words)
    return Settings(values, tables)


def _read(
    given: Record,
    columns: Sequence[Column],
    lines: Mapping[str, int],
    findings: Findings,
    table: str = "",
    others: Sequence[str] = (),
) -> Json:
    """Parse the keys of the settings, or of a table, but those that are read otherwise.

    An unknown key gives a warning, which suggests the nearest of the keys that may still be given.
    """
    known = {column.name: column for column in columns}
    spare = [name for name in (*known, *others) if name not in given]
    values: Json = {}
    for key, value in given.items():
        line = lines.get(f"{table}.{key}" if table else key, lines.get(table))
        place = f"[{table}] " if table else ""
        if key in known:
            values[key], message = parse_value(known[key], value)
            if message is not None:
                findings.fault(FILE, line, place + message)
        elif key not in others:
            hint = suggest_setting(str(key), spare)
            words = f"{quote(str(key))} is not known and is ignored{hint}"
            findings.warn(FILE, line, place + words)
    return values


def _table(name: str, given: Record, lines: Mapping[str, int], findings: Findings) -> Record:
    """Parse the keys of a table."""
    values = _read(given, CONFIG_TABLES[name], lines, findings, name)
    faults = [
        f"levels: {level} is no level of a topology"
        for level in values.get("levels") or ()
        if level in NODES.by_name.keys() - {"rack"}
    ]
    faults += longrun_faults(set(values)) if name == "longrun" else []
    for message in faults:
        findings.fault(FILE, lines.get(name), f"[{name}] {message}")
    return values


def longrun_faults(given: Collection[str]) -> Iterator[str]:
    """Yield the faults of the keys, or filled cells, of a long-run budget."""
    if "average_per_hour" in given and "amount" in given:
        yield "average_per_hour and amount are both given; a budget is one of them"
    if ("amount" in given) != ("until_s" in given):
        here, missing = ("amount", "until_s") if "amount" in given else ("until_s", "amount")
        yield f"{here} needs {missing}: an amount is spent until a date"


def has_trials(config: Record) -> bool:
    """Return whether jobs run trials, because [profiling] has GPU-hours for them."""
    return config.get("profiling", {}).get("gpu_hours") is not None


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
