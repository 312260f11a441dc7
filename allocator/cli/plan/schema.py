"""`allocator schema`: the JSON Schema of the files, for editors and other programs."""

from __future__ import annotations

import argparse
import json
from typing import Any

from allocator.cli.output import SCHEMA_VERSION

EXAMPLES = """
allocator schema                         columns of the snapshot files
allocator schema workload                columns of the workload files
allocator schema result > plan.schema.json
"""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "schema",
        examples=EXAMPLES,
        help="JSON Schema of snapshots, workloads and plans",
        description="Print a JSON Schema.",
    )
    parser.add_argument(
        "what",
        nargs="?",
        default="snapshot",
        choices=("snapshot", "workload", "result"),
        help="default: snapshot",
    )
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    from allocator.io import json_schema

    documents = {
        "snapshot": json_schema.snapshot_schema,
        "workload": json_schema.workload_schema,
        "result": json_schema.result_schema,
    }
    print(json.dumps(documents[args.what]() | {"schema_version": SCHEMA_VERSION}, indent=2))
    return 0
