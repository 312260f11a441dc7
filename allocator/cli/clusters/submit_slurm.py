"""`allocator submit-slurm`: sbatch, with what the job can do."""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from allocator.cli.output import show_result
from allocator.cli.parsing import (
    command,
    duration,
    flag,
    group,
    many,
    number,
    option,
    parse_future,
    parse_integer,
)
from allocator.cli.queue.job_options import PROGRESS_OPTIONS
from allocator.errors import AllocatorError

EXAMPLES = """
allocator submit-slurm --max-gpus 8 --model bert --total-work 9000 -- --gres=gpu:2 train.sh
allocator submit-slurm --sizes 1,2,4 --progress-log 'step (?P<step>.+)' -- --gres=gpu:2 train.sh
allocator submit-slurm --plugin > job_submit.lua      the plugin that holds such jobs
"""
ABOUT = """\
Submit a job to Slurm that the allocator may resize. What it can do goes into its comment as JSON;
everything after -- goes to sbatch unchanged. Ask for GPUs by --gres or --gpus-per-node, whose
number can be changed later."""


FIELDS = (
    option("--min-gpus", "N", "smallest size (default: 1)", parse_integer(1)),
    option("--max-gpus", "N", "largest size (default: the size asked for)", parse_integer(1)),
    option("--sizes", "N,N", "allowed sizes", many(parse_integer(1))),
    option("--model", "NAME", "key into rates.csv (default: the name of the job)"),
    option(
        "--total-work", "W", "its whole work (default: seconds of its time limit)", number(1e-9)
    ),
    option(
        "--deadline-s",
        "TIME",
        "by which it should be done: 2h, a date, unix seconds",
        parse_future,
    ),
    option("--weight", "X", "scales its value (default: 1)", number(1e-9)),
    option("--restart-s", "TIME", "pause when its GPUs change", duration()),
    option("--checkpoint-s", "TIME", "cost of a checkpoint", duration()),
    option("--checkpoint-every-s", "TIME", "interval of checkpoints", duration(1e-9)),
    *PROGRESS_OPTIONS,
)
NAMES = [field.name.removeprefix("--").replace("-", "_") for field in FIELDS]


@command(
    "submit-slurm",
    "sbatch for a job that may be resized",
    ABOUT,
    EXAMPLES,
    group("what the job says of itself (columns of jobs.csv, and its progress)", *FIELDS),
    flag("--show", "print the call of sbatch, and stop"),
    flag("--plugin", "print job_submit.lua, and stop"),
    option("sbatch", "SBATCH", "after --: options and script", nargs="*"),
)
def call(args: argparse.Namespace) -> int:
    from allocator.clusters.slurm.settings import read_plugin, write_sbatch

    if args.plugin:
        plugin = read_plugin()
        show_result(args.format, {"lua": plugin}, lambda: print(plugin, end=""))
        return 0
    given = {name: value for name in NAMES if (value := getattr(args, name)) is not None}
    words = write_sbatch(given, args.sbatch)
    if args.show:
        show_result(args.format, {"command": words}, lambda: print(shlex.join(words)))
        return 0
    sys.stdout.flush()
    try:
        os.execvp(words[0], words)
    except OSError as error:
        raise AllocatorError(f"sbatch cannot be run: {error.strerror}") from error
