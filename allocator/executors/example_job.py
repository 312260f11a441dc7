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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocator.executors import report

BATCH = 64
FEATURES = 20
EXAMPLES = 2000
LEARNING_RATE = 0.01
MOMENTUM = 0.9
TOLD = 128 + signal.SIGTERM  # exit code after SIGTERM, by the convention of shells


@dataclass
class Model:
    """Weights after `step` steps. `weights` and `velocity` are arrays (FEATURES,)."""

    step: int
    weights: Any
    velocity: Any


def make_examples(seed: int) -> tuple[Any, Any]:
    """Make (examples (EXAMPLES, FEATURES), labels 0 or 1 (EXAMPLES,)) of a noisy half-space."""
    import numpy as np

    draw = np.random.default_rng(seed)
    x = draw.normal(size=(EXAMPLES, FEATURES))
    y = (x @ draw.normal(size=FEATURES) + draw.normal(size=EXAMPLES) > 0).astype(float)
    return x, y


def loss(model: Model, x: Any, y: Any) -> float:
    """Return the mean logistic loss over all examples."""
    import numpy as np

    z = x @ model.weights
    return float(np.mean(np.logaddexp(0.0, z) - y * z))


def train(model: Model, x: Any, y: Any, seed: int, gpus: int) -> None:
    """Make one step: every GPU takes its part of the batch, which seed and step determine."""
    import numpy as np

    batch = np.random.default_rng((seed, model.step)).integers(EXAMPLES, size=BATCH)
    gradient = np.zeros(FEATURES)
    for part in np.array_split(batch, gpus):
        gradient += x[part].T @ (1.0 / (1.0 + np.exp(-(x[part] @ model.weights))) - y[part])
    model.velocity = MOMENTUM * model.velocity - LEARNING_RATE * gradient / BATCH
    model.weights = model.weights + model.velocity
    model.step += 1


def load(path: Path) -> Model:
    """Return the model of the checkpoint, or a new model if there is none."""
    import numpy as np

    if not path.exists():
        return Model(0, np.zeros(FEATURES), np.zeros(FEATURES))
    with np.load(path) as kept:
        return Model(int(kept["step"]), kept["weights"], kept["velocity"])


def save(path: Path, model: Model) -> None:
    """Replace the checkpoint in one step."""
    import numpy as np

    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as out:
        np.savez(out, step=model.step, weights=model.weights, velocity=model.velocity)
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
    x, y = make_examples(given.seed)
    model = load(folder / "checkpoint.npz")

    def log(event: str) -> None:
        with (folder / "log.csv").open("a", encoding="ascii") as out:
            if out.tell() == 0:
                out.write("event,generation,step,gpus,loss\n")
            generation = os.environ.get("ALLOCATOR_GENERATION", "0")
            out.write(f"{event},{generation},{model.step},{gpus},{loss(model, x, y):.6f}\n")

    def checkpoint() -> int:
        save(folder / "checkpoint.npz", model)
        log("checkpoint")
        return model.step

    log("start")
    safe = model.step
    report.progress(model.step, safe)
    due = saved = time.monotonic()
    while model.step < given.steps and not stops:
        train(model, x, y, given.seed, gpus)
        due += step_s
        if (wait := due - time.monotonic()) > 0:
            time.sleep(wait)
        if time.monotonic() - saved >= given.checkpoint_every:
            safe = checkpoint()
            saved = time.monotonic()
        report.progress(model.step, safe)
    report.progress(model.step, checkpoint())
    return 0 if model.step >= given.steps else TOLD


def main() -> int:
    """Read the options and train; returns the exit code."""
    parser = argparse.ArgumentParser(prog="example_job", description="A tiny elastic training job.")
    parser.add_argument("--steps", type=int, default=400, help="all of its work (default 400)")
    parser.add_argument(
        "--rate", type=float, default=20.0, help="steps per second on one GPU (default 20)"
    )
    parser.add_argument(
        "--overhead", type=float, default=0.1, help="0 scales perfectly (default 0.1)"
    )
    parser.add_argument("--checkpoint-every", type=float, default=1.0, help="seconds (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="of the data (default 0)")
    given = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        # set before numpy is loaded, because many jobs share the machine
        os.environ.setdefault(name, "1")
    return run(Path(os.environ.get("ALLOCATOR_WORKDIR", ".")), given)


if __name__ == "__main__":
    sys.exit(main())
