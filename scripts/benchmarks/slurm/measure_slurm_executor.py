"""What a look of the executor `slurm` costs: CPU seconds, and calls that slurmctld answers.

Usage: PYTHONPATH=tests/support/processes \\
           python scripts/benchmarks/slurm/measure_slurm_executor.py [JOBS]

A Slurm of its own gets JOBS (1,000) batch jobs of the executor, most of which wait. Nine looks are
measured: each is what the controller asks in one poll, the observations and the capacity.
"""

from __future__ import annotations

import os
import re
import resource
import sys
import tempfile
import time
from pathlib import Path

from slurm_cluster import FakeNodes, SlurmCluster

from allocator.executors.slurm.executor import SlurmExecutor
from allocator.loop.executor import Order

LOOKS = 9


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(who)[:2]) for who in both)


def count_calls(slurm: SlurmCluster) -> int:
    """Remote procedure calls that slurmctld has answered, without those of nodes and of sdiag."""
    text = slurm.run("sdiag").partition("Remote Procedure Call statistics by user")[0]
    counts = re.findall(r"(REQUEST_\w+)\s*\(\s*\d+\) count:(\d+)", text)
    return sum(int(n) for name, n in counts if name != "REQUEST_STATS_INFO")


def main(jobs: int) -> None:
    """Submit, look, and print."""
    nodes = (FakeNodes("a", "n", 2, "a100", 8),)
    with tempfile.TemporaryDirectory() as folder, SlurmCluster(nodes) as slurm:
        os.environ["SLURM_CONF"] = str(slurm.conf)
        executor = SlurmExecutor(Path(folder) / "state", patience_s=1e6)
        begin_s, calls = cpu_s(), count_calls(slurm)
        for i in range(jobs):
            executor.start(Order(f"j{i}", 1, 1, "a", 8, "A", 1.0, ("sleep", "1000")))
        started_s, asked = cpu_s() - begin_s, count_calls(slurm) - calls
        time.sleep(5.0)
        begin_s, calls = cpu_s(), count_calls(slurm)
        for _ in range(LOOKS):
            executor.observe()
            executor.capacity()
        looked_s, looked = cpu_s() - begin_s, count_calls(slurm) - calls
        print(f"{jobs} starts: {started_s:.2f} CPU s, {asked} calls of slurmctld")
        print(f"one look: {looked_s / LOOKS:.3f} CPU s, {looked / LOOKS:.1f} calls of slurmctld")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
