"""The ledger of an executor on disk: its fence, open allocations and acknowledged ends.

    fence.json                     the highest token ever seen, and whose state this is
    open/<job>.<generation>/       an allocation whose end was not acknowledged; a rename creates
                                   the whole folder at once
        order.json                 the order
        settings.json              how the job shall run now, where the executor tells it
        stop.json                  present if the allocation was ordered to stop
    jobs/<job>/acknowledged.json   the last generation that was acknowledged, and what the executor
                                   keeps of it

<job> is the id of the job with everything but letters, digits, "_" and "-" written as %XX. Where
that would be too long, it is "=" and a SHA-256. Everything is changed under one lock file and can
be read by its owner only, because environments may hold secrets.

fence.json has these keys:

    token      highest fencing token ever seen, -1 = none
    state      random name of the folder, made on first use
    kind       name of the executor whose folder it is
    queue      id of the queue that the folder belongs to, "" = none yet
    adopting   id of a queue that has begun to adopt the folder and has not ended, "" = none
    was        during an adoption, the queue that the folder belonged to before
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from allocator.errors import AllocatorError
from allocator.executors.allocation import ORDER, STOP, OpenAllocation
from allocator.executors.disk import hold_lock, write_json
from allocator.executors.report import SETTINGS_FILE
from allocator.io.tables.limited_reader import read_json
from allocator.loop.executor import Identity, Order, StaleOrder, WrongState
from allocator.objects import Json, Record

ACKNOWLEDGED = "acknowledged.json"
LONGEST_NAME = 150


@dataclass
class Fence:
    """The file fence.json of an executor, used inside the lock; `kind` is the executor's name."""

    _path: Path
    _kind: str
    _queue: str = ""  # that claimed the folder through this object; others are refused

    def identity(self) -> Identity:
        """Return the identity in the file, and add what is missing.

        Raises WrongState if the folder is another executor's.
        """
        record = self._read_own()
        if not record["state"]:
            record |= {"state": secrets.token_hex(16), "kind": self._kind}
            write_json(self._path, record)
        return Identity(
            self._kind,
            record["state"],
            record["was"] or record["queue"],
            int(record["token"]),
            str(self._path.parent),
            bool(record["adopting"]),
        )

    def claim(self, queue: str) -> None:
        """Make the folder belong to the queue. Raises WrongState if it belongs to another one."""
        record = self._read_own()
        if record["adopting"] or record["queue"] not in ("", queue):
            raise WrongState(f'the state in "{self._path.parent}" belongs to another queue')
        if not record["queue"]:
            write_json(self._path, record | {"queue": queue})
        self._queue = queue

    def admit(self, token: int) -> None:
        """Check the token of an order, and remember it if it is the highest.

        Raises StaleOrder if a higher one was seen, and WrongState if another queue took the folder
        over.
        """
        record = self._read()
        if self._queue and (record["queue"] != self._queue or record["adopting"]):
            raise WrongState(f'the state in "{self._path.parent}" was adopted by another queue')
        seen = int(record["token"])
        if token < seen:
            raise StaleOrder(f"an order with token {token} came after one with {seen}")
        if token > seen:
            write_json(self._path, record | {"token": token})

    def begin_adoption(self, queue: str, token: int) -> Identity:
        """Detach the folder from its queue until `end_adoption`, and return its identity before.

        Orders of all controllers are refused in this time. Tokens below `token` are out of date
        from now on.
        """
        before = self.identity()
        record = self._read()
        record |= {"adopting": queue, "was": before.queue, "queue": ""}
        write_json(self._path, record | {"token": max(token, before.token)})
        return before

    def end_adoption(self, queue: str) -> None:
        """Make the folder belong to the queue that began to adopt it."""
        record = self._read()
        if record["adopting"] != queue:
            raise WrongState(f'"{self._path.parent}" was adopted by another queue meanwhile')
        write_json(self._path, record | {"adopting": "", "was": "", "queue": queue})

    def _read_own(self) -> Json:
        record = self._read()
        if record["kind"] not in ("", self._kind):
            raise WrongState(
                f'"{self._path.parent}" is the state of the executor "{record["kind"]}", not of '
                f'"{self._kind}"; name another folder with --state'
            )
        return record

    def _read(self) -> Json:
        record = read_json(self._path)
        if record is None and os.path.lexists(self._path):
            raise AllocatorError(f'"{self._path}" cannot be read, or nothing whole is in it')
        empty = dict.fromkeys(("state", "kind", "queue", "adopting", "was"), "")
        return {"token": -1, **empty, **(record or {})}


