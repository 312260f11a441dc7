"""The schema of all files and columns, as columns.toml declares them.

Reading, validating, writing, `allocator schema` and the documentation are all derived from it. The
rules between columns are those of docs/reference/rules.md.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from allocator.objects import Record
from formulations.objectives import BUILT_IN


class ColumnKind(StrEnum):
    """The kind of a column: how the text of a cell is parsed."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    CHOICE = "choice"
    INTEGERS = "integers"
    TEXTS = "texts"
    JSON = "json"
    OBJECTIVE = "objective"


RULE = "by rule"  # default that depends on other columns or files; see `doc`
DECLARED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
KINDS: Mapping[str, Record] = DECLARED["kinds"]
MOST_GPUS: int = KINDS["gpus"]["high"]
MOST_INTEGER: int = KINDS["batch"]["high"]
# largest absolute value of a number: products of three stay finite
MOST_NUMBER = 1e30
LEAST_NUMBER = 1e-30  # least absolute value of a number other than 0, for the same reason
# work per second, at every size, of a model without any known speed
ASSUMED_RATE = 1.0


@dataclass(frozen=True)
class Column:
    """Describe one column of a table.

    `low` and `high` are inclusive bounds, and `above` is a strict lower bound. The default None
    means that an empty cell has no value; arrays then have the number `empty` there, if given.
    `names` says what the names in the cells are the names of: a field of `Names`.
    """

    name: str
    kind: ColumnKind
    doc: str
    required: bool = False
    default: Any = None
    low: float = -math.inf
    high: float = math.inf
    above: float = -math.inf
    choices: tuple[str, ...] = ()
    names: str = ""
    empty: float | None = None


@dataclass(frozen=True)
class TableSchema:
    """Describe one file.

    The columns `key` identify a row, so that no two rows agree in all of them. If `key` is empty,
    rows may repeat.
    """

    file: str
    doc: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    required: bool = False

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        return {column.name: column for column in self.columns}

    def column(self, name: str) -> Column:
        return self.by_name[name]


def read_columns(declared: Mapping[str, Record]) -> tuple[Column, ...]:
    """Return declared columns."""
    columns = []
    for name, given in declared.items():
        word = next(key for key in given if key in KINDS)
        more = {**KINDS[word], **given}
        kind, doc = ColumnKind(more.pop("kind")), more.pop(word)
        choices = BUILT_IN if kind is ColumnKind.OBJECTIVE else tuple(more.pop("choices", ()))
        columns.append(Column(name, kind, doc, choices=choices, **more))
    return tuple(columns)


def read_tables(section: str) -> Mapping[str, TableSchema]:
    """Return the tables of a section of columns.toml by file, which is NAME.csv."""
    return {
        f"{name}.csv": TableSchema(
            f"{name}.csv",
            table["doc"],
            read_columns(table["columns"]),
            tuple(table.get("key", ())),
            table.get("required", False),
        )
        for name, table in DECLARED[section].items()
    }


TABLES = read_tables("snapshot")
(
    JOBS,
    POOLS,
    RATES,
    MODELS,
    PRICES,
    TENANTS,
    QUOTAS,
    NODES,
    PLACEMENTS,
    RECEIVED,
    SHARING,
    PAUSES,
    INTERACTIVE,
    RESERVATIONS,
    FINISHED,
) = TABLES.values()
CONFIG = read_columns(DECLARED["config"])
# tables and their keys; other keys are a warning
CONFIG_TABLES = {name: read_columns(keys) for name, keys in DECLARED["config_tables"].items()}
# models.csv `parameters`, by `kind`
CURVE_PARAMETERS = {name: read_columns(keys) for name, keys in DECLARED["curves"].items()}
HORIZON, LONGRUN = CONFIG_TABLES["horizon"], CONFIG_TABLES["longrun"]
PROFILING, RENTAL = CONFIG_TABLES["profiling"], CONFIG_TABLES["rental"]
LEVELS = ("rack",)  # levels of a topology that are not named
# largest number of intervals of a look ahead: the recursion over plans is measured up to it
MOST_ROUNDS = int(HORIZON[0].high)

INTERVAL_S: float = next(c for c in CONFIG if c.name == "interval_s").default
# defaults of workloads and queues, which go on for many rounds: measured in docs/results.md
OVER_TIME: Record = {"objective": "flow", "spread_pauses": True, "due_after_runs": 1.0}
# how remaining work is known: performance/sizes.py
SIZES = next(c for c in CONFIG if c.name == "sizes").choices
SPEEDS = ("known", "noisy", "learned")  # in simulations: simulator/speed_beliefs.py
