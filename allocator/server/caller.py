"""Who calls, and which jobs they may see and change."""

from __future__ import annotations

from dataclasses import dataclass

from allocator.queue.database.schema import DEFAULT_TENANT
from allocator.queue.jobs.verbs import Job
from allocator.server.sessions import Session


@dataclass(frozen=True)
class Caller:
    """Who calls: the role, the tenant of a member, and the token (None: reading is open)."""

    role: str
    tenant: str = ""
    token_id: int | None = None
    name: str = ""
    session: Session | None = None

    @property
    def is_operator(self) -> bool:
        """Whether the caller may change everything."""
        return self.role == "operator"

    @property
    def is_member(self) -> bool:
        """Whether the caller has the jobs of one tenant only."""
        return self.role == "member"

    @property
    def can_write(self) -> bool:
        """Whether the caller may change any job at all."""
        return self.role in ("member", "operator")

    @property
    def only_tenant(self) -> str | None:
        """The tenant whose jobs are all that the caller may see; None: all jobs."""
        return self.tenant if self.is_member else None

    def can_see(self, tenant: str) -> bool:
        """Return whether the caller may see jobs of a tenant ("": the default tenant)."""
        return not self.is_member or (tenant or DEFAULT_TENANT) == self.tenant

    def can_change(self, tenant: str) -> bool:
        """Return whether the caller may change jobs of a tenant."""
        return self.can_write and self.can_see(tenant)

    def knows_command(self, job: Job) -> bool:
        """Return whether the caller may see command, environment and folder of a job."""
        return self.can_change(job.values["tenant"] or DEFAULT_TENANT)
