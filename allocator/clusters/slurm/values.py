"""Values in Slurm's answers: numbers and texts of its JSON, lists of names, and GPUs.

The form of the JSON depends on the version. A number is plain in 22.05, and {"set", "infinite",
"number"} since 23.02. A state is a text in 22.05, with flags in another field, and a list since
23.02. Absent fields are None.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from allocator.clusters.slurm.commands import SlurmUnreachable
from allocator.objects import Record

BRACKET = re.compile(r"\[([^\]]*)\]")
MOST_NUMBERS = 1_000_000  # of one range; more is no list of nodes or tasks
UNTYPED = "gpu"  # type of GPUs that a cluster does not name
NOTE = re.compile(r"\([^)]*\)")  # (S:0-1), (IDX:0,2)
REQUESTS = {  # field of a job -> per what it asks for GPUs
    "tres_per_node": "node",
    "tres_per_job": "job",
    "tres_per_task": "task",
    "tres_per_socket": "socket",
}


def read_number(record: Record, field: str) -> float | None:
    """Return a number: inf for an infinite one, None for one that is not set."""
    value = record.get(field)
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return math.inf
        value = value.get("number") if value.get("set") else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value)


def read_integer(record: Record, field: str) -> int | None:
    """Return a whole number, or None for one that is not set or infinite."""
    value = read_number(record, field)
    return None if value is None or math.isinf(value) else int(value)


def read_text(record: Record, field: str) -> str:
    """Return a text; "" for an absent one."""
    value = record.get(field)
    return value.strip() if isinstance(value, str) else ""


def read_words(record: Record, *fields: str) -> list[str]:
    """Return the words of fields that are lists, or texts with commas."""
    values = (record.get(field) for field in fields)
    lists = (value.split(",") if isinstance(value, str) else value or () for value in values)
    return [text for words in lists for word in words if (text := str(word).strip())]


def parse_records(text: str) -> list[dict[str, str]]:
    """Parse `scontrol show ... -o`: one record a line, of FIELD=VALUE with spaces between.

    It is for records whose values nobody but an administrator writes: a value is taken up to the
    next name of a field.
    """
    lines = (re.split(r"(?:^|\s)([A-Z][A-Za-z]*)=", line) for line in text.splitlines())
    return [
        {name: value.strip() for name, value in zip(parts[1::2], parts[2::2], strict=True)}
        for parts in lines
        if len(parts) > 2
    ]


def expand_names(text: str) -> list[str]:
    """Return the names of a list such as n[1-3,7],gpu02, in its order.

    Examples
    --------
    >>> expand_names("n[1-2,08-09],r[1-2]c3")
    ['n1', 'n2', 'n08', 'n09', 'r1c3', 'r2c3']
    """
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        pieces = BRACKET.split(part.strip())
        choices = [
            _expand_numerals(piece) if place % 2 else [piece] for place, piece in enumerate(pieces)
        ]
        names += filter(None, map("".join, itertools.product(*choices)))
    return names


def _expand_numerals(text: str) -> list[str]:
    """Return the numbers of the inside of a bracket, with their leading zeros."""
    numerals: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        spans = _range(first, last, "1", text) if dash else ()
        numerals += [f"{i:0{len(first)}d}" for i in spans] if dash else [part]
    return numerals


def expand_numbers(text: str) -> list[int]:
    """Return the numbers of a list of array tasks.

    Examples
    --------
    >>> expand_numbers("1-3,10-30:10")
    [1, 2, 3, 10, 20, 30]
    """
    numbers: list[int] = []
    for part in text.split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        numbers += _range(first, last or first, step or "1", text)
    return numbers


def _range(first: str, last: str, step: str, text: str) -> range:
    if not (first.isdecimal() and last.isdecimal() and step.isdecimal() and int(step)):
        raise SlurmUnreachable(f'Slurm\'s list "{text}" cannot be read')
    if int(last) - int(first) > MOST_NUMBERS:
        raise SlurmUnreachable(f'Slurm\'s list "{text}" is too long')
    return range(int(first), int(last) + 1, int(step))


def count_gpus(text: str) -> Counter[str]:
    """Return the number of GPUs of each type in a text such as "gpu:a100:4(S:0-1),gpu:v100:2".

    Examples
    --------
    >>> count_gpus("gres/gpu:a100:4,mps:400,gpu")
    Counter({'a100': 4, 'gpu': 1})
    """
    gpus: Counter[str] = Counter()
    for part in NOTE.sub("", text).replace("=", ":").split(","):
        name, *rest = part.strip().removeprefix("gres:").removeprefix("gres/").split(":")
        if name == "gpu":
            count = rest.pop() if rest and rest[-1].isdecimal() else "1"
            gpus[rest[0] if rest else UNTYPED] += int(count)
    return gpus


@dataclass(frozen=True)
class GpuRequest:
    """State what a job asks for.

    Parameters
    ----------
    per : str
        "node", "job", "task" or "socket": per what it states the number; "" for several at a time.
    gpu_type : str, optional
        Type that it names.
    gpus : int
        GPUs in all.
    nodes : int
        Nodes in all.
    """

    per: str
    gpu_type: str | None
    gpus: int
    nodes: int


def read_request(job: Record) -> GpuRequest | None:
    """Return what a job asks for; None for a job without GPUs."""
    asked = {
        per: gpus for field, per in REQUESTS.items() if (gpus := count_gpus(read_text(job, field)))
    }
    if not asked:
        return None
    nodes = max(1, read_integer(job, "node_count") or 1)
    times = {"node": nodes, "task": max(1, read_integer(job, "tasks") or 1), "socket": nodes}
    per, first = next(iter(asked.items()))
    types = {name for gpus in asked.values() for name in gpus}
    named = types - {UNTYPED}
    return GpuRequest(
        per if len(asked) == len(types) == 1 else "",
        min(named) if len(named) == 1 else None,
        first.total() * times.get(per, 1),
        nodes,
    )
