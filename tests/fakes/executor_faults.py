"""Executors that go wrong, for tests: a crash before or after any call, and observations that come
late, twice, in any order or not at all. They wrap any executor."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from allocator.loop.executor import Executor, Observation, Order, SettingsWriter

Point = tuple[int, str, str]
"""(number of the call, from 0; its name; "before" or "after" its effect)."""


class CrashHere(BaseException):
    """The controller dies here, as by kill -9. Not an Exception: whatever handles errors does
    not see it.
    """


class Crashing:
    """Raises CrashHere where `crash(point)` says so, around every call of the executor. calls:
    made so far.
    """

    def __init__(self, executor: Executor, crash: Callable[[Point], bool]) -> None:
        self.name, self.capabilities = executor.name, executor.capabilities
        self.calls = 0
        self._inner, self._crash = executor, crash

    def start(self, order: Order) -> None:
        """Start, or crash."""
        self._call_with_crash("start", lambda: self._inner.start(order))

    def stop(self, job_id: str, generation: int, token: int) -> None:
        """Stop, or crash."""
        self._call_with_crash("stop", lambda: self._inner.stop(job_id, generation, token))

    def observe(self) -> Sequence[Observation]:
        """Observe, or crash."""
        seen: list[Observation] = []
        self._call_with_crash("observe", lambda: seen.extend(self._inner.observe()))
        return seen

    def acknowledge(self, job_id: str, generation: int) -> None:
        """Acknowledge, or crash."""
        self._call_with_crash("acknowledge", lambda: self._inner.acknowledge(job_id, generation))

    def write_settings(
        self, job_id: str, generation: int, settings: Mapping[str, str], token: int
    ) -> None:
        """Tell a running job, or crash."""
        inner = self._inner
        assert isinstance(inner, SettingsWriter)
        self._call_with_crash(
            "write_settings", lambda: inner.write_settings(job_id, generation, settings, token)
        )

    def capacity(self) -> Mapping[str, int]:
        """Capacity, or crash."""
        found: dict[str, int] = {}
        self._call_with_crash("capacity", lambda: found.update(self._inner.capacity()))
        return found

    def _call_with_crash(self, name: str, call: Callable[[], None]) -> None:
        number, self.calls = self.calls, self.calls + 1
        if self._crash((number, name, "before")):
            raise CrashHere(f"before call {number}, {name}")
        call()
        if self._crash((number, name, "after")):
            raise CrashHere(f"after call {number}, {name}")


class Unreliable:
    """The same orders, but what is observed is withheld, repeated and shuffled.

    Each observation is withheld with probability `withheld`, kept to be said once more at a later
    call (even after its acknowledgement) with probability `repeated`, and all are in random order.
    What is withheld is not lost: an end is observed until it is acknowledged.
    """

    def __init__(
        self, executor: Executor, seed: int, withheld: float = 0.3, repeated: float = 0.3
    ) -> None:
        self.name, self.capabilities = executor.name, executor.capabilities
        self.start, self.stop = executor.start, executor.stop
        self.acknowledge, self.capacity = executor.acknowledge, executor.capacity
        if isinstance(executor, SettingsWriter):
            self.write_settings = executor.write_settings
        self._inner, self._random = executor, random.Random(seed)
        self._withheld, self._repeated = withheld, repeated
        self._old: list[Observation] = []

    def observe(self) -> Sequence[Observation]:
        """Some of what is true, and some of what was."""
        draw = self._random.random
        now = self._inner.observe()
        said = [o for o in now if draw() >= self._withheld] + [o for o in self._old if draw() < 0.5]
        self._old = [o for o in self._old + list(now) if draw() < self._repeated][-1000:]
        self._random.shuffle(said)
        return said
