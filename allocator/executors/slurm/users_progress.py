"""Progress of users' jobs: they have no supervisor, so the controller reads what they print.

Users choose what is read and write what is in it. So the output of a job is read only if it is a
regular file of the job's own user, and from where it ended before the run; metrics are asked for
on the first node of the run only, whatever machine their address names. The limits are those of
io/progress_sources.py, and all that is read in one look takes READING_S at most.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from allocator.clusters.adapter import Json, Record
from allocator.clusters.slurm.commands import SlurmUnreachable
from allocator.executors.allocation import BASE, PROGRESS, OpenAllocation
from allocator.executors.slurm import commands
from allocator.executors.slurm.commands import UsersJob
from allocator.executors.supervision.progress_reader import ProgressReader
from allocator.io.progress_sources import LOG, LogFile, Metric, move_to_machine, read_source

READING_S = 2.0  # for the output of all jobs in one look; the others are read at the next one
NODE = "%N"  # which Slurm leaves in the name of an output file: the first node


def find_output(one: OpenAllocation, ident: str) -> Json:
    """Return the output file of a job that is to be released, and how long it is before the run.

    Nothing is returned for a job whose progress is not read from its output. Raises OSError.
    """
    if LOG not in one.order["environment"]:
        return {}
    path = commands.read_output_path(ident)
    size = 0
    with suppress(OSError):
        size = os.lstat(path).st_size
    return {"output": path, "output_size": size}


class UsersProgress:
    """The readers of the allocations of users' jobs that run."""

    def __init__(self) -> None:
        self._readers: dict[Path, ProgressReader | None] = {}

    def read(self, running: Sequence[tuple[OpenAllocation, UsersJob, Record]]) -> None:
        """Read the progress of runs, those first that were not read for longest.

        `running` is the allocation, its job, and released.json.
        """
        kept = {one.folder for one, _, _ in running}
        self._readers = {place: one for place, one in self._readers.items() if place in kept}
        for one, job, released in running:
            if one.folder not in self._readers:
                with suppress(SlurmUnreachable):  # the next look tries again
                    self._readers[one.folder] = _make_reader(one, job, released)
        readers = (self._readers.get(one.folder) for one, _, _ in running)
        until = time.monotonic() + READING_S
        for reader in sorted((one for one in readers if one), key=lambda one: one.looked_s):
            if time.monotonic() < until:
                reader.update()
        for one, _, _ in running:
            _remember_base(one)

    def finish(self, one: OpenAllocation) -> None:
        """Read what a run has printed last."""
        reader = self._readers.pop(one.folder, None)
        if reader is not None:
            reader.update(is_over=True)
            _remember_base(one)


def _remember_base(one: OpenAllocation) -> None:
    if not one.has(BASE):
        OpenAllocation(one.folder, dict(one.order)).remember_base()


def _make_reader(one: OpenAllocation, job: UsersJob, released: Record) -> ProgressReader | None:
    """Return the reader of a run, None if nothing is said of its progress. Raises OSError."""
    source = read_source(one.order["environment"])
    if source is None:
        return None
    logs: tuple[LogFile, ...] = ()
    if isinstance(source, Metric):
        source = move_to_machine(source, commands.read_node_address(job.nodes[0]))
    else:
        path = Path(released.get("output", os.devnull).replace(NODE, job.nodes[0]))
        logs = (LogFile(path, released.get("output_size", 0), job.user_id),)
    return ProgressReader(source, logs, one.folder / PROGRESS)
