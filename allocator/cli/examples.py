"""`allocator examples`: list the shipped examples, and copy them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from allocator.cli.output import show_result
from allocator.cli.parsing import command, formats, option
from allocator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allocator.io.shipped import Example

EXAMPLES = """
allocator examples                       every example, and the command that uses it
allocator examples deadlines             all commands that use it
allocator examples deadlines --out .     copy it, here as ./deadlines
"""
ABOUT = """\
Lists the examples that come with the allocator; their commands use a copy. Nothing that exists is
overwritten."""


@command(
    "examples",
    "shipped inputs for every command",
    ABOUT,
    EXAMPLES,
    option("names", "NAME", "default: all", nargs="*"),
    option("--out", "DIR", "copy them into this folder"),
    formats("table", "json"),
)
def call(args: argparse.Namespace) -> int:
    from allocator.io.shipped import copy_examples, list_examples

    known = list_examples()
    for name in args.names:
        if name not in known:
            raise UsageError(f'there is no example "{name}"; there are {", ".join(known)}')
    chosen = [known[name] for name in args.names or known]
    if args.out is not None:
        copy_examples(chosen, Path(args.out))
    rows = [
        {
            "name": example.name,
            "about": example.about,
            "source": None if example.source is None else str(example.source),
            "commands": example.commands,
        }
        for example in chosen
    ]
    show_result(args.format, {"examples": rows}, lambda: _show_lines(chosen, args))
    return 0


def _show_lines(examples: Iterable[Example], args: argparse.Namespace) -> None:
    for example in examples:
        print(f"{example.name:<18}{example.about}")
        commands = example.commands[: None if args.names and args.out is None else 1]
        print(*(f"{'':<18}  {command}" for command in commands), sep="\n")
    if args.out is not None:
        print(f'\nThe copies are in the folder "{args.out}". Call the commands there.')
    else:
        print("\nThe commands use a copy: allocator examples NAME --out .")
