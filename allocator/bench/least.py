"""The bound `least` of `bench policies`: no policy has a lower mean completion time."""

import numpy as np

from allocator.bench.sweep.tasks import LEAST
from allocator.domain.cluster import find_phases
from allocator.domain.problem import Floats, Isolation, Problem
from allocator.domain.workload import Workload
from allocator.errors import UsageError
from allocator.performance.lost_time import choose_modes
from allocator.performance.table import RateTable
from allocator.simulator.ground_truth import DRIFT, GroundTruth
from allocator.simulator.options import SimulationOptions
from formulations.bounds.completion_times import Demand, Speeds, least_total_completion
from formulations.model.linear import ragged
from formulations.step_means import bin_means

INTERVALS = 300


def least_mean_completion_s(workload: Workload, options: SimulationOptions) -> float:
    """Return a mean completion time, in seconds, that no policy can go below.

    It holds even for a policy that knows all sizes, speeds and arrivals. Rounds, pauses, failures,
    revocations and nodes are left out. Raises UsageError for a workload with a feature that the
    bound does not cover.

    Examples
    --------
    >>> import allocator
    >>> from allocator.simulator import SimulationOptions
    >>> demo = allocator.read_workload("data/workloads/demo")
    >>> least = least_mean_completion_s(demo, SimulationOptions())
    >>> 0.6 < least / allocator.simulate(demo, policy="mip").metrics["jct_s_mean"] < 1
    True
    """
    problem = workload.problem
    for name, is_there in (
        ("jobs that share GPUs", (problem.pools.sharing != Isolation.NONE).any()),
        ("phases of a training", len(find_phases(problem.models)) > 0),
        ("--noise", options.noise > 0),
    ):
        if is_there:
            raise UsageError(f"{LEAST} bounds no workload with {name}: leave it out of --policies")
    largest = max(problem.pools.gpus.max(), problem.nodes.gpus.sum(), *workload.changes.gpus)
    demands, crowded_s = _read_demands(problem, options, int(largest))
    arrival = problem.jobs.submitted_s
    end = arrival.max() + crowded_s + 1.0
    times = np.linspace(arrival.min(), end, INTERVALS + 1)
    return least_total_completion(demands, times, _mean_gpus(workload, times)) / len(arrival)


def _read_demands(
    problem: Problem, options: SimulationOptions, largest: int
) -> tuple[list[Demand], float]:
    """Return the jobs, grouped by their speeds, and for how long GPUs may be scarce at the end.

    These seconds count from the last arrival: as long as all jobs need on all GPUs, and then as
    long as the slowest one needs alone. No pool ever has more than `largest` GPUs.
    """
    jobs, P = problem.jobs, len(problem.pools)
    most = np.minimum(jobs.max_gpus, largest)
    job, gpus = ragged(jobs.min_gpus, np.maximum(most + 1, jobs.min_gpus))
    rates = np.zeros((len(jobs), P, int(most.max(initial=0)) + 1))
    truth = GroundTruth(problem, options, np.zeros(P))
    none, allowed = np.zeros(len(job), np.int64), problem.allowed_types[job]
    share = np.empty((len(jobs), P))
    for p in range(P):
        pool = np.full(len(job), p)
        rate, _ = RateTable.of(problem).rate_in_pools(
            problem.pools, jobs.model[job], pool, gpus, nodes=none
        )
        rate *= choose_modes(problem, job, pool, gpus).pace * truth.speed_error(job, pool, none)
        if options.speeds != "known":
            # at most, if growth is the usual one for jobs of the requested size (GroundTruth)
            ratio = gpus / jobs.requested_gpus[job]
            rate *= np.maximum(ratio, 1.0 / ratio) ** DRIFT
        may = allowed[:, problem.pools.gpu_type[p]]
        rates[job, p, gpus] = np.where(may & (rate > 0), rate, 0.0)
        share[:, p] = problem.gpu_share(np.arange(len(jobs)), np.full(len(jobs), p))
    if not rates.any(axis=(1, 2)).all():
        name = jobs.job_id[int(np.argmin(rates.any(axis=(1, 2))))]
        raise UsageError(f'{LEAST} bounds no workload with a job that nothing can run: "{name}"')
    keys = np.concatenate([rates.reshape(len(jobs), -1), share], axis=1)
    _, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    demands, least, slowest = [], 0.0, 0.0
    for c, j in enumerate(first.tolist()):
        pool, k = np.nonzero(rates[j])
        speeds = Speeds(pool, k * share[j, pool], rates[j, pool, k])
        alike = which.ravel() == c
        demands.append(Demand(speeds, jobs.submitted_s[alike], jobs.total_work[alike]))
        least += float((speeds.gpus / speeds.rate).min() * demands[-1].work.sum())
        slowest = max(slowest, float(demands[-1].work.max() / speeds.rate.max()))
    return demands, least / max(1.0, problem.pools.gpus.sum()) + slowest


def _mean_gpus(workload: Workload, times: Floats) -> Floats:
    """Return the mean number of GPUs of each pool in each interval, (P, T).

    A pool with nodes counts with all of them, also while some are down.
    """
    problem, changes = workload.problem, workload.changes
    out = np.empty((len(problem.pools), len(times) - 1))
    on_nodes = np.bincount(problem.nodes.pool, problem.nodes.gpus, len(problem.pools))
    for p, gpus in enumerate(problem.pools.gpus.tolist()):
        of_pool = (changes.pool == p) & (changes.gpus >= 0) & (not problem.has_nodes[p])
        at = np.append(times[0], np.maximum(changes.at_s[of_pool], times[0]))
        size = np.append(max(gpus, on_nodes[p]), changes.gpus[of_pool])
        out[p] = bin_means(at, np.diff(size, prepend=0), times)
    return out
