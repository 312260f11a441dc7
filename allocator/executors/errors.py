"""Errors of executors, besides StaleOrder."""

from __future__ import annotations

from collections.abc import Callable

from allocator.errors import AllocatorError, UsageError
from allocator.loop.executor import ColocatedAllocation, Executor, Order


class NotNow(AllocatorError):
    """The order cannot be carried out yet, and nothing was done.

    Its GPUs are still held, or an older allocation of the job has not ended. The same order may be
    given again later.
    """


def refuse_several_primaries(executor: Executor, max_primaries: int) -> None:
    """Raise UsageError if a queue wants more of the executor than jobs in pairs of one size."""
    if max_primaries > 1 and not executor.capabilities.shares_with_several:
        raise UsageError(
            f'max_primaries is {max_primaries}: executor "{executor.name}" runs a job on the GPUs'
            " of one job of as many GPUs only. Set it to 1 with `allocator queue config`, or use"
            " another executor"
        )


def find_shared(
    order: Order, is_alive: Callable[[ColocatedAllocation], bool]
) -> tuple[ColocatedAllocation, ...]:
    """Return the allocations of `order.beside` on whose GPUs the order starts.

    `is_alive` says whether an allocation was started and has not ended. Raises NotNow if the start
    has to wait for one.
    """
    alive = tuple(one for one in order.beside if is_alive(one))
    for one in order.beside:
        if one.needed and one not in alive:
            raise NotNow(
                f'job "{order.job_id}": it shall run on the GPUs of job "{one.job_id}", whose'
                f" allocation {one.generation} does not run"
            )
    return alive
