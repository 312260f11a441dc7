"""One way to drive every executor, for the conformance tests: make it, order a kind of job, wait
for what it says.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from example_actor import Actor
from fakes.kubernetes_server import FakeServer
from fakes.simulated_executor import MachineBehaviour, SimulatedExecutor, SimulatedMachines
from kubernetes_objects import node
from ray_cluster import shared_ray
from slurm_cluster import FakeNodes, SlurmCluster
from waiting import PATIENCE_S, marked, wait_for

from allocator.errors import AllocatorError
from allocator.executors.files import FilesExecutor
from allocator.executors.kubernetes.executor import KubernetesExecutor
from allocator.executors.local import LocalExecutor, device_numbers
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


def shell(job: str, generation: int, script: str, token: int = 1, gpus: int = 1) -> Order:
    """An order whose command is a script of the shell."""
    return Order(job, generation, token, "a", gpus, "A", 10.0, ("sh", "-c", script, "sh"))


class Rig:
    """A kind of executor and its surroundings."""

    folder: Path
    stamps: Path  # what its jobs write, of some rigs

    def read_stamps(self) -> list[list[str]]:
        """The lines of `stamps`, in words."""
        text = self.stamps.read_text() if self.stamps.exists() else ""
        return [line.split() for line in text.splitlines()]

    def executor(self) -> Executor:
        """A new object on the same state."""
        raise NotImplementedError

    @cached_property
    def current(self) -> Any:
        """The executor that the methods below ask where no other one is named."""
        return self.executor()

    def script(self, kind: str) -> str:
        """What a job of a kind runs."""
        return f"set {WORK}; {SAY} {KINDS[kind]}"

    def order(
        self,
        job: str,
        generation: int = 1,
        kind: str = "endless",
        token: int = 1,
        gpus: int = 1,
        **more: Any,
    ) -> Order:
        """An order for pool "a"."""
        return replace(shell(job, generation, self.script(kind), token, gpus), **more)

    def pass_time(self) -> None:
        """Let something happen."""
        time.sleep(0.02)

    def begin(self, order: Order, work: float = 0.0) -> Observation:
        """Start an allocation, and wait until it runs and says so much work."""
        self.current.start(order)
        return self.running(order.job_id, work)

    def wait(
        self, job: str, *phases: Phase, work: float = 0.0, executor: Executor | None = None
    ) -> Observation:
        """Let time pass until the executor says one of the phases of the job, and so much work."""
        deadline = time.monotonic() + PATIENCE_S
        seen: list[Observation] = []
        while time.monotonic() < deadline:
            self.pass_time()
            seen = [o for o in (executor or self.current).observe() if o.job_id == job]
            for one in seen:
                if one.phase in phases and one.work_done >= work:
                    return one
        raise AssertionError(f"{job} did not become {phases}: {seen}")

    def running(self, job: str, work: float = 0.0) -> Observation:
        """Wait until the job runs and says so much work."""
        return self.wait(job, Phase.RUNNING, work=work)

    def ended(self, job: str, executor: Executor | None = None) -> Observation:
        """How the job ended."""
        return self.wait(job, *ENDED, executor=executor)

    def outcome(self, order: Order) -> Observation:
        """Start an allocation, and return how it ended by itself."""
        self.current.start(order)
        return self.ended(order.job_id)

    def end(
        self, job: str, generation: int = 1, token: int = 1, executor: Executor | None = None
    ) -> Observation:
        """Stop the job, wait for its end and acknowledge it."""
        executor = executor or self.current
        executor.stop(job, generation, token)
        seen = self.ended(job, executor)
        executor.acknowledge(job, generation)
        return seen

    def close(self) -> None:
        """Stop what still runs."""
        executor = self.executor()
        for one in executor.observe():
            with suppress(AllocatorError):
                if one.phase not in ENDED:
                    self.end(one.job_id, one.generation, 99, executor)


class LocalRig(Rig):
    """Real processes, two pools of four GPUs; those of pool "a" are on two nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "state"

    def executor(self) -> Executor:
        devices = device_numbers({"n1": 2, "n2": 2, "b": 4})
        return LocalExecutor(self.folder, devices, 5.0, {"n1": "a", "n2": "a"})

    def script(self, kind: str) -> str:
        return f"echo >> started; {super().script(kind)}"

    def close(self) -> None:
        """Stop what still runs, or ran unobserved."""
        executor = self.executor()
        for one in executor.ledger.known():  # type: ignore[attr-defined]
            with suppress(AllocatorError):
                self.end(one.job_id, one.generation, 99, executor)

    def place(self, job: str, generation: int = 1) -> Path:
        """The folder of an open allocation."""
        return self.current.ledger.place(job, generation)

    def read(self, job: str, name: str, generation: int = 1) -> dict[str, Any]:
        """A file of an open allocation."""
        return read_json(self.place(job, generation) / f"{name}.json") or {}

    def supervisor(self, job: str) -> int:
        """Pid of the supervisor of its first allocation."""
        return int(self.read(job, "keeper")["pid"])

    def starts(self, job: str) -> int:
        """How often the job has started."""
        path = self.folder / "jobs" / job / "work" / "started"
        return path.read_text().count("\n") if path.exists() else 0


