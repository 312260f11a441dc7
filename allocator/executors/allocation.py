"""The folder of an open allocation, and the files in it.

order.json is written once, and everything else follows from the files that are there or are not.
Work that is safe is as of the last checkpoint that the job reported.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from allocator.executors import report
from allocator.executors.disk import read_age_s, try_lock, write_json
from allocator.io.tables.limited_reader import as_storable_text, read_json
from allocator.objects import Json, Record

ORDER = "order.json"
STOP = "stop.json"
LOCK = "keeper.lock"
SUPERVISOR = "keeper.json"
EXIT = "exit.json"
BASE = "base.json"
PROGRESS = "progress"
OUT = "stdout"
ERR = "stderr"
PHASES = ("stopped", "finished", "failed", "lost")
MOST_DETAIL = 1000  # characters


@dataclass(frozen=True)
class OpenAllocation:
    """An open allocation: its folder, and the content of its order.json.

    order.json has the fields of Order and what the executor added.
    """

    folder: Path
    order: Json

    @property
    def job_id(self) -> str:
        """Return the name of its job."""
        return str(self.order["job_id"])

    @property
    def generation(self) -> int:
        """Return its generation: the number of this allocation of the job."""
        return int(self.order["generation"])

    @property
    def asked(self) -> list[tuple[str, int]]:
        """Return the nodes that a batch job asks for, and the GPUs of each; "": any node."""
        return [(str(node), int(gpus)) for node, gpus in self.order["asked"]]

    def has(self, *names: str) -> bool:
        """Return whether one of these files is there."""
        return any((self.folder / name).exists() for name in names)

    def read(self, name: str) -> Json | None:
        """Return the content of a file of JSON, or None if there is none."""
        return read_json(self.folder / name)

    def write(self, name: str, value: Record) -> None:
        """Replace a file of JSON. Raises OSError."""
        write_json(self.folder / name, value)

    def age_s(self, name: str) -> float:
        """Return the seconds since a file was written, -inf if there is none."""
        return read_age_s(self.folder / name)

    @contextmanager
    def hold_unless_supervised(self) -> Iterator[bool]:
        """Keep supervisors away for a while; yields False if one lives."""
        lock = try_lock(self.folder / LOCK)
        try:
            yield lock is not None
        finally:
            if lock is not None:
                os.close(lock)

    def read_ending(self) -> Json | None:
        """Return the content of exit.json, or None if there is none yet.

        A job may write to its folder, so an ending without the fields of `build_ending` counts as a
        failure.
        """
        end = self.read(EXIT)
        if end is None:
            return None
        try:
            numbers = [float(end["at_s"]), float(end["work_done"])]
            numbers += [] if end["safe"] is None else [float(end["safe"])]
            is_right = end["phase"] in PHASES and isinstance(end["detail"], str)
            if is_right and all(math.isfinite(x) and x >= 0 for x in numbers):
                return {**end, "detail": as_storable_text(end["detail"], MOST_DETAIL)}
        except (KeyError, TypeError, ValueError, OverflowError):
            pass
        return build_ending_without_work(
            "failed", "something else than its supervisor wrote exit.json"
        )

    def build_ending(self, phase: str, detail: str) -> Json:
        """Return the content of exit.json of an allocation that ended now.

        `work_done` is the work since the start. `safe` is the safe work of the job in all, None if
        it is unknown.
        """
        line = report.read(self.folder / PROGRESS)
        safe = self.order["base"] if line is None else line.safe
        done = self.read_safe_work()
        return build_ending_without_work(phase, detail) | {"work_done": done, "safe": safe}

    def end(self, phase: str, why: str, is_dead: Callable[[], bool] = lambda: True) -> Json | None:
        """Record the end of the allocation; None: its supervisor lives, or what that one left."""
        with self.hold_unless_supervised() as is_free:
            if not is_free:
                return None
            end = self.read_ending()
            if end is None and is_dead():
                end = self.build_ending(phase, why)
                if self.folder.is_dir():
                    self.write(EXIT, end)
            return end

    def read_safe_work(self) -> float:
        """Return the work since the start that a checkpoint holds, from 0 to the remaining work."""
        base = self.order["base"]
        if base is None:
            base = (self.read(BASE) or {}).get("base")
        line = report.read(self.folder / PROGRESS)
        if line is None or base is None:
            return 0.0
        return float(min(max(line.safe - base, 0.0), self.order["remaining_work"]))

    def remember_base(self) -> None:
        """Record the first reported work as the base if the earlier work of the job is unknown."""
        if self.order["base"] is None and (line := report.read(self.folder / PROGRESS)) is not None:
            self.order["base"] = line.safe
            with suppress(OSError):
                self.write(BASE, {"base": line.safe})


def build_ending_without_work(phase: str, detail: str) -> Json:
    """Return the file of the ending of an allocation that did nothing."""
    return {"phase": phase, "detail": detail, "at_s": time.time(), "work_done": 0.0, "safe": None}


def build_unstarted_ending() -> Json:
    """Return the file of the ending of an allocation that was stopped before it was started."""
    return build_ending_without_work("stopped", "was told to stop before it was started")
