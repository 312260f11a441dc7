"""Handle SIGTERM in commands: unwind, and remember that it came.

Unwinding removes temporary files and ends worker processes.
"""

import signal
from types import FrameType
from typing import NoReturn


class Terminated(BaseException):
    """SIGTERM arrived."""


class Terminator:
    """A signal handler that raises Terminated.

    Python drops an exception that a handler raises inside a callback of the interpreter, for
    example while modules are imported. `requested` stays set, so that a command that continues can
    ask whether it should end.
    """

    def __init__(self) -> None:
        self.requested = False

    def __call__(self, _number: int, _frame: FrameType | None) -> NoReturn:
        self.requested = True
        raise Terminated


def is_termination_requested() -> bool:
    """Return whether SIGTERM arrived while its handler was a Terminator."""
    handler = signal.getsignal(signal.SIGTERM)
    return isinstance(handler, Terminator) and handler.requested
