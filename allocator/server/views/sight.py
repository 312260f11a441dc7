"""What a caller sees of a queue in one transaction: the first argument of all views."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlalchemy import Connection

from allocator.objects import Record
from allocator.queue import cluster_tables
from allocator.server.caller import VIEWER, Caller
from allocator.server.views.plans import RoundPlan, read_plan


@dataclass(frozen=True)
class Sight:
    """An open transaction, the present in unix seconds, and who looks.

    `size` is the number of rows of a page of a list. `rows` keeps rows of jobs for other looks, by
    all that they depend on.
    """

    connection: Connection
    now_s: float
    caller: Caller = VIEWER
    size: int = 50
    rows: dict[Any, Any] = field(default_factory=dict)

    @property
    def tenant(self) -> str | None:
        """The tenant whose jobs are all that can be seen; None: all jobs."""
        return self.caller.only_tenant

    @cached_property
    def plan(self) -> RoundPlan | None:
        """The latest plan of the journal, None before the first one."""
        return read_plan(self.connection)

    @property
    def entries(self) -> Mapping[str, Record]:
        """The jobs of the latest plan by name."""
        return {} if self.plan is None else self.plan.jobs

    @cached_property
    def config(self) -> Record:
        """The settings of the queue."""
        return cluster_tables.config(self.connection)
