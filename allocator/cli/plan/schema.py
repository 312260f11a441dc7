"""`allocator schema`: the JSON Schema of the files, for editors and other programs."""

import json
from argparse import Namespace

from allocator.cli.output import SCHEMA_VERSION
from allocator.io import json_schema


def schema(args: Namespace) -> int:
    document = getattr(json_schema, f"{args.what}_schema")()
    print(json.dumps(document | {"schema_version": SCHEMA_VERSION}, indent=2))
    return 0
