"""Look at a cluster again and again, decide, and record both. Nothing on the cluster is changed.

A cluster that does not answer is a gap in the record, and an answer that cannot be decided a fault;
neither is an end.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from allocator.bench.shadow.judging import judge
from allocator.bench.shadow.record import FAULT, GAP, ROUND, Look, Record
from allocator.clusters.adapter import ObserveRequest
from allocator.clusters.folder import add_tables, build_snapshot
from allocator.clusters.registry import REGISTRY, get_cluster
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


class Watch:
    """A shadow of a cluster.

    Parameters
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
    """

    def __init__(
        self,
        record: Record,
        cluster: str,
        observe: Observe,
        clock: Clock,
        every_s: float,
        policy: str = "mip",
        tell: Callable[[Look, Sequence[str]], None] = lambda look, notes: None,
    ) -> None:
        self.record, self.cluster, self.clock = record, cluster, clock
        self.every_s, self.policy, self.tell = every_s, policy, tell
        self._observe = observe
        first = next(record.looks(), None)
        if first is not None and first.cluster != cluster:
            raise UsageError(f'"{record.path}" is a record of {first.cluster}, not of {cluster}')
        self._start_s = clock.now() if first is None else first.at_s
        # for signal handlers, as of a controller
        self.stopping = self.deciding = False

    def run(self, rounds: int | None = None) -> int:
        """Look until `stopping` is set, at most so many times; return how many were decided.

        Raises
        ------
        UsageError
            If the first look cannot be made as it was asked for.
        AllocatorError
            If the record cannot be written.
        """
        looks = decided = 0
        while not self.stopping and (rounds is None or looks < rounds):
            if looks:
                self._wait()
                if self.stopping:
                    break
            try:
                look, notes = self._look(looks == 0)
            except Stopped:
                break
            self.tell(self.record.add(look), notes)
            looks, decided = looks + 1, decided + (look.kind == ROUND)
        return decided

    def _wait(self) -> None:
        """Sleep until the next tick of the record."""
        now = self.clock.now()
        tick = latest_tick(now, self._start_s, self.every_s) + 1
        self.clock.sleep(self._start_s + tick * self.every_s - now)

    def _look(self, is_first: bool) -> tuple[Look, Sequence[str]]:
        """Return a look that is not yet recorded, and its notes and warnings."""
        begin = time.monotonic()
        look = Look(self.cluster, self.clock.now(), self.every_s, GAP, "")
        notes: list[str] = []
        try:
            self.deciding = True
            snapshot, said = self._observe()
            look = replace(look, kind=FAULT)
            config = {**snapshot.config, "interval_s": self.every_s}
            snapshot = replace(snapshot, config=config)
            notes += [*said, *validate(snapshot).warnings]
            look = replace(look, snapshot=pack_snapshot(snapshot))
            figures, plan = judge(look.snapshot or b"", self.policy)
            look = replace(look, kind=ROUND, said=figures, plan=plan)
        except UsageError as error:
            if is_first:
                raise
            look = replace(look, said=str(error))
        except Exception as error:  # whatever a cluster answers, the next look may succeed
            look = replace(look, said=f"{type(error).__name__}: {error}")
        finally:
            self.deciding = False
        return replace(look, seconds=time.monotonic() - begin), notes
