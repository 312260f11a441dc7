"""The GPU indices of this machine that belong to each pool or node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import accumulate

from allocator.domain.findings import did_you_mean, quote
from allocator.errors import UsageError

MOST_INDEX = 65_535
_RANGE = re.compile(r"\s*([0-9]{1,6})\s*(?:-\s*([0-9]{1,6})\s*)?")


def device_numbers(gpus: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return GPU indices by pool, counted through in the order of the pools."""
    ends = dict(zip(gpus, accumulate(gpus.values()), strict=True))
    return {pool: tuple(range(ends[pool] - n, ends[pool])) for pool, n in gpus.items()}


def device_map(text: str, gpus: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Parse GPU indices by pool from text such as POOL=0-3,POOL=4-7.

    An index or range without a pool belongs to the pool before it.

    Parameters
    ----------
    text : str
        The indices as the user wrote them.
    gpus : mapping of str to int
        GPUs of each pool of the queue; nodes take the place of a pool that has some. A pool may
        have more indices than that, so that its number of GPUs can be raised later.

    Raises
    ------
    UsageError
        With every fault: a malformed range, an unknown pool, an index named twice, or too few
        indices for a pool.
    """
    faults: list[str] = []
    owner: dict[int, str] = {}
    found: dict[str, list[int]] = {}
    pool = ""
    for part in text.split(","):
        head, named, span = part.rpartition("=")
        if named:
            pool = head.strip()
            if pool not in gpus:
                faults.append(f"the queue has no pool {quote(pool)}{did_you_mean(pool, gpus)}")
        elif not pool:
            faults.append(f"{quote(part)} belongs to no pool: say POOL=0-3")
        match = _RANGE.fullmatch(span)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        indices = range(first, last + 1)
        if not first <= last <= MOST_INDEX:
            faults.append(
                f"{quote(part)}: {quote(span)} is neither a GPU index nor a range such as 0-3"
            )
            continue
        twice = [i for i in indices if i in owner]
        if twice:
            before = quote(owner[twice[0]])
            faults.append(
                f"GPU {twice[0]} is named for pool {before} and again for pool {quote(pool)}"
            )
        owner.update((i, pool) for i in indices if i not in owner)
        found.setdefault(pool, []).extend(indices)
    faults += [
        f"pool {quote(name)} has {n} GPUs in the queue, but {len(found.get(name, ()))} indices"
        for name, n in gpus.items()
        if len(found.get(name, ())) < n
    ]
    if faults:
        raise UsageError("devices: " + "; ".join(faults))
    return {name: tuple(found.get(name, ())) for name in gpus}
