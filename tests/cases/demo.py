"""The demo snapshot: twelve jobs made by hand, with an optimum that can be computed on paper.

Numbers are round on purpose: a start loses 60 of 360 seconds, a change loses 120, and speeds are
whole multiples. The README.md of the folder explains the jobs. tests/bench/test_shipped_data.py
checks its statements.
"""

from __future__ import annotations

from typing import Any

from cases.folders import Folder

SPEED = {  # steps per second on 1, 2, 4, 8 V100; an A100 is `factor` times as fast
    "resnet50": ((1, 2, 4, 8), 2),
    "bert": ((1, 1.8, 3, 4.8), 3),
    "gnmt": ((1, 1.5, 2, 2.5), 2),
}
RUNNING = {"pretrain": ("a100", 4), "nightly": ("v100", 2), "finetune": ("v100", 2)}
JOBS = (  # job, model, steps left, asked for, at most, only on, weight; in order of submission
    ("pretrain", "bert", 324_000, 4, 8, "A100", 1),
    ("nightly", "gnmt", 3_600, 2, 4, None, 1),
    ("finetune", "bert", 1_296, 2, 4, None, 1),
    ("sweep-a", "resnet50", 600, 1, 2, None, 1),
    ("sweep-b", "resnet50", 600, 1, 2, None, 1),
    ("urgent", "bert", 2_250, 1, 4, None, 2),
    ("segment", "resnet50", 4_800, 4, 8, None, 1),
    ("sweep-c", "resnet50", 600, 1, 2, None, 1),
    ("detect", "resnet50", 2_000, 2, 4, None, 1),
    ("rank", "gnmt", 1_500, 2, 4, None, 1),
    ("llm-eval", "bert", 1_620, 2, 4, "A100", 1),
    ("llm-tune", "bert", 3_600, 2, 4, "A100", 1),
)

README = """\
# Twelve jobs, sixteen GPUs, 18 dollars per hour

Eight A100 at $2.00 and eight V100 at $0.50 per GPU-hour; all of them would cost $20 per hour, the
budget is $18. A round lasts 360 s. A job that starts loses 60 s (300 s are left), a running job
that changes loses 120 s (240 s are left), a running job that stays loses nothing. The value of a
job is the share of its remaining steps that the round completes, at most 1; `urgent` counts double.

## What greedy does: 3.71

It serves jobs in order of submission, at the size they asked for, on the fastest GPUs that are
free.

| job | gets | value | |
|---|---|---|---|
| pretrain | 4 A100 (keeps) | 0.01 | 3,240 of 324,000 steps, for $8 of the $18 |
| nightly | 2 V100 (keeps) | 0.15 | |
| finetune | 2 V100 (keeps) | 0.50 | |
| sweep-a, sweep-b | 1 A100 each | 1 + 1 | as good on 2 V100, at half the price |
| urgent | 1 A100 | 0.80 | |
| segment | 4 V100 | 0.25 | large, long, and the last V100s are its |
| all others | nothing | 0 | the budget is spent, the V100s are taken |

## What the optimum does: 7.14

| job | gets | value | why |
|---|---|---|---|
| sweep-a, sweep-b, sweep-c | 2 V100 each | 1 + 1 + 1 | 300 s x 2 steps/s = 600 steps: done this \
round |
| detect | 2 V100 | 0.30 | 300 x 2 / 2,000 |
| finetune | moves to 2 A100 | 1 | 240 s x 5.4 = 1,296 steps: done, in spite of the pause; staying \
has 0.50 |
| urgent | 2 A100 | 1.44 | 2 x 300 x 5.4 / 2,250 |
| llm-eval | 2 A100 | 1 | 300 x 5.4 = 1,620 steps: done |
| rank | 1 A100 | 0.40 | 300 x 2 / 1,500 |
| pretrain, nightly | paused | 0 | 0.01 and 0.15: others make more of these GPUs |
| segment, llm-tune | wait | 0 | |

8 V100 for $4 and 7 A100 for $14: exactly $18. One A100 stays idle, because nobody may pay for it.

## Why nothing can be better

Put a price on what is scarce: 0.16 for a dollar per hour of the budget and 0.07 for a V100 (A100s
are not scarce: one is idle). Then an A100 costs 2.00 x 0.16 = 0.32 and a V100 costs 0.50 x 0.16 +
0.07 = 0.15. Let every job pick what leaves it the largest surplus of value over cost:

| job | best pick | surplus |
|---|---|---|
| sweep-a, sweep-b, sweep-c | 2 V100 | 1 - 0.30 = 0.70 each (1 A100: 0.68) |
| finetune | 2 A100 | 1 - 0.64 = 0.36 (staying: 0.50 - 0.30 = 0.20) |
| urgent | 2 A100 | 1.44 - 0.64 = 0.80 (1 A100: 0.48, 4 A100: 0.72) |
| llm-eval | 2 A100 | 1 - 0.64 = 0.36 |
| rank | 1 A100 | 0.40 - 0.32 = 0.08 (1 V100: 0.05) |
| detect | 1, 2 or 4 V100, or nothing | 0.15 k - 0.15 k = 0 |
| pretrain, nightly, segment, llm-tune | nothing | 0 (llm-tune on 1 A100: 0.25 - 0.32 < 0) |

No plan can have more than all surpluses plus the price of everything there is to hand out:

    3 x 0.70 + 0.36 + 0.80 + 0.36 + 0.08  +  0.16 x 18 (budget)  +  0.07 x 8 (V100)  =  7.14

That is the value of the plan, so it is optimal. `allocator solve` reports such a proof with every
plan: `bound`, `gap`, and the prices as `marginal_value`. (Any price of the dollar from 0.15 to
0.175 proves the same.)
"""


def demo() -> Folder:
    """Return the snapshot `demo`, which is the same every time."""
    pools = [
        {
            "pool": "a100",
            "gpu_type": "A100",
            "gpus": 8,
            "market": "on_demand",
            "price_per_gpu_hour": 2.0,
            "startup_s": 60,
        },
        {
            "pool": "v100",
            "gpu_type": "V100",
            "gpus": 8,
            "market": "reserved",
            "price_per_gpu_hour": 0.5,
            "startup_s": 60,
        },
    ]
    rates = [
        {"model": m, "gpu_type": t, "gpus": k, "work_per_s": round(s * f, 1)}
        for m, (speeds, factor) in SPEED.items()
        for t, f in (("A100", factor), ("V100", 1))
        for k, s in zip((1, 2, 4, 8), speeds, strict=True)
    ]
    config = {"now_s": 36_000, "interval_s": 360, "restart_s": 60, "budget_per_hour": 18}
    tables = {
        "jobs.csv": [_job(i, *job) for i, job in enumerate(JOBS)],
        "pools.csv": pools,
        "rates.csv": rates,
    }
    return Folder("demo", config, tables, {"README.md": README.encode()})


def _job(
    rank: int,
    name: str,
    model: str,
    steps: int,
    asked: int,
    most: int,
    only: str | None,
    weight: int,
) -> dict[str, Any]:
    pool, gpus = RUNNING.get(name, (None, None))
    return {
        "job_id": name,
        "model": model,
        "submitted_s": 1_800 * (rank + 1),
        "remaining_work": steps,
        "state": "running" if pool else "queued",
        "pool": pool,
        "gpus": gpus,
        "min_gpus": 1,
        "max_gpus": most,
        "requested_gpus": asked,
        "gpu_types": only,
        "weight": weight,
    }
