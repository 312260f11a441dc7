"""Values of Slurm's JSON, whose form depends on the version.

A number is plain in 22.05, and {"set", "infinite", "number"} since 23.02. A state is a text in
22.05, with flags in another field, and a list since 23.02. Absent fields are None.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]


def read_number(record: Record, field: str) -> float | None:
    """Return a number: inf for an infinite one, None for one that is not set."""
    value = record.get(field)
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return math.inf
        value = value.get("number") if value.get("set") else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value)


def read_integer(record: Record, field: str) -> int | None:
    """Return a whole number, or None for one that is not set or infinite."""
    value = read_number(record, field)
    return None if value is None or math.isinf(value) else int(value)


def read_text(record: Record, field: str) -> str:
    """Return a text; "" for an absent one."""
    value = record.get(field)
    return value.strip() if isinstance(value, str) else ""


def read_words(record: Record, *fields: str) -> tuple[str, ...]:
    """Return the words of fields that are texts or lists of texts, in upper case."""
    found: list[str] = []
    for field in fields:
        value = record.get(field)
        words = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        found += [str(word).upper() for word in words if word]
    return tuple(found)


def parse_records(text: str) -> list[dict[str, str]]:
    """Parse `scontrol show ... -o`: one record a line, of FIELD=VALUE with spaces between.

    It is for records whose values nobody but an administrator writes: a value is taken up to the
    next name of a field.
    """
    records = []
    for line in text.splitlines():
        parts = re.split(r"(?:^|\s)([A-Z][A-Za-z]*)=", line)
        if len(parts) > 2:
            records.append(
                {name: value.strip() for name, value in zip(parts[1::2], parts[2::2], strict=True)}
            )
    return records
