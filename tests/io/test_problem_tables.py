"""A Problem written as a snapshot folder is the same round again: equal arrays, equal decisions
of every policy.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from everything import EVERYTHING, content
from everything_workload import EVERY_WORKLOAD
from examples import count
from fakes.random_rounds import random_snapshot

from allocator.domain.problem import Problem, State
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.workload import Changes, Workload
from allocator.engine import decision
from allocator.engine.decision import decide
from allocator.errors import Infeasible
from allocator.io.problem_tables import snapshot_folder
from allocator.io.snapshots import parse_snapshot, read_snapshot, write_snapshot
from allocator.io.workloads import parse_workload, read_workload, write_workload
from allocator.policies.registry import POLICIES


def values(problem: Problem) -> dict[str, Any]:
    """The content of a problem with lists of sizes and sets of types in place of their numbers."""
    jobs = problem.jobs
    out = content(problem)
    out["jobs.sizes"] = [
        problem.size_lists[k].tolist() if k >= 0 else None for k in jobs.sizes.tolist()
    ]
    out["jobs.gpu_types"] = [
        problem.type_sets[k].tolist() if k >= 0 else None for k in jobs.gpu_types.tolist()
    ]
    return {k: v for k, v in out.items() if k not in ("size_lists", "type_sets")}


def again(problem: Problem, folder: Path) -> Problem:
    """The problem after a way through a folder; the digest is known before it is read."""
    raw = snapshot_folder(problem)
    read = read_snapshot(write_snapshot(raw, folder))
    assert read.digest == raw.digest
    return validate(read)


def decided(problem: Problem, policy: str) -> Any:
    """All that a decision says, but for times and names of inputs."""
    try:
        result = decide(problem, policy=policy).to_dict()
    except Infeasible as error:
        return str(error)
    return {
        k: v for k, v in result.items() if k not in ("seconds", "snapshot", "digest", "warnings")
    }


def random_workload(seed: int) -> Workload:
    """Fifteen jobs of a random round as a workload: its states and holdings forgotten."""
    files = random_snapshot(np.random.default_rng(seed), 15).files()
    problem = validate(parse_snapshot("random", files))
    jobs = problem.jobs
    queued = dataclasses.replace(
        jobs,
        state=np.full(15, State.QUEUED),
        pool=np.full(15, -1),
        gpus=np.zeros(15, np.int64),
        largest_gpus=np.zeros(15, np.int64),
        remaining_work=jobs.total_work,
    )
    order = np.argsort(jobs.submitted_s, kind="stable")
    first = float(jobs.submitted_s.min())
    none = np.zeros(0)
    return Workload(
        dataclasses.replace(problem, jobs=queued.take(order), now_s=first),
        Changes(none, none.astype(np.int64), none.astype(np.int64), none),
    )


def round_of(workload: Workload, rng: np.random.Generator) -> Problem:
    """A round as a simulation meets it: some jobs, under way, with names that no longer occur;
    pools have changed.
    """
    p = workload.problem
    a = np.sort(rng.permutation(len(p.jobs))[: rng.integers(4, 12)])
    jobs, n = p.jobs.take(a), len(a)
    largest = max(1, int(p.pools.gpus.max(initial=0)))
    running = (rng.random(n) < 0.5) & (jobs.resizes_left != 0)
    pool = np.where(running, rng.integers(0, len(p.pools), n), -1)
    gpus = (
        np.where(
            running, rng.integers(jobs.min_gpus, np.minimum(jobs.max_gpus, largest) + 1).clip(1), 0
        )
        if (jobs.min_gpus <= largest).all()
        else np.zeros(n, np.int64)
    )
    pool, running = np.where(gpus > 0, pool, -1), gpus > 0
    state = np.where(
        running, State.RUNNING, np.where(rng.random(n) < 0.3, State.PAUSED, State.QUEUED)
    )
    jobs = dataclasses.replace(
        jobs,
        state=state,
        pool=pool,
        gpus=gpus,
        remaining_work=jobs.total_work * rng.random(n),
        attained_gpu_s=rng.random(n) * 1e4,
        restarts=rng.integers(0, 4, n),
        largest_gpus=gpus + rng.integers(0, 3, n),
    )
    pools = dataclasses.replace(
        p.pools,
        gpus=p.pools.gpus + rng.integers(0, 5, len(p.pools)),
        price_per_gpu_hour=p.pools.price_per_gpu_hour * rng.random(len(p.pools)),
    )
    received = rng.random((n, len(p.gpu_types))) * (rng.random((n, len(p.gpu_types))) < 0.5)
    return dataclasses.replace(
        p, jobs=jobs, pools=pools, received=received, now_s=p.now_s + 12_345.678
    )


def test_everything_comes_back(tmp_path: Path) -> None:
    """The snapshot with every file and column: nodes, placements and time received included."""
    problem = validate(parse_snapshot("everything", EVERYTHING))
    assert values(again(problem, tmp_path / "a")) == values(problem)
    assert len(problem.nodes.node) == 4 and len(problem.placements.job) == 5


def test_nodes_that_no_longer_add_up_are_left_out(tmp_path: Path) -> None:
    """A machine of pool east has gone: its nodes would bring it back; west's nodes and
    placements stay.
    """
    problem = validate(parse_snapshot("everything", EVERYTHING))
    pools = dataclasses.replace(problem.pools, gpus=problem.pools.gpus - [4, 0, 0])
    back = again(dataclasses.replace(problem, pools=pools), tmp_path / "a")
    assert back.pools.gpus.tolist() == pools.gpus.tolist()
    assert back.nodes.node == ("w1", "w2") and back.placements.gpus.tolist() == [1, 1]


def test_no_rates_no_jobs(tmp_path: Path) -> None:
    """An empty round stays one."""
    files = {
        "jobs.csv": b"job_id,model,submitted_s,remaining_work,max_gpus\n",
        "pools.csv": b"pool,gpu_type,gpus\n",
        "rates.csv": b"model,gpu_type,gpus,work_per_s\n",
    }
    problem = validate(parse_snapshot("empty", files))
    assert values(again(problem, tmp_path / "a")) == values(problem)


def test_workload_of_everything_comes_back_as_a_round(tmp_path: Path) -> None:
    """All jobs of the workload at its start as a snapshot; job names with commas, bars of sizes,
    sets of types.
    """
    problem = parse_workload("everything", EVERY_WORKLOAD).problem
    assert values(again(problem, tmp_path / "a")) == values(problem)


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Problem, Problem]]:
    """Rounds of random workloads, each with the same round after it was written and read again."""
    folder, out = tmp_path_factory.mktemp("rounds"), []
    for seed in range(count(7, 12)):
        workload = read_workload(write_workload(folder / f"w{seed}", random_workload(seed)))
        problem = round_of(workload, np.random.default_rng(1000 + seed))
        out.append((problem, again(problem, folder / f"s{seed}")))
    return out


@pytest.mark.parametrize("policy", POLICIES)
def test_rounds_of_a_simulation_are_decided_alike(
    policy: str, rounds: list[tuple[Problem, Problem]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round of a random workload has the same plan, proof and reasons after it was written to a
    folder and read again. The round has only some of the jobs of its workload."""
    # reasons do not depend on how busy the machine is
    monkeypatch.setattr(decision, "REASONS_S", math.inf)
    planned = running = 0
    for problem, back in rounds:
        assert values(back) == values(problem)
        first = decided(problem, policy)
        assert decided(back, policy) == first
        planned += isinstance(first, dict)
        running += int((problem.jobs.gpus > 0).sum())
    assert planned >= len(rounds) / 2 and running >= 10
