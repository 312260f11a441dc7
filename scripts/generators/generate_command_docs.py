"""Write the list of all commands in docs/reference/commands.md from the parser.

    python scripts/generators/generate_command_docs.py

Everything below MARK is written anew; what stands above it is written by hand. A test holds the
page against the code.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from allocator.cli.main import parser as command_line

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "commands.md"
MARK = "<!-- written by scripts/generators/generate_command_docs.py -->\n"


def write_page() -> str:
    """Return the text of the page."""
    by_hand = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    return (
        by_hand + MARK + "".join(map(write_command, *zip(*commands(command_line()), strict=True)))
    )


def commands(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ("allocator",)
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield every command, and the words that call it, before those below it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield " ".join((*words, name)), below
                yield from commands(below, (*words, name))


def write_command(words: str, command: argparse.ArgumentParser) -> str:
    """Return the section of a command: what it does, and its arguments."""
    rows = [
        f"| `{invocation(action)}` | {meaning(action)} |\n"
        for group in command._action_groups
        if group.title != "of every command"
        for action in group._group_actions
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    ]
    level = "#" * (1 + len(words.split()))
    text = f"\n{level} {words}\n\n{' '.join((command.description or '').split())}\n"
    return text + ("\n| argument | meaning |\n|---|---|\n" + "".join(rows) if rows else "")


def meaning(action: argparse.Action) -> str:
    """Return what an argument means, in one line."""
    return " ".join((action.help or "").split()).replace("|", "\\|") % vars(action)


def invocation(action: argparse.Action) -> str:
    """Return how an argument is given."""
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    if not action.option_strings:
        return str(value)
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {value}"


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
