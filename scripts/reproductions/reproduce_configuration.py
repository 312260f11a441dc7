"""Measure, profile, fit and configure many drawn jobs, through the commands only.

    # 200 jobs of each truth
    python scripts/reproductions/reproduce_configuration.py
    python scripts/reproductions/reproduce_configuration.py --jobs 20 --noise 0.02

The published system is Scavenger (Tyagi and Sharma, CCGrid 2023). These steps are done for each
job:

- `allocator configure --profile` reads a snapshot with the range of the job's batches and a rough
  guess of its speed.
- What it asks for is measured (the truth times log-normal noise) and written to observations.csv.
- `allocator fit` makes models.csv from the measurements.
- `allocator configure` names the fastest and the cheapest way.

`rounds` is how often this is done. In the second round, the profile of the fitted model asks for
what could still change the choice.

There are two truths: the model of noise and epochs of the paper (8 to 20 workers), and seven
goodput parameters with a noise scale (1 to 16 GPUs), of which only useful speeds are visible. The
regret is the true time (or cost) of the named way over that of the best pool, size and batch.
Standard output is Markdown. Times are CPU seconds with one thread.
"""

import argparse
import contextlib
import csv
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))

from cases.folders import Folder, csv_of_rows  # noqa: E402

from allocator.bench.machine import machine  # noqa: E402
from allocator.cli.main import run  # noqa: E402
from allocator.domain.problem import Floats  # noqa: E402
from allocator.performance import batched  # noqa: E402

SEED = 0
ROUNDS = 2
BATCHES = 41  # batches of the oracle, evenly spaced from the smallest to the largest
AIMS = ("fastest", "cheapest")
HEAD = (
    "| truth | noise | rounds | configurations measured | right form | batch named | error of the"
    " believed time: mean | median | worst 5 % | time over the best, fastest: mean | worst 5 % |"
    " cost over the best, cheapest: mean | worst 5 % | CPU s |"
)


@dataclass(frozen=True)
class TrueJob:
    """The truth about one job. speed: (gpus, batch) -> useful work per second."""

    kind: str
    sizes: tuple[int, ...]
    least: int
    most: int
    speed: Callable[[Floats, Floats], Floats]
    guess: dict[str, float]


@dataclass
class CommandResults:
    """The answers of the commands for many jobs, one value per job."""

    tried: list[float] = field(default_factory=list)
    form: list[bool] = field(default_factory=list)
    batch: list[bool] = field(default_factory=list)
    wrong: list[float] = field(default_factory=list)
    regret: dict[str, list[float]] = field(default_factory=lambda: {aim: [] for aim in AIMS})


def true_job(
    kind: str,
    sizes: tuple[int, ...],
    batches: tuple[float, float],
    speed: Callable[[Floats, Floats], Floats],
    compute: float,
    sync: float,
) -> TrueJob:
    """Return a job with a guess of its speed that is 30 % wrong."""
    least, most = batches
    guess = {
        "compute": compute,
        "sync": sync,
        "noise": 0.0,
        "min_batch": least,
        "max_batch": most,
        "min_gpus": float(sizes[0]),
        "max_gpus": float(sizes[-1]),
        "error": 0.3,
    }
    return TrueJob(kind, sizes, int(least), int(most), speed, guess)


