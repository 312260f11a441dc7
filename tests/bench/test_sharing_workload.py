"""The workload of sharing: published speeds and memory, drawn slowdowns, and its way through
files into candidates.
"""

from __future__ import annotations

import numpy as np
import pytest

from allocator.bench.workloads import generate
from allocator.bench.workloads.parts.draw import Asked
from allocator.bench.workloads.sharing import SIZES, STEP_MS, rates, sharing


def test_speeds_and_memory_by_hand() -> None:
    """bert on 8 GPUs: batch 4 each, 192 ms, 7.87 GB. In two passes of 2 samples: 178 ms of
    computing become 2 x 178 x (0.1 + 0.9/2) = 195.8, 14 ms of synchronisation stay; memory 0.4 +
    0.6/2 of it. GPT-2 has no 8 passes."""
    r = rates()
    rows = [dict(zip(r, row, strict=True)) for row in zip(*r.values(), strict=True)]
    mine = {w["accumulation"]: w for w in rows if (w["model"], w["gpus"]) == ("bert", 8)}
    assert (
        mine[1]["work_per_s"] == pytest.approx(32 / 0.192, rel=1e-5) and mine[1]["batch_size"] == 32
    )
    assert mine[2]["work_per_s"] == pytest.approx(32 / (0.1958 + 0.014), rel=1e-5)
    assert (mine[1]["memory_gb"], mine[2]["memory_gb"]) == pytest.approx((7.87, 5.51), abs=0.01)
    assert max(w["accumulation"] for w in rows if w["model"] == "gpt2") == 4
    assert len(rows) == 3 * sum(map(len, STEP_MS.values()))


def test_jobs() -> None:
    """Gangs of 1 to 16 GPUs in the published shares, 100 to 7,000 steps, whole samples, sizes that
    the model was measured at; another range of slowdowns and other GPUs on request."""
    made = generate("sharing", seed=4, jobs=2_000)
    work = made.tables["workload.csv"]
    size = np.asarray(work["requested_gpus"])
    assert all(k in STEP_MS[m] for m, k in zip(work["model"], size.tolist(), strict=True))
    for k, part in SIZES.items():
        assert (size == k).mean() == pytest.approx(part, abs=0.002)
    same = sharing(Asked("sharing", 1, 1.0, 20, 8), memory_gb=16.0, slowdown=(2.5, 2.5))
    assert set(same.tables["sharing.csv"]["slowdown_b"]) == {2.5}
    assert max(same.tables["workload.csv"]["requested_gpus"]) <= 8
    assert same.workload().problem.pools.memory_gb.tolist() == [16.0]
