"""Write the shapes of KAI's scale tests here, to measure from CSV to a plan with nodes.

    mkdir shapes; cd shapes; python ../scripts/benchmarks/bench_nodes.py
    for shape in *; do echo $shape; time allocator solve $shape > /dev/null; done

The shapes are on 500 nodes of 8 GPUs (NVIDIA/KAI-Scheduler at 72de64fc, test/e2e/scale): 4,000 jobs
of one GPU fill them; a gang reclaims 2,000 of the GPUs; a gang of 80 cannot run, and the plan says
why; 41 gangs of 10 pods of 6 GPUs need GPUs of nodes with 3 single jobs each. The last shape has 7
of them on each node, and six gangs of 80.
"""

import os

SHAPES = {  # single jobs on each node; gangs, their GPUs, GPUs of a pod; guarantees of both
    "fill": (0, 4000, 1, 1, "a,0\nb,0"),
    "reclaim": (8, 1, 2000, 8, "a,0\nb,2000"),
    "refuse": (8, 1, 80, 8, "a,3921\nb,79"),
    "consolidate": (3, 41, 60, 6, "a,0\nb,0"),
    "empty": (7, 6, 80, 8, "a,0\nb,0"),
}
JOB = (
    "job_id,tenant,model,submitted_s,remaining_work,state,pool,gpus,min_gpus,max_gpus,gpus_per_pod"
)

for shape, (single, gangs, size, pod, guarantees) in SHAPES.items():
    held = range(500 * single)
    runs = [f"s{i},a,m,0,{20_000 + 8923 * i % 60_000},running,p,1,1,1,\n" for i in held]
    waits = [f"g{i},b,m,1,{3600 * size},queued,,,{size},{size},{pod}\n" for i in range(gangs)]
    os.makedirs(shape, exist_ok=True)
    for name, rows in {
        "jobs": [f"{JOB}\n", *runs, *waits],
        "nodes": ["node,pool,gpus\n", *(f"n{n},p,8\n" for n in range(500))],
        "placements": ["job_id,node,gpus\n", *(f"s{i},n{i // single},1\n" for i in held)],
        "pools": "pool,gpu_type,gpus\np,A,4000\n",
        "rates": "model,gpu_type,gpus,work_per_s\nm,A,1,1\nm,A,60,60\nm,A,80,80\nm,A,2000,2000\n",
        "tenants": f"tenant,guaranteed_gpus\n{guarantees}\n",
    }.items():
        with open(f"{shape}/{name}.csv", "w") as file:
            file.writelines(rows)
