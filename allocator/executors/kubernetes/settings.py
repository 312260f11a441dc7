"""What the executor has to know of a cluster: kubernetes.toml in the folder of its state."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

from allocator.clusters.adapter import Record
from allocator.errors import UsageError
from allocator.executors.disk import read_toml

FILE = "kubernetes.toml"
EXAMPLE = 'namespace = "training", image = "registry/train:1"'


@dataclass(frozen=True)
class Settings:
    """Where Jobs are made, and what their pods have besides what an order says.

    Parameters
    ----------
    image : str
        Image of the jobs; the variable ALLOCATOR_IMAGE of a job names another one.
    namespace : str
        Where the Jobs are.
    context, kubeconfig : str, optional
        As of kubectl.
    pod, container : mapping of str to object
        Further fields of the spec of the pods and of their container: volumes, tolerations ...

    Examples
    --------
    >>> Settings("train:1").namespace
    'default'
    """

    image: str
    namespace: str = "default"
    context: str | None = None
    kubeconfig: str | None = None
    pod: Record = field(default_factory=dict)
    container: Record = field(default_factory=dict)


def read_settings(folder: Path) -> Settings:
    """Return the settings of the state in a folder.

    Raises
    ------
    UsageError
        If there are none, or they make no sense.
    """
    path = folder / FILE
    if not path.exists():
        raise UsageError(f'write "{path}" first, for instance: {EXAMPLE}')
    found = read_toml(path)
    known = {
        one.name: "table" if one.name in ("pod", "container") else "text"
        for one in fields(Settings)
    }
    for name, value in found.items():
        is_right = isinstance(value, dict if known.get(name) == "table" else str)
        if name not in known or not is_right:
            raise UsageError(
                f'"{path}": "{name}" is not a setting, or not what it has to be; there are '
                + ", ".join(f"{one} ({kind})" for one, kind in known.items())
            )
    if "image" not in found:
        raise UsageError(f'"{path}" names no image, for instance: {EXAMPLE}')
    return Settings(**found)
