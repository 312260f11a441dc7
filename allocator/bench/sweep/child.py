"""The process of one task: call the runner, which writes the files of the task into a folder.

    python -m allocator.bench.sweep.child MODULE:FUNCTION FOLDER '{"path": ..., ...}'

The last argument is the identity of the task with its path. Exit code 0 means that the files are
complete. Errors go to standard error. When standard input ends, the parent is gone, and this
process ends itself with everything that it started.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from allocator.bench.sweep.tasks import from_identity
from allocator.errors import AllocatorError
from allocator.solvers.isolation.child_processes import end_with_parent


def main(runner: str, folder: str, spec: str) -> int:
    """Run one task; return the exit code."""
    end_with_parent()
    identity = json.loads(spec)
    task = from_identity(identity, identity.pop("path"))
    module, _, name = runner.partition(":")
    try:
        getattr(importlib.import_module(module), name)(task, Path(folder))
    except AllocatorError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
