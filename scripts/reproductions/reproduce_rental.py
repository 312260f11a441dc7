"""Simulate the two-class example of the EPEW 2024 paper: renting GPUs on a budget.

    python scripts/reproductions/reproduce_rental.py [--arrivals 200000]
        [--laws exponential,deterministic,heavy-tailed] [--seed 1] [--budget 2] [--phases]
    python scripts/reproductions/reproduce_rental.py --live [--arrivals 4000] [--every-hours 4]
        [--seeds 1]

First form: policy `rental` decides at every arrival, at the mu of the budget in whole GPUs (1/9 at
2), and splits the class that the plan splits. The tables compare the mean
response time, and mean and standard deviation of the rented GPUs, with theory, with 95 % sampling
errors.

Second form, `--live`: the policy is given no price. It plans the widths again and again, from the
jobs that have arrived so far. This is done twice: with each class as jobs of its own, and with the
classes as the two phases of each job. The table compares with theory for the drawn arrivals and
work: at the given budget, and at the mean number of GPUs that was really rented. With --seeds N the
seeds are those from --seed on. Last, the true speed of every job differs from the one that is
known, by a factor whose logarithm has the standard deviation 0.3.

Standard output is Markdown.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))

from cases import rental as case  # noqa: E402

from allocator.bench.machine import machine  # noqa: E402
from allocator.cli.models.rent import read_classes  # noqa: E402
from allocator.domain.cluster import find_phases  # noqa: E402
from allocator.domain.workload import Workload  # noqa: E402
from allocator.market.rent import rent  # noqa: E402
from allocator.simulator import Simulation, SimulationOptions, simulate  # noqa: E402
from formulations.rental.widths import RentalPlan  # noqa: E402

EXAMPLE = ROOT / "data" / "rental" / "example.csv"
AT_ONCE = SimulationOptions(react_s=1e-6, prove_every=0)
BUDGET = 2.0
WRONG = 0.3  # standard deviation of log(true / known speed) of a job


def measured(done: Simulation) -> tuple[float, float, float]:
    """Return mean response time in hours, and mean and standard deviation of the GPUs held."""
    spans, begin = done.spans, float(done.jobs["submitted_s"].min())
    times = np.concatenate([spans["from_s"], spans["to_s"]]) - begin
    change = np.concatenate([spans["gpus"], -spans["gpus"]]).astype(np.float64)
    return (
        done.metrics["jct_s_mean"] / case.HOUR,
        done.metrics["mean_gpus"],
        case.sd_of_gpus(times, change, done.metrics["makespan_s"]),
    )


def sampling_errors(done: Simulation) -> tuple[float, float]:
    """Return half-widths of the 95 % intervals of mean response time and mean GPUs.

    No job waits, so jobs are independent. The error of the response time is sd / sqrt(n). Mean GPUs
    are the sum of GPU-hours over the hours, a ratio of means over arrivals (delta method).
    """
    jobs = done.jobs
    t, work = jobs["jct_s"].to_numpy(), jobs["gpu_hours"].to_numpy()
    gap = np.diff(jobs["submitted_s"].to_numpy(), prepend=0.0) / case.HOUR
    rest = work - work.mean() / gap.mean() * gap
    return tuple(
        1.96 * x.std(ddof=1) / np.sqrt(len(t)) / m for x, m in ((t, t.mean()), (rest, work.mean()))
    )


def as_drawn(work: Workload, plan: RentalPlan) -> tuple[float, float]:
    """Return mean response time in hours and GPU-hours of theory for the jobs that were drawn.

    Each runs alone at a width of its class from its arrival on; of a split class it is the mean. A
    job with phases has half of its work in each class.
    """
    jobs, has_phases = work.problem.jobs, len(find_phases(work.problem.models)) > 0
    by_class = [plan.by_class(plan.share * plan.time * x) for x in (1.0, plan.width)]
    time, gpu_hours = (
        np.full(len(jobs), each.mean()) if has_phases else each[jobs.model] for each in by_class
    )
    return float((jobs.total_work * time).mean()), float(jobs.total_work @ gpu_hours)


def own(arrivals: int, laws: list[str], seed: int, budget: float, has_phases: bool) -> None:
    """Compare policy rental with theory."""
    found = rent(read_classes(str(EXAMPLE)), budget, whole=True)
    best = found.plan
    print(
        "| sizes | arrivals | E[T], h | of theory | sampling error | mean K | of theory | sampling"
        " error | sd K | rounds | CPU s | of theory for the jobs as drawn: E[T] | GPU-hours |\n"
        f"|{'---|' * 13}\n| theory | | {best.response_h:.4f} | |"
        f" | {budget:.3f} | | | {best.sd_gpus:.2f} | | | | |",
        flush=True,
    )
    for law in laws:
        if has_phases:
            work = case.phased_workload(arrivals, law=law, seed=seed, dollar_price=best.mu)
        else:
            work = case.workload(arrivals, law=law, seed=seed, mu=best.mu)
        settings = {**work.problem.settings, "rental": {"wider_share": found.wider_share}}
        work = replace(work, problem=replace(work.problem, settings=settings))
        begin = time.process_time()
        done = simulate(work, policy="rental", options=AT_ONCE)
        spent = time.process_time() - begin
        (t, k, sd), (of_t, of_k), drawn = (
            measured(done),
            sampling_errors(done),
            as_drawn(work, best),
        )
        print(
            f"| {law} | {arrivals:,} | {t:.4f} | {t / best.response_h - 1:+.2%} | {of_t:.2%} |"
            f" {k:.3f} | {k / budget - 1:+.2%} | {of_k:.2%} | {sd:.2f} | {done.metrics['rounds']:,}"
            f" | {spent:.0f} | {t / drawn[0] - 1:+.3%} |"
            f" {done.jobs['gpu_hours'].sum() / drawn[1] - 1:+.3%} |",
            flush=True,
        )


def compare_live_plans(
    arrivals: int, law: str, seeds: list[int], budget: float, every_h: float
) -> None:
    """Compare policy rental, with plans from the jobs submitted so far, with theory."""
    print(
        "| jobs | speeds wrong by | seed | E[T], h | theory as drawn | of it | mean GPUs |"
        " of the budget |"
        f" theory at that mean | E[T] of it | plans | CPU s |\n|{'---|' * 12}",
        flush=True,
    )
    rental = {"average_per_hour": budget, "hours": 1e6, "every_s": every_h * case.HOUR}
    for phases, wrong in ((False, 0.0), (True, 0.0), (False, WRONG)):
        for seed in seeds:
            if phases:
                work = case.phased_workload(arrivals, law=law, seed=seed)
            else:
                work = case.workload(arrivals, law=law, seed=seed, mu=0.0)
            settings = {**work.problem.settings, "rental": rental}
            work = replace(work, problem=replace(work.problem, settings=settings))
            begin = time.process_time()
            options = replace(AT_ONCE, misjudged=wrong, seed=seed)
            done = simulate(work, policy="rental", options=options)
            spent = time.process_time() - begin
            t, k, _ = measured(done)
            drawn, rented = (theory_as_drawn(work, done, b) for b in (budget, k))
            plans = 1 + int((np.diff(done.rounds["dollar_price"]) != 0).sum())
            print(
                f"| {'two phases' if phases else 'two classes'} | {wrong:.0%} | {seed} | {t:.4f} |"
                f" {drawn:.4f} | {t / drawn - 1:+.2%} | {k:.3f} | {k / budget - 1:+.2%} |"
                f" {rented:.4f} | {t / rented - 1:+.2%} | {plans} | {spent:.0f} |",
                flush=True,
            )


def theory_as_drawn(work: Workload, done: Simulation, budget: float) -> float:
    """Return the least mean response time in hours of the jobs that were drawn, on the budget.

    The work of a job of a class is that of its true speed: hours on one GPU, from the time that it
    took at its width.
    """
    jobs, classes = work.problem.jobs, read_classes(str(EXAMPLE))
    hours = done.metrics["makespan_s"] / case.HOUR
    if len(find_phases(work.problem.models)):
        load = np.full(2, jobs.total_work.sum() / 2)
    else:
        took_h = done.jobs["jct_s"].to_numpy() / case.HOUR
        width = done.jobs["gpu_hours"].to_numpy() / took_h
        speed = np.where(jobs.model == 0, case.amdahl(width), np.sqrt(width))
        load = np.bincount(jobs.model, took_h * speed, minlength=2)
    one = replace(classes, arrivals_per_hour=np.ones(2), mean_work_gpu_hours=load / hours)
    return float(rent(one, budget, whole=True).plan.jobs.sum()) * hours / len(jobs)


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arrivals", type=int, help="default: 200,000; with --live 4,000")
    parser.add_argument("--laws", default=",".join(case.LAWS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=float, default=BUDGET, help="GPUs in the mean")
    parser.add_argument("--phases", action="store_true", help="the classes are phases of each job")
    parser.add_argument("--live", action="store_true", help="plan from the jobs submitted so far")
    parser.add_argument("--every-hours", type=float, default=4.0, help="of --live: between plans")
    parser.add_argument("--seeds", type=int, default=1, help="of --live, from --seed on")
    args = parser.parse_args()
    print(machine() + "\n")
    if args.live:
        compare_live_plans(
            args.arrivals or 4000,
            args.laws.split(",")[0],
            [args.seed + n for n in range(args.seeds)],
            args.budget,
            args.every_hours,
        )
    else:
        own(args.arrivals or 200_000, args.laws.split(","), args.seed, args.budget, args.phases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
