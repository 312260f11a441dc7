"""The rules of the house: floors, cycles, solver packages, folders, top level, private words.

Which package may import which is a contract of import-linter in pyproject.toml. Ruff checks that
every module has a docstring, and that heavy packages are imported by functions only. Each other
rule is a function here, `root -> faults`. It is applied to this repository and, as a self-test, to
a small tree that breaks the rule.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest
from places import ROOT

PACKAGES = ("formulations", "allocator")
HOME = {  # solver package -> beginning of the modules that may import it
    "highspy": "allocator.solvers.highs",
    "ortools": "allocator.solvers.cpsat",
    "pulp": "allocator.solvers.pulp",
}
MATHEMATICS = {"numpy", "scipy", "numba", *sys.stdlib_module_names}  # what formulations may import
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
    graph = grimp.build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)
    TopologicalSorter(
        {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    ).prepare()
    for package, home in HOME.items():
        users = graph.find_modules_that_directly_import(package)
        assert users and all(name.startswith(home) for name in users)
    for name in graph.find_descendants("formulations"):
        known = graph.find_modules_directly_imported_by(name)
        assert {known_name.split(".")[0] for known_name in known} <= MATHEMATICS | {"formulations"}
