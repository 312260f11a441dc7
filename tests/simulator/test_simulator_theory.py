"""The simulator against queueing theory: the exact recursion of a queue with several servers.

Rounds follow every arrival and completion, so that nothing waits for a tick.
"""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from worlds import workload

from allocator.domain.workload import Workload
from allocator.simulator import SimulationOptions, simulate

AT_ONCE = SimulationOptions(react_s=1e-9, prove_every=0)


def queue(jobs: int, rho: float, gpus: int) -> Workload:
    """Poisson arrivals at rate rho x gpus, exponential work of mean 1."""
    rng = np.random.default_rng(0)
    at, work = rng.exponential(1.0 / (rho * gpus), jobs).cumsum(), rng.exponential(1.0, jobs)
    return workload(
        [{"submitted_s": t, "total_work": x} for t, x in zip(at, work, strict=True)],
        gpus,
        config={"interval_s": 1e6, "restart_s": 0},
    )


@pytest.mark.parametrize("gpus", [pytest.param(1, marks=pytest.mark.nightly), 4])
def test_a_queue_is_the_recursion_of_its_servers(gpus: int) -> None:
    """FIFO: each of 120 jobs starts when it is submitted or a GPU is free, whichever is later."""
    w = queue(120, 0.8, gpus)
    s = simulate(w, policy="static", options=AT_ONCE)
    free, expected = [0.0] * gpus, []
    for t, x in zip(w.problem.jobs.submitted_s, w.problem.jobs.total_work, strict=True):
        expected.append(max(heapq.heappop(free), t) + x)
        heapq.heappush(free, expected[-1])
    assert s.jobs["finished_s"].to_numpy() == pytest.approx(np.array(expected), rel=1e-12)
