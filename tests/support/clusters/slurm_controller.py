"""A controller on Slurm as a process that may be killed: python slurm_controller.py QUEUE STATE

It is `allocator run QUEUE --executor slurm`, with less patience.
"""

from __future__ import annotations

import sys
from pathlib import Path

from allocator.cli.queue.run import stop_on_signals
from allocator.controller.clock import WallClock
from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.controller.reporting.telemetry import Telemetry
from allocator.executors.slurm.executor import SlurmExecutor
from allocator.loop.executor import Executor
from allocator.queue.database.connection import open_queue
from allocator.queue.jobs.states import Retries

EVERY_S = 4.0  # seconds between two rounds
LIMITS = {"grace_s": 3.0, "patience_s": 5.0, "lease_s": 3.0}


def run_controller(queue: str, executor: Executor) -> None:
    """Run until a signal comes."""
    clock = WallClock()
    options = ControllerOptions(
        every_s=EVERY_S, react_s=0.5, poll_s=0.5, retries=Retries(most=100, first_s=0.5, factor=1.0)
    )
    log = Telemetry(clock.now, sys.stderr)
    controller = Controller(open_queue(queue), executor, clock, options, telemetry=log)
    with stop_on_signals(controller, clock.wake):
        controller.run()


if __name__ == "__main__":
    run_controller(sys.argv[1], SlurmExecutor(Path(sys.argv[2]), **LIMITS))
