"""srtf and las through a whole queue: one GPU, every completion against stepping the discipline
from event to event.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from worlds import workload

from allocator.domain.workload import Workload
from allocator.policies.rules.las import THRESHOLDS_GPU_S
from allocator.simulator import SimulationOptions, simulate

# a round after every arrival and completion, and no others
AT_ONCE = SimulationOptions(react_s=1e-9, prove_every=0)
# (job, seconds left, seconds had) -> least is served
Key = Callable[[int, float, float], tuple[float, ...]]


def queue(jobs: int, rho: float, mean_s: float) -> Workload:
    """Poisson arrivals, exponential service of mean `mean_s` on the only GPU, utilisation rho."""
    rng = np.random.default_rng(5)
    at, work = np.cumsum(rng.exponential(mean_s / rho, jobs)), rng.exponential(mean_s, jobs)
    rows = [
        {"submitted_s": float(t), "total_work": float(x), "max_gpus": 1}
        for t, x in zip(at, work, strict=True)
    ]
    return workload(
        rows,
        pools=[{"pool": "p", "gpus": 1}],
        rates={1: 1.0},
        config={"interval_s": 1e9, "restart_s": 0},
    )


def stepped(w: Workload, key: Key) -> list[float]:
    """Completion times: at every event the job of the least key takes the GPU until the next
    event.
    """
    at, work = w.problem.jobs.submitted_s.tolist(), w.problem.jobs.total_work.tolist()
    had, done, present, t, n = [0.0] * len(at), [0.0] * len(at), set[int](), 0.0, 0
    while n < len(at) or present:
        if not present:
            t = at[n]
        while n < len(at) and at[n] <= t:
            present.add(n)
            n += 1
        j = min(present, key=lambda j: key(j, work[j] - had[j], had[j]))
        end = t + work[j] - had[j]
        if n < len(at) and at[n] < end:
            had[j] += at[n] - t
            t = at[n]
        else:
            t = done[j] = end
            present.remove(j)
    return done


def finished(w: Workload, policy: str) -> np.ndarray:
    return np.asarray(simulate(w, policy=policy, options=AT_ONCE).jobs["finished_s"])


def test_srtf_is_srpt() -> None:
    """Each of 200 jobs at utilisation 0.8 ends when shortest remaining processing time says."""
    w = queue(200, 0.8, 1.0)
    srpt = stepped(w, lambda j, left, had: (left, j))
    assert finished(w, "srtf") == pytest.approx(np.array(srpt), rel=1e-9)


def test_las_is_two_queues() -> None:
    """Services of 5,000 s on average, threshold 3,600: each of 200 jobs ends when two queues,
    looked at on each arrival and completion, first started first served inside each, say."""
    w = queue(200, 0.8, 5_000.0)
    two = stepped(w, lambda j, left, had: (had >= THRESHOLDS_GPU_S[0], had <= 0, j))
    assert finished(w, "las") == pytest.approx(np.array(two), rel=1e-9)
