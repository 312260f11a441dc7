"""Small samples of every trace format, made up here in the form of the real files; one builder
per format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2020-03-02 00:10:00,600.0,1,600.0,vc1
2020-03-02 00:00:00,3600.0,8,28800.0,vc2
2020-03-02 01:00:00,100.5,3,301.5,vc1
2020-03-02 00:10:00,600.0,1,600.0,vc1
2020-03-02 01:30:00,700.0,0,0.0,vc1
2020-03-02 02:00:00,900000.0,2,1800000.0,vc2
"""
TABLE = """id,when,began,finished,gpu_num,state,network
a,0,50,150,1,COMPLETED,bert
b,60,60,1060,4,COMPLETED,resnet
c,90,100,300,2,CANCELLED,bert
d,120,130,140,2,COMPLETED,bert
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,\
deletion_time,scheduled_time
pod-0,8000,1024,1,1000,,LS,Running,0,1010,10
pod-1,8000,1024,1,300,T4,BE,Succeeded,100,600,100
pod-2,8000,1024,0,0,,LS,Running,120,700,130
pod-3,8000,1024,1,1000,,LS,Pending,130,800,
pod-4,8000,1024,2,1000,V100|V100|T4,LS,Failed,200,500,300
"""
NODES = """sn,cpu_milli,memory_mib,gpu,model
n0,64000,262144,8,V100
n1,64000,262144,2,T4
n2,64000,262144,2,T4
n3,64000,262144,4,T4
n4,64000,262144,0,
"""
GAVEL = (
    "Net (batch size 4)\tcd x && run\t-n\t1\t1200\t0.0\t1\n"
    "Net (batch size 4)\tcd x && run\t-n\t1\t6000\t30.5\t2\n"
    "Other\tcd x && run\t-n\t0\t50\t60\t4\n"
)
STEPS = {
    "k80": {
        "('Net (batch size 4)', 1)": {"null": 2.0, "('Other', 1)": [1.0, 1.0]},
        "('Net (batch size 4)', 2)": {"null": 4.0},
        "('Other', 1)": {"null": 0.0},
    },
    "v100": {
        "('Net (batch size 4)', 1)": {"null": 6.0},
        "('Net (batch size 4)', 2)": {"null": 8.0},
        "('Other', 1)": {"null": 1.0},
    },
    "v100_unconsolidated": {"('Net (batch size 4)', 4)": {"null": 99.0}},
}
SIA = """name,time,application,num_replicas,batch_size
tiny-0,10,tiny,1,10
tiny-1,70.5,tiny,3,40
tiny-2,80,tiny,2,20
"""
PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,5,1.0,0.0
1,10,2.0,0.0
1,20,4.0,0.0
2,5,1.5,0.5
2,10,2.5,0.5
2,20,4.5,0.5
11,5,9.0,8.0
11,20,9.0,8.0
3,5,1.6,0.6
3,20,4.6,0.6
"""
SCALABILITY = """num_nodes,num_replicas,local_bsz,step_time,sync_time
2,8,5,2.0,1.0
2,3,5,0.1,0.0
1,3,5,0.1,0.0
"""
VALIDATION = {
    10: "progress,iteration,metric\n50,50,0.5\n100,100,0.9\n",
    40: "progress,iteration,metric\n50,20,0.5\n101,40,0.9\n",
}
SACCT = """JobID|Submit|Start|End|State|Elapsed|Account|User|Partition|Priority|AllocTRES|ReqTRES
1|2026-11-28T13:00:00|2026-11-28T13:00:10|2026-11-28T14:00:10|COMPLETED|01:00:00|vision|ann|a100|40\
|billing=1,cpu=1,gres/gpu:a100=2,gres/gpu=2,node=1|cpu=1,gres/gpu=2,node=1
2_1|2026-11-28T13:30:00|2026-11-28T13:30:00|2026-11-28T13:40:00|FAILED|00:10:00|vision|bob|a100|10\
|cpu=2,gres/gpu:a100=8,gres/gpu=8,node=2|cpu=2,gres/gpu=8,node=2
2_2|2026-11-28T13:30:00|2026-11-28T13:40:00|2026-11-28T13:45:00|REQUEUED|00:05:00|vision|bob|a100\
|10|cpu=2,gres/gpu:a100=8,gres/gpu=8,node=2|cpu=2,gres/gpu=8,node=2
2_2|2026-11-28T13:45:00|2026-11-28T23:45:00|2026-11-29T01:45:00|TIMEOUT|02:00:00|vision|bob|a100|10\
|cpu=2,gres/gpu:a100=8,gres/gpu=8,node=2|cpu=2,gres/gpu=8,node=2
3|2026-11-28T13:50:00|None|2026-11-28T13:55:00|CANCELLED by 0|00:00:00|nlp|eve|v100|0||gres/gpu=4
4|2026-11-28T13:55:00|Unknown|Unknown|PENDING|00:00:00|nlp|eve|v100|0||gres/gpu=4
5|2026-11-28T14:00:00|2026-11-28T14:00:00|Unknown|RUNNING|1-02:00:00|nlp|eve|v100|0\
|cpu=1,gres/gpu:v100=4,gres/gpu=4,node=1|gres/gpu=4
6|2026-11-28T14:00:00|2026-11-28T14:00:00|2026-11-28T15:00:00|COMPLETED|01:00:00|nlp|eve|v100|0\
|cpu=1,node=1|cpu=1
"""
GPU = "nvidia.com/gpu"
DAY = "2026-11-28T"


def workload(name: str, gpus: int, **at: str) -> dict[str, object]:
    """A workload of Kueue in namespace ml, with conditions since these times of a day."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"namespace": "ml", "name": name, "creationTimestamp": f"{DAY}10:00:00Z"},
        "spec": {"queueName": "vision"},
        "status": {
            "admission": {
                "podSetAssignments": [
                    {"flavors": {GPU: "a100"}, "resourceUsage": {GPU: str(gpus)}}
                ],
            },
            "conditions": [
                {"type": k, "status": "True", "reason": k, "lastTransitionTime": f"{DAY}{t}Z"}
                for k, t in at.items()
            ],
        },
    }


