"""Write data/examples: small inputs for the commands that need measurements or deadlines.

    python scripts/generators/generate_examples.py [--out data/examples]

Every file is generated from the formulas and numbers below with a fixed seed, and is the same byte
for byte each time.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SEED = 1
NOISE = 0.03  # standard deviation of the logarithm of a measurement
README = """\
# Generated examples

Small inputs for commands that need measurements or deadlines. All are made by \
`scripts/generators/generate_examples.py`; no line
was measured anywhere.

    allocator promise data/examples/deadlines
    allocator configure data/examples/tuning tune --profile
    allocator fit data/examples/observations.csv
    allocator spot fit hazard data/examples/lifetimes.csv --ages 0,6
    allocator spot fit line data/examples/checkpoints.csv
    allocator spot fit startup data/examples/starts.csv
    allocator spot fit cap data/examples/speeds.csv

- `deadlines/`: a snapshot with five deadlines of which four can be kept.
- `tuning/`: a snapshot with one job, whose speeds are believed with an error of 20 % and measured \
nowhere.
- `observations.csv`: steps of two models on 1 to 8 GPUs with three batches, 3 % noise.
- `lifetimes.csv`: 200 spot servers, 0.2 revocations an hour, half as many after six hours, \
watched for a day.
- `checkpoints.csv`: seconds = 2 + MB / 50, 3 % noise.
- `starts.csv`: 20 starts: 40 s to boot, 25 s for the image, 10 s for the job, 3 % noise.
- `speeds.csv`: 1 to 8 workers of 5 steps a second, at most 28 together, 3 % noise.
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the arguments and write the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "data" / "examples")
    out = parser.parse_args(argv).out
    for name, text in files().items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text, encoding="utf-8")


def files() -> dict[str, str]:
    """Return the text of each file below data/examples, by name."""
    chance = random.Random(SEED)

    def noisy(value: float) -> str:
        return f"{value * math.exp(NOISE * chance.gauss(0, 1)):.5g}"

    observations = [
        (model, "A100", k, batch, noisy(batch / step(model, k, batch)))
        for model in STEPS
        for k in (1, 2, 4, 8)
        for batch in (64, 128, 256)
        if batch / k <= 128
    ]
    lifetimes = [lifetime(chance) for _ in range(200)]
    return {
        "README.md": README,
        "observations.csv": table("model,gpu_type,gpus,batch_size,work_per_s", observations),
        "lifetimes.csv": table("hours,revoked", lifetimes),
        "checkpoints.csv": table(
            "x,y", [(mb, noisy(2 + mb / 50)) for mb in (20, 50, 100, 200, 400, 800)]
        ),
        "starts.csv": table(
            "boot,image,job", [(noisy(40), noisy(25), noisy(10)) for _ in range(20)]
        ),
        "speeds.csv": table(
            "workers,work_per_s", [(n, noisy(min(5 * n, 28))) for n in range(1, 9)]
        ),
        **{f"tuning/{name}": text for name, text in TUNING.items()},
        **{f"deadlines/{name}": text for name, text in DEADLINES.items()},
    }


# seconds per sample, per GPU, per step
STEPS = {"bert": (0.004, 0.010, 0.05), "resnet": (0.002, 0.004, 0.03)}


def step(model: str, gpus: int, batch: int) -> float:
    """Return the seconds of a step."""
    compute, sync, constant = STEPS[model]
    return compute * batch / gpus + sync * gpus + constant


def lifetime(chance: random.Random) -> tuple[str, int]:
    """Return the hours of a spot server, and whether it was revoked within a day."""
    hours = chance.expovariate(0.2)
    if hours > 6:
        hours = 6 + chance.expovariate(0.1)
    return (f"{min(hours, 24.0):.3f}", int(hours < 24))


def table(head: str, rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV text."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([head.split(","), *rows])
    return out.getvalue()


TUNING = {
    "config.toml": "now_s = 0\ninterval_s = 300\n",
    "jobs.csv": (
        "job_id,model,submitted_s,remaining_work,min_gpus,max_gpus,memory_gb\n"
        "tune,bert,0,20000000,1,8,20\n"
    ),
    "pools.csv": "pool,gpu_type,gpus,price_per_gpu_hour\na100,A100,8,2\n",
    "rates.csv": "model,gpu_type,gpus,work_per_s,batch_size\n",
    "models.csv": (
        'model,gpu_type,kind,parameters\nbert,A100,goodput,"{""alpha_c"": 0.05, ""beta_c"": 0.004,'
        ' ""alpha_r"": 0.02, ""beta_r"": 0.005, ""alpha_n"": 0.05, ""beta_n"": 0.01, ""gamma"":'
        ' 2.0, ""noise_scale"": 400, ""batch_0"": 64, ""max_batch"": 1024, ""min_local"": 8,'
        ' ""max_local"": 128, ""gpus_per_node"": 8, ""min_gpus"": 1, ""max_gpus"": 8, ""error"":'
        ' 0.2}"\n'
    ),
}
DEADLINES = {
    "config.toml": "now_s = 0\ninterval_s = 300\n",
    "jobs.csv": (
        "job_id,model,submitted_s,remaining_work,min_gpus,max_gpus,deadline_s\n"
        "report,m,0,7200,1,1,10800\nnightly,m,0,28800,1,4,14400\nweekly,m,0,57600,1,4,43200\n"
        "demo-day,m,0,14400,1,2,14400\nmonster,m,0,400000,1,4,36000\nsomeday,m,0,50000,1,4,\n"
    ),
    "pools.csv": "pool,gpu_type,gpus,price_per_gpu_hour\na100,A100,8,2\n",
    "rates.csv": "model,gpu_type,gpus,work_per_s\nm,A100,1,1\nm,A100,2,1.9\nm,A100,4,3.6\n",
}

if __name__ == "__main__":
    main()
