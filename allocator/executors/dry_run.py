"""The executor of a dry run (`allocator run` without an executor that acts): it has no machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from allocator.clusters.adapter import Capabilities
from allocator.errors import AllocatorError
from allocator.loop.executor import Observation, Order


class DryRunExecutor:
    """An executor without allocations that refuses every order, so that nothing can happen."""

    name = "dry-run"
    capabilities = Capabilities(shares_with_several=True)

    def start(self, order: Order) -> NoReturn:
        """Raise AllocatorError."""
        raise AllocatorError(f'a dry run was about to start job "{order.job_id}"')

    def stop(self, job_id: str, generation: int, token: int) -> NoReturn:
        """Raise AllocatorError."""
        raise AllocatorError(f'a dry run was about to stop job "{job_id}"')

    def observe(self) -> Sequence[Observation]:
        """Return no observations."""
        return ()

    def acknowledge(self, job_id: str, generation: int) -> None:
        """Do nothing."""

    def capacity(self) -> Mapping[str, int]:
        """Return nothing, so that pools have as many GPUs as the queue says."""
        return {}
