"""One small snapshot that uses every file and every column with values that are
not the defaults.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from allocator.domain.problem import Problem

TEXTS = {
    "config.toml": (
        """\
now_s = 1000
interval_s = 600
budget_per_hour = 500
restart_s = 45
max_changes = 3
ageing_s = 7200
reserve_after_s = 600
due_after_runs = 2
objective = "throughput"
dollar_price = 0.25

[horizon]
rounds = 4

[longrun]
amount = 5000
until_s = 604800
window_s = 86400

[topology]
levels = ["rack", "block"]
"""
    ),
    "jobs.csv": (
        """\
job_id,model,submitted_s,remaining_work,total_work,tenant,state,pool,gpus,min_gpus,max_gpus,\
requested_gpus,sizes,\
gpu_types,weight,deadline_s,preemptible,restart_s,resizes_left,memory_gb,checkpoint_s,\
checkpoint_every_s,after,\
max_spot_gpus,synchronous,attained_gpu_s,restarts,largest_gpus,shared_with,interactive,shrinkable,\
every_s,times,cpus_per_gpu,host_memory_gb_per_gpu,gpu_fraction,placement,modes,best_effort,\
target_loss,loss_work,loss_error,time_limit_s,cluster,gpus_per_pod
bert-1,bert,0,5000,9000,red,running,east,4,2,8,4,2|4|8,A100,2,9000,false,60,0,11,5,900,,6,false,\
7200,2,8,,no,yes,3600,5,6,32.5,,same_block,,,0.5,8200,0.3,90000,hall 1,2
bert-2,bert,10,800.5,,red,queued,,,1,4,2,,A100|V100,1,,yes,,,,,,bert-1,,,,,,,,,,,,,,,\
bulk|backup:1|asynchronous:0.9,yes,0.4,,,,hall 2,
gnmt-1,gnmt,20,1e3,2000,blue,paused,,,1,2,,,,0.5,4000,true,,3,,2.5,,gone|bert-2,0,,30,1,2,,,,,\
,,,,,,,,,,,,
"gnmt, 2",gnmt,30,7,,,held,,,,1,,,,,,,,,,,,,,,,,,,yes,,,,,,,,,,,,,,,
gnmt-3,gnmt,990,7,,blue,running,west,2,,2,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,
gnmt-4,gnmt,991,9,,blue,running,west,2,,2,,,,,,,,,,,,,,,,,,gnmt-3,,,,,,,,,,,,,,,,
gnmt-5,gnmt,992,9,,blue,running,east,1,,1,,,,,,,,,,,,,,,,,,,,,,,2,,0.25,,,,,,,,,
"""
    ),
    "pools.csv": (
        """\
pool,gpu_type,gpus,gpus_per_node,market,price_per_gpu_hour,region,startup_s,\
revocations_per_gpu_hour,memory_gb,lifetime_s,availability,min_billing_s,sharing,straggler_cv,\
link_gb_s,hazard_by_age,isolation,price_per_gb_hour
east,A100,8,4,spot,1.5,us-east,20,0.07,40,86400,0.6,60,tenant,0.3,12,,1.2,0.02
west,V100,4,2,on_demand,0.9,us-west,30,0.01,16,,,600,any,,,,,
north,V100,6,,,0.4,,,,16,,,,none,,,0:0.1|2:0.03,,
"""
    ),
    "rates.csv": (
        """\
model,gpu_type,gpus,work_per_s,batch_size,accumulation,memory_gb,spread,variant,efficiency,\
compute_s,codec_s,volume_gb,ratio,observed
bert,A100,1,10,32,2,12,1,compressed,0.9,,,,,
bert,A100,4,35,128,1,12,1,,,,,,,
bert,A100,8,60,256,1,12,2,async,0.95,0.25,0.01,1.5,20,
bert,V100,1,4,32,1,12,1,,,,,,,
gnmt,V100,1,3,,,,,,,,,,,
gnmt,V100,2,5.5,,,,,,,,,,,yes
"""
    ),
    "models.csv": (
        """\