class Ledger:
    """The ledger in a folder; `kind` is the name of the executor.

    Raises OSError if the disk fails; then nothing is half done.
    """

    def __init__(self, folder: Path, kind: str = "") -> None:
        self.folder = folder.absolute()
        self.fence = Fence(self.folder / "fence.json", kind)
        # by name of the folder: order.json is read once, whatever its job does to it later
        self._orders: dict[str, OpenAllocation] = {}
        for name in ("", "open", "jobs"):
            (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.hold_lock():
            self._repair_after_crash()

    def hold_lock(self) -> AbstractContextManager[None]:
        """Hold the lock; every change of the ledger happens inside it."""
        return hold_lock(self.folder / "lock")

    def is_new_generation(self, job_id: str, generation: int) -> bool:
        """Return whether the generation is newer than all known ones of the job; False: it is open.

        Raises StaleOrder if a newer one was seen, or its end was acknowledged.
        """
        over = self._last_acknowledged(job_id)
        if generation <= over:
            raise StaleOrder(
                f'job "{job_id}": allocation {generation} was ordered after the end of {over} was '
                "acknowledged"
            )
        start = file_name(job_id) + "."
        names = os.listdir(self.folder / "open")
        newest = max([over, *(int(n.removeprefix(start)) for n in names if n.startswith(start))])
        if generation < newest:
            raise StaleOrder(f'job "{job_id}": allocation {generation} was ordered after {newest}')
        return generation > newest

    def place(self, job_id: str, generation: int) -> Path:
        """Return the folder of an open allocation."""
        return self.folder / "open" / f"{file_name(job_id)}.{generation}"

    def job_folder(self, job_id: str) -> Path:
        """Return the folder of a job, which outlives its allocations."""
        return self.folder / "jobs" / file_name(job_id)

    def acknowledged(self, job_id: str) -> Json:
        """Return the content of acknowledged.json of a job, {} if there is none."""
        return read_json(self.job_folder(job_id) / ACKNOWLEDGED) or {}

    def _last_acknowledged(self, job_id: str) -> int:
        return int(self.acknowledged(job_id).get("generation", -1))

    def all_acknowledged(self) -> Iterator[Json]:
        """Yield what is kept of every job that had an allocation acknowledged."""
        for name in sorted(os.listdir(self.folder / "jobs")):
            record = read_json(self.folder / "jobs" / name / ACKNOWLEDGED)
            if record is not None and "job_id" in record and "generation" in record:
                yield record

    def create(self, order: Order, files: Mapping[str, Record], **more: Any) -> Path:
        """Make the open allocation, with these files next to its order, in one step.

        After a power cut the folder may be gone. Then the allocation counts as not ordered, and
        none of its processes is alive.
        """
        place = self.place(order.job_id, order.generation)
        temporary = place.with_name(f".new-{secrets.token_hex(8)}")
        temporary.mkdir(mode=0o700)
        order_json = {**asdict(order), "environment": dict(order.environment), **more}
        for name, content in {**files, ORDER: order_json}.items():
            write_json(temporary / name, content, sync_name=False)
        os.rename(temporary, place)
        return place

    def read(self, job_id: str, generation: int) -> OpenAllocation | None:
        """Return an open allocation, None if it is not open."""
        place = self.place(job_id, generation)
        return self._read(place.name) if place.is_dir() else None

    def known(self) -> Sequence[OpenAllocation]:
        """Return every open allocation, in the order of names."""
        names = sorted(os.listdir(self.folder / "open"))
        self._orders = {
            n: allocation for n in names if n[0] != "." and (allocation := self._read(n))
        }
        return tuple(self._orders.values())

    def _read(self, name: str) -> OpenAllocation | None:
        place = self.folder / "open" / name
        if name not in self._orders and (order := read_json(place / ORDER)) is not None:
            self._orders[name] = OpenAllocation(place, order)
        return self._orders.get(name)

    def stop(self, job_id: str, generation: int, files_if_unstarted: Mapping[str, Record]) -> None:
        """Record that the allocation shall stop. Raises StaleOrder.

        An allocation that was never started gets these files, which say that it ended, so that
        starting it later changes nothing.
        """
        if self.is_new_generation(job_id, generation):
            self.create(
                Order(job_id, generation, -1, "", 0, "", 0.0), {**files_if_unstarted, STOP: {}}
            )
        elif (allocation := self.read(job_id, generation)) and not allocation.has(STOP):
            allocation.write(STOP, {})

    def write_settings(self, job_id: str, generation: int, settings: Mapping[str, str]) -> None:
        """Replace the settings of an open allocation if they have changed."""
        allocation = self.read(job_id, generation)
        if allocation is not None and allocation.read(SETTINGS_FILE) != settings:
            allocation.write(SETTINGS_FILE, settings)

    def forget(self, job_id: str, generation: int, **kept: Any) -> None:
        """Remove the allocation, and keep only that it was acknowledged, and `kept`."""
        folder = self.job_folder(job_id)
        folder.mkdir(mode=0o700, exist_ok=True)
        if self._last_acknowledged(job_id) < generation:
            write_json(folder / ACKNOWLEDGED, {"job_id": job_id, "generation": generation, **kept})
        self._remove(self.place(job_id, generation))

    def _repair_after_crash(self) -> None:
        """Complete or remove what a crash left unfinished."""
        for entry in os.listdir(self.folder / "open"):
            if entry[0] == "." or self._read(entry) is None:
                shutil.rmtree(self.folder / "open" / entry, ignore_errors=True)
        for allocation in self.known():
            if self._last_acknowledged(allocation.job_id) >= allocation.generation:
                self._remove(allocation.folder)

    def _remove(self, place: Path) -> None:
        gone = place.with_name(f".gone-{secrets.token_hex(8)}")
        with suppress(FileNotFoundError):
            os.rename(place, gone)
            shutil.rmtree(gone, ignore_errors=True)


def file_name(job_id: str) -> str:
    """Return the id of the job as the name of a file."""
    name = quote(job_id, safe="", errors="surrogatepass").replace(".", "%2E").replace("~", "%7E")
    if 0 < len(name) <= LONGEST_NAME:
        return name
    # no short name begins with "=", because quoting turns it into "%3D"
    return "=" + hashlib.sha256(job_id.encode("utf-8", "surrogatepass")).hexdigest()
