"""Why a job waits, and what would admit it: each change is checked by deciding again."""

from __future__ import annotations

import re
from collections.abc import Collection

from pydantic import Field

from allocator.domain.snapshot import Snapshot
from allocator.engine.explain import explain
from allocator.server.views.answer import Answer
from allocator.server.views.cluster import OTHERS
from allocator.server.views.deciding import Effort


class ExplanationAnswer(Answer):
    """Why a job has what it has, and what would change it; every change was verified."""

    job_id: str
    summary: str
    reason: str | None
    detail: str | None
    changes: list[str]
    places: list[dict[str, str]] = Field(description="the changes as `values` of a what-if")
    losers: list[str] = Field(description="who would lose if it had to be served")
    untried: list[str] = Field(description="kinds of changes for which the time was too short")
    is_late: bool = Field(description="a decision was cut off by the limit, and is not counted")
    limit_s: float = Field(description="seconds that the answer could take")

    def seen_by_member(self, others: Collection[str]) -> ExplanationAnswer:
        """Return the explanation without the names of other tenants' jobs, which are given."""

        def conceal(text: str) -> str:
            for name in sorted((n for n in others if n in text), key=len, reverse=True):
                text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", OTHERS, text)
            return text

        return self.model_copy(
            update={
                "summary": conceal(self.summary),
                "detail": None if self.detail is None else conceal(self.detail),
                "changes": list(map(conceal, self.changes)),
                "places": [{conceal(k): v for k, v in place.items()} for place in self.places],
                "losers": list(map(conceal, self.losers)),
            }
        )


def explain_job(snapshot: Snapshot, effort: Effort, job_id: str) -> ExplanationAnswer:
    """Explain a job, in the child. Raises UsageError if the round does not have it."""
    found = explain(
        snapshot,
        job_id,
        policy=effort.policy,
        solver=effort.solver,
        limits=effort.limits,
        seconds=effort.search_s,
    )
    return ExplanationAnswer(
        job_id=job_id,
        summary=found.summary,
        reason=found.got["reason"],
        detail=found.got["detail"],
        changes=[str(change) for change in found.changes],
        places=[dict(change.values) for change in found.changes],
        losers=list(found.losers),
        untried=list(found.untried),
        is_late=found.is_late,
        limit_s=effort.limit_s,
    )
