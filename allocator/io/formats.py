"""Formats of files that other systems publish: what each is, and which of them a file has."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from allocator.domain.findings import did_you_mean
from allocator.errors import UsageError


@dataclass(frozen=True)
class ExtraOption:
    """An option `--name VALUE` that only one format has."""

    name: str
    metavar: str
    help: str


@dataclass(frozen=True)
class FormatEntry:
    """A format.

    Attributes
    ----------
    module : has recognise and read.
    source : what the user names.
    help : one line.
    extras : options that only this format has.
    has_types : whether `--gpus TYPE=N` makes sense.
    """

    module: str
    source: str
    help: str
    extras: tuple[ExtraOption, ...] = ()
    has_types: bool = False

    def load(self) -> Any:
        """Return the module, which loads its libraries only now: `allocator --help` stays quick."""
        return import_module(self.module)


def choose_format(
    name: str, path: Path, formats: Mapping[str, FormatEntry], kind: str = "format"
) -> str:
    """Return a format by name; for "auto" the first that recognises the file.

    Parameters
    ----------
    name : str
        Name of a format, or "auto".
    path : Path
        The file.
    formats : mapping of str to FormatEntry
        The formats, in the order in which they are tried.
    kind : str
        What messages call a format.

    Raises
    ------
    UsageError
        For an unknown name. If no format recognises the file, with the reason of every format.
    """
    if name in formats:
        return name
    if name != "auto":
        raise UsageError(
            f'no {kind} "{name}"{did_you_mean(name, formats)}; known: auto, {", ".join(formats)}'
        )
    reasons = []
    for known, entry in formats.items():
        why = entry.load().recognise(path)
        if not why:
            return known
        reasons.append(f"  {known}: {why}")
    raise UsageError(f'"{path}" is of no known {kind}:\n' + "\n".join(reasons))
