"""Read config.toml with the line number of every key, and write it."""

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from allocator.io.tables.csv_table import ReadingLog, decode
from allocator.objects import Json, Record

MOST_BYTES = 20_000  # parsing dotted keys costs their square; a real config has a few lines
DEEPEST = 10
KEY = re.compile(r"\s*([A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')\s*[=.]")
HEAD = re.compile(r"\s*\[\[?\s*([A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')")
AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$")


def parse_config(content: bytes, reading: ReadingLog) -> tuple[Json, dict[str, int]]:
    """Parse config.toml; report what is wrong in `reading`.

    Returns
    -------
    config : dict
        The configuration; {} if the file cannot be read.
    lines : dict
        The line of each key. A key of a table is named "table.key".
    """
    if len(content) > MOST_BYTES:
        reading.fault(None, f"is longer than {MOST_BYTES} bytes; a config.toml has a few lines")
        return {}, {}
    text = decode(content, reading)
    if text is None or reading.faults:
        return {}, {}
    try:
        config = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        message = str(error)
        place = AT_LINE.search(message)
        line = (
            int(place[1])
            if place
            else text.count("\n") + 1
            if "end of document" in message
            else None
        )
        reading.fault(line, f"is not TOML: {re.sub(r' [(]at .*[)]$', '', message)}")
        return {}, {}
    if is_too_deep(config):
        reading.fault(None, f"has tables more than {DEEPEST} deep")
        return {}, {}
    return config, {key: line for key, line in find_lines(text).items() if _has(config, key)}


def is_too_deep(value: Any) -> bool:
    """Whether tables and lists are nested more than DEEPEST deep."""
    level = [value]
    for _ in range(DEEPEST + 1):
        inner = [
            v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list)
        ]
        level = [part for parts in inner for part in parts]
        if not level:
            return False
    return True


def _has(config: Record, key: str) -> bool:
    """Return whether the configuration has the key, or the "table.key"."""
    table, _, inner = key.partition(".")
    return key in config or (isinstance(config.get(table), Mapping) and inner in config[table])


def find_lines(text: str) -> dict[str, int]:
    """Return the line on which each key, or "table.key", is first mentioned.

    A line inside a text of several lines may be mistaken for a key.
    """
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(re.split(r"\r\n|\n", text), start=1):
        head = HEAD.match(line)
        key = head or KEY.match(line)
        if key:
            name = key[1].strip("\"'")
            lines.setdefault(table + name if not head else name, number)
            table = f"{name}." if head else table
    return lines


def format_toml(config: Record) -> str:
    """Return the configuration as TOML: keys first, then one [table] for every mapping.

    Numpy numbers are written as Python's.

    Raises
    ------
    TypeError
        TOML has no form for a value.
    """
    import tomli_w

    return tomli_w.dumps({key: _plain(value) for key, value in config.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value.item() if hasattr(value, "item") else value
