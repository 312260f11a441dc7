"""config.toml: reading with line numbers, and writing."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

from allocator.io.tables.csv_table import ReadingLog, decode

MOST_BYTES = 20_000  # parsing dotted keys costs their square; a real config has a few lines
DEEPEST = 10
KEY = re.compile(r"\s*([A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')\s*[=.]")
HEAD = re.compile(r"\s*\[\[?\s*([A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')")
BARE = re.compile(r"[A-Za-z0-9_-]+")
AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$")


def parse_config(content: bytes, reading: ReadingLog) -> tuple[dict[str, Any], dict[str, int]]:
    """The configuration and the line of each of its keys, those of tables as "table.key"; ({}, {})
    if it cannot be read."""
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
    return config, {key: line for key, line in _lines(text).items() if _has(config, key)}


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


def _has(config: Mapping[str, Any], key: str) -> bool:
    """Whether the configuration has the key, or the "table.key"."""
    table, _, inner = key.partition(".")
    return key in config or (isinstance(config.get(table), Mapping) and inner in config[table])


def _lines(text: str) -> dict[str, int]:
    """Line of the first mention of each key, of a key of a table as "table.key"; a line inside a
    long text may be mistaken for one."""
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


def format_toml(config: Mapping[str, Any]) -> str:
    """The configuration as TOML: keys first, then one [table] for every mapping. Raises TypeError
    for what TOML has no form for."""
    plain = [f"{_key(k)} = {_value(v)}" for k, v in config.items() if not isinstance(v, Mapping)]
    for name, table in config.items():
        if isinstance(table, Mapping):
            plain += [
                "",
                f"[{_key(name)}]",
                *(f"{_key(k)} = {_value(v)}" for k, v in table.items()),
            ]
    return "\n".join(plain).lstrip("\n") + "\n"


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else _quoted(key)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if hasattr(value, "item"):  # numpy numbers
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise TypeError(f"TOML has no form for {value!r}")
