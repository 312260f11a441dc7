"""`allocator examples`: list the shipped examples, and copy them."""

from argparse import Namespace
from pathlib import Path

from allocator import UsageError
from allocator.cli.output import Answer
from allocator.domain.findings import did_you_mean
from allocator.io.shipped import copy_examples, list_examples


def examples(args: Namespace) -> Answer:
    known = list_examples()
    for name in args.names:
        if name not in known:
            near = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise UsageError(f'there is no example "{name}"{near}')
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
    is_short = not args.names or args.out is not None
    lines = []
    for example in chosen:
        commands = example.commands[: 1 if is_short else None]
        lines.append(f"{example.name:<18}{example.about}")
        lines += (f"{'':<18}  {command}" for command in commands)
    hint = (
        "The commands use a copy: allocator examples NAME --out ."
        if args.out is None
        else f'The copies are in the folder "{args.out}". Call the commands there.'
    )
    return Answer({"examples": rows}, "\n".join([*lines, "", hint, ""]))
