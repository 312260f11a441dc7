"""Submit a job to Slurm that says what it can do: its sizes, model and work as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files

from allocator.clusters.adapter import Record
from allocator.clusters.statements import KEY, find_faults
from allocator.errors import UsageError

COMMENT = "--comment"


def write_sbatch(fields: Record, options: Sequence[str]) -> list[str]:
    """Return the call of sbatch that submits a job, with these fields in its comment.

    Parameters
    ----------
    fields : mapping of str to object
        Columns of jobs.csv that the job states.
    options : sequence of str
        Options of sbatch and the script, unchanged.

    Raises
    ------
    UsageError
        If the fields make no sense, nothing asks for GPUs by node, or the comment is in use.

    Examples
    --------
    >>> write_sbatch({"max_gpus": 4}, ["--gres=gpu:2", "train.sh"])
    ['sbatch', '--comment={"allocator":{"max_gpus":4}}', '--gres=gpu:2', 'train.sh']
    """
    faults = find_faults(fields)
    if faults:
        raise UsageError(f"submit-slurm: {faults[0]}")
    if any(option.partition("=")[0] == COMMENT for option in options):
        raise UsageError(
            "submit-slurm: the comment says what the job can do; leave --comment to it"
        )
    said = json.dumps({KEY: dict(fields)}, separators=(",", ":"))
    return ["sbatch", f"{COMMENT}={said}", *options]


def read_plugin() -> str:
    """Return the text of the job_submit plugin, which says how it is installed."""
    return files(__package__).joinpath("job_submit.lua").read_text(encoding="utf-8")
