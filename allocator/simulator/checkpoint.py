"""Long simulations survive a kill: the state between two rounds on disk, and going on from there.

A checkpoint belongs to one workload, policy and set of options (its key); another one's is ignored. It is a pickle in
the user's own output folder: like any pickle, it must not be taken from strangers.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from dataclasses import dataclass, field
from pathlib import Path

from allocator.domain.workload import Workload
from allocator.files.plans import write_files
from allocator.simulator.options import Options
from allocator.simulator.run import State, begin

VERSION = b"allocator simulation 1\n"
EVERY_S = 30.0          # wall seconds between two checkpoints


@dataclass
class Keeper:
    """The checkpoint of one simulation: <folder>/<policy>.state, written at most every `every_s` seconds.

    kept: rounds that were over in the last checkpoint read or written; None: there is none.
    """

    folder: Path
    workload: Workload
    policy: str
    options: Options
    every_s: float = EVERY_S
    kept: int | None = None
    _last: float = field(default_factory=time.monotonic)

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / f"{self.policy}.state"

    def key(self) -> bytes:
        """What the simulation depends on."""
        text = repr((self.workload.problem.digest, self.policy, self.options))
        return VERSION + hashlib.sha256(text.encode()).hexdigest().encode() + b"\n"

    def state(self) -> State:
        """The last kept state, or that before the first round where there is none that fits and is whole."""
        try:
            content = self.path.read_bytes()
        except OSError:
            content = b""
        key = self.key()
        if content.startswith(key):
            try:
                state = pickle.loads(content[len(key):])
                if isinstance(state, State):
                    self.kept = state.rounds
                    return state
            except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, TypeError, ValueError):
                pass                                            # of another version of the program: start anew
        return begin(self.workload, self.policy, self.options)

    def keep(self, state: State, now: bool = False) -> None:
        """Write the state if it is time to, or `now`."""
        if now or time.monotonic() - self._last >= self.every_s:
            write_files(self.folder, {self.path.name: self.key() + pickle.dumps(state, protocol=5)})
            self._last, self.kept = time.monotonic(), state.rounds
