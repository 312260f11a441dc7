"""The page of a plan: which job gets which GPUs of which nodes."""

from pathlib import Path

from allocator.domain.findings import input_error
from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.errors import UsageError
from allocator.io.plans import PLAN_JSON
from allocator.io.snapshots import read_snapshot
from allocator.objects import Json
from allocator.report.nodes.cells import STATES, JobPart, NodeRow, draw_nodes
from allocator.report.page import Picture, write_page
from allocator.report.runs import read_json


def write_plan_report(folder: Path, out: Path, snapshot: Path | str | None = None) -> Path:
    """Write the page of a plan; return its path.

    Parameters
    ----------
    folder : with plan.json.
    out : the HTML file.
    snapshot : the snapshot of the plan, which has the nodes. The default is the folder itself.

    Raises
    ------
    UsageError
        If the snapshot is not given, or is that of another plan.
    InvalidInput
        For files that are not valid.
    """
    if snapshot is None and not (folder / "nodes.csv").is_file():
        raise UsageError(
            f'"{folder}" has a plan and not its nodes; say --snapshot SNAPSHOT, which was decided'
        )
    problem = validate(read_snapshot(folder if snapshot is None else snapshot))
    plan = read_json(folder / PLAN_JSON)
    if not isinstance(plan.get("jobs"), list):
        raise input_error(folder / PLAN_JSON, "is not a plan")
    if snapshot is not None and plan.get("digest") != problem.digest:
        raise UsageError(f'the plan in "{folder}" is not one of the snapshot "{snapshot}"')
    nodes, parts = plan_on_nodes(problem, plan)
    caption = "A row per node, a cell per GPU, a colour per job."
    free = sum(node.gpus for node in nodes if node.state == STATES[0])
    free -= sum(part.gpus for part in parts if part.gpu is None)
    free -= len({(part.node, part.gpu) for part in parts if part.gpu is not None})
    return write_page(
        out,
        f"Plan for {plan.get('snapshot', folder.name)} by {plan.get('policy')}",
        [Picture("nodes", "Which job gets which GPUs", caption, draw_nodes(nodes, parts))],
        f"{len(nodes)} nodes; {len({p.job for p in parts})} jobs on them; {free} GPUs free",
    )


def plan_on_nodes(problem: Problem, plan: Json) -> tuple[list[NodeRow], list[JobPart]]:
    """Return the nodes of a problem, and what the jobs of a plan get of them."""
    nodes = problem.nodes
    rows = [
        NodeRow(name, int(gpus), STATES[state])
        for name, gpus, state in zip(nodes.node, nodes.gpus, nodes.state, strict=True)
    ]
    parts = [
        JobPart(job["job_id"], **place)
        for job in plan["jobs"]
        if not job["shared_with"]
        for place in job["nodes"] or ()
    ]
    return rows, parts
