"""One job that a controller profiles while it trains, on simulated machines of known speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)

from allocator import Job, Pool, Problem, SpeedModel
from allocator.controller import profiling
from allocator.controller.controller import Controller, ControllerOptions
from allocator.domain.rules.snapshot_rules import validate
from allocator.loop.executor import Order
from allocator.options.configure import RunConfigurations, configure
from allocator.queue import cluster_tables
from allocator.queue.queue import Queue

NOW = 1_000_000.0
ROUND_S = 60.0
NAME = "train"


class ProfiledJob:
    """A queue with one job of model "net", and machines that run at the true speed.

    The job runs with the size and the batch that its order names. A GPU costs a dollar an hour.

    Parameters
    ----------
    folder : where the queue is made.
    speed : work per second on so many GPUs with this global batch.
    believed : parameters of kind `iteration` that the controller begins with.
    gpu_hours : GPU-hours for trials.
    work : work of the job.
    sizes : sizes that the job may have; default powers of two up to 16.
    pause_s : seconds from each start to the first work.
    poll_s : seconds between two polls of the controller.
    reported : what the job reports with its progress, by the work done in all.
    config : other settings of config.toml.
    """

    def __init__(
        self,
        folder: Path,
        speed: Callable[[float, float], float],
        believed: Mapping[str, float],
        gpu_hours: float,
        *,
        work: float,
        sizes: tuple[int, ...] = (1, 2, 4, 8, 16),
        pause_s: float = 0.0,
        poll_s: float = 20.0,
        reported: Callable[[float], Mapping[str, float]] | None = None,
        **config: object,
    ) -> None:
        self.clock, self._speed, self._poll_s = SimulatedClock(NOW), speed, poll_s
        self.configurations = list[tuple[float, int, int]]()  # seconds, GPUs and batch
        most = max(sizes)
        job = Job(
            NAME,
            "net",
            work,
            most,
            min_gpus=min(sizes),
            sizes=sizes,
            submitted_s=NOW,
            restart_s=pause_s,
        )
        made = Problem.build(
            jobs=[job],
            pools=[
                Pool(
                    "p",
                    "A",
                    most,
                    gpus_per_node=most,
                    market="on_demand",
                    price_per_gpu_hour=1.0,
                )
            ],
            models=[SpeedModel("net", "A", "iteration", believed)],
            now_s=NOW,
        )
        self.queue = Queue.create(folder / "queue.db", made.snapshot, clock=self.clock.now)
        with self.queue.store.write() as connection:
            settings = {"gpu_hours": gpu_hours, "trial_s": ROUND_S}
            cluster_tables.set_config(connection, {"profiling": settings, **config})
        truth = MachineBehaviour(
            rate=self._rate,
            pause_s=lambda order, held: pause_s,
            reported=lambda order, done: (
                {} if reported is None else reported(work - order.remaining_work + done)
            ),
        )
        self.machines = SimulatedMachines({"p": most}, self.clock, truth)
        self.new_controller()

    def new_controller(self) -> None:
        """Let another controller take over."""
        self.controller = Controller(
            self.queue.store,
            SimulatedExecutor(self.machines),  # type: ignore[arg-type]
            self.clock,
            ControllerOptions(every_s=ROUND_S, poll_s=self._poll_s, policy="mip"),
        )

    def _rate(self, order: Order) -> float:
        settings = self.machines.settings.get((order.job_id, order.generation), order.environment)
        batch = int(settings.get("ALLOCATOR_BATCH_SIZE", "0"))
        if [at[1:] for at in self.configurations[-1:]] != [(order.gpus, batch)]:
            self.configurations.append((self.clock.now_s - NOW, order.gpus, batch))
        return self._speed(order.gpus, batch)

    def run(self, steps: int, poll_s: float | None = None) -> None:
        """Let the controller poll so many times; the job takes up what it is told."""
        for _ in range(steps):
            self.controller.step()
            self.machines.update_rates()
            self.clock.sleep(self._poll_s if poll_s is None else poll_s)

    def known(self) -> profiling.Trials:
        """Return what the controller has learned from trials."""
        with self.queue.store.read() as connection:
            return profiling.read(connection)

    def believed_ways(self) -> RunConfigurations:
        """Return all ways to run the job, as they are believed now."""
        snapshot = self.queue.snapshot()
        found = profiling.profile(snapshot, validate(snapshot), self.known(), ROUND_S)
        return configure(found.problem, NAME)
