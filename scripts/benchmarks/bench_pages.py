"""Measure what a page of `allocator serve` costs with 1,000 running and 10,000 waiting jobs.

    OMP_NUM_THREADS=1 python scripts/benchmarks/bench_pages.py [--running 1000] [--waiting 10000]

A controller decides one round with the policy `greedy`, then every page is asked for some times,
in this process, as an operator and as a member of a tenant. The table has CPU milliseconds, the
first request (which reads the plan) and the median of the later ones, and the size of the answer.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from fastapi.testclient import TestClient

from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.executors.simulated import SimulatedClock, SimulatedExecutor, SimulatedMachines
from allocator.io.snapshots import parse_snapshot
from allocator.queue import tokens
from allocator.queue.queue import Queue
from allocator.server.app import create_app
from allocator.server.options import ServerOptions

ASKED = 5
PATHS = (
    "/",
    "/jobs",
    "/jobs?state=waiting&page=150",
    "/jobs?state=waiting&reason=outranked",
    "/jobs?text=77",
    "/jobs/job-000001",
    "/nodes",
    "/tenants?days=30",
    "/rounds",
    "/rounds/1",
    "/compare?first=1&second=2",
)


def make_queue(path: Path, running: int, waiting: int) -> Queue:
    """Make a queue whose second round was decided just now; each job has one GPU."""
    nodes = -(-running // 8)
    files = {
        "jobs.csv": "job_id,model,submitted_s,remaining_work,max_gpus\n",
        "pools.csv": f"pool,gpu_type,gpus,price_per_gpu_hour\na,A,{8 * nodes},2\n",
        "nodes.csv": "node,pool,gpus\n" + "".join(f"a-{i},a,8\n" for i in range(nodes)),
        "tenants.csv": "tenant,weight\nx,1\ny,2\nz,1\n",
        "rates.csv": "model,gpu_type,gpus,work_per_s\nm,A,1,1\n",
        "config.toml": "interval_s = 300\n",
    }
    clock = SimulatedClock(time.time() - 300.0)
    source = parse_snapshot("bench", {name: text.encode() for name, text in files.items()})
    queue = Queue.create(path, source, clock=clock.now)
    work = np.random.default_rng(0).uniform(1e5, 1e7, running + waiting)
    queue.submit_many(
        [
            {
                "job_id": f"job-{i:06d}",
                "model": "m",
                "tenant": "xyz"[i % 3],
                "total_work": float(amount),
                "max_gpus": 1,
            }
            for i, amount in enumerate(work)
        ]
    )
    controller = Controller(
        queue.store,
        SimulatedExecutor(SimulatedMachines({"a": 8 * nodes}, clock)),
        clock,
        ControllerOptions(every_s=300.0, policy="greedy", time_limit_s=600.0, stall_s=1e12),
    )
    controller.cluster.lease_holder.ttl_s = 1e4
    controller.step()
    clock.sleep(300.0)
    controller.step()
    return queue


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--running", type=int, default=1000)
    parser.add_argument("--waiting", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "queue.db"
        queue = make_queue(path, given.running, given.waiting)
        counts = queue.counts()
        with queue.store.write() as connection:
            secrets = {
                name: tokens.add(connection, time.time(), name, role, tenant)[1]
                for name, role, tenant in (("operator", "operator", ""), ("member", "member", "x"))
            }
        queue.close()
        begin = time.process_time()
        sum(range(10**7))
        print(
            f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {os.cpu_count()}"
            f" CPUs; sum(range(10**7)) takes {1e3 * (time.process_time() - begin):.0f} ms of CPU;"
            f" {counts['running']} jobs run, {counts['queued']} wait\n"
        )
        print("| page | operator: first, ms | later, ms | kB | member: later, ms | kB |")
        print("|---|---:|---:|---:|---:|---:|")
        app = create_app(str(path), ServerOptions(rate=1e6, burst=1e6), io.StringIO())
        with TestClient(app, base_url="http://localhost") as client:
            for page in PATHS:
                cells = []
                for name in ("operator", "member"):
                    spent, size = ask(client, page, secrets[name])
                    first = [f"{spent[0]:.0f}"] if name == "operator" else []
                    cells += [*first, f"{statistics.median(spent[1:]):.0f}", f"{size / 1000:.0f}"]
                print(f"| `{page}` | {' | '.join(cells)} |", flush=True)


def ask(client: TestClient, page: str, secret: str) -> tuple[list[float], int]:
    """Return the CPU milliseconds of some requests, and the bytes of the answer."""
    spent = []
    for _ in range(ASKED + 1):
        begin = time.process_time()
        answer = client.get(page, headers={"Authorization": f"Bearer {secret}"})
        spent.append(1e3 * (time.process_time() - begin))
        if answer.status_code not in (200, 404):
            raise SystemExit(f"{page}: {answer.status_code}")
    return spent, len(answer.content)


if __name__ == "__main__":
    main()
