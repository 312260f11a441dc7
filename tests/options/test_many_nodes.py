"""Pools of so many nodes that not every number of them is a size: which sizes remain, that all
accounts agree on them, and that time limits hold.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import problem, snapshot, write_folder
from examples import series
from waiting import PATIENCE_S

from allocator.domain.schema.columns import MOST_GPUS
from allocator.domain.size_rule import sizes_by_rule
from allocator.options.instance_building import compile_round

MANY = {"gpus": MOST_GPUS, "gpus_per_node": 1}


@pytest.mark.parametrize("node", [1, 3, 8])
def test_sizes_of_many_nodes_are_close_to_each_other(node: int) -> None:
    """All numbers of nodes up to 1,024; above, neighbours differ by less than 0.8 %."""
    sizes = sizes_by_rule(node, MOST_GPUS)
    nodes = sizes[sizes >= node] // node
    assert nodes[:1024].tolist() == list(range(1, 1025)) and len(nodes) < 3000
    assert np.all(np.diff(nodes[1023:]) < 0.008 * nodes[1023:-1])
    assert sizes[-1] > MOST_GPUS / 1.008
    for most in (1024, 1025, 1032, 2047, 4099):  # a pool that is smaller has no other sizes
        assert sizes_by_rule(node, most * node).tolist() == sizes[sizes <= most * node].tolist()


def _random_round(draw: random.Random) -> dict[str, Any]:
    """Two jobs of about 1,024 nodes or some thousands, in two pools."""
    jobs = []
    for _ in range(2):
        low = draw.choice((1018, 2044, 4100)) + draw.randrange(9)
        high = low + draw.randrange(16)
        asked = draw.randint(low, high)
        jobs.append(
            {"min_gpus": low, "max_gpus": high, "requested_gpus": asked, "remaining_work": 1e6}
        )
    pools = [
        {"gpus": draw.randrange(4130, 9000), "gpus_per_node": node, "gpu_type": t}
        for node, t in ((1, "A"), (draw.choice((2, 3)), "B"))
    ]
    sizes = (1, draw.randrange(1025, 4110), 5000)
    rates = [
        {"gpu_type": t, "gpus": k, "work_per_s": k**0.9 * draw.uniform(1, 2)}
        for t in "AB"
        for k in sizes
    ]
    return {"jobs": jobs, "pools": pools, "rates": rates}


@pytest.mark.parametrize("seed", range(6))
def test_the_options_have_these_sizes_and_no_others(seed: int) -> None:
    """Whole nodes: up to 1,024, above that with eight binary digits before zeros, and those that
    the job names or that were measured."""
    round_ = _random_round(random.Random(seed))
    found = compile_round(problem(**round_), prunes=False).offer
    measured = {row["gpus"] for row in round_["rates"]}

    def is_offered(job: dict[str, Any], node: int, k: int) -> bool:
        low, high, asked = (job[f"{name}_gpus"] for name in ("min", "max", "requested"))
        named = {low + -low % node, high - high % node, asked, *measured}
        nodes = k // node
        by_rule = nodes <= 1024 or len(f"{nodes:b}".rstrip("0")) <= 8
        return k % node == 0 and (by_rule or k in named)

    assert list(zip(found.job.tolist(), found.pool.tolist(), found.gpus.tolist(), strict=True)) == [
        (j, p, k)
        for j, job in enumerate(round_["jobs"])
        for p, pool in enumerate(round_["pools"])
        for k in range(job["min_gpus"], min(job["max_gpus"], pool["gpus"]) + 1)
        if is_offered(job, pool["gpus_per_node"], k)
    ]


@pytest.mark.parametrize(
    "command",
    series(
        [
            "solve",
            "solve --policy horizon",
            "solve --objective flow",
            "explain j0",
            "frontier",
        ],
        1,
    ),
)
def test_ten_million_nodes_are_decided_within_the_time_limit(command: str, tmp_path: Path) -> None:
    """A process with 2 GB and a time limit has a plan; before, it needed 2.5 GB, and forty
    seconds of a processor for one job.
    """
    jobs = [{"max_gpus": MOST_GPUS, "remaining_work": 1e6 * (1 + i)} for i in range(4)]
    name, *more = command.split()
    folder = write_folder(snapshot(jobs, [MANY], {1: 1.0, MOST_GPUS: 1e6}), tmp_path / "round")
    done = subprocess.run(
        [
            *("sh", "-c", 'ulimit -v 2097152; exec "$@"', "sh", sys.executable, "-m", "allocator"),
            *(name, str(folder), *more, "--time-limit", "5"),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert "10,000,000 nodes for one job" in done.stderr


def test_sizes_of_few_nodes() -> None:
    """Powers of two up to a node, then whole nodes."""
    assert sizes_by_rule(6, 18).tolist() == [1, 2, 4, 6, 12, 18]
    assert sizes_by_rule(8, 5).tolist() == [1, 2, 4]
