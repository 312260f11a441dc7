"""What the training of allocator/executors/example_job.py writes, and what it would without a
disturbance.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from allocator.executors import example_job


def read_log(folder: Path) -> list[list[str]]:
    """The rows of log.csv: event, generation, step, gpus, loss."""
    path = folder / "log.csv"
    return [line.split(",") for line in path.read_text().splitlines()[1:]] if path.exists() else []


def list_undisturbed_losses(steps: int) -> list[float]:
    """The loss before the first step of a training that nobody disturbs, and after each step."""
    model, (x, y) = example_job.Model(0, np.zeros(20), np.zeros(20)), example_job.make_examples(0)
    losses = [example_job.loss(model, x, y)]
    for _ in range(steps):
        example_job.train(model, x, y, 0, 1)
        losses.append(example_job.loss(model, x, y))
    return losses
