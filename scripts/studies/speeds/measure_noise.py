"""Let jobs report their gradient noise while it grows, and compare with knowing it.

    python scripts/studies/speeds/measure_noise.py --jobs 6

Each job has 1 to 16 GPUs, batches from B0 to 16 B0, steps of alpha B / K + beta K seconds, and
samples that count (phi + B0) / (phi + B). While it trains its noise scale phi grows by a factor of
30, evenly in the logarithm over its work. The controller begins with a wrong belief and a budget of
GPU-hours for trials. A job that reports gives the squared norms of the gradients of one step, of 8
parts of B0 / 8 samples and of all of them, in 1,000,000 dimensions. Starts take 40 s. A job takes 6
hours if at each moment it runs on the fastest size with the best batch.

The columns, as means over the jobs: how far the believed speed of every way is from the true one,
every half hour after the trials; time and GPU-hours over those of somebody who knows the noise and
changes at no cost; the noise scale that is believed over the true one.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scripts.cases.profiled_job import ProfiledJob

SEED, HOURS, PAUSE_S = 0, 6.0, 40.0
SIZES = (1, 2, 4, 8, 16)
GROWTH = 30.0
WIDTH = 16  # largest batch in smallest ones
DIMENSIONS = 1_000_000
PARTS = 8
STEP_S = 300.0  # between two rounds once the trials are over


@dataclass(frozen=True)
class NoisyJob:
    """A job with a known step and a noise scale that grows from `first_noise` on."""

    compute: float
    sync: float
    least: int
    first_noise: float

    def noise_scale(self, share: float) -> float:
        """Return the noise scale when so much of the work is done."""
        return float(self.first_noise * GROWTH ** min(share, 1.0))

    def speed(self, gpus: float, batch: float, share: float) -> float:
        """Return the useful samples per second."""
        phi = self.noise_scale(share)
        step_s = self.compute * batch / gpus + self.sync * gpus
        return batch / step_s * (phi + self.least) / (phi + batch)

    def best_speed(self, share: float) -> tuple[float, int]:
        """Return the fastest speed of all sizes and batches, and its GPUs."""
        batches = np.arange(self.least, WIDTH * self.least + 1, 8)
        return max((max(self.speed(k, b, share) for b in batches.tolist()), k) for k in SIZES)


def draw_jobs(count: int) -> list[NoisyJob]:
    """Draw jobs."""
    luck = np.random.default_rng(SEED)
    out = []
    for _ in range(count):
        least = int(2 ** luck.integers(5, 9))
        compute = float(np.exp(luck.uniform(-5, -3)))
        sync = compute * least / 8 * float(np.exp(luck.uniform(-2.5, -0.5)))
        out.append(NoisyJob(compute, sync, least, least * float(np.exp(luck.uniform(-1, 1)))))
    return out


def draw_norms(least: int, noise_scale: float, luck: np.random.Generator) -> dict[str, float]:
    """Draw the squared norms of one step, exactly: a true gradient of norm 1, and normal noise."""
    small = least / PARTS
    variance = noise_scale / DIMENSIONS / small
    of_mean = variance / PARTS
    norm2 = (
        1.0
        + 2.0 * math.sqrt(of_mean) * luck.standard_normal()
        + of_mean * luck.chisquare(DIMENSIONS)
    )
    around = variance * luck.chisquare((PARTS - 1) * DIMENSIONS) / PARTS
    return {
        "small_batch": small,
        "small_norm2": norm2 + around,
        "batch": float(least),
        "norm2": norm2,
    }


def measure(job: NoisyJob, says: bool, budget: float) -> list[float]:
    """Return the numbers of one job, one per column."""
    luck = np.random.default_rng(SEED + 1)
    shares = (np.arange(400) + 0.5) / 400
    best = [job.best_speed(share) for share in shares.tolist()]
    work = HOURS * 3600 / float(np.mean([1 / speed for speed, _ in best]))
    known_hours = HOURS + PAUSE_S / 3600
    known_gpu_hours = work * float(np.mean([k / speed for speed, k in best])) / 3600
    done = [0.0]

    def report(so_far: float) -> Mapping[str, float]:
        done[0] = so_far
        return draw_norms(job.least, job.noise_scale(so_far / work), luck) if says else {}

    guess = {
        "compute": 2 * job.compute,
        "sync": job.sync / 3,
        "min_batch": job.least,
        "max_batch": WIDTH * job.least,
        "min_gpus": 1,
        "max_gpus": 16,
        "error": 0.3,
    }
    with tempfile.TemporaryDirectory(prefix="measure-noise-") as folder:
        run = ProfiledJob(
            Path(folder),
            lambda k, b: job.speed(k, b, done[0] / work),
            guess,
            budget,
            work=work,
            pause_s=PAUSE_S,
            poll_s=60.0,
            reported=report,
        )
        quiet, errors, believed = 0, list[float](), list[float]()
        while quiet < 10:
            run.run(1)
            known = run.known()
            quiet = quiet + 1 if known.speeds and not known.open else 0
        steps = 0
        while (one := run.queue.jobs()[0]).state != "done":
            if steps % 6 == 0:
                ways, share = run.believed_ways(), done[0] / work
                pairs = zip(ways.gpus.tolist(), ways.batch.tolist(), strict=True)
                true = np.array([job.speed(k, b, share) for k, b in pairs])
                errors.append(float(np.abs(true / ways.rate - 1).mean()))
                phi = run.known().noise_scales.get("net", math.nan)
                believed.append(phi / job.noise_scale(share))
            steps += 1
            run.run(1, STEP_S)
        assert not run.machines.breaches and one.finished_s is not None
        hours = (one.finished_s - one.submitted_s) / 3600
        gpu_hours = one.attained_gpu_s / 3600
        run.queue.close()
    return [
        float(np.mean(errors)),
        hours / known_hours - 1,
        gpu_hours / known_gpu_hours - 1,
        float(np.mean(believed)),
    ]


def main() -> None:
    """Measure jobs that report their noise, and the same ones without reports."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--gpu-hours", type=float, default=6.0, help="for the trials of a job")
    args = parser.parse_args()
    print(
        f"machine: {platform.machine()}, {platform.system()}, Python "
        f"{platform.python_version()}, numpy {np.__version__}; seed {SEED}; {args.jobs} jobs\n"
    )
    print(
        "| reports | error of the believed speed: mean | worst job | time over knowing: mean | "
        "worst job | GPU-hours over it: mean | worst job | believed over true noise scale | "
        "CPU s |"
    )
    print(f"|{'---|' * 9}")
    for says in (True, False):
        begun = time.process_time()
        rows = np.array([measure(job, says, args.gpu_hours) for job in draw_jobs(args.jobs)])
        mean, worst = rows.mean(axis=0), rows.max(axis=0)
        print(
            f"| {'norms' if says else 'none'} | {mean[0]:.1%} | {worst[0]:.1%} | {mean[1]:+.1%} |"
            f" {worst[1]:+.1%} | {mean[2]:+.1%} | {worst[2]:+.1%} | {mean[3]:.2f} |"
            f" {time.process_time() - begun:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
