"""Errors that a user can meet, and their exit codes.

AllocatorError            1  base class; also an internal error
  UsageError              2  wrong call
  InvalidInput            3  faults of the input, each with file, line, value and rule
  Infeasible              4  hard rules that cannot all hold, with the smallest relaxation
  NoPlanInTime            5  no plan before the time limit
  AuditFailure            1  a plan failed the independent audit and was withheld
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# At most this many faults that differ only in line and subject are listed one by one.
EQUAL = 5
NAMED = 3  # subjects, and ranges of lines, that a merged line names


# packages that only some features need, as the extras of pyproject.toml ask for them
OPTIONAL = ("kubernetes>=31", "psycopg[binary]>=3.1", "distributed>=2024.8")


def install_command(package: str) -> str:
    """Return the command that installs an optional package.

    It names that package: this project is on no index, so its extras cannot be installed by name.
    """
    return f"pip install '{next(one for one in OPTIONAL if one.startswith(package))}'"


@dataclass(frozen=True, order=True)
class Fault:
    """State one fault of the input.

    Parameters
    ----------
    file : str
        File, or the file that the records or the frame stand for.
    line : int, optional
        Line of the file; the header is line 1.
    message : str
        Which rule the value breaks.
    subject : str
        The object, such as 'job "a"'; empty: none.

    Examples
    --------
    >>> print(Fault("jobs.csv", 17, "max_gpus 2 is below min_gpus 4", 'job "bert-3"'))
    jobs.csv:17: max_gpus 2 is below min_gpus 4 (job "bert-3")
    """

    file: str
    line: int | None
    message: str
    subject: str = ""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.message}" + (f" ({self.subject})" if self.subject else "")


def folded(faults: Iterable[Fault]) -> list[tuple[Fault, str]]:
    """Return the faults as lines of text, each line with the first fault that it describes.

    More than EQUAL faults that differ only in line and subject become one line with their number:

        jobs.csv:3-32: model "brt" has no row in rates.csv (30 jobs: "a", "b", "c" ...)
    """
    groups: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        groups.setdefault((fault.file, fault.message), []).append(fault)
    out: list[tuple[Fault, str]] = []
    for group in groups.values():
        if len(group) > EQUAL:
            out.append((group[0], _merge_faults(group)))
        else:
            out += [(fault, str(fault)) for fault in group]
    return out


def _merge_faults(group: Sequence[Fault]) -> str:
    """Return one line for faults of one file with the same message."""
    first = group[0]
    lines = sorted({fault.line for fault in group if fault.line is not None})
    place = ":".join([first.file, *([_format_line_ranges(lines)] if lines else [])])
    kind, _, _ = first.subject.partition(" ")
    names = [fault.subject.removeprefix(f"{kind} ") for fault in group if fault.subject]
    some = f": {', '.join(names[:NAMED])}{' ...' if len(names) > NAMED else ''}" if names else ""
    return f"{place}: {first.message} ({len(group)} {kind or 'row'}s{some})"


def _format_line_ranges(lines: Sequence[int]) -> str:
    """Format ascending line numbers as 3-7,9,12; after NAMED ranges only the last line follows."""
    runs = [
        [line for _, line in run]
        for _, run in itertools.groupby(enumerate(lines), key=lambda place: place[1] - place[0])
    ]
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return ",".join(texts[:NAMED]) + (f"...{lines[-1]}" if len(texts) > NAMED else "")


class AllocatorError(Exception):
    """Base of all errors that are raised on purpose.

    Attributes
    ----------
    exit_code : int
        Exit code of the command line.
    warnings : tuple of str
        Other remarks about the input; they are not part of the text.

    Examples
    --------
    >>> UsageError.exit_code, issubclass(UsageError, AllocatorError)
    (2, True)
    """

    exit_code = 1
    warnings: tuple[str, ...] = ()


class UsageError(AllocatorError):
    """Report a wrong call, such as an unknown policy or a negative limit.

    Examples
    --------
    >>> import allocator
    >>> allocator.solve(allocator.Problem.read("data/snapshots/demo"), policy="mop")
    Traceback (most recent call last):
        ...
    allocator.errors.UsageError: unknown policy "mop"; did you mean "mip"? (known: mip, ...
    """

    exit_code = 2


class InvalidInput(AllocatorError):
    """Report an input that breaks rules.

    Attributes
    ----------
    faults : tuple of Fault
        All faults. In the text, equal faults share one line.
    warnings : tuple of str
        Other remarks about the input.

    Examples
    --------
    >>> import allocator
    >>> try:
    ...     allocator.Problem.build(
    ...         jobs=[allocator.Job("bert", "m", 9000, 4, min_gpus=8)],
    ...         pools=[allocator.Pool("a", "A100", 8)],
    ...         rates=[allocator.Rate("m", "A100", 1, 1.0)],
    ...     )
    ... except allocator.InvalidInput as error:
    ...     print(error)
    jobs.csv:2: max_gpus 4 is below min_gpus 8 (job "bert")
    """

    exit_code = 3

    def __init__(self, faults: Sequence[Fault], warnings: Sequence[str] = ()) -> None:
        self.faults = tuple(faults)
        self.warnings = tuple(warnings)
        super().__init__("\n".join(text for _, text in folded(self.faults)))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:  # errors cross processes
        return type(self), (self.faults, self.warnings)


@dataclass(frozen=True)
class Relaxation:
    """State one hard rule and the least by which it must give way.

    Parameters
    ----------
    rule : str
        Name of the rule.
    subject : str
        Pool, tenant or job; empty: none.
    current, needed : float
        The present limit, and the limit that would be needed.

    Examples
    --------
    >>> print(Relaxation("budget_per_hour", "", 100, 126.4))
    budget_per_hour: 100 would have to be 126.4
    """

    rule: str
    subject: str
    current: float
    needed: float

    def __str__(self) -> str:
        name = f'{self.rule} "{self.subject}"' if self.subject else self.rule
        return f"{name}: {self.current:g} would have to be {self.needed:g}"


class Infeasible(AllocatorError):
    """Report that no plan keeps every hard rule.

    Attributes
    ----------
    conflict : tuple of str
        Rules that cannot all hold.
    relaxations : tuple of Relaxation
        The smallest changes of rules with which a plan exists.

    Examples
    --------
    >>> import allocator
    >>> job = allocator.Job(
    ...     "bert", "m", 9000, 4, state="running", pool="a", gpus=4, preemptible=False
    ... )
    >>> problem = allocator.Problem.build(
    ...     jobs=[job],
    ...     pools=[allocator.Pool("a", "A100", 8, price_per_gpu_hour=2)],
    ...     rates=[allocator.Rate("m", "A100", 4, 1.0)],
    ... )
    >>> try:
    ...     allocator.solve(problem, budget=6)
    ... except allocator.Infeasible as error:
    ...     print(error.relaxations[0])
    budget_per_hour: 6 would have to be 8
    """

    exit_code = 4

    def __init__(self, conflict: Sequence[str], relaxations: Sequence[Relaxation]) -> None:
        self.conflict = tuple(conflict)
        self.relaxations = tuple(relaxations)
        lines = [
            "no plan keeps all hard rules",
            *(f"in conflict: {c}" for c in self.conflict),
            *(f"smallest relaxation: {r}" for r in self.relaxations),
        ]
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.conflict, self.relaxations)


class NoPlanInTime(AllocatorError):
    """Report that no plan was known at the time limit.

    Examples
    --------
    >>> NoPlanInTime.exit_code
    5
    """

    exit_code = 5


class AuditFailure(AllocatorError):
    """Report a plan in which the independent audit found faults; it is withheld.

    Attributes
    ----------
    faults : tuple of str
        Sentences that name object, value and rule.

    Examples
    --------
    >>> AuditFailure(['job "a" gets 4 GPUs, more than its range']).faults
    ('job "a" gets 4 GPUs, more than its range',)
    """

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("the plan failed its audit and was withheld:\n" + "\n".join(self.faults))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.faults,)
