"""What can go wrong with a queue, besides input that breaks a rule (InvalidInput).

QueueUnavailable   1  locked by others, full, out of reach, damaged: nothing was changed
Refused            2  the job is in a state that does not allow it
LeaseLost          1  another controller leads; whatever this one wanted to write was not
                   written
"""

from __future__ import annotations

from allocator.errors import AllocatorError, UsageError


class QueueUnavailable(AllocatorError):
    """The database cannot be read or written right now. Nothing of the transaction was kept."""


class Refused(UsageError):
    """The state of a job does not allow what was asked."""


class LeaseLost(AllocatorError):
    """The fencing token is not the current one: another controller took over."""
