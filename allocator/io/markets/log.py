"""spot-log: a log of persistent requests for one machine per zone and kind.

Every few minutes the log says whether each machine runs. It has lines of these forms:

    [2020-03-15T10:07:33.000Z] Created instance NAME with 1 GPU(s) of type v100 in zone us-east-1b
    Instance NAME running in zone Z
    Instance NAME not running in zone Z
    Instance ... creation failed
    Successfully deleted instance NAME

A machine is available from its creation until a line first says that it does not run. A machine
that no line reports as running did not start. It is counted but not used.

Source: the logs published with Narayanan et al. (DISPA 2020).
"""

import re
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from allocator.domain.times import parse_date
from allocator.errors import Fault
from allocator.io.markets.base import MarketHistory, MarketOptions, gpu_series
from allocator.io.traces.text import first_line, input_error, raise_if, read_lines

LINE = re.compile(
    r"\[(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)\] (?:"
    r"Created instance (?P<made>\S+) with (?P<gpus>\d{1,4}) GPU\(s\) of type (?P<type>\S+) "
    r"in zone (?P<zone>\S+)"
    r"|Instance (?P<asked>\S+) (?P<off>not )?running in zone \S+"
    r"|(?P<failed>Instance .*creation failed)"
    r"|Successfully deleted instance \S+)"
)


def recognise(source: Path) -> str:
    """Return "" if the first line is one of such a log, else the reason."""
    match = LINE.fullmatch(first_line(source))
    return "" if match else "its first line is no `[time] Created instance ...`"


def read(source: Path, options: MarketOptions) -> MarketHistory:
    """Read one pool per zone, type and size of machine. Raises InvalidInput."""
    faults: list[Fault] = []
    count: Counter[str] = Counter()
    # zone, type and GPUs of each machine by name, since when it is there, and whether it was seen
    alive: dict[str, tuple[tuple[str, str, int], float, bool]] = {}
    changes: dict[tuple[str, str, int], list[tuple[float, int]]] = defaultdict(list)
    at = 0.0
    for number, text in read_lines(source):
        line = LINE.fullmatch(text)
        try:
            at = parse_date(line["at"] if line else "")
        except ValueError:
            faults.append(Fault(str(source), number, f'"{text[:60]}" is no line of such a log'))
            continue
        assert line is not None
        name = line["asked"]
        if line["made"]:
            kind = line["type"].split("-")[-1].upper()
            alive[line["made"]] = (line["zone"], kind, int(line["gpus"])), at, False
            count["created"] += 1
        elif name in alive:
            key, born, ran = alive.pop(name)
            if not line["off"]:
                alive[name] = key, born, True
            else:
                count["lost" if ran else "never seen running"] += 1
                changes[key] += [(born, key[2]), (at, -key[2])] if ran else []
        count["creations failed"] += bool(line["failed"])
    raise_if(source, faults)
    for key, born, ran in alive.values():  # machines that still run stay available
        changes[key] += [(born, key[2])] if ran else []
    series = []
    for (zone, kind, gpus), rows in sorted(changes.items()):
        if rows:
            moments, change = np.array(sorted(rows)).T
            pool = f"{zone}-{kind.lower()}x{gpus}"
            series.append(gpu_series(pool, kind, moments, np.cumsum(change), at))
    if not series:
        raise input_error(source, "has no machine that was seen running")
    words = ", ".join(f"{n} {what}" for what, n in count.items() if n)
    return MarketHistory(tuple(series), (f"{source.name}: {words}",))
