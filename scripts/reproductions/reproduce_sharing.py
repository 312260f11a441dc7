"""Simulate SJF without sharing, with sharing always (FFS) and with the pair rule (BSBF).

    # 10 seeds, 32 and 64 GPUs; five minutes
    python scripts/reproductions/reproduce_sharing.py

This is an independent reference on the workload of `sharing`, without rounds. It uses no policy and
no simulator of this project, except for the column `las`: preemptive least attained service in the
simulator with rounds of 150 s.

The rules are as published (Luo et al., IWQoS 2024). The shortest waiting job comes first. It gets
idle GPUs first. If they are too few, it gets GPUs of jobs that run alone, those with the least mean
completion time first. A GPU has at most two jobs. Jobs are never moved or paused. The slowest of
its colocations sets the speed of a job. Any two jobs fit into memory. "equal" is the rule with
colocations of jobs on as many GPUs only.
"""

import argparse
import platform
from collections.abc import Callable

import numpy as np

from allocator.bench.workloads.sharing import Asked, sharing
from allocator.domain.problem import Problem
from allocator.performance.interference import MeasuredSlowdowns
from allocator.performance.table import RateTable
from allocator.simulator.run import simulate
from formulations.colocation import timing as rule

# GPUs of A and B, a, b, xi_a, xi_b
AllowsColocation = Callable[[int, int, float, float, float, float], bool]


def by_rule(n_a: int, n_b: int, a: float, b: float, xi_a: float, xi_b: float) -> bool:
    return bool(rule.should_share(*map(np.asarray, (a, b, xi_a, xi_b))))


def equal(n_a: int, n_b: int, a: float, b: float, xi_a: float, xi_b: float) -> bool:
    return n_a == n_b and by_rule(n_a, n_b, a, b, xi_a, xi_b)


# Jobs share GPUs never, always, where the rule says so, and where it says so and both jobs have the
# same number of GPUs.
RULES: tuple[AllowsColocation, ...] = (lambda *_: False, lambda *_: True, by_rule, equal)


def mean_completion_shared(a: float, b: float, xi_a: float, xi_b: float) -> float:
    return float(rule.mean_completion_shared(*map(np.asarray, (a, b, xi_a, xi_b))))


def completion(p: Problem, allows_colocation: AllowsColocation) -> np.ndarray:
    """Return the seconds from submission to the end, shape (J,)."""
    jobs, J = p.jobs, len(p.jobs)
    size = jobs.requested_gpus
    kind = np.zeros(J, dtype=np.int64)
    alone, _ = RateTable.of(p).rate(jobs.model, kind, size)
    M = len(p.models)
    a, b = np.divmod(np.arange(M * M), M)
    slow = (
        MeasuredSlowdowns.of(p)
        .slowdown(a, b, np.zeros(M * M, np.int64), np.ones(M * M, np.int64))[0]
        .reshape(M, M)
    )
    left, end = jobs.remaining_work / alone, np.full(J, np.nan)
    holders: list[list[int]] = [[] for _ in range(int(p.pools.gpus[0]))]
    held: dict[int, list[int]] = {}
    speed: dict[int, float] = {}
    waiting: list[int] = []
    now, arrived = 0.0, 0
    while held or waiting or arrived < J:
        next_end = min((now + left[j] / speed[j] for j in held), default=np.inf)
        at = min(next_end, jobs.submitted_s[arrived] if arrived < J else np.inf)
        for j in held:
            left[j] -= (at - now) * speed[j]
        now = at
        for j in [j for j in held if left[j] <= 1e-6]:
            end[j] = now
            for g in held.pop(j):
                holders[g].remove(j)
        while arrived < J and jobs.submitted_s[arrived] <= now:
            waiting.append(arrived)
            arrived += 1
        for j in sorted(waiting, key=lambda j: left[j]):
            mine = [g for g, h in enumerate(holders) if not h][: size[j]]
            if len(mine) < size[j]:
                xi = {
                    i: (slow[jobs.model[j], jobs.model[i]], slow[jobs.model[i], jobs.model[j]])
                    for i in held
                }
                order = sorted(
                    (mean_completion_shared(left[j], left[i], *xi[i]), i)
                    for i in held
                    if allows_colocation(size[j], size[i], left[j], left[i], *xi[i])
                )
                mine += [g for _, i in order for g in held[i] if len(holders[g]) == 1][
                    : size[j] - len(mine)
                ]
            if len(mine) == size[j]:
                waiting.remove(j)
                held[j] = mine
                for g in mine:
                    holders[g].append(j)
        colocated = {j: {i for g in mine for i in holders[g]} - {j} for j, mine in held.items()}
        speed = {
            j: 1.0 / max((slow[jobs.model[j], jobs.model[i]] for i in others), default=1.0)
            for j, others in colocated.items()
        }
    return end - jobs.submitted_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    seeds, las = range(args.seeds), {}
    print(
        f"{platform.machine()}, Python {platform.python_version()}, seeds 0 to {args.seeds - 1},"
        " 240 jobs; mean completion in minutes\n\n| GPUs | load | slowdowns | SJF | FFS | BSBF |"
        " equal | las | BSBF <= SJF, <= FFS |\n" + "|---" * 9 + "|"
    )
    for gpus, load, slow in (
        (32, 1.0, (1.1, 2.5)),
        (32, 1.5, (1.1, 2.5)),
        (64, 1.0, (1.1, 2.5)),
        (64, 1.5, (1.1, 2.5)),
        (32, 1.5, (1.05, 1.5)),
    ):
        many = [
            sharing(Asked("sharing", s, load, 240, gpus), slowdown=slow).workload() for s in seeds
        ]
        r = np.array([[completion(w.problem, how).mean() / 60 for how in RULES] for w in many])
        if (gpus, load) not in las:
            las[gpus, load] = np.mean(
                [simulate(w, policy="las").metrics["jct_s_mean"] / 60 for w in many]
            )
        wins = [int((r[:, 2] <= r[:, i] * (1 + 1e-9)).sum()) for i in (0, 1)]
        print(
            f"| {gpus} | {load:g} | {slow[0]:g} to {slow[1]:g} |"
            f" {' | '.join(f'{x:.1f}' for x in r.mean(axis=0))} | {las[gpus, load]:.1f} |"
            f" {wins[0]}, {wins[1]} of {args.seeds} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
