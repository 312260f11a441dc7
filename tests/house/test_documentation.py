"""What the documentation shows can be done as written: commands, options, links, and the
simulator from Python.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from allocator.cli import main
from allocator.policies.base import POLICIES
from formulations.objectives import BUILT_IN as OBJECTIVES

PAGES = [
    ROOT / "README.md",
    *(p for p in (ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md") if p.exists()),
    ROOT / "formulations" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "data").glob("*/README.md")),
]


PARSER = main.parser()


def code(page: Path) -> Iterator[str]:
    """Lines of fenced and indented code, and what stands between backticks."""
    text, fenced = page.read_text(encoding="utf-8"), False
    yield from re.findall(r"(?<!`)`(allocator (?!linear)[^`\n]+)`", text)
    # a backslash goes on in the next line
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line


def commands(page: Path) -> Iterator[list[str]]:
    """Words of the command lines, without placeholders in brackets, comments after two blanks and
    what follows them; a > in quotes is none."""
    for line in code(page):
        for part in line.split("&&"):
            said = re.split(r'\s{2,}(?=\S)|\s#\s|\s[>|](?=(?:[^"]*"[^"]*")*[^"]*$)', part.strip())[
                0
            ]
            if said.startswith("allocator ") and "=" not in said.split()[1] and "[" not in said:
                yield shlex.split(said)[1:]


def options(parser: argparse.ArgumentParser) -> tuple[set[str], dict[str, Any]]:
    """Option strings of a parser, and its commands by name."""
    below: dict[str, Any] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below |= action.choices
    return {text for action in parser._actions for text in action.option_strings}, below


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_commands_and_options_exist(page: Path) -> None:
    """Every command line in the documentation names commands and options that the parser has,
    and known policies.
    """
    for words in commands(page):
        known, below = options(PARSER)
        for i, word in enumerate(words):
            if i and below and word.isupper():
                break  # a placeholder for a command: FORMAT
            if word in below:
                more, below = options(below[word])
                known = known | more
            elif i == 0:
                pytest.fail(f"{page.name}: allocator {shlex.join(words)}: no such command")
            elif word == "--":
                break  # the rest is the user's own command
            elif word.startswith("--"):
                assert word.partition("=")[0] in known, (
                    f"{page.name}: allocator {shlex.join(words)}: {word}"
                )
            elif words[i - 1] in ("--policy", "--policies") and word != "A,B":
                assert set(word.split(",")) <= {*POLICIES, "newest-first"}, (
                    f"{page.name}: allocator {shlex.join(words)}"
                )


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link is a file here, and its anchor a heading of it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), f"{page.name}: {target}"
        if anchor:
            heads = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {
                re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads
            }, target


def missing_paths(text: str, bases: tuple[Path, ...]) -> list[str]:
    """Paths that a text names and that do not exist below any of the folders.

    A path begins with a folder of the first level, or is a Python file in a folder and stands in
    backticks. It may hold a *, or NAME for the name of any file.
    """
    named = re.findall(
        r"(?<![\w/.:-])(?:allocator|formulations|scripts|tests|data|docs)/[\w./*-]*[\w*]", text
    )
    named += re.findall(r"`([\w-]+/[\w./-]*\.py)`", text)
    return [
        name
        for name in dict.fromkeys(named)
        if not any(any(base.glob(name.replace("NAME", "*"))) for base in bases)
    ]


def test_no_figure_is_still_to_come() -> None:
    """A table that a script has to print is there, and not its mark."""
    assert [page for page in PAGES if "@@" in page.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_paths_exist(page: Path) -> None:
    """Every file or folder of the repository that a page names exists."""
    assert missing_paths(page.read_text(encoding="utf-8"), (ROOT, page.parent)) == []


@pytest.mark.parametrize("page", ["reference/glossary.md", "extending.md"])
def test_pages_name_what_the_code_holds(page: str) -> None:
    """Every name that the glossary and the page on extending place in a file is defined there."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    placed = re.findall(r"`(\w+)` in `([\w/.]+)`", text)
    assert len(placed) >= 10
    for name, file in placed:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^(class|def) {name}\b|^{name}(: .*)? = ", source, re.MULTILINE), (
            name,
            file,
        )


@pytest.mark.parametrize("page", ["command", "format", "http", "record"])
def test_generated_pages_are_current(page: str) -> None:
    """Each generator of docs/reference writes its page again as it stands."""
    generator = importlib.import_module(f"scripts.generators.generate_{page}_docs")
    assert generator.PAGE.read_text(encoding="utf-8") == generator.write_page()


def test_cited_rules_exist() -> None:
    """Rules are numbered R1, R2 ... in order; code, tests and pages cite no other numbers."""
    text = (ROOT / "docs" / "reference" / "rules.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^\*\*R(\d+)\. ", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    folders = ("allocator", "formulations", "scripts", "tests")
    sources = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    for path in (*PAGES, *sources):
        cited = re.findall(r"\bR([1-9]\d*)\b", path.read_text(encoding="utf-8"))
        assert {int(number) for number in cited} <= set(numbers), path


def test_everything_that_has_a_name_has_a_page() -> None:
    """Each policy a row of docs/policies.md, each objective a word of docs/objectives.md, each
    command a line.
    """
    policies, objectives = (
        (ROOT / "docs" / page).read_text(encoding="utf-8")
        for page in ("policies.md", "objectives.md")
    )
    assert [name for name in POLICIES if f"\n| `{name}` |" not in policies] == []
    assert [name for name in OBJECTIVES if f"`{name}`" not in objectives] == []
    shown = {words[0] for page in PAGES for words in commands(page)}
    assert set(options(PARSER)[1]) - shown == set()