def epochs_jobs(count: int) -> list[TrueJob]:
    """Return jobs of e = e* + theta gamma, gamma = c0 + c1 / sqrt B, tau = alpha B / K + beta K.

    Normalised noise is 0.7 to 0.9 and falls by 2 to 10 % over the batches. Epochs are 13 to 500 and
    change by -25 to 25 %. The best number of workers is 6 to 40.
    """
    rng = np.random.default_rng(SEED)
    is_small = rng.random(count) < 0.5
    low, high = np.where(is_small, 384.0, 512.0), np.where(is_small, 1024.0, 1280.0)
    middle = np.round(low[:, None] + (high - low)[:, None] * np.linspace(0, 1, 5)).mean(axis=1)
    gamma, drop = rng.uniform(0.7, 0.9, count), rng.uniform(0.02, 0.1, count)
    c1 = drop * gamma / (1 / np.sqrt(low) - 1 / np.sqrt(high))
    c0 = gamma - c1 / np.sqrt(low)
    epochs = np.exp(rng.uniform(np.log(13), np.log(500), count))
    theta = -rng.uniform(-0.25, 0.25, count) * epochs / (drop * gamma)
    e_star = epochs - theta * gamma
    best = np.exp(rng.uniform(np.log(6), np.log(40), count))
    beta = np.exp(rng.uniform(np.log(0.5), np.log(5), count)) / (best**2 / 8 + 8)
    alpha = beta * best**2 / middle

    def truth(i: int) -> Callable[[Floats, Floats], Floats]:
        def speed(k: Floats, b: Floats) -> Floats:
            e = e_star[i] + theta[i] * (c0[i] + c1[i] / np.sqrt(b))
            return np.asarray(20 * b / (e * (alpha[i] * b / k + beta[i] * k)))

        return speed

    return [
        true_job("iteration", (8, 12, 16, 20), (low[i], high[i]), truth(i), 0.05, 0.3)
        for i in range(count)
    ]


def goodput_jobs(count: int) -> list[TrueJob]:
    """Return jobs of seven goodput parameters.

    The smallest batch has 32 to 128 samples, and the largest 8 to 32 times as many.
    """
    rng, out = np.random.default_rng(SEED), []
    for _ in range(count):
        least = float(2.0 ** rng.integers(5, 8))
        most = least * float(2.0 ** rng.integers(3, 6))
        step = float(np.exp(rng.uniform(np.log(0.05), np.log(1.0))))
        q = {
            "alpha_c": step * rng.uniform(0.1, 0.6),
            "beta_c": step / least,
            "alpha_r": step * rng.uniform(0.05, 0.4),
            "beta_r": step * rng.uniform(0, 0.02),
            "alpha_n": step * rng.uniform(0.2, 0.8),
            "beta_n": step * rng.uniform(0, 0.04),
            "gamma": rng.uniform(1, 4),
            "noise_scale": float(most * np.exp(rng.uniform(-3, 0))),
            "batch_0": least,
            "max_batch": most,
            "gpus_per_node": 8.0,
        }

        def speed(k: Floats, b: Floats, q: dict[str, float] = q) -> Floats:
            step_s = batched.goodput_s(q, k, b, np.ones_like(b), np.ceil(k / 8))
            return np.asarray(b / step_s * batched.goodput_efficiency(q, b))

        out.append(
            true_job("goodput", (1, 2, 4, 8, 16), (least, most), speed, step / least, 0.02 * step)
        )
    return out


def measure(jobs: list[TrueJob], noise: float) -> list[CommandResults]:
    """Return CommandResults for each number of rounds."""
    out = [CommandResults() for _ in range(ROUNDS)]
    rng = np.random.default_rng(SEED + 1)
    with tempfile.TemporaryDirectory(prefix="reproduce-configuration-") as scratch:
        for job in jobs:
            seen: dict[tuple[int, int], float] = {}
            model = {"kind": "iteration", "parameters": json.dumps(job.guess)}
            for results in out:
                here = write_snapshot(Path(scratch), job, model)
                asked = json.loads(command("configure", here, "j", "--profile", "--format", "json"))
                for way in asked["next"]:
                    at = int(way["gpus"]), int(way["batch_size"] or job.least)
                    true = float(job.speed(*map(np.array, map(float, at))))
                    seen.setdefault(at, true * float(np.exp(rng.normal(0, noise))))
                    if results is out[0] and len(seen) == 3 and way["why"] == "corner":
                        # the rest of what the guess asks for is as uncertain as the guess
                        break
                rows = [
                    {"model": "m", "gpu_type": "A", "gpus": k, "batch_size": b, "work_per_s": v}
                    for (k, b), v in seen.items()
                ]
                measured = here / "observations.csv"
                measured.write_text(csv_of_rows("observations.csv", rows), encoding="utf-8")
                fitted = io.StringIO(command("fit", measured, "--format", "csv"))
                model = next(csv.DictReader(fitted))
                here = write_snapshot(Path(scratch), job, model)
                named = json.loads(command("configure", here, "j", "--format", "json"))
                form = model["kind"] + " over batches" * ("max_batch" in model["parameters"])
                note(results, job, form, len(seen), named)
    return out


