"""Measure how readable the code is, of one revision or of several side by side.

    python scripts/benchmarks/measure_code.py                 the working tree
    python scripts/benchmarks/measure_code.py ccfe160 HEAD    revisions, a column each

Tokens are what Python's tokenizer returns without comments, docstrings, line ends and indentation.
A line of code is a line that holds such a token. The complexity of a function is McCabe's, counted
by ruff (rule C901). Every count is exact, so that no seed or machine matters.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SOURCE, ALL = ("allocator", "formulations"), ("allocator", "formulations", "tests", "scripts")
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
LONGEST = 100


def files(root: Path, folders: tuple[str, ...]) -> list[Path]:
    """Return the Python files of the folders."""
    return [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]


def count_tokens(path: Path) -> tuple[int, int]:
    """Return the tokens of a file and its lines of code."""
    tokens, lines = 0, set()
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        is_docstring = token.type == tokenize.STRING and re.match(r'\s*r?"""', token.line)
        if token.type not in LAYOUT and not is_docstring:
            tokens += 1
            lines.update(range(token.start[0], token.end[0] + 1))
    return tokens, len(lines)


def complexities(root: Path) -> list[int]:
    """Return the complexity of every function of the source."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "C901"]
    command += ["--config", "lint.mccabe.max-complexity=0", "--output-format", "json", *SOURCE]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if not run.stdout:
        raise SystemExit(f"ruff is needed; ./scripts/test installs it ({run.stderr.strip()})")
    return [int(re.search(r"\((\d+) >", m["message"]).group(1)) for m in json.loads(run.stdout)]


def measure(root: Path) -> dict[str, str]:
    """Return the figures of a tree, by their name."""
    figures = {}
    for name, folders in (("source", SOURCE), ("tests", ("tests",)), ("scripts", ("scripts",))):
        tokens, lines = np.array([count_tokens(p) for p in files(root, folders)]).sum(axis=0)
        figures[f"tokens, {name}"] = f"{tokens:,}"
        figures[f"tokens per line of code, {name}"] = f"{tokens / lines:.2f}"
    text = [line for p in files(root, ALL) for line in p.read_text(encoding="utf-8").splitlines()]
    figures[f"lines above {LONGEST} columns"] = f"{sum(len(line) > LONGEST for line in text):,}"
    found = complexities(root)
    figures["complexity, p99 and maximum"] = f"{np.percentile(found, 99):.0f}, {max(found)}"
    modules = [path for path in files(root, ALL) if path.name != "__init__.py"]
    folder, most = Counter(path.parent for path in modules).most_common(1)[0]
    figures["most modules in a folder"] = f"{most} ({folder.relative_to(root)})"
    return figures


def revision(name: str, into: Path) -> Path:
    """Write a revision of the repository into a folder and return it."""
    archive = subprocess.run(["git", "archive", name], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(into)], input=archive.stdout, check=True)
    return into


def main() -> int:
    """Print a table with a column for each revision."""
    names = sys.argv[1:]
    if any(name.startswith("-") for name in names):
        print(__doc__)
        return 0
    columns = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            columns.append(measure(revision(name, Path(folder))))
    if not names:
        names, columns = ["working tree"], [measure(ROOT)]
    print(f"| | {' | '.join(names)} |\n|---{'|---' * len(names)}|")
    for figure in columns[0]:
        print(f"| {figure} | {' | '.join(column[figure] for column in columns)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
