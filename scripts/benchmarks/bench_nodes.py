"""Measure `allocator solve` on the shapes of KAI's scale tests, from CSV to a plan with nodes.

    python scripts/benchmarks/bench_nodes.py FOLDER

The shapes are on 500 nodes of 8 GPUs (NVIDIA/KAI-Scheduler at 72de64fc, test/e2e/scale): 4,000 jobs
of one GPU fill them; a gang reclaims 2,000 of the GPUs; a gang of 80 cannot run, and the plan says
why; 41 gangs of 10 pods of 6 GPUs need GPUs of nodes with 3 single jobs each. The last shape has 7
of them on each node, and six gangs of 80. FOLDER gets the snapshots and plans. The least CPU
seconds of three runs are printed.
"""

import os
import subprocess
import sys
from pathlib import Path

SHAPES = {  # single jobs on each node; gangs, their pods, GPUs of a pod; guarantees of both
    "fill": (0, 4000, 1, 1, 0, 0),
    "reclaim": (8, 1, 250, 8, 0, 2000),
    "refuse": (8, 1, 10, 8, 3921, 79),
    "consolidate": (3, 41, 10, 6, 0, 0),
    "empty": (7, 6, 10, 8, 0, 0),
}
JOB = (
    "job_id,tenant,model,submitted_s,remaining_work,state,pool,gpus,min_gpus,max_gpus,gpus_per_pod"
)

for shape, (single, gangs, pods, gpus, mine, theirs) in SHAPES.items():
    size = pods * gpus
    nodes = [f"n{n},p,8" for n in range(500)]
    held = [f"s{i},n{i // single},1" for i in range(500 * single)]
    runs = [f"s{i},a,m,0,{20_000 + 8923 * i % 60_000},running,p,1,1,1," for i in range(len(held))]
    waits = [f"g{i},b,m,{i},{3600 * size},queued,,,{size},{size},{gpus}" for i in range(gangs)]
    tables = {
        "jobs": [JOB, *runs, *waits],
        "nodes": ["node,pool,gpus", *nodes],
        "placements": ["job_id,node,gpus", *held],
        "pools": ["pool,gpu_type,gpus", "p,A,4000"],
        "rates": [
            "model,gpu_type,gpus,work_per_s",
            "m,A,1,1",
            f"m,A,{max(2, size)},{max(2, size)}",
        ],
        "tenants": ["tenant,guaranteed_gpus", f"a,{mine}", f"b,{theirs}"],
    }
    folder, seconds = Path(sys.argv[1], shape), []
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(rows))
    for _ in range(3):
        begin = os.times()
        command = [
            sys.executable,
            "-m",
            "allocator",
            "solve",
            str(folder),
            "--out",
            f"{folder}-plan",
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        end = os.times()
        seconds.append(end[2] + end[3] - begin[2] - begin[3])
    print(shape, round(min(seconds), 2), flush=True)
