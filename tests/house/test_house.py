"""The rules of the house: floors, cycles, solver packages, docstrings, folders, top level, private
words.

Floors are contracts of pyproject.toml. Every other rule is a function `root -> faults`, applied to
this repository and, as a self-test, to a small tree that breaks it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest
from places import ROOT

PACKAGES = ("formulations", "allocator")
LAZY = {
    "highspy",
    "ortools",
    "pulp",
    "pandas",
    "rich",
    "matplotlib",
    "numba",
    "jinja2",
    "prometheus_client",
    "tomli_w",
    "kubernetes",
    "yaml",
}
HOME = {  # solver package -> beginnings of the files under allocator/solvers that may import it
    "highspy": ("highs",),
    "ortools": ("cpsat",),
    "pulp": ("pulp",),
}
TOP_REQUIRED = {
    "pyproject.toml",
    "allocator",
    "formulations",
    "data",
    "tests",
    "scripts",
    "README.md",
    ".ci",
}
TOP_ALLOWED = TOP_REQUIRED | {
    ".gitignore",
    ".pre-commit-config.yaml",
    "docs",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE",
    "SECURITY.md",
}
PRIVATE = re.compile(
    "|".join(
        (
            # absolute paths of a machine
            r"(?<![\w.:/-])/(?:wor[k]|far[m]|roo[t]|hom[e]|User[s])/\w",
            r"py[p]i\.org",
            r"pythonhoste[d]\.org",
            r"artifactor[y]",
            r"ne[x]us\.",
            r"devp[i]",
            r"anaconda\.or[g]",
        )
    )
)

MOST_MODULES = 15  # of a folder
Import = tuple[str, int, bool]  # full name, line, whether it happens when the module is imported


def modules(root: Path) -> dict[str, Path]:
    """Dotted name -> file, of both packages; a package is named like its folder."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def parse(text: str) -> ast.Module:
    """The syntax tree of a module, made once for all rules."""
    return ast.parse(text)


@cache
def imports(name: str, path: Path) -> tuple[Import, ...]:
    """Every import of a module, inside functions and under TYPE_CHECKING too, and
    import_module("..."); found once for all rules.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    text = path.read_text(encoding="utf-8")
    calls = "import_module(" in text or "__import__(" in text

    def walk(node: ast.AST, at_import: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, at_import) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield from ((f"{base}.{alias.name}", node.lineno, at_import) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            if called in ("import_module", "__import__"):
                yield str(node.args[0].value), node.lineno, at_import
        inner = at_import and not isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        )
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            inner = False
        for child in ast.iter_child_nodes(node):
            if calls or not isinstance(child, ast.expr):
                yield from walk(child, inner)

    return tuple(walk(parse(text), True))


def strangers(root: Path) -> list[str]:
    """Third-party imports where they may not be: solvers outside their file, heavy packages at
    import time, anything but numpy, scipy, numba (optional, lazy) and the standard library in
    formulations."""
    faults = []
    for name, path in modules(root).items():
        for full, line, at_import in imports(name, path):
            top, place = full.split(".")[0], f"{path.relative_to(root)}:{line}"
            homes = HOME.get(top)
            inside = name.removeprefix("allocator.solvers.")
            if homes and not (inside != name and inside.startswith(homes)):
                faults.append(f"{place}: {top} outside its own file")
            if top in LAZY and at_import:
                faults.append(f"{place}: {top} is imported as soon as the module is")
            if name.startswith("formulations") and top not in {
                "formulations",
                "numpy",
                "scipy",
                "numba",
            } | set(sys.stdlib_module_names):
                faults.append(f"{place}: formulations may not know {top}")
    return faults


def undocumented(root: Path) -> list[str]:
    """Public modules without a docstring; an empty __init__.py needs none."""
    trees = {name: parse(path.read_text(encoding="utf-8")) for name, path in modules(root).items()}
    return [
        f"{name}: no docstring"
        for name, tree in trees.items()
        if tree.body and not ast.get_docstring(tree) and not name.split(".")[-1].startswith("_")
    ]


def tracked(root: Path) -> list[Path]:
    """Files under version control; every file that is not hidden where there is no git."""
    run = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=False
    )
    if run.returncode == 0 and run.stdout:
        return [root / name for name in run.stdout.split("\0") if name and (root / name).is_file()]
    hidden = {".venv", ".git", "__pycache__", "out"}
    return [
        p
        for p in sorted(root.rglob("*"))
        if p.is_file() and not hidden & set(p.relative_to(root).parts)
    ]


def crowded_folders(root: Path) -> list[str]:
    """Folders with more modules than a reader can take in; __init__.py is not counted."""
    folders = Counter(
        path.relative_to(root).parent
        for path in tracked(root)
        if path.suffix == ".py" and path.name != "__init__.py"
    )
    return [
        f"{folder}: {number} modules"
        for folder, number in sorted(folders.items())
        if number > MOST_MODULES
    ]


def top_level(root: Path) -> list[str]:
    """Compare the first level of the repository with the list of what belongs there."""
    top = {p.relative_to(root).parts[0] for p in tracked(root)}
    return [
        *(f"{name}: missing" for name in sorted(TOP_REQUIRED - top)),
        *(f"{name}: does not belong here" for name in sorted(top - TOP_ALLOWED)),
    ]


def private_words(root: Path) -> list[str]:
    """Text files that give away a work machine's paths or a package registry."""
    faults = []
    for path in tracked(root):
        text = path.read_bytes().decode("utf-8", "replace")
        faults += [
            f"{path.relative_to(root)}:{n}: {found.group()}"
            for n, line in enumerate(text.splitlines(), 1)
            if (found := PRIVATE.search(line))
        ]
    return faults


