"""SIGTERM for commands: unwind, so that temporary files and worker processes go too, and
remember that it came.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn


class Terminated(BaseException):
    """SIGTERM arrived."""


class Terminator:
    """A signal handler that raises Terminated.

    Python drops an exception that a handler raises inside a callback of the interpreter, as modules
    being imported have them. `requested` stays, so that a command that goes on all the same can ask
    whether it should end.
    """

    def __init__(self) -> None:
        self.requested = False

    def __call__(self, _number: int, _frame: FrameType | None) -> NoReturn:
        self.requested = True
        raise Terminated


def is_termination_requested() -> bool:
    """Whether SIGTERM arrived while its handler was a Terminator."""
    handler = signal.getsignal(signal.SIGTERM)
    return isinstance(handler, Terminator) and handler.requested
