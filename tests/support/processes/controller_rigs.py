"""A controller of a queue on simulated machines, as the tests of the controller drive it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)
from queues import NOW, cluster

from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.controller.reporting.journal import Replay, replay
from allocator.controller.reporting.status import format_status, status
from allocator.controller.reporting.telemetry import Telemetry
from allocator.engine.decision import decide_round
from allocator.loop.executor import Order
from allocator.queue.cluster_tables import get_meta, read_learned_rates
from allocator.queue.jobs.verbs import history
from allocator.queue.queue import Queue
from allocator.queue.snapshot import replace_cluster

MakeExecutor = Callable[[SimulatedMachines], Any]
RATES = {("A", 1): 1.0, ("A", 2): 1.9, ("A", 3): 2.7, ("A", 4): 3.5, ("B", 1): 0.5}


def believed(order: Order) -> float:
    """Work per second as rates.csv has it."""
    return RATES[order.gpu_type, order.gpus]


class Rig:
    """A queue, eight GPUs "a" and four "b" that work as believed, and a controller that decides
    every minute. `gpus`: other machines. `tables`: other tables of the queue. `name`: of another
    database.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tables: Mapping[str, str] | None = None,
        gpus: Mapping[str, int] | None = None,
        nodes: Mapping[str, int] | None = None,
        decide: Any = decide_round,
        name: str | None = None,
        executor: MakeExecutor = SimulatedExecutor,
        **options: Any,
    ) -> None:
        self.clock, self.log = SimulatedClock(NOW), io.StringIO()
        self.path = name or str(folder / "queue.db")
        self.queue = Queue.create(self.path, cluster(**(tables or {})), clock=self.clock.now)
        truth = MachineBehaviour(rate=believed)
        self.machines = SimulatedMachines(
            {"a": 8, "b": 4, **(gpus or {})}, self.clock, truth, nodes=dict(nodes or {})
        )
        self.options = ControllerOptions(**{"every_s": 60.0, "poll_s": 10.0, **options})
        self.decide = decide
        self.renew(executor)

    def renew(self, executor: MakeExecutor = SimulatedExecutor) -> None:
        """Another controller in the place of this one, with an executor of this kind."""
        if hasattr(self, "controller"):
            self.controller.stop()
        self.executor: Any = executor(self.machines)
        self.controller = Controller(
            self.queue.store,
            self.executor,
            self.clock,
            self.options,
            telemetry=Telemetry(self.clock.now, self.log),
            decide=lambda *given, **effort: self.decide(*given, **effort),  # noqa: PLW0108
            holder="me",
        )

    def behave(self, **truth: Any) -> None:
        """Let what starts from now on behave so."""
        self.machines.truth = replace(self.machines.truth, **truth)

    def load(self, **tables: str) -> None:
        """Give the queue other tables of the cluster, named without their endings."""
        named = {f"{name}.{'toml' if name == 'config' else 'csv'}": t for name, t in tables.items()}
        with self.queue.store.write() as connection:
            replace_cluster(connection, cluster(**named), NOW)

    def submit(
        self, *names: str, work: float = 300.0, gpus: int | None = None, **more: Any
    ) -> None:
        """Jobs of model m for up to four GPUs, or for exactly `gpus`."""
        size = {"max_gpus": 4} if gpus is None else {"min_gpus": gpus, "max_gpus": gpus}
        for name in names:
            values = {"job_id": name, "model": "m", "total_work": work, **size, **more}
            self.queue.submit(**values)

    def steps(self, seconds: float, each_s: float = 10.0) -> None:
        """Look every `each_s` seconds, for so long."""
        end = self.clock.now_s + seconds
        while self.clock.now_s < end:
            self.controller.step()
            self.clock.sleep(each_s)

    def events(self, name: str) -> list[dict[str, Any]]:
        rows = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [row for row in rows if row["event"] == name]

    def wanted(self) -> dict[str, tuple[str, int]]:
        """Pool and GPUs that the last round wants for each job."""
        return {j.job_id: (j.want_pool, j.want_gpus) for j in self.queue.jobs()}

    def ends(self) -> dict[str, float]:
        """When each job that is done was, in seconds since the start."""
        jobs = self.queue.jobs()
        return {j.job_id: j.finished_s - NOW for j in jobs if j.finished_s is not None}

    def column(self, table: str, name: str) -> list[str]:
        """A column of what the next round reads."""
        return list(self.queue.snapshot().tables[f"{table}.csv"].texts(name))

    def said(self, beginning: str) -> list[str]:
        """The lines of `allocator status` that begin so."""
        return [x for x in format_status(status(self.queue)) if x.startswith(beginning)]

    def learned(self) -> list[dict[str, Any]]:
        """The rates that were learned."""
        with self.queue.store.read() as connection:
            return read_learned_rates(connection)

    def spent(self) -> float:
        """Dollars in the books of the long-run budget."""
        with self.queue.store.read() as connection:
            return float(json.loads(get_meta(connection, "longrun") or "{}")["account"]["spent"])

    def history(self, job: str) -> list[dict[str, Any]]:
        """The allocations of a job."""
        with self.queue.store.read() as connection:
            return history(connection, job)

    def replay_all(self) -> list[Replay]:
        """Decide every round again; each plan must be the same."""
        again = [replay(self.queue.store, r.number) for r in self.queue.rounds()]
        assert again and all(one.same and one.is_digest_valid for one in again)
        return again

    def close(self) -> None:
        """Whatever the test was: no rule of the machines was broken, and no round is missing."""
        assert self.machines.breaches == []
        numbers = [r.number for r in self.queue.rounds(limit=10_000)]
        assert numbers == list(range(1, len(numbers) + 1))
        self.queue.close()
