"""Measure, profile, fit and configure many drawn jobs, through the commands only.

    # 200 jobs of each truth
    python scripts/studies/speeds/measure_configure.py
    python scripts/studies/speeds/measure_configure.py --jobs 20 --noise 0.02

These steps are done for each job:

- `allocator configure --profile` reads a snapshot with the range of the job's batches and a rough
  guess of its speed.
- What it asks for is measured (the truth times log-normal noise) and written to observations.csv.
- `allocator fit` makes models.csv from the measurements.
- `allocator configure` names the fastest and the cheapest way.

`rounds` is how often this is done. In the second round, the profile of the fitted model asks for
what could still change the choice.

There are two truths: the model of noise and epochs (8 to 20 workers, measure_fits.py), and seven
goodput parameters with a noise scale (1 to 16 GPUs), of which only useful speeds are visible. The
regret is the true time (or cost) of the named way over that of the best pool, size and batch. The
script prints the tables of docs/speed-models.md.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from measure_fits import SIZES, draw

from allocator.cli.main import run
from allocator.domain.problem import Floats
from allocator.performance import batched

SEED = 0
BATCHES = 41  # batches of the oracle, evenly spaced from the smallest to the largest
AIMS = ("fastest", "cheapest")


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

    tried: list[int] = field(default_factory=list)
    form: list[bool] = field(default_factory=list)
    batch: list[bool] = field(default_factory=list)
    wrong: list[float] = field(default_factory=list)
    regret: dict[str, list[float]] = field(default_factory=lambda: {aim: [] for aim in AIMS})


def main() -> None:
    """Measure every truth, noise and number of rounds that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=200, help="of each truth (default: 200)")
    parser.add_argument(
        "--noise",
        type=float,
        nargs="*",
        default=[0.0, 0.02, 0.05],
        help="standard deviations of the logarithm (default: 0 0.02 0.05)",
    )
    args = parser.parse_args()
    print(
        f"machine: {platform.machine()}, {platform.system()}, Python "
        f"{platform.python_version()}, numpy {np.__version__}; seed {SEED}; {args.jobs} jobs\n"
    )
    print(
        "| truth | noise | rounds | configurations measured | right form | batch named | error of "
        "the believed time: mean | median | worst 5 % | time over the best, fastest: mean | "
        "worst 5 % | cost over the best, cheapest: mean | worst 5 % | CPU s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for name, drawn in (("noise and epochs", epochs_jobs), ("goodput", goodput_jobs)):
        for noise in args.noise:
            begun = time.process_time()
            told = measure(drawn(args.jobs), noise, 2)
            took = time.process_time() - begun
            for i, one in enumerate(told):
                print(
                    line(name, noise, i + 1, one)
                    + f" {took if i else float('nan'):.0f} |".replace("nan", "-")
                )


def epochs_jobs(count: int) -> list[TrueJob]:
    """Return jobs of the model of noise and epochs; work is samples of the smallest batch."""
    _, b, seconds, _ = draw(count, np.random.default_rng(SEED))
    sizes = tuple(SIZES.astype(int).tolist())
    return [
        TrueJob(
            "iteration",
            sizes,
            int(b[i].min()),
            int(b[i].max()),
            of_table(b[i], seconds[i]),
            {
                "compute": 0.05,
                "sync": 0.3,
                "noise": 0.0,
                "min_batch": float(b[i].min()),
                "max_batch": float(b[i].max()),
                "min_gpus": 8.0,
                "max_gpus": 20.0,
                "error": 0.3,
            },
        )
        for i in range(count)
    ]


def of_table(batch: Floats, seconds: Floats) -> Callable[[Floats, Floats], Floats]:
    """Return the truth behind a table of draw().

    Three points of the table give its three numbers exactly.
    """
    low, high = float(batch.min()), float(batch.max())
    at = {
        (k, b): float(seconds[i])
        for i, (k, b) in enumerate(zip(np.repeat(SIZES, 5).tolist(), batch.tolist(), strict=True))
    }
    # seconds = (f + g / sqrt B) (a / K + K / B) up to a factor: a from two sizes, f : g from two
    # batches
    ratio = at[8.0, high] / at[20.0, high]
    a = (ratio * 20 - 8) / high / (1 / 8 - ratio / 20)
    first, last = (at[8.0, x] / (a / 8 + 8 / x) for x in (low, high))
    g = (first - last) / (1 / np.sqrt(low) - 1 / np.sqrt(high))
    f = first - g / np.sqrt(low)

    def speed(k: Floats, b: Floats) -> Floats:
        return np.asarray(1e6 / ((f + g / np.sqrt(b)) * (a / k + k / b)))

    middle = at[12.0, float(np.sort(np.unique(batch))[2])]
    assert abs(1e6 / speed(np.array(12.0), np.sort(np.unique(batch))[2]) / middle - 1) < 1e-6
    return speed


def goodput_jobs(count: int) -> list[TrueJob]:
    """Return jobs of seven goodput parameters.

    The smallest batch has 32 to 128 samples, and the largest 8 to 32 times as many.
    """
    rng, out = np.random.default_rng(SEED), []
    for _ in range(count):
        least = int(2.0 ** rng.integers(5, 8))
        most = least * int(2.0 ** rng.integers(3, 6))
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
            "batch_0": float(least),
            "max_batch": float(most),
            "gpus_per_node": 8.0,
        }

        def speed(k: Floats, b: Floats, q: dict[str, float] = q) -> Floats:
            step_s = batched.goodput_s(q, k, b, np.ones_like(b), np.ceil(k / 8))
            return np.asarray(b / step_s * batched.goodput_efficiency(q, b))

        guess = {
            "compute": step / least,
            "sync": 0.02 * step,
            "noise": 0.0,
            "min_batch": float(least),
            "max_batch": float(most),
            "min_gpus": 1.0,
            "max_gpus": 16.0,
            "error": 0.3,
        }
        out.append(TrueJob("goodput", (1, 2, 4, 8, 16), least, most, speed, guess))
    return out