model,gpu_type,kind,parameters
gnmt,A100,amdahl,"{""rate_1"": 8, ""parallel"": 0.95, ""max_gpus"": 8}"
bert,V100,overhead,"{""rate_1"": 4, ""c"": 0.1, ""min_gpus"": 2, ""max_gpus"": 4}"
"""
    ),
    "prices.csv": (
        """\
at_s,pool,price_per_gpu_hour,gpus
0,east,1.2,
500,east,1.8,6
600,west,,3
700,north,,5
2000,east,9,1
"""
    ),
    "tenants.csv": (
        """\
tenant,weight,max_gpus,max_jobs,guaranteed_gpus,budget_per_hour,max_spot_gpus,max_spot_share,\
dollar_price,average_per_hour,\
amount,until_s,gpu_hours_per_month,gpu_hours_used,parent
red,2,12,20,4,100,10,1,0.5,20,,,5000,12,
blue,1,,,1,50,,,,,900,90000,,,red
"""
    ),
    "quotas.csv": (
        """\
tenant,gpu_type,pool,guaranteed_gpus,max_gpus,lend_gpus
red,A100,,2,10,1
blue,,north,1,,
"""
    ),
    "nodes.csv": (
        """\
node,pool,gpus,state,rack,cpus,host_memory_gb,block,leaves_s,returns_s
e1,east,4,up,r1,32,256,b1,9000,9600
e2,east,4,up,r2,32,256.5,b1,,
w1,west,2,up,r1,,,b2,,
w2,west,2,drain,r2,,,b2,,
"""
    ),
    "placements.csv": (
        """\
job_id,node,gpus,gpu
bert-1,e1,3,
bert-1,e2,1,
gnmt-3,w1,1,
gnmt-3,w2,1,
gnmt-5,e1,1,3
"""
    ),
    "received.csv": (
        """\
job_id,gpu_type,seconds
bert-1,A100,1500
bert-1,V100,300.5
gnmt-1,V100,30
"""
    ),
    "finished.csv": (
        """\
model,total_work
bert,9000
bert,8000.5
resnet,70
"""
    ),
    "interactive.csv": (
        """\
pool,headroom_gpus,sessions_per_hour,session_s,session_gpus,late_share,shrinkable_share
east,2,,,,,0.5
west,,0.5,600,2,0.2,
"""
    ),
    "reservations.csv": (
        """\
reservation,pool,gpus,at_s,until_s,job_id,tenant
r1,east,2,900,9000,bert-1,
r2,west,1,5000,,,red
"""
    ),
    "pauses.csv": (
        """\
model,from_gpus,to_gpus,pause_s,gpu_type
bert,4,8,5,A100
bert,4,2,0,
gnmt,2,1,7.5,V100
"""
    ),
    "sharing.csv": (
        """\
model_a,model_b,gpu_type,gpus,slowdown_a,slowdown_b
bert,gnmt,A100,1,1.3,1.2
gnmt,gnmt,V100,2,1.1,1.15
"""
    ),
}
EVERYTHING: Mapping[str, bytes] = {file: text.encode() for file, text in TEXTS.items()}


def parts(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every array and value inside a Problem by dotted name, arrays as lists, nan as text so
    that it equals itself.
    """
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from parts(
                getattr(value, field.name), f"{name}.{field.name}" if name else field.name
            )
    elif isinstance(value, np.ndarray):
        yield (
            name,
            ["none" if isinstance(v, float) and math.isnan(v) else v for v in value.tolist()],
        )
    elif isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
        yield name, [v.tolist() for v in value]
    else:
        # a nan in a table equals itself
        yield name, repr(value) if isinstance(value, Mapping) else value


def content(problem: Problem) -> dict[str, Any]:
    """The parts of a Problem that come from cells: all but name, digest and warnings."""
    return {k: v for k, v in parts(problem) if k not in ("name", "digest", "warnings")}
