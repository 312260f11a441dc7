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
from collections import Counter
from datetime import datetime
from pathlib import Path

import numpy as np

from allocator.errors import Fault
from allocator.io.markets.base import MarketHistory, MarketOptions, gpu_series
from allocator.io.traces.text import first_line, input_error, raise_if, read_lines

LINE = re.compile(r"\[(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z)\] (?P<what>.+)")
CREATED = re.compile(
    r"Created instance (?P<name>\S+) with (?P<gpus>\d{1,4}) GPU\(s\) of type (?P<type>\S+) "
    r"in zone (?P<zone>\S+)"
)
ASKED = re.compile(r"Instance (?P<name>\S+) (?P<off>not )?running in zone \S+")
OTHER = re.compile(r"Instance .*creation failed|Successfully deleted instance \S+")

Key = tuple[str, str, int]


def recognise(source: Path) -> str:
    """Return "" if the first line is one of such a log, else the reason."""
    first = LINE.fullmatch(first_line(source))
    mine = first and any(p.fullmatch(first["what"]) for p in (CREATED, ASKED, OTHER))
    return "" if mine else "its first line is no `[time] Created instance ...`"


def read(source: Path, options: MarketOptions) -> MarketHistory:
    """Read one pool per zone, type and size of machine. Raises InvalidInput."""
    fleet = _Fleet()
    raise_if(
        source,
        [
            Fault(str(source), number, f'"{text[:60]}" is no line of such a log')
            for number, text in read_lines(source)
            if not fleet.note(LINE.fullmatch(text))
        ],
    )
    changes = fleet.list_changes()
    if not changes:
        raise input_error(source, "has no machine that was seen running")
    series = []
    for (zone, kind, gpus), rows in sorted(changes.items()):
        at, change = np.array(sorted(rows)).T
        pool = f"{zone}-{kind.lower()}x{gpus}"
        series.append(gpu_series(pool, kind, at, np.cumsum(change), fleet.at))
    told = ", ".join(f"{n} {what}" for what, n in fleet.count.items() if n)
    return MarketHistory(tuple(series), (f"{source.name}: {told}",))


class _Fleet:
    """The machines by name while a log is read.

    Changes (time, change of GPUs) are kept by (zone, type, GPUs of a machine).
    """

    def __init__(self) -> None:
        self.at = 0.0
        self.count: Counter[str] = Counter()
        self._changes: dict[Key, list[tuple[float, int]]] = {}
        self._alive: dict[str, tuple[Key, float]] = {}
        self._seen: set[str] = set()

    def note(self, line: re.Match[str] | None) -> bool:
        """Read a line; return False if it is not a line of such a log."""
        if line is None:
            return False
        try:
            self.at = datetime.fromisoformat(line["at"].replace("Z", "+00:00")).timestamp()
        except ValueError:
            return False
        what = line["what"]
        if made := CREATED.fullmatch(what):
            kind = made["type"].split("-")[-1].upper()
            self._alive[made["name"]] = (made["zone"], kind, int(made["gpus"])), self.at
            self._seen.discard(made["name"])
            self.count["created"] += 1
        elif asked := ASKED.fullmatch(what):
            if asked["off"]:
                self._remove_machine(asked["name"])
            else:
                self._seen.add(asked["name"])
        elif not OTHER.fullmatch(what):
            return False
        self.count["creations failed"] += "creation failed" in what
        return True

    def list_changes(self) -> dict[Key, list[tuple[float, int]]]:
        """Return all changes; machines that still run stay available."""
        for name, (key, born) in self._alive.items():
            if name in self._seen:
                self._changes.setdefault(key, []).append((born, key[2]))
        self._alive = {}
        return self._changes

    def _remove_machine(self, name: str) -> None:
        if name not in self._alive:
            return
        key, born = self._alive.pop(name)
        ran = name in self._seen
        self.count["lost" if ran else "never seen running"] += 1
        if ran:
            self._changes.setdefault(key, []).extend([(born, key[2]), (self.at, -key[2])])
