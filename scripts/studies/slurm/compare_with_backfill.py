"""The same jobs on a real Slurm: started by its own backfill, and by `allocator run`.

Usage: PYTHONPATH=tests/support/processes python scripts/studies/slurm/compare_with_backfill.py \\
           SEED...

60 jobs arrive in a minute on two nodes of four GPUs. A job of work W on g GPUs takes
W (1 + 0.1 (g - 1)) / g seconds; it sleeps, and writes a checkpoint four times a second. Under Slurm
a job has the size that its user asked for, and a time limit of five minutes. The allocator may give
it 1, 2 or 4 GPUs and change that, at the cost of a real restart. Speeds are known to it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from slurm_cluster import FakeNodes, SlurmCluster

from allocator.io.snapshots import parse_snapshot
from allocator.queue.queue import Queue

JOBS, SIZES, OVERHEAD, TICK_S = 60, (1, 2, 4), 0.1, 0.25
SCRIPT = """
stamp() { echo "$1 $JOB $EPOCHREALTIME $GPUS" >> $STAMPS; }
case $GPUS in 1) gain=2500;; 2) gain=4545;; 4) gain=7692;; esac
n=$(cat $STAMPS.$JOB 2>/dev/null || echo 0)
stamp start
trap 'stamp stop; exit 143' TERM
while [ $n -lt $WORK ]; do
    sleep 0.25
    n=$((n + gain)); echo $n > $STAMPS.$JOB
    if [ -n "$ALLOCATOR_PROGRESS" ]; then
        echo "$((n / 100))e-2 $((n / 100))e-2" > $ALLOCATOR_PROGRESS.new
        mv $ALLOCATOR_PROGRESS.new $ALLOCATOR_PROGRESS
    fi
done
stamp end
"""


@dataclass(frozen=True)
class Job:
    """A job: its name, arrival in seconds, work in seconds on one GPU, and size asked for."""

    name: str
    arrival_s: float
    work_s: float
    gpus: int


def make_jobs(seed: int) -> list[Job]:
    """Arrivals by an exponential clock, work by a lognormal one, sizes that users ask for."""
    draw = random.Random(seed)
    arrival_s, jobs = 0.0, []
    for i in range(JOBS):
        arrival_s += draw.expovariate(1.0)
        work_s = min(60.0, max(2.0, draw.lognormvariate(1.8, 0.8)))
        jobs.append(Job(f"j{i}", arrival_s, work_s, draw.choice(SIZES)))
    return jobs


def variables(job: Job, stamps: Path) -> dict[str, str]:
    """Variables of its script; work in ten thousandths of a second."""
    return {"JOB": job.name, "STAMPS": str(stamps), "WORK": str(round(job.work_s * 10_000))}


def submit_all(jobs: list[Job], submit: Callable[[Job], object]) -> dict[str, float]:
    """Submit every job at its arrival, and return the times of that."""
    begin_s, arrived = time.time(), {}
    for job in jobs:
        time.sleep(max(0.0, begin_s + job.arrival_s - time.time()))
        arrived[job.name] = time.time()
        submit(job)
    return arrived


def wait_for_all(stamps: Path, limit_s: float = 400.0) -> None:
    """Until every job has said that it ended."""
    end_s = time.monotonic() + limit_s
    while stamps.read_text().count("end ") < JOBS and time.monotonic() < end_s:
        time.sleep(0.5)


def run_backfill(slurm: SlurmCluster, jobs: list[Job], stamps: Path) -> dict[str, float]:
    """Slurm decides."""

    def submit(job: Job) -> None:
        values = ",".join(f"{k}={v}" for k, v in variables(job, stamps).items())
        slurm.call(
            "sbatch",
            f"--gres=gpu:{job.gpus}",
            "--time=5",
            "--output=/dev/null",
            f"--export=ALL,GPUS={job.gpus},{values}",
            text=f"#!/bin/bash\n{SCRIPT}",
        )

    arrived = submit_all(jobs, submit)
    wait_for_all(stamps)
    return arrived


def run_allocator(slurm: SlurmCluster, jobs: list[Job], stamps: Path) -> dict[str, float]:
    """The allocator decides."""
    name = str(stamps.with_suffix(".db"))
    rates = "".join(f"m,A,{g},{g / (1 + OVERHEAD * (g - 1)):.6f}\n" for g in SIZES)
    files = {
        "jobs.csv": "job_id,model,submitted_s,remaining_work,max_gpus\n",
        "pools.csv": "pool,gpu_type,gpus\na,A,8\n",
        "rates.csv": f"model,gpu_type,gpus,work_per_s\n{rates}",
        "config.toml": "now_s = 0\ninterval_s = 5\n",
    }
    snapshot = parse_snapshot("slurm", {k: v.encode() for k, v in files.items()})
    command = [sys.executable, "-m", "allocator", "run", name, "--executor", "slurm"]
    command += ["--every", "5", "--react", "1", "--poll", "0.3", "--grace", "5"]
    with Queue.create(name, snapshot) as queue:
        with open(stamps.with_suffix(".log"), "wb") as log:
            environment = {**os.environ, "SLURM_CONF": str(slurm.conf)}
            child = subprocess.Popen(command, env=environment, stderr=log)
        arrived = submit_all(
            jobs,
            lambda job: queue.submit(
                job_id=job.name,
                model="m",
                total_work=job.work_s,
                max_gpus=4,
                requested_gpus=job.gpus,
                sizes=list(SIZES),
                restart_s=1.0,
                command=["bash", "-c", f"GPUS=$ALLOCATOR_GPUS\n{SCRIPT}"],
                environment=variables(job, stamps),
            ),
        )
        wait_for_all(stamps)
        child.terminate()
        child.wait(60)
    return arrived


def describe(stamps: Path, arrived: dict[str, float]) -> str:
    """Mean completion and queueing, the time of the last end, the share of GPUs in use, restarts.

    Times are in seconds.
    """
    starts: dict[str, list[float]] = {}
    ends: dict[str, float] = {}
    used = 0.0
    for line in stamps.read_text().splitlines():
        what, job, at, gpus = line.split()
        if what == "start":
            starts.setdefault(job, []).append(float(at))
        else:
            ends[job] = float(at)
            used += (float(at) - starts[job][-1]) * int(gpus)
    assert stamps.read_text().count("end ") == JOBS, sorted(set(arrived) - set(ends))
    completion = mean(ends[job] - arrived[job] for job in ends)
    queueing = mean(starts[job][0] - arrived[job] for job in ends)
    last_s = max(ends.values()) - min(arrived.values())
    restarts = sum(len(times) - 1 for times in starts.values())
    return (
        f"{completion:.1f} | {queueing:.1f} | {last_s:.0f} | {used / last_s / 8:.0%} | {restarts}"
    )


def main(seeds: list[int]) -> None:
    """Print one row for each run."""
    print("| seed | decides | completion, s | queueing, s | last end, s | GPUs in use | restarts |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for seed in seeds:
        jobs = make_jobs(seed)
        for name, run in (("backfill", run_backfill), ("allocator", run_allocator)):
            with (
                tempfile.TemporaryDirectory() as folder,
                SlurmCluster((FakeNodes("a", "n", 2, "a100", 4),)) as slurm,
            ):
                stamps = Path(folder) / "stamps"
                stamps.touch()
                arrived = run(slurm, jobs, stamps)
                print(f"| {seed} | {name} | {describe(stamps, arrived)} |", flush=True)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [0, 1, 2])
