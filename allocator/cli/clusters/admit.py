"""`allocator admit`: answer the admission checks of Kueue."""

import time
from argparse import Namespace
from collections.abc import Sequence

from allocator import AllocatorError, UsageError, solve
from allocator.cli.output import Answer, note
from allocator.cli.tables import show_answer
from allocator.clusters.adapter import ClusterView, PlannedJob
from allocator.clusters.folder import build_snapshot, plan_jobs
from allocator.clusters.kubernetes.admission import answer_checks
from allocator.clusters.kubernetes.api import ClientApi, Reader


def admit(args: Namespace) -> Answer:
    reader = Reader(ClientApi(args.context, args.kubeconfig))
    while True:
        try:
            lines = answer_checks(reader, lambda view: decide(view, args.objective), time.time())
        except AllocatorError as error:  # the next round looks again
            if args.once or isinstance(error, UsageError):
                raise
            lines = [f"nothing decided: {error}"]
        note(*lines)
        answer = Answer({"answers": list(lines)})
        if args.once:
            return answer
        show_answer(answer, args)
        time.sleep(args.every)


def decide(view: ClusterView, objective: str | None) -> Sequence[PlannedJob]:
    """Return what a plan for the cluster gives every job."""
    if not view.tables["jobs.csv"] or not view.tables["pools.csv"]:
        return ()
    plan = solve(build_snapshot("cluster", view), objective=objective)
    return plan_jobs(plan.to_dict()["jobs"])
