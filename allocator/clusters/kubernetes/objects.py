"""Objects of Kubernetes as plain JSON: fields, quantities, times, owners."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from allocator.errors import UsageError
from allocator.objects import Record

Object = Record

PREFIX = "allocator.example/"  # of all annotations and labels that the allocator reads and writes
HOSTNAME = "kubernetes.io/hostname"
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
_UNITS = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3} | {
    letter: 1e3**power for power, letter in enumerate("MGTPE", 2)
}
_BINARY = {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)}
_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def field(value: Any, *path: str) -> Any:
    """Return a field inside objects, or None if a part of the path is absent.

    Examples
    --------
    >>> field({"spec": {"suspend": True}}, "spec", "suspend"), field({}, "spec", "suspend")
    (True, None)
    """
    for name in path:
        # objects are JSON; to ask for a Mapping takes ten times as long
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def quantity(text: object) -> float:
    """Return the number that a quantity such as "500m" or "2Gi" says; an absent one is 0.

    Raises
    ------
    UsageError
        If it is no quantity.

    Examples
    --------
    >>> quantity("500m"), quantity("2Gi"), quantity(None)
    (0.5, 2147483648.0, 0.0)
    """
    match = _QUANTITY.fullmatch(str(text or 0))
    unit = (_UNITS | _BINARY).get(match.group(2)) if match else None
    if match is None or unit is None:
        raise UsageError(f'"{text}" is no quantity of Kubernetes')
    return float(match.group(1)) * unit


def unix_seconds(text: object) -> float | None:
    """Return a time of Kubernetes in unix seconds, or None if it is none.

    Examples
    --------
    >>> unix_seconds("1970-01-01T00:01:00Z"), unix_seconds(None)
    (60.0, None)
    """
    if not isinstance(text, str) or not _TIME.fullmatch(text):
        return None
    return datetime.fromisoformat(text).timestamp()


def timestamp(seconds: float) -> str:
    """Return unix seconds as a time of Kubernetes.

    Examples
    --------
    >>> timestamp(60.0)
    '1970-01-01T00:01:00Z'
    """
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")


def newest_time(objects: Iterable[Object]) -> float:
    """Return the latest time that the metadata or the status of an object names, 0 if none does."""

    def times(value: Any) -> Iterator[float]:
        if isinstance(value, Mapping):
            for name, inner in value.items():
                if name not in ("annotations", "spec"):
                    yield from times(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from times(inner)
        elif (seconds := unix_seconds(value)) is not None:
            yield seconds

    return max((when for value in objects for when in times(value)), default=0.0)


def expand_lists(document: Object) -> Iterator[Object]:
    """Yield the objects of a document: itself, or the items of a list.

    Items of a list of one kind, such as PodList, need not name their kind.
    """
    kind = str(document.get("kind", ""))
    if "items" not in document:
        yield document
        return
    implied = {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion", "v1")}
    for item in document["items"] or ():
        yield item if "kind" in item else {**implied, **item}


def name_of(value: Object) -> str:
    """Return the name of an object."""
    return str(value["metadata"]["name"])


def namespace_of(value: Object) -> str:
    """Return the namespace of an object."""
    return str(field(value, "metadata", "namespace") or "default")


def uid_of(value: Object) -> str:
    """Return the uid of an object, "" if it has none."""
    return str(field(value, "metadata", "uid") or "")


def owners_of(value: Object) -> list[Object]:
    """Return the references of an object to its owners."""
    return list(field(value, "metadata", "ownerReferences") or ())


def annotation(value: Object, name: str) -> str | None:
    """Return an annotation of the allocator's own prefix, or a label of it."""
    return own_annotations(value).get(name)


def own_annotations(value: Object) -> dict[str, str]:
    """Return all that `annotation` finds, by name."""
    return {
        key.removeprefix(PREFIX): str(text)
        for place in ("labels", "annotations")
        for key, text in (field(value, "metadata", place) or {}).items()
        if key.startswith(PREFIX)
    }


def conditions(value: Object) -> dict[str, Object]:
    """Return the conditions in the status of an object by type."""
    return {
        str(condition["type"]): condition
        for condition in field(value, "status", "conditions") or ()
    }


def is_true(value: Object, condition: str) -> bool:
    """Return whether a condition of an object holds."""
    return conditions(value).get(condition, {}).get("status") == "True"


@dataclass(frozen=True)
class Objects:
    """All objects of a look at a cluster.

    Parameters
    ----------
    everything : sequence of mapping
        The objects, in any order.

    Examples
    --------
    >>> pod = {"kind": "Pod", "metadata": {"name": "a", "uid": "1"}}
    >>> [name_of(one) for one in Objects([pod]).of_kind("Pod")]
    ['a']
    """

    everything: Sequence[Object]

    @cached_property
    def _kinds(self) -> dict[str, list[Object]]:
        kinds: dict[str, list[Object]] = {}
        for value in self.everything:
            kinds.setdefault(str(value.get("kind")), []).append(value)
        return kinds

    @cached_property
    def _uids(self) -> dict[str, Object]:
        return {uid_of(value): value for value in self.everything if uid_of(value)}

    def of_kind(self, kind: str) -> list[Object]:
        """Return the objects of a kind, in the order of namespaces and names."""
        return sorted(
            self._kinds.get(kind, ()), key=lambda value: (namespace_of(value), name_of(value))
        )

    def owner_uids(self, value: Object) -> list[str]:
        """Return the uids of what controls an object, the nearest first, its own included."""
        uids = [uid_of(value)]
        current: Object | None = value
        while current is not None:
            owners = owners_of(current)
            above = [str(owner["uid"]) for owner in owners if owner.get("controller", True)]
            if not above or above[0] in uids:
                break
            uids.append(above[0])
            current = self._uids.get(above[0])
        return uids
