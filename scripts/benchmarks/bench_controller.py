"""Measure what a round of the controller costs besides its decision, over a real queue file.

    OMP_NUM_THREADS=1 python scripts/benchmarks/bench_controller.py [--active 100 1000 5000]
        [--policy greedy] > table.md

The tables have CPU and wall time by part. Every size is measured with GPUs for all jobs, which all
run, and with GPUs for half of them, while the others wait. A hundredth of the jobs ends in each
round, and as many arrive. At last there are GPUs for twice as many jobs, each has one size, and
none ends: there is nothing to decide. The executor is the simulated one on a simulated clock.
Learning, warm prices and the journal are on, as by default. Standard output is Markdown.
"""

import argparse
import gc
import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from allocator.controller import queue_cluster, steadiness
from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.engine import decision
from allocator.io.snapshots import parse_snapshot
from allocator.queue import observations, round_journal, snapshot as snapshots
from allocator.queue.queue import Queue

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)

EVERY_S = 300.0
MACHINES = "simulated machines"
WARM_UP = 6  # rounds before the measured ones
ASIDE = ("build", "solve", MACHINES)
PARTS: tuple[tuple[Any, str, str], ...] = (
    (queue_cluster.QueueCluster, "wait", "look: lease, what is due"),
    (queue_cluster.QueueCluster, "_write_observations", "observe: write what was seen"),
    (queue_cluster.QueueCluster, "_acknowledge", "observe: write what was seen"),
    (SimulatedExecutor, "observe", MACHINES),
    (SimulatedExecutor, "start", MACHINES),
    (SimulatedExecutor, "stop", MACHINES),
    (SimulatedExecutor, "acknowledge", MACHINES),
    (queue_cluster.QueueCluster, "observe", "snapshot"),
    (snapshots, "build_snapshot", "snapshot"),
    (steadiness, "read_allocation_starts", "snapshot"),
    (queue_cluster, "validate", "validate"),
    (snapshots, "pack_snapshot", "journal: digest and bytes of the snapshot"),
    (Controller, "_decide", "solve"),
    (decision, "compile_round", "build"),
    (decision, "audit", "audit"),
    (queue_cluster, "build_result", "plan with its reasons"),
    (queue_cluster, "pack_plan", "plan with its reasons"),
    (queue_cluster.QueueCluster, "apply", "journal: write round, wants, prices"),
    (queue_cluster.QueueCluster, "carry_out", "apply: stops and starts"),
    (Controller, "_learn", "learning"),
    (round_journal, "prune", "retention"),
    (observations, "prune", "retention"),
    (Controller, "_set_metrics", "metrics"),
)
"""What is timed: object, name, part. Time counts for the innermost part."""


class PartMeter:
    """CPU and wall seconds by part; time counts for the innermost part.

    The time of reading the clocks is subtracted. The CPU clock is a system call of tens of
    microseconds on some virtual machines, and a round has a few hundred readings.
    """

    def __init__(self) -> None:
        self.names, self.spent = ["other"], dict[str, list[float]]()
        self.own_cpu = self.own_wall = 0.0
        self.cpu, self.wall = time.process_time(), time.perf_counter()
        first = self.cpu, self.wall
        for _ in range(2000):
            self.lap()
        self.own_cpu, self.own_wall = (self.cpu - first[0]) / 2000, (self.wall - first[1]) / 2000
        self.spent.clear()

    def lap(self) -> None:
        """Add the time since the last call to the present part."""
        cpu, wall = time.process_time(), time.perf_counter()
        spent = self.spent.setdefault(self.names[-1], [0.0, 0.0])
        spent[0] += cpu - self.cpu - self.own_cpu
        spent[1] += wall - self.wall - self.own_wall
        self.cpu, self.wall = cpu, wall

    def timed(self, inner: Callable[..., Any], part: str) -> Callable[..., Any]:
        """Return the function with its time attributed to the part."""

        def outer(*args: Any, **kwargs: Any) -> Any:
            self.lap()
            self.names.append(part)
            try:
                return inner(*args, **kwargs)
            finally:
                self.lap()
                self.names.pop()

        return outer

    def patch(self) -> None:
        """Time all parts from now on, in this process."""
        for owner, name, part in PARTS:
            setattr(owner, name, self.timed(getattr(owner, name), part))

    def take(self) -> dict[str, list[float]]:
        """Return the seconds since the last call."""
        self.lap()
        out, self.spent = self.spent, {}
        return out