RULES: tuple[Callable[[Path], list[str]], ...] = (
    strangers,
    undocumented,
    crowded_folders,
    top_level,
    private_words,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_repository_keeps_the_rule(rule: Callable[[Path], list[str]]) -> None:
    """The repository has no fault under any rule."""
    assert rule(ROOT) == []


def test_imports_keep_the_contracts_and_make_no_circle() -> None:
    """Those inside functions and under TYPE_CHECKING count too."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "5 kept, 0 broken" in done.stdout, done.stdout
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    TopologicalSorter(
        {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    ).prepare()


BREAKS = (  # rule, file, text, what the fault says
    (strangers, "allocator/policies/a.py", "def f():\n    import highspy", "outside its own file"),
    (
        strangers,
        "allocator/solvers/cpsat.py",
        "from ortools.sat.python import cp_model",
        "as soon as",
    ),
    (strangers, "allocator/cli/a.py", "import_module('pulp')", "outside its own file"),
    (strangers, "formulations/a.py", "import pandas as pd", "may not know pandas"),
    (undocumented, "formulations/a.py", "x = 1", "no docstring"),
    (crowded_folders, "tests/many/last.py", "x = 1", "tests/many: 16 modules"),
    (top_level, "notes/a.md", "x", "does not belong here"),
    (private_words, "data/a.txt", "see /wor" + "k/main", "data/a.txt:1"),
)


SOUND = {
    "allocator/__init__.py": "",
    "allocator/cli/main.py": '"""Runs."""',
    "allocator/domain/c.py": '"""C."""',
    "allocator/domain/x.py": '"""Nouns."""',
    "allocator/io/read.py": '"""Reads."""',
    "allocator/options/option_table.py": '"""Options."""\nfrom allocator.domain import x',
    "formulations/model/linear.py": '"""Rows."""',
    **dict.fromkeys(
        ("pyproject.toml", "data/d.csv", "tests/t.py", "scripts/s.py", "README.md", ".ci/run"), ""
    ),
}


@pytest.mark.parametrize(
    ("rule", "file", "text", "says"), BREAKS, ids=lambda part: getattr(part, "__name__", None)
)
def test_rule_sees_what_breaks_it(
    tmp_path: Path, rule: Callable[[Path], list[str]], file: str, text: str, says: str
) -> None:
    """A small sound tree passes the rule, and one bad file in it is found and named."""
    sound = dict(SOUND)
    if rule is crowded_folders:
        sound |= {f"tests/many/a{number}.py": "" for number in range(MOST_MODULES)}
    for name, content in sound.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert rule(tmp_path) == []
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text, encoding="utf-8")
    faults = rule(tmp_path)
    assert any(says in fault for fault in faults), faults
