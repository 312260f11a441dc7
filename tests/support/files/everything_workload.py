"""One small workload that uses every file and column, and helpers to
compare workloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everything import TEXTS, content, parts

from allocator.domain.workload import Workload

WORKLOAD_TEXTS = {
    **{
        file: TEXTS[file]
        for file in (
            "config.toml",
            "pools.csv",
            "rates.csv",
            "models.csv",
            "tenants.csv",
            "quotas.csv",
            "nodes.csv",
            "sharing.csv",
            "pauses.csv",
            "interactive.csv",
            "reservations.csv",
            "finished.csv",
        )
    },
    "workload.csv": (
        """\
job_id,submitted_s,model,total_work,requested_gpus,min_gpus,max_gpus,tenant,sizes,gpu_types,weight,\
deadline_s,\
preemptible,restart_s,resizes_left,memory_gb,checkpoint_s,checkpoint_every_s,after,max_spot_gpus,\
synchronous,interactive,shrinkable,\
every_s,times,cpus_per_gpu,host_memory_gb_per_gpu,gpu_fraction,placement,modes,best_effort,\
target_loss,cells,state_gb,state_gb_s,recorded_start_s,recorded_end_s,\
time_limit_s,cluster,gpus_per_pod
bert-2,1010,bert,800.5,2,1,4,red,,A100|V100,1,,yes,,,,,,bert-1,2,,yes,,,,6,,,,\
replicated:2|asynchronous,true,0.4,,,,,,,,
bert-1,1000,bert,9000,4,2,8,red,2|4|8,A100,2,19000,false,60,7,11,5,900,,,false,,true,,,,32.5,,\
same_block,,,,,,,1000,19500.5,86400,hall 1,2
gnmt-1,1020,gnmt,2e3,,1,2,blue,2,V100|A100,0.5,14000,true,,3,,2.5,,bert-2|bert-1,,,,,,,,,,,,,,,\
,,1100,,,,
"gnmt, 2",1010,gnmt,7,,,1,,,,,,,,,,,,,,,,,500,3,,,0.25,,,,,,,,,,,,
notebook,1030,gnmt,90,,,1,,,,,,,,,,,,,,,,,,,,,,,,,,0:60|120:30,6,2,,,,,
"""
    ),
    "prices.csv": (
        """\
at_s,pool,price_per_gpu_hour,gpus
0,east,1.2,
500,east,1.8,6
700,north,,5
2000,east,9,1
2000,north,0.5,3
3000,west,1.1,
"""
    ),
    "capacity.csv": (
        """\
at_s,pool,gpus
0,north,9
700,north,4
2000,east,2
1500,west,0
"""
    ),
    "node_events.csv": (
        "at_s,node,state,announced_s\n1800,w2,up,\n900,e2,up,\n1200,e1,down,1000\n"
    ),
}
EVERY_WORKLOAD: Mapping[str, bytes] = {file: text.encode() for file, text in WORKLOAD_TEXTS.items()}


def workload_content(workload: Workload) -> dict[str, Any]:
    """All values of a workload by dotted name, but for name, digest and warnings."""
    return content(workload.problem) | {
        f"{field}.{name}": value
        for field in ("changes", "node_events", "recorded")
        for name, value in parts(getattr(workload, field))
    }
