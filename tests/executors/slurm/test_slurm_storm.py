"""Jobs through two controllers on a real Slurm under a seeded storm; the jobs' own stamps are the
witness: nothing is lost, nothing runs twice, no GPU has two jobs at any instant, and every job has
the GPUs and the node of its plan, or never starts and is lost, so that the next round mends it.

Nodes are drained and resumed, slurmd and slurmctld are killed and started again, controllers are
killed with -9, and users cancel, change and requeue jobs, and submit jobs of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from slurm_cluster import FakeNodes, SlurmCluster
from storms import Storm

NODES = (FakeNodes("a", "n", 4, "a100", 4), FakeNodes("b", "v", 2, "v100", 8))
LISTED = "node,pool,gpus\n" + "".join(
    f"{name},{group.partition},{group.gpus}\n" for group in NODES for name in group.names
)
POOLS = "pool,gpu_type,gpus,price_per_gpu_hour\na,A,16,2.5\nb,B,16,1\n"
OUTAGE_S = 8.0  # of a slurmd, at most
TIMEOUT_S = 5  # of Slurm for an answer of slurmd, and until a silent node is down


class SlurmStorm(Storm):
    """Faults of Slurm, and users that do as they like."""

    differences = ("asked for", "Slurm says: R")
    kind = "slurm"

    def __init__(self, folder: Path, slurm: SlurmCluster, jobs: int, seed: int) -> None:
        self.slurm, self.harm = slurm, HARM
        self.environment = {"SLURM_CONF": str(slurm.conf)}
        super().__init__(folder, jobs, seed, {"pools.csv": POOLS, "nodes.csv": LISTED})

    def kill_slurmctld(self) -> None:
        self.slurm.kill("slurmctld")
        time.sleep(self.luck.random())
        self.slurm.start_controller()

    def kill_slurmd(self) -> None:
        """Of a node, for longer or shorter than Slurm waits for it."""
        node = self.luck.choice(self.slurm.node_names)
        self.slurm.kill(node)
        time.sleep(self.luck.choice((0.5, OUTAGE_S)))
        self.slurm.start_node(node)

    def drain(self) -> None:
        node = self.luck.choice(self.slurm.node_names)
        self.slurm.call("scontrol", "update", f"nodename={node}", "state=drain", "reason=storm")

    def resume(self) -> None:
        """Every node that is not in service; Slurm drains some by itself."""
        nodes = self.slurm.call("sinfo", "-h", "-N", "-t", "drain,down", "-o", "%N").stdout.split()
        for node in set(nodes):
            self.slurm.call("scontrol", "update", f"nodename={node}", "state=resume")

    def meddle(self) -> None:
        """A user cancels or changes a job of the queue, or tries to."""
        ids = self.slurm.call("squeue", "-h", "-o", "%A").stdout.split()
        if ids:
            job = self.luck.choice(ids)
            command = self.luck.choice(
                (
                    ("scancel", job),
                    ("scontrol", "requeue", job),
                    ("scontrol", "hold", job),
                    ("scontrol", "update", f"JobId={job}", "TresPerNode=gres:gpu:3"),
                )
            )
            self.slurm.call(*command)

    def submit_another(self) -> None:
        """A user has a job of his own, which nobody else may end."""
        partition = self.luck.choice(("a", "b"))
        self.slurm.call(
            "sbatch",
            "--output=/dev/null",
            f"--partition={partition}",
            f"--gres=gpu:{self.luck.randrange(1, 4)}",
            f"--wrap=sleep {self.luck.randrange(2, 8)}",
        )

    def heal(self) -> None:
        self.resume()


HARM: dict[str, Callable[[SlurmStorm], None]] = {
    "kill -9 of a controller": SlurmStorm.kill_controller,
    "kill -9 of slurmctld": SlurmStorm.kill_slurmctld,
    "kill -9 of slurmd": SlurmStorm.kill_slurmd,
    "drain": SlurmStorm.drain,
    "resume": SlurmStorm.resume,
    "all resumed": SlurmStorm.resume,
    "meddling": SlurmStorm.meddle,
    "job of another": SlurmStorm.submit_another,
}


@pytest.fixture
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster(
        NODES, slurmd_timeout_s=TIMEOUT_S, config=f"MessageTimeout={TIMEOUT_S}\n"
    ) as made:
        yield made


@pytest.mark.parametrize(
    ("jobs", "limit_s"),
    [
        pytest.param(12, 300.0, marks=pytest.mark.nightly),
        pytest.param(200, 900.0, marks=pytest.mark.soak),
    ],
)
def test_a_storm(tmp_path: Path, slurm: SlurmCluster, jobs: int, limit_s: float) -> None:
    """Twelve jobs, on a machine that may be busy, and two hundred: every fault happens twice."""
    storm = SlurmStorm(tmp_path, slurm, jobs, jobs // 200)
    storm.run(limit_s)
    assert jobs < 200 or (min(storm.faults.values()) > 1 and len(storm.faults) == len(HARM))
