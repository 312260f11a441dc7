"""Write docs/snapshot-format.md from the column tables, so that the page cannot drift from the code.

    python scripts/generate_format_docs.py
"""

from __future__ import annotations

import math
from pathlib import Path

from allocator.domain.columns import CONFIG, RULE, TABLES, Column

HEAD = """# Snapshot format

A folder of CSV files with a header, UTF-8; unknown columns are a warning, an empty cell is the default. Written by
`scripts/generate_format_docs.py` from `allocator/domain/columns.py`; `allocator schema` prints the same as JSON Schema.
Units: seconds, US dollars, GPUs, and work in each model's own unit.
"""


def main() -> None:
    """Write the page next to the other documentation."""
    parts = [HEAD, section("config.toml (optional)", "settings of the round", CONFIG)]
    parts += [section(f"{t.file}{'' if t.required else ' (optional)'}", t.doc, t.columns) for t in TABLES.values()]
    page = Path(__file__).resolve().parent.parent / "docs" / "snapshot-format.md"
    page.write_text("\n".join(parts), encoding="utf-8")


def section(title: str, doc: str, columns: tuple[Column, ...]) -> str:
    """One file as a heading, a sentence and a table."""
    lines = [f"## {title}", "", f"{doc[0].upper()}{doc[1:]}.", "", "| column | type | default | range | meaning |",
             "|---|---|---|---|---|"]
    lines += [f"| `{c.name}` | {c.kind} | {default(c)} | {limits(c)} | {c.doc} |".replace("  ", " ") for c in columns]
    return "\n".join(lines) + "\n"


def default(c: Column) -> str:
    """What an empty cell means."""
    if c.required:
        return "required"
    if c.default == RULE:
        return "see meaning"
    return "none" if c.default is None else str(c.default).lower() if isinstance(c.default, bool) else str(c.default)


def limits(c: Column) -> str:
    """The allowed values in words."""
    if c.choices:
        return ", ".join(c.choices)
    low = f"> {c.above:g}" if math.isfinite(c.above) else f">= {c.low:g}" if math.isfinite(c.low) else ""
    high = f"<= {c.high:,.0f}" if math.isfinite(c.high) else ""
    return " and ".join(x for x in (low, high) if x)


if __name__ == "__main__":
    main()
