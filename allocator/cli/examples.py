"""`allocator examples`: list the shipped examples, and copy them."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from allocator import UsageError
from allocator.cli.output import Answer
from allocator.io.shipped import Example, copy_examples, list_examples


def examples(args: Namespace) -> Answer:
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
    return Answer({"examples": rows}, "\n".join([*_lines(chosen, args), ""]))


def _lines(examples: list[Example], args: Namespace) -> Iterator[str]:
    for example in examples:
        yield f"{example.name:<18}{example.about}"
        commands = example.commands[: None if args.names and args.out is None else 1]
        yield from (f"{'':<18}  {command}" for command in commands)
    if args.out is None:
        yield "\nThe commands use a copy: allocator examples NAME --out ."
    else:
        yield f'\nThe copies are in the folder "{args.out}". Call the commands there.'