def note(
    results: CommandResults,
    job: TrueJob,
    form: str,
    tried: int,
    named: dict[str, dict[str, float]],
) -> None:
    """Compare the answers about one job with the truth."""
    batches = np.round(np.linspace(job.least, job.most, BATCHES))
    k, b = (v.reshape(-1) for v in np.meshgrid(np.array(job.sizes, float), batches, indexing="ij"))
    able = b >= k
    hours = 1.0 / job.speed(k[able], b[able])
    best = {"fastest": float(hours.min()), "cheapest": float((hours * k[able]).min())}
    results.tried.append(tried)
    results.form.append(form == job.kind + " over batches")
    results.batch.append(all(named[aim]["batch_size"] is not None for aim in AIMS))
    for aim in AIMS:
        gpus, batch = float(named[aim]["gpus"]), float(named[aim]["batch_size"] or job.least)
        true = float(job.speed(np.array(gpus), np.array(batch)))
        results.wrong.append(abs(true / named[aim]["work_per_s"] - 1.0))
        results.regret[aim].append((gpus if aim == "cheapest" else 1.0) / true / best[aim] - 1.0)


def write_snapshot(parent: Path, job: TrueJob, model: dict[str, str]) -> Path:
    """Write one job, one pool and one model; return the folder."""
    sizes = job.sizes
    row = {
        "job_id": "j",
        "model": "m",
        "submitted_s": 0,
        "remaining_work": 1e6,
        "requested_gpus": sizes[0],
        "min_gpus": sizes[0],
        "max_gpus": sizes[-1],
        "sizes": sizes,
    }
    pool = {"pool": "p", "gpu_type": "A", "gpus": sizes[-1], "price_per_gpu_hour": 1}
    tables = {
        "jobs.csv": [row],
        "pools.csv": [pool],
        "models.csv": [
            {"model": "m", "gpu_type": "A"} | {c: model[c] for c in ("kind", "parameters")}
        ],
    }
    return Folder("job", {"interval_s": 300, "now_s": 0}, tables).write(parent)


def command(*args: object) -> str:
    """Return what a command prints; end the script if it fails."""
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = run([str(a) for a in args])
    if code:
        sys.exit(f"allocator {' '.join(map(str, args))}: exit code {code}\n{said.getvalue()}")
    return out.getvalue()


def describe(results: CommandResults) -> str:
    """Return cells of the table: means, medians and 95 % quantiles in percent."""
    shares = [np.mean(results.form), np.mean(results.batch), np.mean(results.wrong)]
    shares += [np.median(results.wrong), np.quantile(results.wrong, 0.95)]
    for aim in AIMS:
        shares += [np.mean(results.regret[aim]), np.quantile(results.regret[aim], 0.95)]
    cells = (f"{100 * share:.1f} %".replace("-0.0", "0.0") for share in shares)
    return f"{np.mean(results.tried):.1f} | {' | '.join(cells)}"


def main() -> None:
    """Measure every truth and noise that the arguments ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=200, help="of each truth (default: 200)")
    parser.add_argument(
        "--noise",
        type=float,
        nargs="*",
        default=[0.0, 0.02, 0.05],
        help="standard deviations of the logarithm (default: 0 0.02 0.05)",
    )
    args = parser.parse_args()
    print(f"{machine()}; seed {SEED}; {args.jobs} jobs\n\n{HEAD}\n{'|---' * 14}|")
    for truth, drawn in (("noise and epochs", epochs_jobs), ("goodput", goodput_jobs)):
        for noise in args.noise:
            begin = time.process_time()
            found = measure(drawn(args.jobs), noise)
            took = f"{time.process_time() - begin:.0f}"
            for i, results in enumerate(found):
                head = f"| {truth} | {100 * noise:g} % | {i + 1} |"
                print(f"{head} {describe(results)} | {took if i else '-'} |", flush=True)


if __name__ == "__main__":
    main()