class ControllerBench:
    """A queue with a number of active jobs, some of which can run at the same time."""

    def __init__(self, folder: Path, active: int, share: float, policy: str) -> None:
        self.draw, self.active, self.count = np.random.default_rng(0), active, 0
        self.ends = 0 if share > 1 else active // 100
        rates = "".join(
            f"{m},{kind},{k},{speed * (1 + m_) * k**0.9:.6g}\n"
            for m_, m in enumerate("klmnop")
            for kind, speed in (("A", 1.0), ("B", 0.5))
            for k in (1, 2, 4, 8)
        )
        # jobs hold 1 to 4 GPUs, of two pools
        each = max(8, round(active * share * 1.25))
        source = parse_snapshot(
            "bench",
            {
                "jobs.csv": b"job_id,model,submitted_s,remaining_work,max_gpus\n",
                "pools.csv": (
                    f"pool,gpu_type,gpus,price_per_gpu_hour\na,A,{each},2\nb,B,{each},1\n".encode()
                ),
                "tenants.csv": b"tenant,weight\nx,1\ny,2\nz,1\n",
                "rates.csv": f"model,gpu_type,gpus,work_per_s\n{rates}".encode(),
            },
        )
        self.clock = SimulatedClock(1e6)
        self.queue = Queue.create(folder / "queue.db", source, clock=self.clock.now)
        self.machines = SimulatedMachines(
            {"a": each, "b": each},
            self.clock,
            MachineBehaviour(
                rate=lambda o: (1.0 if o.gpu_type == "A" else 0.5) * o.gpus**0.9,
                pause_s=lambda o, held: 30.0,
            ),
        )
        self.controller = Controller(
            self.queue.store,
            SimulatedExecutor(self.machines),
            self.clock,
            ControllerOptions(every_s=EVERY_S, policy=policy, time_limit_s=600.0, stall_s=1e12),
        )
        self.controller.cluster.lease_holder.ttl_s = 1e4
        self.arrive(active)

    def arrive(self, number: int) -> None:
        """Submit this many jobs."""
        n, draw = self.count, self.draw
        self.count += number
        low, high = draw.choice([1, 2], number).tolist(), draw.choice([2, 3, 4], number).tolist()
        least_s = EVERY_S * (20 if self.ends else 20_000)
        high = high if self.ends else low
        work = draw.uniform(least_s, 20 * least_s, number).tolist()
        models, tenants = (
            draw.choice(list("klmnop"), number).tolist(),
            draw.choice(list("xyz"), number).tolist(),
        )
        self.queue.submit_many(
            [
                {
                    "job_id": f"job-{n + i:06d}",
                    "model": models[i],
                    "tenant": tenants[i],
                    "total_work": work[i],
                    "min_gpus": low[i],
                    "max_gpus": high[i],
                }
                for i in range(number)
            ]
        )

    def between(self) -> int:
        """Let time pass and replace a hundredth of the jobs; return how many run."""
        self.clock.sleep(EVERY_S)
        ending = [one.job_id for one in self.machines.observe() if one.phase == "running"][
            : self.ends
        ]
        for name in ending:
            self.machines.lose(name, "bench")
        if ending:
            self.queue.cancel(*ending)
        counts = self.queue.counts()
        self.arrive(
            max(
                0,
                self.active + len(ending) - sum(counts[s] for s in ("queued", "running", "paused")),
            )
        )
        gc.collect()
        return sum(one.phase == "running" for one in self.machines.observe())


def measure(active: int, share: float, policy: str, rounds: int) -> None:
    """Print the table of one size."""
    with tempfile.TemporaryDirectory() as folder:
        bench = ControllerBench(Path(folder), active, share, policy)
        meter, laps, running = METER, list[dict[str, list[float]]](), list[int]()
        for number in range(WARM_UP + rounds):
            runs = bench.between()
            meter.take()
            turn = bench.controller.step()
            spent = meter.take()
            assert turn is not None and turn.decision is not None, "a round failed"
            if number >= WARM_UP:
                laps.append(spent)
                running.append(runs)
        assert not bench.machines.breaches
        bench.queue.close()
    print(
        f"\n{active} active jobs, {int(np.median(running))} of them running, {rounds} rounds:\n\n|"
        " part of a round | CPU ms, median | 95 % | wall ms, median | 95 %"
        " |\n|---|---:|---:|---:|---:|"
    )
    names = [
        name
        for name in dict.fromkeys((*(p for _, _, p in PARTS), "other"))
        if any(name in lap for lap in laps)
    ]
    for name in (n for n in names if n not in ASIDE):
        _row(name, np.array([lap.get(name, [0.0, 0.0]) for lap in laps]))
    _row(
        "**all besides building and solving**",
        np.array([np.sum([v for n, v in lap.items() if n not in ASIDE], axis=0) for lap in laps]),
    )
    for name in ASIDE:
        _row(f"({name})", np.array([lap.get(name, [0.0, 0.0]) for lap in laps]))


def _row(name: str, seconds: Any) -> None:
    """Print one line; seconds: (rounds, 2) CPU and wall."""
    ms = 1e3 * seconds
    cells = [
        f"{f(ms[:, i]):.1f}" for i in (0, 1) for f in (np.median, lambda x: np.percentile(x, 95))
    ]
    print(f"| {name} | {' | '.join(cells)} |")


METER = PartMeter()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--active", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--policy", default="greedy")
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    METER.patch()
    begin = time.process_time()
    sum(range(10**7))
    print(
        f"Yardstick, sum(range(10**7)): {1e3 * (time.process_time() - begin):.0f} ms of CPU; load "
        f"{os.getloadavg()[0]:.1f}\n"
    )
    print(
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()}"
        f" CPUs, policy {given.policy}"
    )
    for active in given.active:
        for share in (1.0, 0.5, 2.0):
            measure(active, share, given.policy, given.rounds)


if __name__ == "__main__":
    main()
