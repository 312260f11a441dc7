"""What the training of allocator/executors/example_job.py writes, and what it would without a
disturbance.
"""

from __future__ import annotations

from pathlib import Path

from allocator.executors import example_job


def read_log(folder: Path) -> list[list[str]]:
    """The rows of log.csv: event, generation, step, gpus, loss."""
    path = folder / "log.csv"
    return [line.split(",") for line in path.read_text().splitlines()[1:]] if path.exists() else []


def list_undisturbed_losses(steps: int) -> list[float]:
    """The loss before the first step of a training that nobody disturbs, and after each step."""
    job = example_job.Training(0)
    losses = [job.loss()]
    for _ in range(steps):
        job.train(1)
        losses.append(job.loss())
    return losses
