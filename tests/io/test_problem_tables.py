"""A Problem written as a snapshot folder is the same round again, with equal arrays."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from everything import EVERYTHING, content
from everything_workload import EVERY_WORKLOAD
from examples import series

from allocator.bench.workloads import generate
from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.io.problem_tables import snapshot_folder
from allocator.io.snapshots import parse_snapshot, read_snapshot, write_snapshot
from allocator.io.workloads import parse_workload
from allocator.simulator import SimulationOptions, simulate


def values(problem: Problem) -> dict[str, Any]:
    """The content of a problem with lists and sets of its jobs in place of their numbers."""
    sets = {"sizes": "size_lists", "gpu_types": "type_sets", "modes": "mode_sets"}
    out = {k: v for k, v in content(problem).items() if k not in sets.values()}
    for name, all_ in sets.items():
        numbers = getattr(problem.jobs, name).tolist()
        out[f"jobs.{name}"] = [list(getattr(problem, all_)[k]) if k >= 0 else None for k in numbers]
    return out


def again(problem: Problem, folder: Path) -> Problem:
    """The problem after a way through a folder; the digest is known before it is read."""
    raw = snapshot_folder(problem)
    read = read_snapshot(write_snapshot(raw, folder))
    assert read.digest == raw.digest
    return validate(read)


def test_everything_comes_back(tmp_path: Path) -> None:
    """The snapshot with every file and column: nodes, placements and time received included. An
    empty round stays one.
    """
    problem = validate(parse_snapshot("everything", EVERYTHING))
    assert values(again(problem, tmp_path / "a")) == values(problem)
    assert len(problem.nodes.node) == 4 and len(problem.placements.job) == 5
    head = {
        file: EVERYTHING[file].split(b"\n")[0] for file in ("jobs.csv", "pools.csv", "rates.csv")
    }
    empty = validate(parse_snapshot("empty", head))
    assert values(again(empty, tmp_path / "b")) == values(empty)


def test_nodes_that_no_longer_add_up_are_left_out(tmp_path: Path) -> None:
    """A machine of pool east has gone: its nodes would bring it back; west's nodes and
    placements stay.
    """
    problem = validate(parse_snapshot("everything", EVERYTHING))
    pools = dataclasses.replace(problem.pools, gpus=problem.pools.gpus - [4, 0, 0])
    back = again(dataclasses.replace(problem, pools=pools), tmp_path / "a")
    assert back.pools.gpus.tolist() == pools.gpus.tolist()
    assert back.nodes.node == ("w1", "w2") and back.placements.gpus.tolist() == [1, 1]


@pytest.mark.parametrize("name", series(["everything", "spot", "sharing", "exposure"], 2))
def test_rounds_of_a_simulation_come_back(name: str, tmp_path: Path) -> None:
    """Jobs under way and names that no longer occur, pools and prices that have changed: written to
    a folder and read again the round is the same, so that every decision is."""
    made = (
        parse_workload(name, EVERY_WORKLOAD)
        if name == "everything"
        else generate(name, seed=1, jobs=8).workload()
    )
    rounds: list[Problem] = []
    simulate(
        made,
        policy="greedy",
        options=SimulationOptions(prove_every=0),
        on_round=lambda state, turn: rounds.append(turn.problem),
    )
    for i, problem in enumerate(rounds[:: len(rounds) // 4]):
        assert values(again(problem, tmp_path / str(i))) == values(problem)
    assert name == "everything" or any((problem.jobs.gpus > 0).any() for problem in rounds)
