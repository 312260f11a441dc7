"""No machines at all: what a dry run (`allocator run` without an executor that acts) is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from allocator.errors import AllocatorError
from allocator.loop.executor import Capabilities, Observation, Order


class DryRunExecutor:
    """Knows of nothing and refuses every order, so that nothing can be done by mistake."""

    name = "dry-run"
    capabilities = Capabilities()

    def start(self, order: Order) -> NoReturn:
        """Raises AllocatorError."""
        raise AllocatorError(f'a dry run was about to start job "{order.job_id}"')

    def stop(self, job_id: str, generation: int, token: int) -> NoReturn:
        """Raises AllocatorError."""
        raise AllocatorError(f'a dry run was about to stop job "{job_id}"')

    def observe(self) -> Sequence[Observation]:
        """Nothing."""
        return ()

    def acknowledge(self, job_id: str, generation: int) -> None:
        """There is nothing to forget."""

    def capacity(self) -> Mapping[str, int]:
        """As the queue says."""
        return {}