def event(reason: str, at: str) -> dict[str, object]:
    about = {"kind": "Workload", "namespace": "ml", "name": "b"}
    return {"kind": "Event", "reason": reason, "eventTime": f"{DAY}{at}Z", "involvedObject": about}


WORKLOADS = [
    workload("a", 4, Admitted="10:05:00", Finished="11:05:00"),
    workload("b", 8, Admitted="12:00:00", Finished="13:00:00"),
    event("Admitted", "10:30:00"),
    event("EvictedDueToPreempted", "11:00:00"),
]


def series(name: str, values: str, **labels: str) -> dict[str, object]:
    """A series of pod p: a value each minute, - = none."""
    return {
        "metric": {"__name__": name, "namespace": "ml", "pod": "p", **labels},
        "values": [[60 * k, v] for k, v in enumerate(values) if v != "-"],
    }


PODS_SEEN = [
    series("kube_pod_status_phase", "1111111", pod="old", phase="Running"),
    series("kube_pod_status_phase", "-11", phase="Pending"),
    series("kube_pod_status_phase", "---111", phase="Running"),
    series("kube_pod_container_resource_requests", "-2", resource="nvidia_com_gpu"),
    series("DCGM_FI_DEV_GPU_UTIL", "---5", modelName="NVIDIA A100"),
]


def kueue(folder: Path) -> tuple[Path, Mapping[str, tuple[str, ...]]]:
    return _write(folder / "list.json", json.dumps({"items": WORKLOADS})), {}


def prometheus(folder: Path) -> tuple[Path, Mapping[str, tuple[str, ...]]]:
    answers = ({"data": {"resultType": "matrix", "result": [s]}} for s in PODS_SEEN)
    return _write(folder / "answers.json", " ".join(map(json.dumps, answers))), {}


def philly(folder: Path) -> tuple[Path, Mapping[str, tuple[str, ...]]]:
    return _write(folder / "philly.csv", PHILLY), {}


def table(folder: Path) -> tuple[Path, Mapping[str, tuple[str, ...]]]:
    return (
        _write(
            folder / "jobs.csv",
            TABLE.replace("when", "submit_time")
            .replace("began", "start_time")
            .replace("finished", "end_time"),
        ),
        {},
    )


def openb(folder: Path) -> tuple[Path, Mapping[str, tuple[str, ...]]]:
    _write(folder / "openb_node_list_gpu_node.csv", NODES)
    return _write(folder / "openb_pod_list_default.csv", PODS), {}


def gavel(folder: Path) -> tuple[Path, Mapping[str, tuple[str, ...]]]:
    _write(folder / "simulation_throughputs.json", json.dumps(STEPS))
    return _write(folder / "seed0.trace", GAVEL), {}


def sacct(folder: Path) -> tuple[Path, Mapping[str, tuple[str, ...]]]:
    return _write(folder / "history.txt", SACCT), {}


def sia(folder: Path) -> tuple[Path, Mapping[str, tuple[str, ...]]]:
    for batch, text in VALIDATION.items():
        _write(folder / "profiles" / "tiny" / f"validation-{batch}.csv", text)
    for machine in ("aws", "rtx", "dgx"):
        _write(folder / "profiles" / "tiny" / f"placements-{machine}.csv", PLACEMENTS)
        _write(folder / "profiles" / "tiny" / f"scalability-{machine}.csv", SCALABILITY)
    return _write(folder / "workloads" / "workload-1.csv", SIA), {}


SAMPLES: Mapping[str, Callable[[Path], tuple[Path, Mapping[str, tuple[str, ...]]]]] = {
    "philly": philly,
    "sia": sia,
    "alibaba-openb": openb,
    "gavel": gavel,
    "slurm": sacct,
    "kueue": kueue,
    "prometheus": prometheus,
    "csv": table,
}


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
