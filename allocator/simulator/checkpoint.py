"""Checkpoints of long simulations, so that a simulation can go on after it was killed.

A checkpoint belongs to one workload, policy, set of options and version of this program (its key).
A checkpoint of another key is ignored, and so is one whose checksum is wrong. It is a pickle in the
user's own output folder: like any pickle, it must not be taken from untrusted sources.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import formulations
from allocator.domain.workload import Workload
from allocator.io.plans import write_files
from allocator.simulator.options import SimulationOptions
from allocator.simulator.run import SimulationState, initial_state

VERSION = b"allocator simulation 2\n"
CHECKSUM = 65  # bytes: SHA-256 in hexadecimal and a line feed
EVERY_S = 30.0  # wall seconds between two checkpoints


@dataclass
class CheckpointFile:
    """The checkpoint of one simulation: <folder>/<policy>.state, written every `every_s` seconds.

    `kept` is the number of rounds in the last checkpoint that was read or written, None if there is
    none. `ignored`: there was a checkpoint, but it was damaged or of another simulation.
    """

    folder: Path
    workload: Workload
    policy: str
    options: SimulationOptions
    every_s: float = EVERY_S
    kept: int | None = None
    ignored: bool = False
    _last: float = field(default_factory=time.monotonic)

    @property
    def path(self) -> Path:
        """Return the path of the file."""
        return self.folder / f"{self.policy}.state"

    def key(self) -> bytes:
        """Return a digest of everything that the simulation depends on."""
        text = repr((self.workload.problem.digest, self.policy, self.options, _program()))
        return VERSION + hashlib.sha256(text.encode()).hexdigest().encode() + b"\n"

    def state(self) -> SimulationState:
        """Return the last kept state, or the state before the first round.

        A checkpoint that is damaged or of another simulation is ignored.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return initial_state(self.workload, self.policy, self.options)
        except OSError:
            content = b""
        key = self.key()
        head = content[: len(key) + CHECKSUM]
        pickled = content[len(key) + CHECKSUM :]
        if head == key + _checksum(pickled):
            state = pickle.loads(pickled)
            if isinstance(state, SimulationState):
                self.kept = state.rounds
                return state
        self.ignored = True
        return initial_state(self.workload, self.policy, self.options)

    def keep(self, state: SimulationState, now: bool = False) -> None:
        """Write the state if every_s seconds have passed since the last time, or if `now`."""
        if now or time.monotonic() - self._last >= self.every_s:
            pickled = pickle.dumps(state, protocol=5)
            write_files(self.folder, {self.path.name: self.key() + _checksum(pickled) + pickled})
            self._last = time.monotonic()
            self.kept = state.rounds


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + b"\n"


@cache
def _program() -> str:
    """Return a digest of the source code of the packages `allocator` and `formulations`.

    Another version may decide differently and store other states. Code of plugins is not included.
    """
    h = hashlib.sha256()
    for package in (Path(__file__).resolve().parents[1], Path(formulations.__file__).parent):
        for path in sorted(package.rglob("*.py")):
            name = path.relative_to(package.parent).as_posix()
            h.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return h.hexdigest()
