"""What goes wrong with controllers and executors in tests."""

from __future__ import annotations


class CrashHere(BaseException):
    """The controller dies here, as by kill -9. Not an Exception: whatever handles errors does
    not see it.
    """
