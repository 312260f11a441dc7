"""Why a job waits, and what would admit it: each change is checked by deciding again."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from allocator.domain.snapshot import Snapshot
from allocator.engine.explain import explain
from allocator.server.views.cluster import OTHERS
from allocator.server.views.deciding import Deciders, Effort


@dataclass(frozen=True)
class CheckedExplanation:
    """The explanation of a job, decided again just now.

    Attributes
    ----------
    summary : str
        The explanation in plain words.
    reason, detail : str or None
        Reason code and its sentence.
    changes : tuple of str
        Changes that would give it more; each was verified by deciding again.
    places : tuple of dict
        The same changes as places and values, as `allocator whatif --set` takes them.
    losers : tuple of str
        Who would lose if it had to be served.
    untried : tuple of str
        Kinds of changes for which the time was too short.
    is_late : bool
        A decision was cut off by the time limit, and is not counted.
    """

    job_id: str
    summary: str
    reason: str | None
    detail: str | None
    changes: tuple[str, ...]
    places: tuple[dict[str, str], ...]
    losers: tuple[str, ...]
    untried: tuple[str, ...]
    is_late: bool
    limit_s: float

    def seen_by_member(self, others: Collection[str]) -> CheckedExplanation:
        """Return the explanation without the names of other tenants' jobs, which are given."""

        def conceal(text: str) -> str:
            for name in sorted((n for n in others if n in text), key=len, reverse=True):
                text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", OTHERS, text)
            return text

        return replace(
            self,
            summary=conceal(self.summary),
            detail=None if self.detail is None else conceal(self.detail),
            changes=tuple(map(conceal, self.changes)),
            places=tuple({conceal(k): v for k, v in place.items()} for place in self.places),
            losers=tuple(map(conceal, self.losers)),
        )


def explain_snapshot(
    snapshot: Snapshot, effort: Effort, job_id: str, deciders: Deciders
) -> CheckedExplanation:
    """Explain a job of a round in a child process.

    Raises
    ------
    UsageError
        If the round does not have the job, or has no plan.
    NoPlanInTime, QueueUnavailable
        If the time is too short, or other questions are being decided.
    """
    found = deciders.ask(snapshot, effort, {"ask": "explain", "arguments": {"job_id": job_id}})
    lists = {name: tuple(value) for name, value in found.items() if isinstance(value, list)}
    return CheckedExplanation(**found | lists, limit_s=deciders.limit_s)


def explain_job(snapshot: Snapshot, effort: Effort, job_id: str) -> dict[str, Any]:
    """Explain a job, in the child."""
    found = explain(
        snapshot,
        job_id,
        policy=effort.policy,
        solver=effort.solver,
        limits=effort.limits,
        seconds=effort.search_s,
    )
    return {
        "job_id": job_id,
        "summary": found.summary,
        "reason": found.got["reason"],
        "detail": found.got["detail"],
        "changes": [str(change) for change in found.changes],
        "places": [dict(change.values) for change in found.changes],
        "losers": list(found.losers),
        "untried": list(found.untried),
        "is_late": found.is_late,
    }
