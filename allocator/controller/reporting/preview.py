"""Preview of the next round: what the controller would do now. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from allocator.clusters.adapter import Capabilities
from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.domain.plan import Plan
from allocator.errors import AllocatorError
from allocator.loop.executor import Clock, Observation, Order
from allocator.queue import allocations
from allocator.queue.allocations import Allocation
from allocator.queue.database.connection import QueueDatabase
from allocator.queue.holdings import parse_parts
from allocator.queue.jobs import periodic
from allocator.queue.round_journal import Want


@dataclass(frozen=True)
class Preview:
    """A round that was decided and not carried out.

    `steps` says what it would have ordered, stops first. `is_periodic_due`: periodic jobs would
    have been submitted before the round, and are not part of it.
    """

    result: Plan
    steps: tuple[str, ...]
    is_periodic_due: bool


def preview(
    store: QueueDatabase, clock: Clock, options: ControllerOptions | None = None
) -> Preview:
    """Decide the round that is due now from what the queue knows, and describe what it changes.

    The store may be open for reading only. Neither a lease nor an executor is needed.

    Raises
    ------
    InvalidInput, Infeasible, NoPlanInTime
        If there is no such round.
    """
    controller = Controller(store, DryRunExecutor(), clock, options)
    result, wanted = controller.decide_dry_run()
    with store.read() as connection:
        open_allocations = {
            allocation.job_id: allocation
            for allocation in allocations.list_open_allocations(connection)
        }
        due = periodic.is_due(connection, clock.now())
    return Preview(result, _describe_steps(open_allocations, wanted), due)


def _describe_steps(
    open_allocations: Mapping[str, Allocation], wanted: Mapping[str, Want]
) -> tuple[str, ...]:
    """Return the stops, and then the starts, that lead from what jobs hold to what is wanted."""
    stops = []
    starts = []
    for job_id, allocation in open_allocations.items():
        want = wanted.get(job_id)
        stays = want is not None and (want.pool, want.gpus, want.nodes, want.has_to_move) == (
            allocation.pool,
            allocation.gpus,
            allocation.nodes,
            False,
        )
        if allocation.phase == "stopping":
            stops.append(f'job "{job_id}" is stopping: {_describe_gpus(allocation)}')
        elif not stays:
            stops.append(f'would stop job "{job_id}": {_describe_gpus(allocation)}')
        if stays and allocation.phase != "stopping":
            continue
        if want is not None:
            starts.append(_describe_start(job_id, want))
    starts += [
        _describe_start(name, want) for name, want in wanted.items() if name not in open_allocations
    ]
    return (*stops, *starts)


def _describe_start(job_id: str, want: Want) -> str:
    shared = f', those of job "{want.primary}"' if want.primary else ""
    return f'would start job "{job_id}": {_describe_gpus(want)}{shared}'


def _describe_gpus(holding: Allocation | Want) -> str:
    nodes = "|".join(map(str, parse_parts(holding.nodes)))
    on = f" on {nodes}" if nodes else ""
    return f'{holding.gpus} GPU{"" if holding.gpus == 1 else "s"} of pool "{holding.pool}"{on}'


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
