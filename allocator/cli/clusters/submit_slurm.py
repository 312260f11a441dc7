"""`allocator submit-slurm`: sbatch, with what the job can do."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from typing import Any

from allocator.cli.output import show_result
from allocator.cli.parsing import duration, number, parse_future, parse_integer
from allocator.cli.queue.job_options import PROGRESS_OPTIONS

EXAMPLES = """
allocator submit-slurm --max-gpus 8 --model bert --total-work 9000 -- --gres=gpu:2 train.sh
allocator submit-slurm --sizes 1,2,4 --progress-log 'step (?P<step>.+)' -- --gres=gpu:2 train.sh
allocator submit-slurm --plugin > job_submit.lua      the plugin that holds such jobs
"""
ABOUT = """\
Submit a job to Slurm that the allocator may resize. What it can do goes into its comment as JSON;
everything after -- goes to sbatch unchanged. Ask for GPUs by --gres or --gpus-per-node, whose
number can be changed later."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "submit-slurm",
        examples=EXAMPLES,
        help="sbatch for a job that may be resized",
        description=ABOUT,
    )
    group = parser.add_argument_group(
        "what the job says of itself (columns of jobs.csv, and its progress)"
    )
    for name, kind, metavar, words in (
        ("min-gpus", parse_integer(1), "N", "smallest size (default: 1)"),
        ("max-gpus", parse_integer(1), "N", "largest size (default: the size asked for)"),
        ("sizes", _integers, "N,N", "allowed sizes"),
        ("model", str, "NAME", "key into rates.csv (default: the name of the job)"),
        (
            "total-work",
            number(1e-9),
            "W",
            "its whole work (default: seconds of its time limit)",
        ),
        (
            "deadline-s",
            parse_future,
            "TIME",
            "by which it should be done: 2h, a date, unix seconds",
        ),
        ("weight", number(1e-9), "X", "scales its value (default: 1)"),
        ("restart-s", duration(), "TIME", "pause when its GPUs change"),
        ("checkpoint-s", duration(), "TIME", "cost of a checkpoint"),
        ("checkpoint-every-s", duration(1e-9), "TIME", "interval of checkpoints"),
    ):
        group.add_argument(f"--{name}", type=kind, metavar=metavar, help=words)
    for name, _, metavar, words in PROGRESS_OPTIONS:
        group.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, help=words)
    parser.add_argument("--show", action="store_true", help="print the call of sbatch, and stop")
    parser.add_argument("--plugin", action="store_true", help="print job_submit.lua, and stop")
    parser.add_argument("sbatch", nargs="*", metavar="SBATCH", help="after --: options and script")
    parser.set_defaults(call=call, fields=[action.dest for action in group._group_actions])


def _integers(text: str) -> list[int]:
    return [parse_integer(1)(part) for part in text.split(",")]


def call(args: argparse.Namespace) -> int:
    from allocator.clusters.slurm.submit import read_plugin, write_sbatch
    from allocator.errors import AllocatorError

    if args.plugin:
        plugin = read_plugin()
        show_result(args.format, {"lua": plugin}, lambda: print(plugin, end=""))
        return 0
    given = {name: getattr(args, name) for name in args.fields}
    words = write_sbatch({k: v for k, v in given.items() if v is not None}, args.sbatch)
    if args.show:
        show_result(args.format, {"command": words}, lambda: print(shlex.join(words)))
        return 0
    sys.stdout.flush()
    try:
        os.execvp(words[0], words)
    except OSError as error:
        raise AllocatorError(f"sbatch cannot be run: {error.strerror}") from error