class FilesRig(LocalRig):
    """The example actor next to the files executor."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.executor()
        self.actor = Actor(self.folder)

    def executor(self) -> Executor:
        return FilesExecutor(self.folder)

    def script(self, kind: str) -> str:
        return Rig.script(self, kind)  # it is not run in a folder of its own

    def pass_time(self) -> None:
        self.actor.step()
        super().pass_time()


class SimulatedRig(Rig):
    """Rate 1 per second; time passes in steps of three seconds."""

    def __init__(self, folder: Path) -> None:
        truth = MachineBehaviour(
            stop_s=lambda order: 2.0, reported=lambda order, work: {"loss": 2.5}
        )
        self.cluster = SimulatedMachines({"a": 4, "b": 4}, truth=truth, nodes={"n1": 2, "n2": 2})

    def executor(self) -> Executor:
        return SimulatedExecutor(self.cluster)

    def order(
        self, job: str, generation: int = 1, kind: str = "endless", *most: Any, **more: Any
    ) -> Order:
        work = 3.0 if kind == "short" else 1e9
        return super().order(job, generation, kind, *most, remaining_work=work, **more)

    def pass_time(self) -> None:
        self.cluster.clock.sleep(3.0)


class KubernetesRig(Rig):
    """A fake API server with one node of four GPUs, pool "a"; it lets jobs say 3 of their work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "state"
        self.folder.mkdir(mode=0o700)
        (self.folder / "kubernetes.toml").write_text('image = "train:1"\nnamespace = "ml"\n')
        self.server = FakeServer([node("n1", 4, labels={"allocator.example/pool": "a"})])

    def executor(self) -> KubernetesExecutor:
        return KubernetesExecutor(self.folder, 5.0, lambda settings: self.server)

    def script(self, kind: str) -> str:
        return f": kind={kind}"

    def pass_time(self) -> None:
        self.server.step()


class SlurmRig(LocalRig):
    """Batch jobs of a real Slurm, which all rigs of this process share: partition "a", two nodes of
    four GPUs.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        os.environ["SLURM_CONF"] = str(shared_slurm().conf)

    def executor(self) -> Executor:
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

    def executor(self) -> Executor:
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


def alive(name: str) -> list[int]:
    """Processes with JOB_NAME=name in their environment."""
    return marked(f"JOB_NAME={name}")


def gone(name: str) -> bool:
    """Whether all of them end soon."""
    wait_for(lambda: not alive(name))
    return True


def named(order: Order, name: str) -> Order:
    """The order with JOB_NAME in its environment."""
    return replace(order, environment={"JOB_NAME": name})
