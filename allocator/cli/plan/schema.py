"""`allocator schema`: the JSON Schema of the files, for editors and other programs."""

from __future__ import annotations

import argparse
import json

from allocator.cli.output import SCHEMA_VERSION
from allocator.cli.parsing import command, option

EXAMPLES = """
allocator schema                         columns of the snapshot files
allocator schema workload                columns of the workload files
allocator schema result > plan.schema.json
"""


@command(
    "schema",
    "JSON Schema of snapshots, workloads and plans",
    "Print a JSON Schema.",
    EXAMPLES,
    option(
        "what",
        None,
        "default: snapshot",
        default="snapshot",
        nargs="?",
        choices=("snapshot", "workload", "result"),
    ),
)
def call(args: argparse.Namespace) -> int:
    from allocator.io import json_schema

    documents = {
        "snapshot": json_schema.snapshot_schema,
        "workload": json_schema.workload_schema,
        "result": json_schema.result_schema,
    }
    print(json.dumps(documents[args.what]() | {"schema_version": SCHEMA_VERSION}, indent=2))
    return 0
