"""spot-events: the machines that a request for a fixed number of spot machines gains and loses.

The file has lines `milliseconds,add|remove,node` and no header.

Source of the format: the traces published with Thorpe et al., "Bamboo: Making Preemptible Instances
Resilient for Affordable Training of Large DNNs", NSDI 2023.
"""

from pathlib import Path

import numpy as np

from allocator.errors import Fault
from allocator.io.markets.base import MarketHistory, MarketOptions, gpu_series
from allocator.io.traces.text import first_line, input_error, raise_if, read_lines


def recognise(source: Path) -> str:
    """Return "" if the first line is a number, add or remove, and a name; else the reason."""
    cells = first_line(source).split(",")
    fits = len(cells) == 3 and cells[0].strip().isdigit() and cells[1].strip() in ("add", "remove")
    return "" if fits else "its first line is no `milliseconds,add|remove,node`"


def read(source: Path, options: MarketOptions) -> MarketHistory:
    """Read one pool, named after the file. Raises InvalidInput."""
    faults: list[Fault] = []
    at: list[float] = []
    number: list[int] = []
    here: set[str] = set()
    for line, row in read_lines(source):
        cells = [c.strip() for c in row.split(",")]
        if why := _describe_fault(cells, here, at):
            faults.append(Fault(str(source), line, why))
            continue
        (here.add if cells[1] == "add" else here.discard)(cells[2])
        at.append(int(cells[0]) / 1000.0)
        number.append(len(here))
    raise_if(source, faults)
    if not at:
        raise input_error(source, "has no line `milliseconds,add|remove,node`")
    machines = options.gpus or 1
    gpus = np.array(number) * machines
    return MarketHistory(
        (gpu_series(source.stem, "GPU", np.array(at), gpus, at[-1]),),
        (
            f"{source.name}: at most {max(number)} machines of {machines} GPUs over"
            f" {at[-1] / 3600:.1f} h",
        ),
    )


def _describe_fault(cells: list[str], here: set[str], at: list[float]) -> str:
    if len(cells) != 3:
        return f"has {len(cells)} cells, not 3"
    if not cells[0].isdigit() or len(cells[0]) > 15:
        return f'"{cells[0]}" is no number of milliseconds'
    if cells[1] not in ("add", "remove"):
        return f'"{cells[1]}" is neither add nor remove'
    if at and int(cells[0]) / 1000.0 < at[-1]:
        return f"{cells[0]} ms lies before the line above"
    if (cells[2] in here) == (cells[1] == "add"):
        return f'node "{cells[2]}" is {"already" if cells[1] == "add" else "not"} there'
    return ""
