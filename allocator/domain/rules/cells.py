"""Sessions of a workload: GPUs are held while a cell runs, and not while somebody thinks.

A cell `THINK:RUN` starts THINK seconds after the end of the one before, and runs for RUN seconds.
Loading the state of the session takes L = state_gb / state_gb_s seconds, and so does saving it:

    work of a cell  =  L if there is one before it  +  RUN  +  L if there is one after it
    start of a cell =  start and work of the one before  +  THINK

Work is counted in seconds at the requested size. The starts are those of a session that never
waits: time that a cell waits for GPUs is taken from the thinking after it.
"""

import math
from typing import NamedTuple

import numpy as np

from allocator.domain.findings import quote
from allocator.domain.grid import ParsedTable
from allocator.domain.problem import Floats

TOLERANCE = 1e-6  # relative, of total_work against the sum of the cells


class Cells(NamedTuple):
    """The cells of a session: seconds from its submission to each start, and their work (n,)."""

    starts_s: Floats
    work: Floats


def read_sessions(table: ParsedTable) -> dict[int, Cells]:
    """Return the cells of each row of workload.csv that has some; what is wrong is a fault."""
    ok = table.ok("cells", "state_gb", "state_gb_s", "total_work", "every_s")
    given = ok & table.given("cells")
    table.faults(given & table.given("every_s"), "a session of cells has no every_s")
    slow = given & (table["state_gb"] > 0) & ~table.given("state_gb_s")
    words = "state_gb needs state_gb_s, the GB/s at which it is loaded and saved"
    table.faults(slow, words)
    out = {}
    for i in np.flatnonzero(given & ~table.given("every_s")).tolist():
        texts = table["cells"][i].split("|")
        cells = [_parse_cell(text) for text in texts]
        for text in [text for text, cell in zip(texts, cells, strict=True) if cell is None]:
            table.fault(i, f"cell {quote(text)} is not THINK:RUN, two numbers of seconds")
        think_s, run_s = np.array([cell or (0.0, 0.0) for cell in cells]).T
        total = float(table["total_work"][i])
        if None not in cells and abs(run_s.sum() - total) > TOLERANCE * total:
            table.fault(i, f"its cells run {run_s.sum():g} s, total_work is {total:g}")
        state_s = table["state_gb"][i] / table["state_gb_s"][i] if table["state_gb"][i] else 0.0
        out[i] = plan_cells(think_s, run_s, float(state_s))
    return out


def plan_cells(think_s: Floats, run_s: Floats, state_s: float) -> Cells:
    """Return the cells of a session whose state is loaded, or saved, in so many seconds."""
    number = np.arange(len(run_s))
    work = run_s + state_s * ((number > 0) + 1.0 * (number < len(run_s) - 1))
    starts_s = np.cumsum(think_s) + np.cumsum(work) - work
    return Cells(starts_s, work)


def _parse_cell(text: str) -> tuple[float, float] | None:
    """Return (think, run) in seconds, None where the text says no such thing."""
    think, _, run = text.partition(":")
    try:
        cell = float(think), float(run)
    except ValueError:
        return None
    return cell if math.isfinite(sum(cell)) and cell[0] >= 0 and cell[1] > 0 else None
