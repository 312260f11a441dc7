"""Write the list of all commands in docs/reference/commands.md from the parser.

    python scripts/generators/generate_command_docs.py

Everything below MARK is written anew; what stands above it is written by hand. An argument that
means the same in MANY commands is explained once, and named by each of them. A test holds the page
against the code.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from allocator.cli.main import parser as command_line

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "commands.md"
MARK = "<!-- written by scripts/generators/generate_command_docs.py -->\n"
MANY = 3


def write_page() -> str:
    """Return the text of the page."""
    by_hand = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    found = list(commands(command_line()))
    common = shared(argument for _, command in found for argument in arguments(command))
    sections = (write_command(words, command, common) for words, command in found)
    once = f"\n### Arguments of many commands\n{table(common.items())}"
    return f"{by_hand}{MARK}{once}{''.join(sections)}"


def commands(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ("allocator",)
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield every command, and the words that call it, before those below it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield " ".join((*words, name)), below
                yield from commands(below, (*words, name))


def arguments(command: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield how each argument of a command is given, and what it means."""
    for group in command._action_groups:
        for action in group._group_actions if group.title != "of every command" else ():
            if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
                yield invocation(action), meaning(action)


def shared(found: Iterator[tuple[str, str]]) -> dict[str, str]:
    """Return what arguments mean in MANY commands; of several such meanings the most frequent."""
    often = [(pair, count) for pair, count in Counter(found).most_common() if count >= MANY]
    return dict(sorted(pair for pair, _ in reversed(often) if pair[1]))


def write_command(words: str, command: argparse.ArgumentParser, common: dict[str, str]) -> str:
    """Return the section of a command: what it does, its own arguments, the names of others."""
    found = list(arguments(command))
    others = [f"`{name}`" for name, means in found if common.get(name) == means]
    level = "#" * (1 + len(words.split()))
    return (
        f"\n{level} {words}\n\n{' '.join((command.description or '').split())}\n"
        + table(pair for pair in found if common.get(pair[0]) != pair[1])
        + (f"\nAlso {', '.join(others)}.\n" if others else "")
    )


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of arguments; nothing without any."""
    text = "".join(f"| `{name}` | {means} |\n" for name, means in rows)
    return text and f"\n| argument | meaning |\n|---|---|\n{text}"


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
