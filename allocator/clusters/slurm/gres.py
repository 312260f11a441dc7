"""GPUs in the texts of Slurm: what nodes have, what jobs ask for, and what they hold."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from allocator.clusters.slurm.shapes import Record, read_integer, read_text

UNTYPED = "gpu"  # type of GPUs that a cluster does not name
NOTE = re.compile(r"\([^)]*\)")  # (S:0-1), (IDX:0,2)
SHARED = ("shard", "mps")
REQUESTS = {  # field of a job -> per what it asks for GPUs
    "tres_per_node": "node",
    "tres_per_job": "job",
    "tres_per_task": "task",
    "tres_per_socket": "socket",
}


def count_gpus(text: str) -> Counter[str]:
    """Return the number of GPUs of each type in a text such as "gpu:a100:4(S:0-1),gpu:v100:2".

    Examples
    --------
    >>> count_gpus("gres/gpu:a100:4,mps:400,gpu")
    Counter({'a100': 4, 'gpu': 1})
    """
    found: Counter[str] = Counter()
    for part in NOTE.sub("", text).replace("=", ":").split(","):
        name, *rest = part.strip().removeprefix("gres:").removeprefix("gres/").split(":")
        if name == "gpu":
            count = rest.pop() if rest and rest[-1].isdecimal() else "1"
            found[rest[0] if rest else UNTYPED] += int(count)
    return found


def shares_in_use(text: str) -> bool:
    """Return whether shares of GPUs are in use: "shard:a100:2(...)" or "mps:50"."""
    parts = NOTE.sub("", text).split(",")
    return any(
        part.startswith(SHARED) and not part.endswith(":0") for part in map(str.strip, parts)
    )


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

    @property
    def gpus_on_node(self) -> int | None:
        """GPUs of each node; None: Slurm chooses."""
        if self.nodes == 1:
            return self.gpus
        return self.gpus // self.nodes if self.per == "node" else None


def read_request(job: Record) -> GpuRequest | None:
    """Return what a job asks for; None for a job without GPUs."""
    asked = {
        per: found
        for field, per in REQUESTS.items()
        if (found := count_gpus(read_text(job, field)))
    }
    if not asked:
        return None
    nodes = max(1, read_integer(job, "node_count") or 1)
    tasks = max(1, read_integer(job, "tasks") or 1)
    times = {"node": nodes, "job": 1, "task": tasks, "socket": nodes}
    per = next(iter(asked))
    types = {name for found in asked.values() for name in found}
    named = types - {UNTYPED}
    return GpuRequest(
        per if len(asked) == 1 and len(types) == 1 else "",
        next(iter(named)) if len(named) == 1 else None,
        asked[per].total() * times[per],
        nodes,
    )
