"""A controller on Ray as a process that may be killed: python ray_controller.py QUEUE STATE

It is `allocator run QUEUE --executor ray`, with less patience.
"""

from __future__ import annotations

import sys
from pathlib import Path

from slurm_controller import run_controller

from allocator.clusters.ray import api
from allocator.executors.ray.executor import RayExecutor

LIMITS = {"grace_s": 3.0, "patience_s": 20.0, "lease_s": 3.0}

if __name__ == "__main__":
    api.TIMEOUT_S = 2.0
    run_controller(sys.argv[1], RayExecutor(Path(sys.argv[2]), **LIMITS))
