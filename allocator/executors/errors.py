"""What executors refuse, beside StaleOrder."""

from __future__ import annotations

from allocator.errors import AllocatorError


class NotNow(AllocatorError):
    """The order cannot be carried out yet (its GPUs are still held, or an older allocation of the job still lives).
    Nothing was done; the same order may be given again later."""
