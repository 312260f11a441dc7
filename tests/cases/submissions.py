"""Files with which somebody would submit a job, and the row of jobs.csv that each stands for."""

from __future__ import annotations

import json
from typing import Any

SBATCH = """#!/bin/bash
#SBATCH --job-name=tune-bert
#SBATCH --gres=gpu:a100:2
#SBATCH --time=1-00:00:00
srun python train.py
#SBATCH --gres=gpu:8
"""
ELASTIC = """#!/bin/sh
#SBATCH -J elastic
#SBATCH --gpus-per-node=2 -t 30:00 --partition=v100,a100
#SBATCH --comment='{"allocator": {"model": "bert", "min_gpus": 1, "max_gpus": 8, \
"total_work": 9000}}'
python train.py
"""
NODES = """#!/bin/bash
# two nodes
#SBATCH -N 2 --gpus-per-node v100:4
#SBATCH -p v100
#SBATCH --array=0-9
python train.py
"""
TASKS = """#SBATCH --ntasks=3 --gpus-per-task=1 --account=team-2 --time=90
python train.py
"""
LIMITS = {"limits": {"nvidia.com/gpu": 2}}
POD = {"spec": {"containers": [{"name": "main", "image": "x", "resources": LIMITS}]}}
JOB = """# Kubernetes
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  namespace: vision
  annotations:
    allocator.example/model: resnet50
    allocator.example/expected-seconds: "7200"
    allocator.example/min-gpus: "2"
spec:
  suspend: true
  parallelism: 2
  completions: 2
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: v100}
      containers:
      - name: main
        image: train
        resources:
          limits: {nvidia.com/gpu: 2, cpu: 8}
"""
PYTORCH = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "llm", "annotations": {"allocator.example/total-work": "5000"}},
    "spec": {
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "template": POD},
            "Worker": {"replicas": 1, "template": POD},
        }
    },
}
RAY = """apiVersion: ray.io/v1
kind: RayJob
metadata: {name: sweep}
spec:
  entrypoint: python sweep.py
  rayClusterSpec:
    headGroupSpec:
      template: {spec: {containers: [{name: head}]}}
    workerGroupSpecs:
    - groupName: workers
      replicas: 3
      template: {spec: {containers: [{name: w, resources: {limits: {nvidia.com/gpu: 1}}}]}}
"""
ROW = """job_id,model,total_work,min_gpus,max_gpus,weight
new-1,bert,2000,1,4,50
"""
CASES: dict[str, tuple[str, dict[str, Any]]] = {  # file -> its text, and its row
    name: (text, dict(cell.split("=") for cell in row.split()))
    for name, text, row in (
        (
            "train.sbatch",
            SBATCH,
            """job_id=tune-bert model=tune-bert remaining_work=86400 gpu_types=A100
            min_gpus=2 max_gpus=2 requested_gpus=2 sizes=2""",
        ),
        (
            "elastic.sh",
            ELASTIC,
            """job_id=elastic model=bert remaining_work=9000 requested_gpus=2
            min_gpus=1 max_gpus=8""",
        ),
        (
            "nodes.sh",
            NODES,
            """job_id=nodes.sh model=nodes.sh remaining_work=604800 gpu_types=V100
            min_gpus=8 max_gpus=8 requested_gpus=8 sizes=8""",
        ),
        (
            "tasks.sh",
            TASKS,
            """job_id=tasks.sh model=tasks.sh remaining_work=5400 tenant=team-2
            min_gpus=3 max_gpus=3 requested_gpus=3 sizes=3""",
        ),
        (
            "job.yaml",
            JOB,
            """job_id=vision/train model=resnet50 remaining_work=7200 tenant=vision
            min_gpus=2 max_gpus=4 requested_gpus=4 sizes=2|4
            gpu_types=V100 preemptible=false cpus_per_gpu=4""",
        ),
        (
            "pytorchjob.json",
            json.dumps(PYTORCH, indent=1) + "\n",
            """job_id=default/pytorchjob/llm model=llm remaining_work=5000 preemptible=false
            min_gpus=4 max_gpus=4 requested_gpus=4 sizes=4""",
        ),
        (
            "rayjob.yaml",
            RAY,
            """job_id=default/rayjob/sweep model=sweep remaining_work=3600 preemptible=false
            min_gpus=3 max_gpus=3 requested_gpus=3 sizes=3""",
        ),
        (
            "row.csv",
            ROW,
            """job_id=new-1 model=bert remaining_work=2000 weight=50
            min_gpus=1 max_gpus=4""",
        ),
    )
}
ROWS = """max_gpus=8,weight=5 min_gpus=4,max_gpus=4,preemptible=false,weight=50
max_gpus=2,after=job-0000 max_gpus=8,deadline_s=2003600,weight=3
tenant=team-1,min_gpus=2,max_gpus=16 gpu_types=T4,max_gpus=8
gpus_per_pod=2,min_gpus=2,max_gpus=8 min_gpus=128,max_gpus=128
tenant=team-2,max_gpus=8,restart_s=9 gpu_types=A100,min_gpus=4,max_gpus=4,sizes=4
max_gpus=4,time_limit_s=900 max_gpus=2,memory_gb=40"""
ROW_CASES: dict[str, tuple[str, dict[str, Any]]] = {}  # for the snapshot `full`
for n, given in enumerate(ROWS.split()):
    row = {"job_id": "new", "model": "bert-1", "total_work": "20000"}
    row |= dict(cell.split("=") for cell in given.split(","))
    text = f"{','.join(row)}\n{','.join(row.values())}\n"
    ROW_CASES[f"{n}.csv"] = text, row | {"remaining_work": 20000}
