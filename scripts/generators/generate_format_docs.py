"""Write the tables of docs/reference/formats.md from the tables of columns.

    python scripts/generators/generate_format_docs.py

Everything below MARK is written anew; what stands above it is written by hand. Tests hold the page
against the code.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from allocator.domain.schema import spot_columns as spot
from allocator.domain.schema.columns import (
    CONFIG,
    CONFIG_TABLES,
    CURVE_PARAMETERS,
    JOBS,
    MOST_GPUS,
    RULE,
    TABLES,
    Column,
    TableSchema,
)
from allocator.domain.schema.rental_columns import CLASSES
from allocator.domain.schema.workload_columns import (
    UNDER_WAY,
    WORKLOAD,
    WORKLOAD_CONFIG,
    WORKLOAD_TABLES,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "formats.md"
MARK = "<!-- written by scripts/generators/generate_format_docs.py -->\n"
TABLE_DOCS = {
    "horizon": "how far the policy `horizon` looks ahead"
    " ([policies](../policies.md#look-several-intervals-ahead))",
    "longrun": "the long-run budget of the cluster; a controller keeps its books there, too"
    " ([tenants](../tenants.md#a-budget-over-weeks))",
    "profiling": "what rounds may spend on learning speeds ([speed models](../speed-models.md))",
    "rental": "how the policy `rental` splits a class of jobs ([policies](../policies.md))",
    "topology": "where the nodes of nodes.csv stand ([nodes](../nodes.md))",
}
# of the longest end of a name that is listed
UNITS = {
    "price_per_gpu_hour": "$ per GPU-hour",
    "price_per_gb_hour": "$ per GB-hour",
    "revocations_per_gpu_hour": "1 per GPU-hour",
    "budget_per_hour": "$ per hour",
    "average_per_hour": "$ per hour",
    "price_per_hour": "$ per hour",
    "servers_per_hour": "$ per hour",
    "_per_hour": "1 per hour",
    "per_hour": "1 per hour",
    "amount": "$",
    "gpu_hours": "GPU-hours",
    "_gpu_s": "GPU-s",
    "_gb_s": "GB/s",
    "work_per_s": "work/s",
    "_per_s": "work/s",
    "_gb": "GB",
    "_gb_per_gpu": "GB",
    "_s": "s",
    "hours": "h",
    "from_h": "h",
    "gpus": "GPUs",
    "gpus_per_node": "GPUs",
    "seconds": "s",
    "_work": "work",
}


def write_page() -> str:
    """Return the text of the page."""
    by_hand = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    return by_hand + MARK + "\n" + "\n".join(write_files())


def write_files() -> Iterator[str]:
    """Yield the sections of all files."""
    yield section("config.toml", "settings of a round or of a workload. Optional", CONFIG)
    others = {c.name: c for c in CONFIG}
    changed = [c for c in WORKLOAD_CONFIG if c != others.get(c.name)]
    yield "In a workload these are different:\n\n" + table(changed)
    for name, columns in CONFIG_TABLES.items():
        if columns:
            yield section(f"[{name}] of config.toml", TABLE_DOCS[name], columns)
    for schema in TABLES.values():
        yield file_section(schema)
        if schema is JOBS:
            yield write_workload()
        if schema.file == "models.csv":
            kinds = CURVE_PARAMETERS.values()
            of_all = [c for c in next(iter(kinds)) if all(c in columns for columns in kinds)]
            yield "Parameters of every kind:\n\n" + table(of_all)
            for name, columns in CURVE_PARAMETERS.items():
                own = [c for c in columns if c not in of_all]
                yield f"Parameters of kind `{name}`:\n\n" + table(own)
    for name, schema in WORKLOAD_TABLES.items():
        if name not in (*TABLES, WORKLOAD.file):
            yield file_section(schema, "a workload")
    yield file_section(CLASSES, "`allocator rent`")
    for schema in vars(spot).values():
        if isinstance(schema, TableSchema):
            yield file_section(schema, "`allocator spot`")


def write_workload() -> str:
    """Return the section of workload.csv: the columns that jobs.csv has not, or has otherwise."""
    shared = {c.name for c in JOBS.columns}
    columns = [c for c in WORKLOAD.columns if c.name not in shared or c != JOBS.column(c.name)]
    doc = (
        f"{WORKLOAD.doc}: the columns of jobs.csv without {', '.join(f'`{n}`' for n in UNDER_WAY)},"
        " and these"
    )
    return file_section(replace(WORKLOAD, doc=doc, columns=tuple(columns)), "a workload")


def file_section(schema: TableSchema, owner: str = "") -> str:
    """Return the section of a file; no two rows may agree in all columns of its key."""
    sentences = [schema.doc]
    if owner:
        sentences.append(f"A file of {owner}")
    if schema.key:
        sentences.append(f"One row for each {', '.join(f'`{name}`' for name in schema.key)}")
    if not schema.required and not owner.startswith("`"):
        sentences.append("Optional")
    return section(schema.file, ". ".join(sentences), schema.columns)


def section(title: str, doc: str, columns: Sequence[Column]) -> str:
    """Return one file as a heading, a sentence and a table."""
    return f"### {title}\n\n{doc[0].upper()}{doc[1:]}.\n\n" + table(columns)


def table(columns: Sequence[Column]) -> str:
    """Return columns as a table."""
    head = "| column | type | range | default | meaning |\n|---|---|---|---|---|\n"
    return head + "".join(
        f"| `{c.name}` | {kind(c)} | {limits(c)} | {default(c)} |".replace("  ", " ")
        + f" {c.doc} |\n".replace("|", "\\|", c.doc.count("|"))
        for c in columns
    )


def kind(c: Column) -> str:
    """Return the type of a column, with the unit that its name says."""
    ends = [end for end in UNITS if c.name.endswith(end)]
    return f"{c.kind}, {UNITS[max(ends, key=len)]}" if ends else c.kind


def default(c: Column) -> str:
    """Return what an empty cell means."""
    if c.required:
        return "required"
    if c.default == RULE:
        return "see meaning"
    if c.default is None or c.default == "":
        return "none"
    if isinstance(c.default, str | bool):
        return str(c.default).lower()
    return f"{c.default:,}".removesuffix(".0")


def limits(c: Column) -> str:
    """Return the allowed values in words; the page says once how large an integer may be."""
    if c.choices:
        return ", ".join(c.choices)
    low = (
        f"> {c.above:g}"
        if math.isfinite(c.above)
        else f">= {c.low:g}"
        if math.isfinite(c.low)
        else ""
    )
    high = f"<= {c.high:,.0f}" if c.high < MOST_GPUS else ""
    return " and ".join(x for x in (low, high) if x)


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
