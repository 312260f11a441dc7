"""The process of one task: calls the runner, which writes the task's files into a folder, and ends.

    python -m allocator.bench.sweep.child MODULE:FUNCTION FOLDER '{"path": ..., identity of the
    task}'

Exit code 0: the files are complete. What went wrong goes to standard error. When standard input
ends, whoever asked is gone, and this process ends itself with all it started.
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
    """Run one task; returns the exit code."""
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
