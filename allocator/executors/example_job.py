"""A small elastic training job, as an example and for the live demo.

Usage: python -m allocator.executors.example_job

The job is logistic regression on synthetic data by gradient descent with momentum. The global batch
is split over the GPUs and the gradients are averaged, so the number of GPUs changes the speed and
nothing else. GPUs are simulated by the time that a step takes:

    steps per second = rate x n / (1 + overhead x (n - 1))            n = $ALLOCATOR_GPUS

Work is counted in steps. The folder $ALLOCATOR_WORKDIR gets two files:

    checkpoint.npz   the checkpoint, replaced in one step
    log.csv          one row at every start and checkpoint: event, generation, step, gpus, loss

The exit code is 0 when all steps are done. After SIGTERM the job writes a checkpoint and ends with
143, so that it does not count as done.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from allocator.executors import report

BATCH = 64
FEATURES = 20
EXAMPLES = 2000
LEARNING_RATE = 0.01
MOMENTUM = 0.9
TOLD = 128 + signal.SIGTERM  # exit code after SIGTERM, by the convention of shells


class Training:
    """The training: weights and velocity, (FEATURES,), after `step` steps.

    The examples are a noisy half-space, which the seed determines.
    """

    def __init__(self, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.seed, self.step = seed, 0
        self.weights, self.velocity = np.zeros((2, FEATURES))
        self.x = draw.normal(size=(EXAMPLES, FEATURES))
        noise = draw.normal(size=FEATURES), draw.normal(size=EXAMPLES)
        self.y = (self.x @ noise[0] + noise[1] > 0).astype(float)

    def loss(self) -> float:
        """Return the mean logistic loss over all examples."""
        z = self.x @ self.weights
        return float(np.mean(np.logaddexp(0.0, z) - self.y * z))

    def train(self, gpus: int) -> None:
        """Make one step: every GPU takes its part of the batch, which seed and step determine."""
        batch = np.random.default_rng((self.seed, self.step)).integers(EXAMPLES, size=BATCH)
        gradient = np.zeros(FEATURES)
        for part in np.array_split(batch, gpus):
            x = self.x[part]
            gradient += x.T @ (1.0 / (1.0 + np.exp(-(x @ self.weights))) - self.y[part])
        self.velocity = MOMENTUM * self.velocity - LEARNING_RATE * gradient / BATCH
        self.weights = self.weights + self.velocity
        self.step += 1

    def load(self, path: Path) -> None:
        """Go on from the checkpoint if there is one."""
        if path.exists():
            with np.load(path) as kept:
                self.step, self.weights, self.velocity = (
                    int(kept["step"]),
                    kept["weights"],
                    kept["velocity"],
                )

    def save(self, path: Path) -> None:
        """Replace the checkpoint in one step."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with temporary.open("wb") as out:
            np.savez(out, step=self.step, weights=self.weights, velocity=self.velocity)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)


def steps_per_second(gpus: int, rate: float, overhead: float) -> float:
    """Return the speed on so many GPUs."""
    return rate * gpus / (1.0 + overhead * (gpus - 1))


def run(folder: Path, given: argparse.Namespace) -> int:
    """Train from the last checkpoint to the end or to SIGTERM; returns the exit code.

    `given` are the options of the command line.
    """
    gpus = int(os.environ.get("ALLOCATOR_GPUS", "1"))
    step_s = 1.0 / steps_per_second(gpus, given.rate, given.overhead)
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stops.append(number))
    folder.mkdir(parents=True, exist_ok=True)
    job = Training(given.seed)
    job.load(folder / "checkpoint.npz")

    def log(event: str) -> int:
        with (folder / "log.csv").open("a", encoding="ascii") as out:
            if out.tell() == 0:
                out.write("event,generation,step,gpus,loss\n")
            generation = os.environ.get("ALLOCATOR_GENERATION", "0")
            out.write(f"{event},{generation},{job.step},{gpus},{job.loss():.6f}\n")
        return job.step

    def checkpoint() -> int:
        job.save(folder / "checkpoint.npz")
        return log("checkpoint")

    safe = log("start")
    report.progress(job.step, safe)
    due = saved = time.monotonic()
    while job.step < given.steps and not stops:
        job.train(gpus)
        due += step_s
        if (wait := due - time.monotonic()) > 0:
            time.sleep(wait)
        if time.monotonic() - saved >= given.checkpoint_every:
            safe = checkpoint()
            saved = time.monotonic()
        report.progress(job.step, safe)
    report.progress(job.step, checkpoint())
    return 0 if job.step >= given.steps else TOLD


def main() -> int:
    """Read the options and train; returns the exit code."""
    parser = argparse.ArgumentParser(prog="example_job", description="A tiny elastic training job.")
    for name, default, words in (
        ("steps", 400, "all of its work"),
        ("rate", 20.0, "steps per second on one GPU"),
        ("overhead", 0.1, "0 scales perfectly"),
        ("checkpoint-every", 1.0, "seconds between two checkpoints"),
        ("seed", 0, "of the data"),
    ):
        parser.add_argument(
            f"--{name}", type=type(default), default=default, help=f"{words} (default {default:g})"
        )
    return run(Path(os.environ.get("ALLOCATOR_WORKDIR", ".")), parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
