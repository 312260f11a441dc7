"""The table of jobs that get something else in one of two plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allocator.cli.tables import Table
    from allocator.domain.plan import Plan
    from allocator.engine.whatif import Comparison


def differences(comparison: Comparison, after: Plan) -> Table:
    """Return the jobs that get something else."""
    from allocator.cli.tables import Table, text

    reason = dict(zip(after.jobs["job_id"], after.jobs["reason"], strict=True))
    nodes = dict(zip(after.jobs["job_id"], after.jobs["nodes"], strict=True))
    rows = []
    for job in comparison.jobs:
        old, new = (
            (
                f"{s.gpus} x {s.pool}" + (f" next to {s.shared_with}" if s.shared_with else "")
                if s.gpus
                else "nothing"
            )
            for s in (job.before, job.after)
        )
        if old == new:
            new = f"{new} on {', '.join(part['node'] for part in nodes[job.job_id] or ())}"
        rows.append(
            [
                text(job.job_id),
                job.what,
                text(old),
                text(new),
                text(job.left_h_before, 3),
                text(job.left_h_after, 3),
                text(reason[job.job_id] or ""),
            ]
        )
    return Table(
        f"jobs that differ ({len(rows)} of {len(after.jobs['job_id'])})",
        ("job", "change", "as it is", "with it", "hours left", "then", "reason"),
        rows,
        frozenset({"hours left", "then"}),
    )
