"""One way to drive every executor, for the conformance tests: make it, order a kind of job, wait
for what it says.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Protocol

from example_actor import Actor
from fakes.kubernetes_server import FakeServer
from fakes.simulated_executor import MachineBehaviour, SimulatedExecutor, SimulatedMachines
from kubernetes_objects import node
from ray_cluster import shared_ray
from slurm_cluster import FakeNodes, SlurmCluster
from waiting import PATIENCE_S, marked, wait_for

from allocator.errors import AllocatorError
from allocator.executors.devices import device_numbers
from allocator.executors.files import FilesExecutor
from allocator.executors.kubernetes.executor import KubernetesExecutor
from allocator.executors.local import LocalExecutor
from allocator.executors.ray.executor import RayExecutor
from allocator.executors.slurm.executor import SlurmExecutor
from allocator.io.tables.limited_reader import read_json
from allocator.loop.executor import ENDED, Executor, Observation, Order, Phase

SAY = (
    'echo "$1 $1 loss=2.5" > "$ALLOCATOR_PROGRESS.new"; '
    'mv "$ALLOCATOR_PROGRESS.new" "$ALLOCATOR_PROGRESS"; '
)
KINDS = {
    "endless": "trap 'exit 143' TERM; while :; do sleep 0.02; done",
    "short": "exit 0",
    "failing": "echo the last words >&2; exit 7",
}
STUBBORN = "trap '' TERM; while :; do sleep 0.02; done"
WORK = 3.0  # that a job of the shell reports at once, of 10


class Rig(Protocol):
    """A kind of executor and its surroundings."""

    def executor(self) -> Executor:
        """A new object on the same state."""
        ...

    def order(self, job: str, generation: int, kind: str, token: int = 1, gpus: int = 1) -> Order:
        """An order for pool "a"."""
        ...

    def pass_time(self) -> None:
        """Let something happen."""
        ...


def shell(
    job: str, generation: int, script: str, token: int = 1, gpus: int = 1, work: float = 10.0
) -> Order:
    """An order whose command is a script of the shell."""
    return Order(job, generation, token, "a", gpus, "A", work, ("sh", "-c", script, "sh"))


class LocalRig:
    """Real processes, two pools of four GPUs; those of pool "a" are on two nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "state"

    def executor(self) -> LocalExecutor:
        devices = device_numbers({"n1": 2, "n2": 2, "b": 4})
        return LocalExecutor(self.folder, devices, 5.0, {"n1": "a", "n2": "a"})

    def order(self, job: str, generation: int, kind: str, token: int = 1, gpus: int = 1) -> Order:
        script = f"echo >> started; set {WORK}; {SAY} {KINDS[kind]}"
        return shell(job, generation, script, token, gpus)

    def pass_time(self) -> None:
        time.sleep(0.02)


@contextmanager
def cleaned_up(folder: Path) -> Iterator[LocalRig]:
    """A state folder; what still runs in the end is stopped."""
    made = LocalRig(folder)
    yield made
    executor = made.executor()
    for one in executor.ledger.known():
        with suppress(AllocatorError):
            end(made, executor, one.job_id, one.generation, token=99)


class FilesRig(LocalRig):
    """The example actor next to the files executor."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.executor()
        self.actor = Actor(self.folder)

    def executor(self) -> Executor:  # type: ignore[override]
        return FilesExecutor(self.folder)

    def order(self, job: str, generation: int, kind: str, token: int = 1, gpus: int = 1) -> Order:
        return shell(job, generation, f"set {WORK}; {SAY} {KINDS[kind]}", token, gpus)

    def pass_time(self) -> None:
        self.actor.step()
        time.sleep(0.02)


class SimulatedRig:
    """Rate 1 per second; time passes in steps of three seconds."""

    def __init__(self, folder: Path) -> None:
        self.cluster = SimulatedMachines(
            {"a": 4, "b": 4},
            truth=MachineBehaviour(
                stop_s=lambda order: 2.0, reported=lambda order, work: {"loss": 2.5}
            ),
            nodes={"n1": 2, "n2": 2},
        )

    def executor(self) -> Executor:
        return SimulatedExecutor(self.cluster)

    def order(self, job: str, generation: int, kind: str, token: int = 1, gpus: int = 1) -> Order:
        return Order(
            job,
            generation,
            token,
            "a",
            gpus,
            "A",
            {"endless": 1e9, "short": 3.0, "failing": 1e9}[kind],
        )

    def pass_time(self) -> None:
        self.cluster.clock.sleep(3.0)


class KubernetesRig:
    """A fake API server with one node of four GPUs, pool "a"; it lets jobs say 3 of their work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "state"
        self.folder.mkdir(mode=0o700)
        (self.folder / "kubernetes.toml").write_text('image = "train:1"\nnamespace = "ml"\n')
        self.server = FakeServer([node("n1", 4, labels={"allocator.example/pool": "a"})])

    def executor(self) -> KubernetesExecutor:
        return KubernetesExecutor(self.folder, 5.0, lambda settings: self.server)

    def order(self, job: str, generation: int, kind: str, token: int = 1, gpus: int = 1) -> Order:
        return shell(job, generation, f": kind={kind}", token, gpus)

    def pass_time(self) -> None:
        self.server.step()


