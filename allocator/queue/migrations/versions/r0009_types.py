"""Columns of the CSV files as numbers, booleans and lists; before, they were text of CSV cells.

NULL is the empty cell (the default) of a number, a boolean or a list; a list is JSON. Names stay
text, and "" is their empty cell.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

PART = 1000  # rows that are in memory at once
TRUE = ("true", "yes", "1")
JOBS = {
    "number": "total_work weight deadline_s restart_s memory_gb checkpoint_s checkpoint_every_s"
    " every_s",
    "whole": "min_gpus max_gpus requested_gpus resizes_left max_spot_gpus times",
    "truth": "preemptible synchronous interactive shrinkable",
    "names": "gpu_types after",
    "sizes": "sizes",
}
POOLS = {
    "number": "price_per_gpu_hour startup_s revocations_per_gpu_hour memory_gb lifetime_s"
    " availability min_billing_s",
    "whole": "gpus_per_node",
}
TENANTS = {
    "number": "weight budget_per_hour max_spot_share dollar_price average_per_hour amount until_s",
    "whole": "max_gpus guaranteed_gpus max_spot_gpus",
}
RATES = {
    "number": "work_per_s memory_gb efficiency",
    "whole": "gpus batch_size accumulation spread",
}
PAUSES = {"number": "pause_s", "whole": "from_gpus to_gpus"}
INTERACTIVE = {
    "number": "sessions_per_hour session_s late_share shrinkable_share",
    "whole": "headroom_gpus session_gpus",
}
SHARING = {"number": "slowdown_a slowdown_b", "whole": "gpus"}
TYPES: Mapping[str, tuple[type[sa.types.TypeEngine[Any]], Callable[[str], Any]]] = {
    "number": (sa.Double, float),
    "whole": (sa.BigInteger, lambda text: int(float(text))),
    "truth": (sa.Boolean, lambda text: text.lower() in TRUE),
    "names": (sa.Text, lambda text: json.dumps([part.strip() for part in text.split("|")])),
    "sizes": (sa.Text, lambda text: json.dumps([int(float(part)) for part in text.split("|")])),
}


def upgrade() -> None:
    _retype("jobs", "seq", JOBS)
    _retype("pools", "position", POOLS)
    _retype("tenants", "position", TENANTS)
    _retype("rates", "position", RATES)
    _retype("pauses", "position", PAUSES)
    _retype("interactive", "position", INTERACTIVE)
    _retype("sharing", "position", SHARING)


def _retype(table: str, key: str, kinds: Mapping[str, str]) -> None:
    """Replace columns of text by typed columns of the same names.

    A column cannot change its type in place, because Python has to parse the text. So the text
    moves to a column of another name, which goes when the typed column is filled. The rows are
    read in parts, in the order of the numeric column `key`: each part begins after the last row of
    the part before.
    """
    connection = op.get_bind()
    columns = {name: kind for kind, names in kinds.items() for name in names.split()}
    for name, kind in columns.items():
        op.alter_column(table, name, new_column_name=f"{name}_text")
        op.add_column(table, sa.Column(name, TYPES[kind][0]))
    rows = sa.table(
        table,
        sa.column(key),
        *(sa.column(name) for name in columns),
        *(sa.column(f"{name}_text") for name in columns),
    )
    number = rows.c[key]
    texts = [rows.c[f"{name}_text"] for name in columns]
    part = sa.select(number, *texts).order_by(number).limit(PART)
    values = {
        name: sa.bindparam(f"new_{name}", type_=TYPES[kind][0]()) for name, kind in columns.items()
    }
    write = sa.update(rows).where(number == sa.bindparam("at")).values(values)
    last = -1
    while found := connection.execute(part.where(number > last)).all():
        last = found[-1][0]
        connection.execute(
            write,
            [
                {"at": at}
                | {
                    f"new_{name}": TYPES[kind][1](text) if text else None
                    for (name, kind), text in zip(columns.items(), cells, strict=True)
                }
                for at, *cells in found
            ],
        )
    for name in columns:
        op.drop_column(table, f"{name}_text")
