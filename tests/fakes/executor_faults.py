"""Executors that go wrong, for tests: observations that come late, twice, in any order or not at
all. They wrap any executor."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from allocator.loop.executor import Executor, Observation

CALLS = ("start", "stop", "observe", "acknowledge", "write_settings", "capacity")


class CrashHere(BaseException):
    """The controller dies here, as by kill -9. Not an Exception: whatever handles errors does
    not see it.
    """


class Surrounded:
    """An executor whose calls all go through `around(name, call, *arguments)`."""

    def __init__(self, executor: Any) -> None:
        self.name, self.capabilities = executor.name, executor.capabilities
        for name in CALLS:
            if call := getattr(executor, name, None):
                setattr(self, name, partial(self.around, name, call))

    def around(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make the call, with what goes wrong."""
        raise NotImplementedError


class Unreliable(Surrounded):
    """The same orders, but what is observed is withheld, repeated and shuffled.

    Each observation is withheld with probability `withheld`, kept to be said once more at a later
    call (even after its acknowledgement) with probability `repeated`, and all are in random order.
    What is withheld is not lost: an end is observed until it is acknowledged.
    """

    def __init__(
        self, executor: Executor, seed: int, withheld: float = 0.3, repeated: float = 0.3
    ) -> None:
        super().__init__(executor)
        self._random, self._withheld, self._repeated = random.Random(seed), withheld, repeated
        self._old: list[Observation] = []

    def around(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        found = call(*arguments)
        return self._garble(found) if name == "observe" else found

    def _garble(self, now: Sequence[Observation]) -> Sequence[Observation]:
        """Some of what is true, and some of what was."""
        draw = self._random.random
        said = [o for o in now if draw() >= self._withheld] + [o for o in self._old if draw() < 0.5]
        self._old = [o for o in self._old + list(now) if draw() < self._repeated][-1000:]
        self._random.shuffle(said)
        return said
