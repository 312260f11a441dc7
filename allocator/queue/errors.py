"""Errors of a queue, besides InvalidInput, with their exit codes.

QueueUnavailable   1   the database is locked, full, out of reach or damaged; nothing changed
Refused            2   the state of the job does not allow it
LeaseLost          1   another controller leads; nothing was written
"""

from __future__ import annotations

from allocator.errors import AllocatorError, UsageError


class QueueUnavailable(AllocatorError):
    """The database cannot be read or written right now. Nothing of the transaction was kept."""


class Refused(UsageError):
    """The state of a job does not allow what was asked."""


class LeaseLost(AllocatorError):
    """The fencing token is not the current one: another controller took over."""
