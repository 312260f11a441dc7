"""Measure whether exploring pays for jobs of models that were measured on one GPU only.

    python scripts/studies/speeds/measure_exploring.py [--seeds 8] [--jobs 100] \\
        [--objective completion]

Exploring is set by [profiling] of config.toml. The true speed of a model on k GPUs is rate_1 k / (1
+ c (k - 1)), with c drawn from a wide range. At first the c of similar models is believed (the
usual 0.05, or 0.5, which is too slow for most), with the error of a fit to one size. A size that
ran for a round is measured (3 % noise), and the curve is fitted again to all measured sizes. The
script prints the machine, the seeds and the table of docs/speed-models.md.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace

import numpy as np

from allocator.bench.machine import machine
from allocator.domain.problem import Curves, Floats, Ints, Problem, Rates, State
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot, Table
from allocator.domain.workload import Changes, Workload
from allocator.engine.decision import Decision, decide_round
from allocator.loop.rounds import run_rounds
from allocator.performance.fit.choose import extend_range, fit
from allocator.performance.fit.observations import Observations
from allocator.performance.table import RateTable
from allocator.simulator import SimulationOptions
from allocator.simulator.run import initial_state
from allocator.solvers.base import SolveLimits

SIZES = (1, 2, 4, 8, 16)
MODELS, GPUS, NOISE = 24, 32, 0.03
WORST = 1.5  # c is drawn from 0.005 to this, evenly in its logarithm


def workload(seed: int, jobs: int, load: float, objective: str) -> Workload:
    """Return a workload of MODELS models on one pool.

    The median work is 40 minutes on one GPU, and all models are equally frequent.
    """
    rng = np.random.default_rng(seed)
    c = np.exp(rng.uniform(np.log(0.005), np.log(WORST), MODELS))
    hours = np.exp(rng.normal(np.log(2.0), 1.0, jobs))
    submitted = np.sort(rng.uniform(0, hours.sum() / (load * GPUS) * 3600.0, jobs))
    model = rng.integers(MODELS, size=jobs)
    work = [f"{h * 3600:.6g}" for h in hours]
    tables = {
        "jobs.csv": {
            "job_id": [f"j{i}" for i in range(jobs)],
            "model": [f"m{m}" for m in model],
            "submitted_s": [f"{s:.3f}" for s in submitted],
            "remaining_work": work,
            "total_work": work,
            "max_gpus": ["16"] * jobs,
        },
        "pools.csv": {"pool": ["p"], "gpu_type": ["A"], "gpus": [str(GPUS)], "startup_s": ["20"]},
        "rates.csv": {
            "model": [f"m{m}" for m in range(MODELS) for _ in SIZES],
            "gpu_type": ["A"] * MODELS * len(SIZES),
            "gpus": [str(k) for _ in range(MODELS) for k in SIZES],
            "work_per_s": [
                repr(float(k / (1 + c[m] * (k - 1)))) for m in range(MODELS) for k in SIZES
            ],
        },
    }
    made = {
        name: Table(name, columns, range(2, len(next(iter(columns.values()))) + 2))
        for name, columns in tables.items()
    }
    problem = validate(
        Snapshot("exploring", {"interval_s": 300, "now_s": 0, "objective": objective}, made)
    )
    none = np.zeros(0)
    return Workload(
        replace(problem, now_s=float(submitted[0])),
        Changes(none, none.astype(np.int64), none, none.astype(np.int64)),
    )


@dataclass
class Beliefs:
    """What is known of the speeds of a true problem; seen: (model, GPUs) -> measured speed."""

    truth: Problem
    rng: np.random.Generator
    c: float
    seen: dict[tuple[int, int], float] = field(default_factory=dict)
    rates: Rates | None = None
    curves: Curves | None = None

    def __post_init__(self) -> None:
        self.look(np.arange(MODELS), np.ones(MODELS, dtype=np.int64))

    def look(self, model: Ints, gpus: Ints) -> None:
        """Measure these sizes, which were running."""
        rate, _ = RateTable.of(self.truth).rate(model, np.zeros_like(model), gpus)
        new = {
            (m, k): r
            for m, k, r in zip(model.tolist(), gpus.tolist(), rate.tolist(), strict=True)
            if (m, k) not in self.seen
        }
        if not new:
            return
        self.seen |= {
            key: r * float(np.exp(self.rng.normal(0, NOISE))) for key, r in sorted(new.items())
        }
        keys = sorted(self.seen)
        one, size = (np.array(v, dtype=np.int64) for v in zip(*keys, strict=True))
        speed = np.array([self.seen[key] for key in keys])
        none, nan = np.full(len(keys), -1), np.full(len(keys), np.nan)
        self.rates = Rates(
            one,
            np.zeros_like(one),
            size,
            speed,
            none,
            none,
            nan,
            none,
            ("",) * len(keys),
            nan,
            nan,
            nan,
            nan,
            np.ones(len(keys), dtype=bool),
            np.zeros_like(one),
        )
        found = [
            extend_range(f, SIZES[-1])
            for f in fit(
                Observations.of([str(m) for m in one.tolist()], ["A"] * len(keys), size, speed),
                ("overhead", "iteration"),
            )
        ]
        found = [
            (
                f
                if len(f.sizes) > 1
                else replace(
                    f,
                    kind="overhead",
                    parameters={
                        "rate_1": self.seen[int(f.model), 1],
                        "c": self.c,
                        "min_gpus": 1.0,
                        "error": f.rms,
                    },
                )
            )
            for f in found
        ]
        self.curves = Curves(
            np.array([int(f.model) for f in found]),
            np.zeros(len(found), dtype=np.int64),
            tuple(f.kind for f in found),
            tuple(f.parameters | {"max_gpus": float(SIZES[-1])} for f in found),
        )

    def problem(self, problem: Problem, share: float) -> Problem:
        """Return the round as it is believed to be."""
        assert self.rates is not None and self.curves is not None
        return replace(
            problem,
            rates=self.rates,
            curves=self.curves,
            settings={**problem.settings, "profiling": {"share": share}},
        )


def run(world: Workload, seed: int, c: float, share: float | None) -> Floats:
    """Return (mean completion in hours, sizes measured) of one simulation.

    `share` None: all speeds are known.
    """
    state = initial_state(world, "mip", SimulationOptions(gap=1e-3))
    beliefs = Beliefs(world.problem, np.random.default_rng(seed), c)

    def decide(problem: Problem) -> Decision:
        if share is None:
            return decide_round(
                problem, policy="mip", solver="auto", limits=SolveLimits(np.inf, 1e-3, 1, 0)
            )
        runs = problem.jobs.state == State.RUNNING
        beliefs.look(problem.jobs.model[runs], problem.jobs.gpus[runs])
        return decide_round(
            beliefs.problem(problem, share),
            policy="mip",
            solver="auto",
            limits=SolveLimits(np.inf, 1e-3, 1, 0),
        )

    for _ in run_rounds(state.cluster, decide, 0):
        pass
    w = state.cluster.world
    return np.array(
        [(w.finished_s - world.problem.jobs.submitted_s).mean() / 3600.0, len(beliefs.seen)]
    )


def main() -> None:
    """Simulate and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=8, help="seeds 0 .. N-1 (default: 8)")
    parser.add_argument("--jobs", type=int, default=100, help="jobs (default: 100)")
    parser.add_argument(
        "--objective", default="completion", help="objective of the rounds (default: completion)"
    )
    parser.add_argument(
        "--believed", type=float, nargs="+", default=[0.05, 0.5], help="c (default: 0.05 0.5)"
    )
    parser.add_argument(
        "--loads", type=float, nargs="+", default=[0.5, 0.9], help="load (default: 0.5 0.9)"
    )
    args = parser.parse_args()
    print(
        f"Machine: {machine()}. Seeds 0 to {args.seeds - 1}; {args.jobs} jobs of {MODELS} models on"
        f" {GPUS} GPUs, objective {args.objective}.\n"
    )
    print(
        "| believed c | load | all known: completion | "
        + " | ".join("nothing explored" if s == 0 else f"share {s:g}" for s in SHARES)
        + " |\n|"
        + "---|" * (len(SHARES) + 3)
    )
    for c in args.believed:
        for load in args.loads:
            print(
                f"| {c} | {load} | {_line(c, load, args.seeds, args.jobs, args.objective)} |",
                flush=True,
            )


def _line(c: float, load: float, seeds: int, jobs: int, objective: str) -> str:
    ratio = []
    for seed in range(seeds):
        world = workload(seed, jobs, load, objective)
        known = run(world, seed, c, None)[0]
        ratio.append(
            [
                known,
                *(
                    v
                    for share in SHARES
                    for v in run(world, seed, c, share) / np.array([known, 1.0])
                ),
            ]
        )
    a = np.array(ratio)
    error = a.std(axis=0, ddof=1) / np.sqrt(len(a))
    return f"{a[:, 0].mean():.2f} h | " + " | ".join(
        f"{100 * (a[:, i].mean() - 1):+.1f} % +- {100 * error[i]:.1f}, {a[:, i + 1].mean():.0f}"
        " sizes"
        for i in range(1, a.shape[1], 2)
    )


SHARES = (0.0, 0.1, 0.25)

if __name__ == "__main__":
    main()
