"""Which of several formats a file is of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from allocator.errors import UsageError

Recognise = Callable[[Path], str]


def first_recognised(
    path: Path, formats: Iterable[str], load: Callable[[str], Recognise], kind: str = "format"
) -> str:
    """The first format that takes the file for its own. load: how one looks at a file, "" = it is
    one of its own, else why not. Raises UsageError with every reason where none does."""
    reasons = []
    for name in formats:
        why = load(name)(path)
        if not why:
            return name
        reasons.append(f"  {name}: {why}")
    raise UsageError(f'"{path}" is of no known {kind}:\n' + "\n".join(reasons))
