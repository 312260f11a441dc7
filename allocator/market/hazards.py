"""Revocations by region, type and age of a server: a table, and the pools that it is about."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from allocator.domain.grid import ParsedTable
from allocator.domain.problem import Market
from allocator.domain.schema.cells import name_hazard
from formulations.transient.revocations import Hazard

Places = Mapping[tuple[str, str], Hazard]


def read_hazards(table: ParsedTable) -> Places:
    """Return the hazard of each region and type of a table, "" = any; faults go to the table.

    Ages of one place ascend from 0, in any order of the rows.
    """
    rows: dict[tuple[str, str], list[int]] = {}
    for i, place in enumerate(zip(table["region"], table["gpu_type"], strict=True)):
        rows.setdefault(place, []).append(i)
    out = {}
    for place, numbers in rows.items():
        order = sorted(numbers, key=lambda i: float(table["from_h"][i]))
        start = table["from_h"][order]
        if not table.ok("from_h", "per_hour")[order].all():
            continue
        if start[0] != 0 or (np.diff(start) <= 0).any():
            table.fault(numbers[0], "ages from_h of one region and type must ascend from 0")
        out[place] = Hazard(table["per_hour"][order], start)
    return out


def choose_hazards(known: Places, pools: ParsedTable) -> dict[int, str]:
    """Return hazard_by_age of each spot pool, by its row, that the table has a hazard for.

    That of its region and type counts, else of its region, else of its type, else of all.
    """
    out = {}
    for i in np.flatnonzero(pools["market"] == Market.SPOT).tolist():
        region, kind = pools["region"][i], pools["gpu_type"][i]
        for place in ((region, kind), (region, ""), ("", kind), ("", "")):
            if place in known:
                out[i] = name_hazard(known[place])
                break
    return out
