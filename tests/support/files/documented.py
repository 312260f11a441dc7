"""The commands that the documentation and the help show, and what runs instead of those that cannot
run as they are.

The lists of documented.toml may hold nothing that is not documented:
tests/cli/test_documented_commands.py looks.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from allocator.cli import main

ROOT = Path(__file__).resolve().parents[3]
PAGES = (
    ROOT / "README.md",
    # tests/cli/test_tutorial.py follows the tutorial as a whole
    *sorted(set((ROOT / "docs").rglob("*.md")) - {ROOT / "docs" / "tutorial.md"}),
    *sorted((ROOT / "data").glob("*/README.md")),
)
LISTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
WORDS: dict[str, str] = LISTS["words"]
SHORTER = [(one["pattern"], one["run"]) for one in LISTS["shorter"]]
NEEDS: dict[str, str] = LISTS["needs"]
# sweeps take minutes: names, loads and folders are looked up, nothing is run
CHECKED = "allocator bench policies "


def examples(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The examples of a command and of all below it."""
    yield from getattr(parser, "examples", "").strip().splitlines()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from examples(below)


def lines_of(page: Path) -> Iterator[str]:
    """Fenced and indented lines of a page; a backslash goes on in the next line."""
    fenced = False
    for line in re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8")).splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip()


def commands(lines: Iterator[str]) -> list[str]:
    """Those that are calls of `allocator`, without comments."""
    said = (re.split(r"\s{2,}(?=\S)|\s+#\s", line)[0] for line in lines)
    return [command for command in said if command.startswith("allocator ") and "[" not in command]


def documented() -> dict[str, list[str]]:
    """Commands by page; those of the help are the page "help"."""
    found = {str(page.relative_to(ROOT)): commands(lines_of(page)) for page in PAGES}
    return {
        page: said
        for page, said in ({**found, "help": commands(examples(main.parser()))}).items()
        if said
    }


def needed(command: str) -> str:
    """What a command needs that a test has not, "" if nothing."""
    return next((why for begin, why in NEEDS.items() if command.startswith(begin)), "")


def runnable(command: str) -> str:
    """What is run in the place of a documented command."""
    said = " ".join(WORDS.get(word, word) for word in command.split(" "))
    for pattern, other in SHORTER:
        said = re.sub(pattern, other, said)
    return said
