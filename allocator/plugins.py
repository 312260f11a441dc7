"""Parts by name: built in, registered by a function, or declared by installed packages.

A package declares a part as an entry point of the group of its kind. Entry points are looked up
only when a name is not built in, or when all names are listed, and a part is loaded when it is
asked for. So a broken package stops nobody who does not use it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from allocator.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


@dataclass
class Registry(Generic[T]):
    """Find the parts of one kind by name.

    Parameters
    ----------
    kind : str
        What a part is called in messages, such as "policy".
    group : str
        Group of entry points, such as "allocator.policies".
    built_in : mapping of str to T
        The parts that this package has.
    load : callable
        Makes a part from an entry point. What it raises is reported with the name of the package.
    others : tuple of str
        Names that may be asked for although they are no parts.
    elsewhere : mapping of str to str
        Names that other systems give parts, and the part of that kind here.
    """

    kind: str
    group: str
    built_in: Mapping[str, T]
    load: Callable[[EntryPoint], T]
    others: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    _added: dict[str, T] = field(default_factory=dict)

    def add(self, name: str, part: T) -> None:
        """Register a part in this process. Raises UsageError if the package has the name."""
        if name in self.built_in or name in self.others:
            raise UsageError(f'there is a {self.kind} "{name}" already')
        self._added[name] = part

    def get(self, name: str) -> T:
        """Return the part of a name.

        Raises
        ------
        UsageError
            For an unknown name, with all known ones; for a package that cannot be loaded, or two
            packages that declare the same name.
        """
        if name in self.built_in:
            return self.built_in[name]
        if name not in self._added:
            self._added[name] = self._find(name)
        return self._added[name]

    def names(self) -> tuple[str, ...]:
        """Return all names, those of installed packages included; nothing is loaded."""
        known = (*self.others, *self.built_in, *self._added, *(p.name for p in self.declared()))
        return tuple(dict.fromkeys(known))

    def declared(self) -> Iterator[EntryPoint]:
        """Yield the parts of installed packages; one with a built-in name never counts."""
        from importlib.metadata import entry_points

        for point in entry_points(group=self.group):
            if point.name not in self.built_in and point.name not in self.others:
                yield point

    def _find(self, name: str) -> T:
        """Load the part of this name from the one installed package that declares it."""
        points = [point for point in self.declared() if point.name == name]
        if not points:
            known = self.names()
            here = self.elsewhere.get(name.casefold())
            near = [here] if here else difflib.get_close_matches(name, known, 1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise UsageError(f'unknown {self.kind} "{name}"{hint} (known: {", ".join(known)})')
        owners = sorted({package_of(point) for point in points})
        if len(owners) > 1:
            raise UsageError(f'{self.kind} "{name}" is declared by {" and ".join(owners)}')
        try:
            return self.load(points[0])
        except Exception as error:
            raise UsageError(
                f'{self.kind} "{name}" of {owners[0]} cannot be loaded'
                f" ({points[0].value}): {type(error).__name__}: {error}"
            ) from error


def package_of(point: EntryPoint) -> str:
    """Name the installed package of an entry point, with its version."""
    return "an unnamed package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
