"""Cases of tests as tables of text, which are read like the messages that they lead to."""

from __future__ import annotations

import re
from typing import Any

import yaml

Rows = list[dict[str, str]]


def cells(text: str) -> dict[str, str]:
    """Return the cells of one row, "gpus=2 state=running"; no value is an empty cell."""
    return dict(cell.split("=", 1) for cell in text.split())


def tables(text: str) -> dict[str, Rows]:
    """Return tables of rows, "nodes: node=a gpus=4; node=b gpus=4 / jobs: job_id=x"."""
    named = (part.split(":", 1) for part in re.split(r"\s/\s", text) if part.strip())
    return {
        name.strip(): [cells(row) for row in rows.split(";")] if rows.strip() else []
        for name, rows in named
    }


def given(text: str, **tables_by_default: Any) -> dict[str, Any]:
    """Return the arguments of a snapshot: the tables of a text, and its settings as values."""
    found = tables_by_default | tables(text)
    if "config" in found:
        found["config"] = {key: yaml.safe_load(v) for key, v in found["config"][0].items()}
    return found


def columns(text: str) -> Rows:
    """Return rows of the same columns, "node gpus: a 4; b 8"."""
    names, rows = text.split(":", 1)
    return [dict(zip(names.split(), row.split(), strict=True)) for row in rows.split(";")]


def cases(text: str) -> list[tuple[str, ...]]:
    """Return the cases of a table, one a line, "what is given -> what is said"."""
    return [tuple(p.strip() for p in line.split(" -> ")) for line in text.splitlines() if line]
