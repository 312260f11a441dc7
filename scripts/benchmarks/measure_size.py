"""Count what a reader of this repository has before them.

    python scripts/benchmarks/measure_size.py               # the working tree
    python scripts/benchmarks/measure_size.py --budgets     # the table of tests/house/test_size.py

Tokens are those of Python's tokenizer without comments, line ends and indentation; a docstring is
one token. They are counted for each package, for all tests and for all scripts. Pages of docs and
their words are counted without docs/reference.
"""

import argparse
import math
import subprocess
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
}


def count_tokens(path: Path) -> int:
    """Return the tokens of a Python file."""
    with path.open(encoding="utf-8") as file:
        return sum(t.type not in LAYOUT for t in tokenize.generate_tokens(file.readline))


def is_python(path: Path) -> bool:
    """Return whether a file is Python: by its name, or by its first line."""
    if path.suffix:
        return path.suffix == ".py"
    with path.open("rb") as file:
        return b"python" in file.readline()


def measure(root: Path = ROOT) -> dict[str, int]:
    """Return the counts of the files under version control that exist, by what they are of."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    counts: Counter[str] = Counter()
    for name in filter(None, listed.split("\0")):
        path, (top, *below) = root / name, Path(name).parts
        if not path.is_file():
            continue
        if top in ("allocator", "formulations") and is_python(path):
            package = "/".join([top, *below[:-1]][:2])
            counts[f"{package}, tokens"] += count_tokens(path)
        elif top in ("tests", "scripts") and is_python(path):
            counts[f"{top}, tokens"] += count_tokens(path)
        elif top == "docs" and path.suffix == ".md" and below[0] != "reference":
            counts["docs, pages"] += 1
            counts["docs, words"] += len(path.read_text(encoding="utf-8").split())
    return dict(sorted(counts.items()))


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budgets", action="store_true", help="the counts and 1 %%, as a table")
    args = parser.parse_args()
    counts = measure()
    for name, count in counts.items():
        if args.budgets:
            print(f'    "{name}": {math.ceil(1.01 * count):_},')
        else:
            print(f"{count:9,} {name}")
    if not args.budgets:
        source = sum(n for name, n in counts.items() if name.startswith(("alloc", "formul")))
        print(f"{source:9,} allocator and formulations, tokens")


if __name__ == "__main__":
    main()
