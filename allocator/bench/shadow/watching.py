"""Look at a cluster again and again, decide, and record both. Nothing on the cluster is changed.

A cluster that does not answer is a gap in the record, and an answer that cannot be decided a fault;
neither is an end.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from allocator.bench.shadow.judging import judge
from allocator.bench.shadow.record import FAULT, GAP, ROUND, Look, Record
from allocator.clusters.adapter import REGISTRY, ObserveRequest, get_cluster
from allocator.clusters.folder import add_tables, build_snapshot
from allocator.controller.guarded_decision import Stopped
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot
from allocator.errors import UsageError
from allocator.io.snapshots import read_snapshot
from allocator.loop.executor import Clock
from allocator.loop.rounds import latest_tick
from allocator.queue.snapshot import pack_snapshot

Observe = Callable[[], tuple[Snapshot, Sequence[str]]]


def observer(cluster: str, request: ObserveRequest, added: Sequence[Path]) -> Observe:
    """Return the function that looks at a cluster, and notes what a snapshot cannot represent.

    Parameters
    ----------
    cluster : str
        Name of an adapter, or a snapshot folder that somebody else writes again and again.
    request : ObserveRequest
        How to look.
    added : sequence of Path
        Files of a snapshot that the cluster does not know.

    Raises
    ------
    UsageError
        If there is no such cluster or file.
    """
    add_tables(Snapshot(cluster, {}, {}), added)
    if cluster not in REGISTRY.names() and Path(cluster).is_dir():
        return lambda: (read_snapshot(cluster), ())
    adapter = get_cluster(cluster)

    def observe() -> tuple[Snapshot, Sequence[str]]:
        view = adapter.observe(request)
        return add_tables(build_snapshot(cluster, view), added), view.notes

    return observe


@dataclass
class Watch:
    """A shadow of a cluster.

    Attributes
    ----------
    record : Record
        Where looks go; one that has some goes on.
    cluster : str
        Name of the cluster in the record. Raises UsageError if the record is of another one.
    observe : callable
        Looks at the cluster.
    clock : Clock
        The time in unix seconds.
    every_s : float
        Seconds between looks, and length of each round.
    policy : str
        Who decides.
    tell : callable
        Called with each look that was added, and with what its snapshot notes and warns of.
    stopping, deciding : bool
        For signal handlers, as of a controller.
    """

    record: Record
    cluster: str
    observe: Observe
    clock: Clock
    every_s: float
    policy: str = "mip"
    tell: Callable[[Look, Sequence[str]], None] = lambda look, notes: None
    stopping: bool = False
    deciding: bool = False

    def __post_init__(self) -> None:
        first = next(self.record.looks(), None)
        if first is not None and first.cluster != self.cluster:
            raise UsageError(
                f'"{self.record.path}" is a record of {first.cluster}, not of {self.cluster}'
            )
        self._start_s = self.clock.now() if first is None else first.at_s

    def run(self, rounds: int | None = None) -> int:
        """Look until `stopping` is set, at most so many times; return how many were decided.

        Raises
        ------
        UsageError
            If the first look cannot be made as it was asked for.
        AllocatorError
            If the record cannot be written.
        """
        decided = 0
        for number in itertools.count() if rounds is None else range(rounds):
            if number and not self.stopping:
                self._wait()
            if self.stopping:
                break
            try:
                look, notes = self._look(number == 0)
            except Stopped:
                break
            self.tell(self.record.add(look), notes)
            decided += look.kind == ROUND
        return decided

    def _wait(self) -> None:
        """Sleep until the next tick of the record."""
        now = self.clock.now()
        tick = latest_tick(now, self._start_s, self.every_s) + 1
        self.clock.sleep(self._start_s + tick * self.every_s - now)

    def _look(self, is_first: bool) -> tuple[Look, Sequence[str]]:
        """Return a look that is not yet recorded, and its notes and warnings."""
        begin, at_s = time.monotonic(), self.clock.now()
        kind, plan, content = GAP, "", None
        said: Any
        notes: Sequence[str] = ()
        try:
            self.deciding = True
            snapshot, notes = self.observe()
            kind = FAULT
            config = {**snapshot.config, "interval_s": self.every_s}
            snapshot = replace(snapshot, config=config)
            notes = [*notes, *validate(snapshot).warnings]
            content = pack_snapshot(snapshot)
            said, plan = judge(content, self.policy)
            kind = ROUND
        except UsageError as error:
            if is_first:
                raise
            said = str(error)
        except Exception as error:  # whatever a cluster answers, the next look may succeed
            said = f"{type(error).__name__}: {error}"
        finally:
            self.deciding = False
        seconds = time.monotonic() - begin
        return Look(self.cluster, at_s, self.every_s, kind, said, seconds, content, plan), notes
