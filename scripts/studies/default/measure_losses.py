"""What losses say of the work of jobs, and what that brings: tables for docs/losses.md.

    python scripts/studies/default/measure_losses.py errors --jobs 400
    python scripts/studies/default/measure_losses.py completion --seeds 5

`errors` draws curves as a simulation does (allocator/simulator/loss_beliefs.py), of the law that
the fit knows and of two others, with REPORTS losses over the whole work, and asks at a share of the
work how much there is in all. `completion` compares the mean completion time of the default policy
with unknown sizes, with sizes by losses, and with known sizes, over the same jobs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np

from allocator.bench.machine import machine
from allocator.bench.workloads import generate
from allocator.domain.problem import Floats
from allocator.performance.fit.loss_curves import LossCurve, expect_work
from allocator.simulator import SimulationOptions, loss_beliefs, simulate

REPORTS = 60
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
NOISES = (0.0, 0.01, 0.02, 0.05)
COVERED = 1.645  # standard deviations on each side of a range of 90 %
Law = Callable[[Floats, Floats], Floats]  # of share done and c: falling, 1 at the end
LAWS: dict[str, Law] = {
    "1 / k": lambda share, c: (1.0 + c) / (share + c),
    "1 / sqrt(k)": lambda share, c: ((1.0 + c) / (share + c)) ** 0.5,
    "exponential": lambda share, c: np.exp((1.0 - share) * (1.0 + 3.0 * c)),
}
PLACES = (("reproduction", 0.36, 250), ("mixed", 1.3, 150), ("bursty", 1.4, 200))
WORLDS: dict[str, tuple[str, float | None, float]] = {  # sizes, noise of losses, power of their law
    "unknown": ("unknown", None, 1.0),
    "losses, noise 1 %": ("unknown", 0.01, 1.0),
    "losses, noise 5 %": ("unknown", 0.05, 1.0),
    "losses of 1 / sqrt(k), noise 1 %": ("unknown", 0.01, 0.5),
    "known": ("known", None, 1.0),
}


def measure_errors(law: Law, noise: float, share: float, jobs: int) -> str:
    """Return a row: jobs of which losses say something, and how wrong that is."""
    luck = np.random.default_rng(1)
    least, most = np.log(loss_beliefs.LEAST_C), np.log(loss_beliefs.MOST_C)
    c = np.exp(luck.uniform(least, most, jobs))[:, None]
    floor = luck.uniform(loss_beliefs.LEAST_FLOOR, loss_beliefs.MOST_FLOOR, jobs)[:, None]
    done = np.arange(1, REPORTS + 1) / REPORTS
    exact = (1.0 - floor) * law(done[None, :], c) + floor
    seen = exact * np.exp(noise * luck.standard_normal(exact.shape))
    number = round(share * REPORTS)
    curves = []
    for losses in seen[:, :number].tolist():
        curve = LossCurve()
        for k, loss in zip(done.tolist(), losses, strict=False):
            curve = curve.add(k, loss)
        curves.append(curve)
    work, error = expect_work(curves, np.ones(jobs))
    says = np.isfinite(work)
    if not says.any():
        return "| 0 % | - | - | - | - |"
    whole = np.abs(work[says] - 1.0)
    left = (work[says] - done[number - 1]) / (1.0 - done[number - 1])
    inside = np.abs(np.log(left)) <= COVERED * error[says]
    return (
        f"| {says.mean():.0%} | {np.median(whole):.1%} | {whole.mean():.1%} |"
        f" {np.median(np.abs(left - 1.0)):.0%} | {inside.mean():.0%} |"
    )


def tell_errors(jobs: int) -> None:
    head = "law of the losses | noise | work done | jobs with an estimate"
    more = "error of the whole work: median | mean | of what is left: median | in the range of 90 %"
    print(f"| {head} | {more} |")
    print("|---" * 8 + "|")
    for name, noise, share in product(LAWS, NOISES, SHARES):
        row = measure_errors(LAWS[name], noise, share, jobs)
        print(f"| {name} | {noise:.0%} | {share:.0%} {row}", flush=True)


def run(place: tuple[str, float, int], world: str, seed: int) -> tuple[float, float, float]:
    """Return mean and p99 of the completion time in minutes, and restarts a job."""
    family, load, jobs = place
    sizes, noise, loss_beliefs.POWER = WORLDS[world]
    told = simulate(
        generate(family, seed=seed, load=load, jobs=jobs).workload(),
        policy="mip",
        options=SimulationOptions(seed=seed, prove_every=0, sizes=sizes, loss_noise=noise),
    ).metrics
    return told["jct_s_mean"] / 60, told["jct_s_p99"] / 60, told["restarts"] / jobs


def tell_completion(workload: str | None, first: int, seeds: int, workers: int) -> None:
    head = "workload, load | sizes | mean, min | change, % | by seed | p99, min | restarts a job"
    print(f"| {head} |")
    print("|---" * 7 + "|")
    for place in (one for one in PLACES if workload in (None, one[0])):
        base = np.zeros(0)
        for world in WORLDS:
            cases = [(place, world, first + seed) for seed in range(seeds)]
            with ProcessPoolExecutor(workers) as pool:
                rows = list(pool.map(run, *zip(*cases, strict=True)))
            mean, p99, restarts = np.array(rows).T
            base = mean if world == "unknown" else base
            change = 100 * (mean / base - 1)
            print(
                f"| {place[0]}, {place[1]:g} | {world} | {mean.mean():.1f} |"
                f" {100 * (mean.mean() / np.mean(base) - 1):+.1f} |"
                f" {change.min():+.1f} to {change.max():+.1f} | {p99.mean():.0f} |"
                f" {restarts.mean():.2f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("errors", "completion"))
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--workload", choices=[place[0] for place in PLACES], help="only this one")
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    print(machine())
    if args.what == "errors":
        tell_errors(args.jobs)
    else:
        tell_completion(args.workload, args.first, args.seeds, args.workers)


if __name__ == "__main__":
    main()
