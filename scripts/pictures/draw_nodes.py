"""Draw docs/pictures/report-nodes.png: a plan on 500 nodes of 8 GPUs.

    python scripts/pictures/draw_nodes.py

Jobs of 1 to 32 GPUs, some of odd sizes, fill 97 % of the nodes that are up; a few nodes are drained
or down. Needs the extra "plots" (matplotlib).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import allocator
from allocator import Job, Node, Pool, Problem, Rate
from allocator.report.charts.style import bytes_of, report_style
from allocator.report.nodes.cells import JobPart, NodeRow, draw_nodes

OUT = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "report-nodes.png"
SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
SHARES = (0.30, 0.20, 0.10, 0.15, 0.05, 0.05, 0.08, 0.03, 0.03, 0.01)
NODES, GPUS = 500, 8


def main() -> None:
    """Decide a plan and draw it."""
    rng = np.random.default_rng(0)
    states = rng.choice(["up", "drain", "down"], NODES, p=[0.97, 0.02, 0.01]).tolist()
    nodes = [Node(f"a100-{i:03d}", "a100", GPUS, state=s) for i, s in enumerate(states)]
    free = int(0.97 * GPUS * states.count("up"))
    jobs = list[Job]()
    while free > 0:
        size = min(int(rng.choice(SIZES, p=SHARES)), free)
        jobs.append(
            Job(
                f"j{len(jobs)}",
                "m",
                remaining_work=1000.0,
                submitted_s=0.0,
                min_gpus=size,
                max_gpus=size,
                sizes=(size,),
            )
        )
        free -= size
    problem = Problem.build(
        jobs=jobs,
        pools=[Pool("a100", "A100", GPUS * NODES)],
        rates=[Rate("m", "A100", k, float(k)) for k in SIZES],
        nodes=nodes,
        now_s=0.0,
    )
    placed = allocator.solve(problem)
    parts = [
        JobPart(job_id, place["node"], place["gpus"])
        for job_id, places in zip(placed.jobs["job_id"], placed.jobs["nodes"], strict=True)
        for place in places or ()
    ]
    rows = [NodeRow(node.node, node.gpus, state) for node, state in zip(nodes, states, strict=True)]
    with report_style():
        OUT.write_bytes(bytes_of(draw_nodes(rows, parts), "png"))


if __name__ == "__main__":
    main()
