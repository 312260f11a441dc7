"""Long simulations survive a kill: the state between two rounds on disk, and going on from there.

A checkpoint belongs to one workload, policy, set of options and version of this program (its key);
another one's is ignored, and so is one whose checksum is wrong. It is a pickle in the user's own
output folder: like any pickle, it must not be taken from strangers.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from allocator.domain.workload import Workload
from allocator.io.plans import write_files
from allocator.simulator.options import SimulationOptions
from allocator.simulator.run import SimulationState, initial_state

VERSION = b"allocator simulation 2\n"
CHECKSUM = 65  # bytes: SHA-256 in hexadecimal and a line feed
DECIDES = (
    "engine",
    "domain",
    "performance",
    "market",
    "valuation",
    "options",
    "audit",
    "policies",
    "solvers",
    "loop",
    "simulator",
)
EVERY_S = 30.0  # wall seconds between two checkpoints


@dataclass
class CheckpointFile:
    """The checkpoint of one simulation: <folder>/<policy>.state, written at most every `every_s`
    seconds.

    kept: rounds that were over in the last checkpoint read or written; None: there is none.
    ignored: one was there, damaged or of another simulation.
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
        """The file."""
        return self.folder / f"{self.policy}.state"

    def key(self) -> bytes:
        """What the simulation depends on."""
        text = repr((self.workload.problem.digest, self.policy, self.options, _program()))
        return VERSION + hashlib.sha256(text.encode()).hexdigest().encode() + b"\n"

    def state(self) -> SimulationState:
        """The last kept state, or that before the first round where there is none that fits and
        is whole.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return initial_state(self.workload, self.policy, self.options)
        except OSError:
            content = b""
        key = self.key()
        head, pickled = content[: len(key) + CHECKSUM], content[len(key) + CHECKSUM :]
        if head == key + _checksum(pickled):
            state = pickle.loads(pickled)
            if isinstance(state, SimulationState):
                self.kept = state.rounds
                return state
        self.ignored = True
        return initial_state(self.workload, self.policy, self.options)

    def keep(self, state: SimulationState, now: bool = False) -> None:
        """Write the state if it is time to, or `now`."""
        if now or time.monotonic() - self._last >= self.every_s:
            pickled = pickle.dumps(state, protocol=5)
            write_files(self.folder, {self.path.name: self.key() + _checksum(pickled) + pickled})
            self._last, self.kept = time.monotonic(), state.rounds


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + b"\n"


@cache
def _program() -> str:
    """Digest of the source that decides and simulates: another version may decide differently
    and know other states.
    """
    import formulations

    package, h = Path(__file__).resolve().parent.parent, hashlib.sha256()
    for root in (
        *(package / name for name in DECIDES),
        Path(formulations.__file__).resolve().parent,
    ):
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            h.update(
                path.relative_to(root.parent).as_posix().encode()
                + b"\0"
                + path.read_bytes()
                + b"\0"
            )
    return h.hexdigest()
