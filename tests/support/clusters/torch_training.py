"""An elastic data-parallel training with PyTorch on CPUs, as a job of the allocator.

Usage: python torch_training.py --steps N [--step-s SECONDS]

The first process starts one worker for each GPU of $ALLOCATOR_GPUS; they meet by gloo. In each step
every worker computes the gradient of its part of the batch, and the sum of all parts over the whole
batch is applied. So the loss does not depend on the number of workers, but for the order of sums.

The folder $ALLOCATOR_WORKDIR gets checkpoint.pt, replaced in one step, and losses.csv with a row
for each step: generation, workers, step, loss. After SIGTERM the workers agree on a last step,
the first one writes a checkpoint, and the exit code is 143.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

FEATURES, HIDDEN, BATCH = 16, 32, 24
CHECKPOINT_EVERY = 5  # steps
TOLD = 128 + signal.SIGTERM
FOLDER = Path(os.environ.get("ALLOCATOR_WORKDIR", "."))


class Worker:
    """One of the workers, after the last checkpoint."""

    def __init__(self, rank: int, workers: int) -> None:
        import torch

        self.rank, self.workers, self.step = rank, workers, 0
        torch.manual_seed(0)
        layers = (torch.nn.Linear(FEATURES, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1))
        self.model: Any = torch.nn.Sequential(*layers).double()
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        if (FOLDER / "checkpoint.pt").exists():
            kept = torch.load(FOLDER / "checkpoint.pt")
            self.step = kept["step"]
            self.model.load_state_dict(kept["model"])
            self.optimiser.load_state_dict(kept["optimiser"])

    def train(self, is_told: bool) -> bool:
        """Make one step; returns whether a worker was told to stop."""
        import torch
        from torch import distributed

        draw = torch.Generator().manual_seed(self.step)
        x = torch.randn(BATCH, FEATURES, generator=draw).double()[self.rank :: self.workers]
        y = torch.sin(x.sum(dim=1, keepdim=True))
        self.optimiser.zero_grad()
        loss = ((self.model(x) - y) ** 2).sum() / BATCH
        loss.backward()
        for parameter in self.model.parameters():
            distributed.all_reduce(parameter.grad)
        shared = torch.tensor([loss.item(), float(is_told)], dtype=torch.float64)
        distributed.all_reduce(shared)
        self.optimiser.step()
        self.step += 1
        if self.rank == 0:
            generation = os.environ.get("ALLOCATOR_GENERATION", "0")
            with (FOLDER / "losses.csv").open("a", encoding="ascii") as out:
                out.write(f"{generation},{self.workers},{self.step},{shared[0].item():.12g}\n")
        return bool(shared[1] > 0)

    def save(self) -> None:
        """Replace the checkpoint in one step, and report the progress."""
        import torch

        if self.rank == 0:
            state = {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}
            torch.save({"step": self.step, **state}, FOLDER / "checkpoint.new")
            os.replace(FOLDER / "checkpoint.new", FOLDER / "checkpoint.pt")
            if name := os.environ.get("ALLOCATOR_PROGRESS"):
                Path(f"{name}.new").write_text(f"{self.step} {self.step}\n", encoding="ascii")
                os.replace(f"{name}.new", name)


def work(rank: int, workers: int, port: int, steps: int, step_s: float) -> None:
    """Train from the checkpoint to the end or to SIGTERM, as one of the workers."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=workers)
    worker, is_over = Worker(rank, workers), False
    distributed.barrier()  # nobody writes a checkpoint before all have read it
    while worker.step < steps and not is_over:
        is_over = worker.train(bool(told))
        if worker.step % CHECKPOINT_EVERY == 0 or is_over:
            worker.save()
        time.sleep(step_s / workers)
    if not is_over:
        worker.save()
    distributed.barrier()
    distributed.destroy_process_group()
    sys.exit(TOLD if worker.step < steps else 0)


def main() -> int:
    """Start the workers and wait for them; returns the exit code."""
    from torch import multiprocessing

    parser = argparse.ArgumentParser(description="An elastic training with PyTorch.")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--step-s", type=float, default=0.2, help="seconds of a step, one worker")
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    workers = int(os.environ.get("ALLOCATOR_GPUS", "1"))
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    # the whole group gets SIGTERM: this process waits, and each worker takes it when it is ready
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    spawn = multiprocessing.get_context("spawn")
    children = [
        spawn.Process(target=work, args=(rank, workers, port, given.steps, given.step_s))
        for rank in range(workers)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    codes = {child.exitcode for child in children}
    return codes.pop() or 0 if len(codes) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
