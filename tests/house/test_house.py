"""The rules of the house: floors, import arrows, solver packages, docstrings, folders, top
level, private words.

Every rule is a function `root -> faults`. Each is applied to this repository and, as a self-test,
to a small tree that breaks it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from places import ROOT

PACKAGES = ("formulations", "allocator")
FLOORS = (  # imports point to lower entries only; entries of one floor do not know each other
    {"formulations", "allocator.errors"},
    {"allocator.plugins"},
    {"allocator.domain"},
    {"allocator.performance", "allocator.market", "allocator.solvers"},
    {"allocator.valuation"},
    {"allocator.options", "allocator.audit", "allocator.io"},
    {"allocator.problem", "allocator.clusters"},
    {"allocator.policies", "allocator.queue"},
    {"allocator.engine"},
    {"allocator.loop"},
    {"allocator.simulator", "allocator.executors"},
    {"allocator.controller", "allocator.api"},
    {"allocator"},  # the public names, allocator/__init__.py
    {"allocator.bench", "allocator.report"},
    {"allocator.server"},
    {"allocator.cli"},
    {"allocator.__main__"},
)
FLOOR = {unit: level for level, units in enumerate(FLOORS) for unit in units}
ONLY = {  # units that may know even less than their floor allows
    "allocator.solvers": {"formulations", "allocator.errors", "allocator.plugins"},
    "allocator.audit": {
        "allocator.domain",
        "allocator.performance",
        "allocator.valuation",
        "allocator.errors",
    },
}
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


def unit(name: str) -> str:
    """The entry of FLOORS a module belongs to: its package, or allocator.<folder or file>."""
    parts = name.split(".")
    return parts[0] if parts[0] == "formulations" else ".".join(parts[:2])


def targets(root: Path) -> Iterator[tuple[str, str, str]]:
    """(module, imported module of ours, place) for every import between our modules."""
    ours = modules(root)
    for name, path in ours.items():
        for full, line, _ in imports(name, path):
            target = next(
                (t for t in (full, full.rpartition(".")[0], full.split(".")[0]) if t in ours), None
            )
            if target is not None and target != name:
                yield name, target, f"{path.relative_to(root)}:{line}"


def upward_imports(root: Path) -> list[str]:
    """Imports that point up, or across one floor; modules without a floor; what ONLY forbids."""
    faults = [f"{name}: no floor" for name in modules(root) if unit(name) not in FLOOR]
    for name, target, place in targets(root):
        a, b = unit(name), unit(target)
        if a == b or a not in FLOOR or b not in FLOOR:
            continue
        if FLOOR[b] >= FLOOR[a] or (a in ONLY and b not in ONLY[a]):
            faults.append(f"{place}: {name} (floor {FLOOR[a]}) imports {target} (floor {FLOOR[b]})")
    return faults


def cycles(root: Path) -> list[str]:
    """Modules that reach themselves by imports."""
    graph: dict[str, set[str]] = {name: set() for name in modules(root)}
    for name, target, _ in targets(root):
        graph[name].add(target)
    while leaves := [name for name, known in graph.items() if not known]:
        for leaf in leaves:
            del graph[leaf]
        for known in graph.values():
            known.difference_update(leaves)
    on_cycle = {n for known in graph.values() for n in known}
    return [f"{name}: on an import cycle or above one" for name in graph if name in on_cycle]


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
    upward_imports,
    cycles,
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


BREAKS = (  # rule, file, text, what the fault says
    (
        upward_imports,
        "allocator/domain/a.py",
        "def f():\n    import allocator.io.read",
        "floor 2",
    ),
    (
        upward_imports,
        "allocator/audit/a.py",
        "from formulations.model import linear",
        "imports formulations",
    ),
    (
        upward_imports,
        "allocator/solvers/a.py",
        "if TYPE_CHECKING:\n    from allocator.domain import x",
        "floor 2",
    ),
    (
        upward_imports,
        "allocator/options/b.py",
        "from ..cli import main",
        "imports allocator.cli.main",
    ),
    (upward_imports, "allocator/novel/a.py", "x = 1", "no floor"),
    (cycles, "allocator/domain/b.py", "import allocator.domain.c", "allocator.domain.b"),
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
    if rule is cycles:
        sound["allocator/domain/c.py"] = '"""C."""\ndef f():\n    from allocator.domain import b'
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
