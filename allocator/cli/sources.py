"""Read a round to look at: a snapshot folder, or the present state of a queue."""

import time

from allocator import Snapshot, read_snapshot, validate
from allocator.cli.output import tell_details, warn
from allocator.cli.parsing import is_queue
from allocator.domain.problem import Problem


def read_problem(folder: str) -> Problem:
    """Read and validate a snapshot folder, and print its warnings. Raises InvalidInput."""
    begin = time.monotonic()
    problem = validate(read_snapshot(folder))
    warn(problem.warnings)
    tell_details(
        f"read {folder} in {time.monotonic() - begin:.2f} s: {len(problem.jobs)} jobs,"
        f" {len(problem.pools)} pools, {int(problem.pools.gpus.sum())} GPUs"
    )
    return problem


def read_source(where: str) -> Snapshot:
    """Return the snapshot in a folder, or of a queue given by the path of its file or its URL.

    Raises InvalidInput.
    """
    if not is_queue(where):
        return read_snapshot(where)
    from allocator.queue.queue import Queue

    with Queue(where) as queue:
        return queue.snapshot()