def measure(jobs: list[TrueJob], noise: float, rounds: int) -> list[CommandResults]:
    """Return CommandResults for each number of rounds."""
    out = [CommandResults() for _ in range(rounds)]
    rng = np.random.default_rng(SEED + 1)
    with tempfile.TemporaryDirectory(prefix="measure-configure-") as folder:
        for job in jobs:
            here = Path(folder)
            seen: dict[tuple[int, int], float] = {}
            write_snapshot(here, job, {"kind": "iteration", "parameters": json.dumps(job.guess)})
            for told in out:
                for way in json.loads(
                    command("configure", here, "j", "--profile", "--format", "json")
                )["next"]:
                    at = int(way["gpus"]), int(way["batch_size"] or job.least)
                    true = float(job.speed(np.array(float(at[0])), np.array(float(at[1]))))
                    seen.setdefault(at, true * float(np.exp(rng.normal(0, noise))))
                    if told is out[0] and len(seen) == 3 and way["why"] == "corner":
                        # the corners first; the rest of what the guess asks for is as uncertain as
                        # the guess
                        break
                write_csv(
                    here / "observations.csv",
                    [
                        {"model": "m", "gpu_type": "A", "gpus": k, "batch_size": b, "work_per_s": v}
                        for (k, b), v in seen.items()
                    ],
                )
                models = list(
                    csv.DictReader(
                        io.StringIO(command("fit", here / "observations.csv", "--format", "csv"))
                    )
                )
                write_snapshot(here, job, models[0])
                known = "max_batch" in models[0]["parameters"]
                note(
                    told,
                    job,
                    models[0]["kind"] + " over batches" * known,
                    len(seen),
                    json.loads(command("configure", here, "j", "--format", "json")),
                )
    return out


def note(
    told: CommandResults, job: TrueJob, kind: str, tried: int, said: dict[str, dict[str, float]]
) -> None:
    """Compare the answers about one job with the truth."""
    k, b = (
        v.reshape(-1)
        for v in np.meshgrid(
            np.array(job.sizes, dtype=np.float64),
            np.round(np.linspace(job.least, job.most, BATCHES)),
            indexing="ij",
        )
    )
    able = b >= k
    hours = 1.0 / job.speed(k[able], b[able])
    best = {"fastest": float(hours.min()), "cheapest": float((hours * k[able]).min())}
    told.tried.append(tried)
    told.form.append(kind == job.kind + " over batches")
    told.batch.append(all(said[aim]["batch_size"] is not None for aim in AIMS))
    for aim in AIMS:
        gpus, size = float(said[aim]["gpus"]), float(said[aim]["batch_size"] or job.least)
        true = float(job.speed(np.array(gpus), np.array(size)))
        told.wrong.append(abs(true / said[aim]["work_per_s"] - 1.0))
        told.regret[aim].append((gpus if aim == "cheapest" else 1.0) / true / best[aim] - 1.0)


def write_snapshot(folder: Path, job: TrueJob, model: dict[str, str]) -> None:
    """Write one job, one pool and one model."""
    write_csv(
        folder / "jobs.csv",
        [
            {
                "job_id": "j",
                "model": "m",
                "submitted_s": 0,
                "remaining_work": 1e6,
                "requested_gpus": job.sizes[0],
                "min_gpus": job.sizes[0],
                "max_gpus": job.sizes[-1],
                "sizes": "|".join(map(str, job.sizes)),
            }
        ],
    )
    write_csv(
        folder / "pools.csv",
        [{"pool": "p", "gpu_type": "A", "gpus": job.sizes[-1], "price_per_gpu_hour": 1}],
    )
    write_csv(
        folder / "models.csv",
        [{"model": "m", "gpu_type": "A", "kind": model["kind"], "parameters": model["parameters"]}],
    )
    (folder / "config.toml").write_text("interval_s = 300\nnow_s = 0\n", encoding="utf-8")


def write_csv(path: Path, rows: list[dict[str, object]]) -> None:
    """Write rows with equal columns."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def command(*args: object) -> str:
    """Return what a command prints; end the script if it fails."""
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = run([str(a) for a in args])
    if code:
        sys.exit(f"allocator {' '.join(map(str, args))}: exit code {code}\n{said.getvalue()}")
    return out.getvalue()


def line(name: str, noise: float, rounds: int, told: CommandResults) -> str:
    """Return a row of the table."""

    def percent(share: float) -> str:
        return f"{100 * share:.1f} %".replace("-0.0", "0.0")

    cells = [
        name,
        f"{100 * noise:g} %",
        str(rounds),
        f"{np.mean(told.tried):.1f}",
        percent(float(np.mean(told.form))),
        percent(float(np.mean(told.batch))),
        percent(float(np.mean(told.wrong))),
        percent(float(np.median(told.wrong))),
        percent(float(np.quantile(told.wrong, 0.95))),
    ]
    for aim in AIMS:
        cells += [
            percent(float(np.mean(told.regret[aim]))),
            percent(float(np.quantile(told.regret[aim], 0.95))),
        ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
