"""Errors of executors, besides StaleOrder."""

from __future__ import annotations

from allocator.errors import AllocatorError
from allocator.loop.executor import Order


class NotNow(AllocatorError):
    """The order cannot be carried out yet, and nothing was done.

    Its GPUs are still held, or an older allocation of the job has not ended. The same order may be
    given again later.
    """


def starts_on_shared_gpus(order: Order, alive: bool) -> bool:
    """Return whether the order starts on the GPUs of the allocation `order.beside`.

    `alive`: that allocation was started and has not ended. Raises NotNow if the start has to wait
    for it.
    """
    if order.beside is not None and order.beside.needed and not alive:
        raise NotNow(
            f'job "{order.job_id}": it shall run on the GPUs of job "{order.beside.job_id}", whose'
            f" allocation {order.beside.generation} does not run"
        )
    return order.beside is not None and alive
