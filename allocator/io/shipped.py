"""The data that comes with the allocator: where it lies, and the list of the examples."""

import shutil
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from allocator.errors import AllocatorError, UsageError


@dataclass(frozen=True)
class Example:
    """A shipped file or folder, and the commands that use a copy of it.

    Attributes
    ----------
    name : name of the copy.
    about : one line of what it is.
    commands : in their order; they are called in the folder that has the copy.
    source : the file or folder; None: the commands need none.
    """

    name: str
    about: str
    commands: tuple[str, ...]
    source: Path | None


def find_shipped(path: str) -> Path:
    """Return the place of a file or folder below `data`.

    It is inside the installed package, or in the repository of this file.

    Raises
    ------
    AllocatorError
        If it is missing.
    """
    package = Path(__file__).resolve().parents[1]
    for root in (package, package.parent):
        place = root / "data" / path
        if place.exists():
            return place
    raise AllocatorError(f"data/{path} is missing from this installation")


def list_examples() -> dict[str, Example]:
    """Return the examples of data/examples.toml by name."""
    listed = tomllib.loads(find_shipped("examples.toml").read_text(encoding="utf-8"))
    return {
        name: Example(
            name,
            entry["about"],
            tuple(entry["commands"]),
            find_shipped(entry["path"]) if "path" in entry else None,
        )
        for name, entry in listed.items()
    }


def describe_copy(path: Path | str) -> str:
    """Return which command brings a path below `data` that is not there; empty for another path."""
    first, *rest = Path(path).parts or ("",)
    if first != "data" or not rest:
        return ""
    place = find_shipped(".").joinpath(*rest)
    for example in list_examples().values():
        if example.source is not None and place.is_relative_to(example.source):
            copy = Path(example.name) / place.relative_to(example.source)
            return f'; "allocator examples {example.name} --out ." brings it, as "{copy}"'
    return ""


def copy_examples(examples: Iterable[Example], folder: Path) -> None:
    """Copy the files of examples into a folder, all or none.

    Raises
    ------
    UsageError
        If there is something of the name of a copy, which stays as it is.
    """
    copies = {folder / e.name: e.source for e in examples if e.source is not None}
    for target in copies:
        if target.exists() or target.is_symlink():
            raise UsageError(f'"{target}" exists already; nothing was copied')
    folder.mkdir(parents=True, exist_ok=True)
    for target, source in copies.items():
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)
