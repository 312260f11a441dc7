"""Every error a user can meet, with its exit code.

    AllocatorError            1  internal error
      UsageError              2  wrong call
      InvalidInput            3  faults of the input, each with file, line, value and rule
      Infeasible              4  hard rules that cannot all hold, with the smallest relaxation
      NoPlanInTime            5  no plan before the time limit
      AuditFailure            1  a plan failed the independent audit and was withheld
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Fault:
    """One fault of the input: where, and which rule the value breaks."""

    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.message}"


class AllocatorError(Exception):
    """Base of all errors raised on purpose. warnings: what else there is to say of the input, not part of the text."""

    exit_code = 1
    warnings: tuple[str, ...] = ()


class UsageError(AllocatorError):
    """The call itself is wrong: unknown policy, negative limit."""

    exit_code = 2


class InvalidInput(AllocatorError):
    """The snapshot breaks rules of the contract; `faults` lists all of them."""

    exit_code = 3

    def __init__(self, faults: Sequence[Fault], warnings: Sequence[str] = ()) -> None:
        self.faults, self.warnings = tuple(faults), tuple(warnings)
        super().__init__("\n".join(str(f) for f in self.faults))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:      # errors cross processes
        return type(self), (self.faults, self.warnings)


@dataclass(frozen=True)
class Relaxation:
    """One hard rule and the least it must give way: 'budget_per_hour 100 -> 126.4'."""

    rule: str
    subject: str
    current: float
    needed: float

    def __str__(self) -> str:
        name = f'{self.rule} "{self.subject}"' if self.subject else self.rule
        return f"{name}: {self.current:g} would have to be {self.needed:g}"


class Infeasible(AllocatorError):
    """No plan keeps every hard rule. conflict: rules that clash; relaxations: the smallest change that would do."""

    exit_code = 4

    def __init__(self, conflict: Sequence[str], relaxations: Sequence[Relaxation]) -> None:
        self.conflict, self.relaxations = tuple(conflict), tuple(relaxations)
        lines = ["no plan keeps all hard rules", *(f"in conflict: {c}" for c in self.conflict),
                 *(f"smallest relaxation: {r}" for r in self.relaxations)]
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.conflict, self.relaxations)


class NoPlanInTime(AllocatorError):
    """The time limit passed before any plan that keeps the hard rules was known."""

    exit_code = 5


class AuditFailure(AllocatorError):
    """The independent audit found faults in a plan; nothing was written."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("the plan failed its audit and was withheld:\n" + "\n".join(self.faults))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.faults,)
