"""Recognise which of several formats a file has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from allocator.errors import UsageError

Recognise = Callable[[Path], str]


def first_recognised(
    path: Path, formats: Iterable[str], load: Callable[[str], Recognise], kind: str = "format"
) -> str:
    """Return the first format that recognises the file.

    Parameters
    ----------
    path : Path
        The file.
    formats : iterable of str
        Names of formats, in the order in which they are tried.
    load : callable
        Returns, for the name of a format, the function that recognises files of that format. This
        function returns "" for such a file, and otherwise the reason why the file is not one.
    kind : str
        What messages call a format.

    Returns
    -------
    str
        The name of the format.

    Raises
    ------
    UsageError
        If no format recognises the file. The message has the reason of every format.
    """
    reasons = []
    for name in formats:
        why = load(name)(path)
        if not why:
            return name
        reasons.append(f"  {name}: {why}")
    raise UsageError(f'"{path}" is of no known {kind}:\n' + "\n".join(reasons))
