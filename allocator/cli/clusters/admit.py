"""`allocator admit`: answer the admission checks of Kueue."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from allocator.cli.output import note, show_result
from allocator.cli.parsing import command, duration, flag, option

if TYPE_CHECKING:
    from allocator.clusters.adapter import ClusterView, PlannedJob

EXAMPLES = """
allocator admit --once --context kind-test
allocator admit --every 60 --objective completion
"""
ABOUT = """\
Answer the admission checks whose controllerName is allocator.example/gpu-allocator: decide a round
for the jobs that Kueue has reserved quota for, let the workloads start that the plan starts, on its
nodes, and send back those that it pauses. Quota stays with Kueue."""


@command(
    "admit",
    "answer admission checks of Kueue",
    ABOUT,
    EXAMPLES,
    option("--context", "NAME", "context of the kubeconfig"),
    option("--kubeconfig", "FILE", "default: as kubectl finds it"),
    option("--objective", "OBJECTIVE", "what a plan is worked out for (default: progress)"),
    option("--every", "TIME", "seconds (default: 60)", duration(1.0), 60.0),
    flag("--once", "one round only"),
)
def call(args: argparse.Namespace) -> int:
    from allocator.clusters.kubernetes.admission import answer_checks
    from allocator.clusters.kubernetes.api import Reader
    from allocator.clusters.kubernetes.client import ClientApi
    from allocator.errors import AllocatorError, UsageError

    reader = Reader(ClientApi(args.context, args.kubeconfig))
    while True:
        try:
            lines = answer_checks(reader, lambda view: decide(view, args.objective), time.time())
        except AllocatorError as error:  # the next round looks again
            if args.once or isinstance(error, UsageError):
                raise
            lines = [f"nothing decided: {error}"]
        note(*lines)
        show_result(args.format, {"answers": list(lines)})
        if args.once:
            return 0
        time.sleep(args.every)


def decide(view: ClusterView, objective: str | None) -> Sequence[PlannedJob]:
    """Return what a plan for the cluster gives every job."""
    from allocator.api import solve
    from allocator.clusters.folder import build_snapshot, plan_jobs

    if not view.tables["jobs.csv"] or not view.tables["pools.csv"]:
        return ()
    plan = solve(build_snapshot("cluster", view), objective=objective)
    return plan_jobs(plan.to_dict()["jobs"])