class SlurmRig(LocalRig):
    """Batch jobs of a real Slurm, which all rigs of this process share: partition "a", two nodes of
    four GPUs.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        os.environ["SLURM_CONF"] = str(shared_slurm().conf)

    def executor(self) -> SlurmExecutor:  # type: ignore[override]
        return SlurmExecutor(self.folder, grace_s=5.0, lease_s=3.0)

    def pass_time(self) -> None:
        time.sleep(0.1)


@cache
def shared_slurm() -> SlurmCluster:
    """A Slurm that ends with this process."""
    made = SlurmCluster((FakeNodes("a", "n", 2, "a100", 4),)).__enter__()
    atexit.register(made.close)
    return made


class RayRig(LocalRig):
    """Jobs of a real Ray, which all tests of this run share: pool "a", two nodes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ray = shared_ray()

    def executor(self) -> RayExecutor:  # type: ignore[override]
        return RayExecutor(self.folder, grace_s=5.0, address=self.ray.address, lease_s=3.0)

    def pass_time(self) -> None:
        time.sleep(0.1)


RIGS: dict[str, Callable[[Path], Rig]] = {
    "local": LocalRig,
    "files": FilesRig,
    "simulated": SimulatedRig,
    "kubernetes": KubernetesRig,
    "slurm": SlurmRig,
    "ray": RayRig,
}
SHARING = [name for name in RIGS if name != "kubernetes"]  # two jobs may have the same GPUs


def wait(rig: Rig, executor: Executor, job: str, *phases: Phase, work: float = 0.0) -> Observation:
    """Let time pass until the executor says one of the phases of the job, and so much work."""
    deadline = time.monotonic() + PATIENCE_S
    seen: list[Observation] = []
    while time.monotonic() < deadline:
        rig.pass_time()
        seen = [o for o in executor.observe() if o.job_id == job]
        for one in seen:
            if one.phase in phases and one.work_done >= work:
                return one
    raise AssertionError(f"{job} did not become {phases}: {seen}")


def end(rig: Rig, executor: Executor, job: str, generation: int, token: int = 1) -> Observation:
    """Stop the job, wait for its end and acknowledge it."""
    executor.stop(job, generation, token)
    seen = wait(rig, executor, job, Phase.STOPPED, Phase.FINISHED, Phase.FAILED, Phase.LOST)
    executor.acknowledge(job, generation)
    return seen


def alive(name: str) -> list[int]:
    """Processes with JOB_NAME=name in their environment."""
    return marked(f"JOB_NAME={name}")


def gone(name: str) -> bool:
    """Whether all of them end soon."""
    wait_for(lambda: not alive(name))
    return True


def named(order: Order, name: str) -> Order:
    """The order with JOB_NAME in its environment."""
    return Order(**{**vars(order), "environment": {"JOB_NAME": name}})


def ended(rig: LocalRig, executor: LocalExecutor, job: str) -> Observation:
    """How the job ended."""
    return wait(rig, executor, job, *ENDED)


def find_supervisor(executor: LocalExecutor, job: str, generation: int = 1) -> int:
    """Pid of the supervisor."""
    return int((read_json(executor.ledger.place(job, generation) / "keeper.json") or {})["pid"])


def starts_are(rig: LocalRig, job: str, times: int) -> None:
    """Wait until the job has started so often."""
    path = rig.folder / "jobs" / job / "work" / "started"
    wait_for(lambda: (path.read_text() if path.exists() else "") == "\n" * times)
