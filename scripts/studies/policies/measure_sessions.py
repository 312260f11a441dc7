"""Compare sessions that hold their GPUs only while a cell runs with sessions that keep them.

    python scripts/studies/policies/measure_sessions.py --seeds 1

Each workload has 24 sessions that begin within 4 hours and 60 batch jobs, on 40 GPUs. A session has
12 cells of 1 to 4 GPUs; it thinks for 5 min in the mean before each, and a cell runs for 90 s in
the mean, both log-normal. Its state of 4 to 16 GB is loaded before a cell and saved after it, at 2
GB/s. The same sessions are one job each that keeps its GPUs from the first cell to the last, or a
chain of cells. Headroom is that of interactive.csv for 5 % late ones. Policy `mip`, which also
decides when a job comes or ends.

The columns, as means over seeds: GPU-hours that sessions hold; GPU-hours of their cells without the
state; mean wait and worst wait in twenty for GPUs, of a cell or a whole session; share that waits
for longer than a round; mean completion of the batch jobs; and utilisation.
"""

from __future__ import annotations

import argparse
import platform
import time

import numpy as np

from allocator.bench.workloads.parts.tables import GeneratedWorkload
from allocator.simulator.options import SimulationOptions
from allocator.simulator.run import simulate

SESSIONS, CELLS, BATCH, GPUS = 24, 12, 60, 40
HOURS = 4.0
THINK_S, RUN_S, STATE_GB_S = 300.0, 90.0, 2.0
ROUND_S = 60.0


def draw(seed: int, by_cell: bool) -> GeneratedWorkload:
    """Draw the workload: its sessions hold GPUs only while a cell runs, or from begin to end."""
    luck = np.random.default_rng(seed)

    def lengths(mean: float, sigma: float) -> np.ndarray:
        return np.round(mean * luck.lognormal(-(sigma**2) / 2, sigma, (SESSIONS, CELLS))) + 1

    think, run = lengths(THINK_S, 1.0), lengths(RUN_S, 1.0)
    gpus = luck.choice([1, 2, 4], SESSIONS, p=[0.6, 0.3, 0.1])
    state_gb = luck.choice([4.0, 8.0, 16.0], SESSIONS)
    begin = np.round(luck.uniform(0, HOURS * 3600, SESSIONS))
    think[:, 0] = 0.0
    texts = [
        "|".join(f"{a:g}:{b:g}" for a, b in zip(*one, strict=True))
        for one in zip(think, run, strict=True)
    ]
    whole = run.sum(axis=1)
    kept = (think + run).sum(axis=1)
    per_hour = SESSIONS / HOURS * (CELLS if by_cell else 1)
    held = (run + 2 * state_gb[:, None] / STATE_GB_S).mean() if by_cell else kept.mean()
    batch_work = np.round(3600 * luck.lognormal(0.0, 0.8, BATCH))
    columns = {
        "job_id": [f"s{i}" for i in range(SESSIONS)] + [f"b{i}" for i in range(BATCH)],
        "submitted_s": [*begin, *np.sort(np.round(luck.uniform(0, HOURS * 3600, BATCH)))],
        "model": ["notebook"] * SESSIONS + ["train"] * BATCH,
        "total_work": [*(whole if by_cell else kept), *batch_work],
        "requested_gpus": [*gpus, *([2] * BATCH)],
        "min_gpus": [*gpus, *([1] * BATCH)],
        "max_gpus": [*gpus, *([8] * BATCH)],
        "interactive": ["true"] * SESSIONS + ["false"] * BATCH,
        "preemptible": ["false"] * SESSIONS + ["true"] * BATCH,
        "shrinkable": ["false"] * SESSIONS + ["true"] * BATCH,
        "restart_s": [0] * SESSIONS + [30] * BATCH,
        "cells": [*(texts if by_cell else [None] * SESSIONS), *([None] * BATCH)],
        "state_gb": [*(state_gb if by_cell else [None] * SESSIONS), *([None] * BATCH)],
        "state_gb_s": [*([STATE_GB_S] * SESSIONS), *([None] * BATCH)],
    }
    sizes = [1, 2, 4, 8]
    return GeneratedWorkload(
        "sessions",
        {"interval_s": ROUND_S},
        {
            "workload.csv": columns,
            "pools.csv": {"pool": ["p"], "gpu_type": ["A"], "gpus": [GPUS]},
            "rates.csv": {
                "model": ["notebook"] * 3 + ["train"] * 4,
                "gpu_type": ["A"] * 7,
                "gpus": [1, 2, 4, *sizes],
                "work_per_s": [1.0, 1.0, 1.0, *(k / (1 + 0.05 * (k - 1)) for k in sizes)],
            },
            "interactive.csv": {
                "pool": ["p"],
                "sessions_per_hour": [per_hour],
                "session_s": [held],
                "session_gpus": [2],
                "late_share": [0.05],
                "shrinkable_share": [1.0],
            },
        },
    )


def measured(seed: int, by_cell: bool) -> list[float]:
    """Return the numbers of one simulation, one per column."""
    work = draw(seed, by_cell).workload()
    done = simulate(work, policy="mip", options=SimulationOptions(react_s=1.0, prove_every=0))
    jobs = {name: done.jobs[name].tolist() for name in done.jobs.columns}
    is_session = np.array([name.startswith("s") for name in jobs["job_id"]])
    finished = dict(zip(jobs["job_id"], jobs["finished_s"], strict=True))
    asked_s = []
    for name, submitted_s in zip(jobs["job_id"], jobs["submitted_s"], strict=True):
        session, _, number = name.partition("@")
        before = session if number == "2" else f"{session}@{int(number or 0) - 1}"
        asked_s.append(max(submitted_s, finished[before]) if number else submitted_s)
    wait = (np.array(jobs["started_s"]) - np.array(asked_s))[is_session]
    took = np.array(jobs["finished_s"]) - np.array(jobs["submitted_s"])
    held = float(np.array(jobs["gpu_hours"])[is_session].sum())
    drawn = draw(seed, by_cell=True).tables["workload.csv"]
    cell_s, gpus = (np.array(drawn[name][:SESSIONS]) for name in ("total_work", "requested_gpus"))
    return [
        held,
        float(cell_s @ gpus) / 3600,
        float(wait.mean()),
        float(np.quantile(wait, 0.95)),
        float((wait > ROUND_S + 1e-6).mean()),
        float(took[~is_session].mean()) / 60.0,
        float(done.metrics["utilisation"]),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}; {args.seeds} seeds from 0\n")
    print(
        "| sessions | GPU-hours held | of cells alone | mean wait, s | worst 5 %, s | late |"
        " batch completion, min | utilisation | CPU s |"
    )
    print(f"|{'---|' * 9}")
    for by_cell in (False, True):
        begun = time.process_time()
        rows = np.array([measured(seed, by_cell) for seed in range(args.seeds)])
        held, cells, wait, worst, late, batch, used = rows.mean(axis=0).tolist()
        print(
            f"| {'hold GPUs while a cell runs' if by_cell else 'keep their GPUs'} | {held:.1f} |"
            f" {cells:.1f} | {wait:.1f} | {worst:.0f} | {late:.1%} | {batch:.1f} | {used:.1%} |"
            f" {time.process_time() - begun:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
