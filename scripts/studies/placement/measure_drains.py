"""How many rounds and pauses a drain needs, through the real queue and controller.

Jobs fill a share of the nodes. Then nodes are drained, one set after the other, with as many rounds
between as it takes until they are empty. The machines are simulated; their log of breaches must
stay empty, and every job must have done all its work in the end.

    python scripts/studies/placement/measure_drains.py --nodes 64 --seeds 5
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.controller.reporting.replay import replay
from allocator.executors.simulated import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)
from allocator.io.snapshots import parse_snapshot
from allocator.queue.queue import Queue

EVERY_S, POLL_S, PAUSE_S, STOP_S = 60.0, 10.0, 30.0, 15.0
PER_NODE = 8
SIZES = (1, 1, 2, 2, 3, 4, 4, 5, 6, 8)
BEGIN_S = 1_700_000_000.0
MOST_ROUNDS = 40


@dataclass(frozen=True)
class Drain:
    """What one drain needed: rounds and seconds until the nodes were empty, and pauses."""

    jobs_on_nodes: int
    rounds: int
    seconds: float
    pauses: int


class DrainedCluster:
    """A queue with nodes and jobs, a controller, and simulated machines."""

    def __init__(self, folder: str, nodes: int, occupancy: float, seed: int) -> None:
        self.draw = random.Random(seed)
        self.clock = SimulatedClock(BEGIN_S)
        sizes = {f"n{i}": PER_NODE for i in range(nodes)}
        rates = "".join(f"m,A,{k},{k}\n" for k in sorted(set(SIZES)))
        files = {
            "jobs.csv": "job_id,model,submitted_s,remaining_work,max_gpus\n",
            "pools.csv": f"pool,gpu_type,gpus\na,A,{nodes * PER_NODE}\n",
            "rates.csv": f"model,gpu_type,gpus,work_per_s\n{rates}",
            "nodes.csv": "node,pool,gpus\n" + "".join(f"{n},a,{PER_NODE}\n" for n in sizes),
            "config.toml": f"now_s = {BEGIN_S}\ninterval_s = {EVERY_S}\nrestart_s = {PAUSE_S}\n",
        }
        snapshot = parse_snapshot("drains", {name: text.encode() for name, text in files.items()})
        self.queue = Queue.create(str(Path(folder) / "queue.db"), snapshot, clock=self.clock.now)
        truth = MachineBehaviour(
            rate=lambda order: float(order.gpus),
            stop_s=lambda order: STOP_S,
            pause_s=lambda order, held: PAUSE_S,
        )
        self.machines = SimulatedMachines({"a": nodes * PER_NODE}, self.clock, truth, nodes=sizes)
        self.work = self._submit(int(occupancy * nodes * PER_NODE))
        options = ControllerOptions(every_s=EVERY_S, poll_s=POLL_S, policy="greedy", learn=False)
        executor = SimulatedExecutor(self.machines)
        self.controller = Controller(self.queue.store, executor, self.clock, options)

    def _submit(self, gpus: int) -> dict[str, float]:
        work: dict[str, float] = {}
        while gpus > 0:
            size = min(self.draw.choice(SIZES), gpus)
            size = max(k for k in SIZES if k <= size)
            name = f"j{len(work)}"
            work[name] = size * self.draw.uniform(4e3, 8e3)
            self.queue.submit(
                job_id=name,
                model="m",
                total_work=work[name],
                max_gpus=size,
                min_gpus=size,
                sizes=[size],
            )
            gpus -= size
        return work

    def look(self) -> None:
        """One look of the controller, and the time to the next one."""
        self.controller.step()
        self.clock.sleep(POLL_S)

    def count_starts(self) -> int:
        """Count the allocations ever given."""
        return sum(job.generation for job in self.queue.jobs())

    def drain(self, names: list[str]) -> Drain:
        """Drain nodes, and look until no job has a GPU of them."""
        here = {job for row in self.queue.nodes() if row["node"] in names for job in row["jobs"]}
        starts, rounds, begin_s = self.count_starts(), len(self.queue.rounds()), self.clock.now_s
        self.queue.change_nodes(*names, state="drain")
        while any(row["jobs"] for row in self.queue.nodes() if row["node"] in names):
            self.look()
            if len(self.queue.rounds()) - rounds > MOST_ROUNDS:
                raise SystemExit(f"nodes {names} are not empty after {MOST_ROUNDS} rounds")
        used, seconds = len(self.queue.rounds()) - rounds, self.clock.now_s - begin_s
        for _ in range(int(2 * EVERY_S / POLL_S)):
            self.look()
        drained = Drain(len(here), used, seconds, self.count_starts() - starts)
        self.queue.change_nodes(*names, state="up")
        return drained

    def finish(self) -> None:
        """Run all jobs to their end. Raises SystemExit if anything was lost or given twice."""
        while any(job.state != "done" for job in self.queue.jobs()):
            self.controller.step()
            self.clock.sleep(
                max(POLL_S, min(EVERY_S * 20, self.machines.next_end() - self.clock.now_s))
            )
            if self.clock.now_s > BEGIN_S + 1e7:
                raise SystemExit("jobs are not done")
        for _ in range(3):
            self.look()
        if self.machines.breaches:
            raise SystemExit(f"breaches: {self.machines.breaches}")

    def replay_rounds(self) -> int:
        """Decide every kept round with a plan again, and return how many have other bytes."""
        decided = [one.number for one in self.queue.rounds() if one.status != "none"]
        return sum(replay(self.queue.store, number).same is not True for number in decided)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--drains", type=int, default=4, help="drains of each run")
    parser.add_argument("--occupancy", type=float, nargs="+", default=[0.5, 0.8, 0.9])
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 2], help="nodes of a drain")
    args = parser.parse_args()
    print("| GPUs in use | nodes drained at once | jobs on them | rounds | seconds | pauses |")
    print("|---|---|---|---|---|---|")
    differ = 0
    for occupancy in args.occupancy:
        for at_once in args.at_once:
            found: list[Drain] = []
            for seed in range(args.seeds):
                with tempfile.TemporaryDirectory() as folder:
                    cluster = DrainedCluster(folder, args.nodes, occupancy, seed)
                    for _ in range(20):
                        cluster.look()
                    for _ in range(args.drains):
                        names = cluster.draw.sample(sorted(cluster.machines.nodes), at_once)
                        found.append(cluster.drain(names))
                    differ += cluster.replay_rounds()
                    cluster.finish()
                    cluster.queue.close()
            n = len(found)
            print(
                f"| {occupancy:.0%} | {at_once} | {sum(d.jobs_on_nodes for d in found) / n:.1f} |"
                f" {sum(d.rounds for d in found) / n:.2f}, at most {max(d.rounds for d in found)} |"
                f" {sum(d.seconds for d in found) / n:.0f} |"
                f" {sum(d.pauses for d in found) / n:.1f} |",
                flush=True,
            )
    print(f"no breach, every job done; rounds whose replay differs: {differ}", file=sys.stderr)


if __name__ == "__main__":
    main()
