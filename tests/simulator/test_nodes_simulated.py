"""Nodes in simulations: who runs where, failures and drains of nodes, moves and fragmentation."""

from __future__ import annotations

import dataclasses
import math
import pickle
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from commands import Output, call
from examples import seeds, series
from text_tables import cases, cells, columns
from worlds import Row, workload

import allocator
from allocator.domain.workload import NodeEvents, Workload
from allocator.simulator import Simulation, SimulationOptions, simulate
from allocator.simulator.results.files import texts_of
from allocator.simulator.run import continue_simulation, initial_state

UP, DRAIN, DOWN = range(3)
RATES = {k: float(k) for k in range(1, 17)}


def job(name: str, gpus: int, seconds: float, at: float = 0, **more: object) -> Row:
    """A job of one size that needs so many seconds on its GPUs."""
    size = {"min_gpus": gpus, "max_gpus": gpus, "requested_gpus": gpus, "sizes": str(gpus)}
    return {"job_id": name, "submitted_s": at, "total_work": gpus * seconds, **size, **more}


def cluster(
    jobs: Sequence[Row],
    sizes: Sequence[int] = (4, 4),
    events: Sequence[tuple[float, int, int]] = (),
    announced_s: float = math.inf,
    rates: Mapping[int, float] | Sequence[Row] = RATES,
) -> Workload:
    """Jobs on one pool with nodes n0, n1 ... of these sizes, one half of them in each of two racks;
    events are (at_s, node, state)."""
    nodes = [
        {"node": f"n{i}", "pool": "p", "gpus": k, "rack": f"r{2 * i // len(sizes)}"}
        for i, k in enumerate(sizes)
    ]
    pools = [{"pool": "p", "gpus": sum(sizes), "gpus_per_node": max(sizes)}]
    made = workload(jobs, rates=rates, pools=pools, nodes=nodes)
    at, node, state = (list(column) for column in zip(*events, strict=True)) if events else [[]] * 3
    columns = np.array(at, dtype=float), np.array(node, np.int64), np.array(state, np.int64)
    columns = *columns, np.full(len(at), announced_s)
    return dataclasses.replace(made, node_events=NodeEvents(*columns))


def places(done: Simulation) -> list[tuple[object, ...]]:
    columns = ["job_id", "node", "gpus", "from_s", "to_s"]
    return list(done.places[columns].itertuples(index=False, name=None))


SCATTERED = [
    job("a", 2, 3000, at=0),
    job("b", 2, 500, at=0),
    job("c", 2, 2700, at=10),
    job("d", 2, 200, at=10),
    job("e", 4, 300, at=550),
]


def test_a_plan_by_counts_waits_where_a_move_would_make_it_fit() -> None:
    """b and d leave 2 GPUs free on both nodes. e needs 4: one job moves, with a pause of 30 s,
    and e runs at 600; or e waits until both nodes are empty, and 4 GPUs are of no use for 2,400 s.
    """
    for placement, moves, hours, ends in (
        ("repair", 1, 0.0, [900, 3000, 3030]),
        ("wait", 0, 4 * 2400 / 3600, [3000, 3000, 3300]),
    ):
        options = SimulationOptions(placement=placement)
        done = simulate(cluster(SCATTERED), policy="srtf", options=options)
        assert done.metrics["moves"] == moves
        assert done.metrics["unusable_gpu_hours"] == pytest.approx(hours)
        end = dict(zip(done.jobs["job_id"], done.jobs["finished_s"], strict=True))
        assert sorted(end[name] for name in "ace") == ends


# jobs: name, GPUs, seconds -> events -> where each job runs -> settings -> what happens
PLACES = """
a 8 1000 synchronous=false min_gpus=4 sizes=4|8 -> 500 1 down -> \
a n0 4 0 500; a n1 4 0 500; a n0 4 500 1500 ->  -> an asynchronous job goes on with 4 of 8 GPUs
a 4 100 -> 30 0 down; 400 0 up -> a n0 4 660 760 -> nodes=1 latency_s=60 -> \
the plan of 0 takes effect at 60; its node failed at 30
a 4 1000 checkpoint_every_s=200 checkpoint_s=0; b 4 1000 preemptible=false -> \
500 0 down; 2500 0 up -> a n0 4 0 500; b n1 4 0 1000; a n1 4 1200 1800 ->  -> \
a job goes back to 400 and runs again when n1 is free
a 4 1000 -> 100 0 drain -> a n0 4 0 300; a n1 4 300 1030 ->  -> \
a job moves at the next round and keeps the work it has done
a 4 1000 preemptible=false -> 100 0 drain -> a n0 4 0 1000 ->  -> \
a job that may not be stopped stays on a drained node until it ends
a 4 1500 -> 1000 0 down -> a n0 4 0 900; a n1 4 900 1530 -> announced_s=400 -> \
a job moves in the last round before a failure that was announced
a 4 1500 preemptible=false -> 1000 0 down -> a n1 4 0 1500 -> announced_s=0 -> \
as was announced before, a job that may not be stopped takes the other node
a 4 1000 preemptible=false; b 4 5000 at=1 preemptible=false -> 500 0 down; 1000 0 up -> \
a n1 4 0 1000; b n0 4 1200 6200 -> announced_s=0 -> \
b would be stopped on n0, which is away from 500 to 1000, and waits until it is back
"""


@pytest.mark.parametrize("case", cases(PLACES), ids=range(8))
def test_where_a_job_runs(case: tuple[str, ...]) -> None:
    """On which nodes, with how many GPUs and when; a drain is no failure."""
    jobs, events, expected, settings, _ = case
    known = {"nodes": "2", "latency_s": "0", "announced_s": "inf"} | cells(settings)
    rows = [row.split(maxsplit=3) for row in jobs.split(";")]
    happens = [event.split() for event in events.split(";")]
    made = cluster(
        [job(name, int(k), float(s), **cells("".join(more))) for name, k, s, *more in rows],
        [4] * int(known["nodes"]),
        [(float(at), int(n), ("up", "drain", "down").index(to)) for at, n, to in happens],
        float(known["announced_s"]),
    )
    options = SimulationOptions(latency_s=float(known["latency_s"]))
    done = simulate(made, policy="mip", options=options)
    found = ["{} {} {} {:g} {:g}".format(*place) for place in places(done)]
    assert sorted(found) == sorted(expected.split("; "))
    assert done.metrics["node_failures"] == events.count("down")


def test_a_simulation_ends_where_nodes_fail_at_random_and_a_job_fits_nowhere() -> None:
    """A failure gives nobody GPUs, so a job that never fits does not keep the simulation going."""
    jobs = [job("a", 4, 1000), {**job("big", 8, 100), "placement": "same_rack"}]
    options = SimulationOptions(failures_per_node_hour=0.01)
    assert simulate(cluster(jobs), policy="greedy", options=options).unfinished == ("big",)


def drawn(seed: int) -> Workload:
    """Whole GPUs, odd sizes and shares, on nodes of two sizes in two racks, with a few drains."""
    rng = np.random.default_rng(seed)
    jobs = []
    for i in range(24):
        size = int(rng.choice([1, 1, 2, 3, 4, 5, 6, 8, 12]))
        row = dict(job(f"j{i}", size, float(rng.integers(100, 4000)), float(rng.integers(0, 6000))))
        row["placement"] = str(rng.choice(["packed", "spread", "prefer_rack"]))
        row |= {"synchronous": bool(rng.integers(2)), "preemptible": bool(rng.integers(4))}
        if size == 1 and rng.integers(2):
            row |= {"gpu_fraction": float(rng.choice([0.25, 0.4, 0.5]))}
        elif rng.integers(2):
            row |= {"min_gpus": 1, "sizes": "|".join(map(str, sorted({1, size})))}
        jobs.append(row)
    events = [(2000.0, 1, DRAIN), (4000.0, 1, UP), (2500.0, 2, DOWN), (5000.0, 2, UP)]
    return cluster(jobs, sizes=(4, 8, 8, 8), events=sorted(events))


def faults(done: Simulation, fraction: Mapping[str, float]) -> list[str]:
    """An account of its own: at every instant every GPU is given once, on nodes that are not down,
    and jobs have as many GPUs on nodes as their spans say."""
    found = []
    own = done.places[done.places["shared_with"] == ""]
    states = done.node_states
    times = sorted({*own["from_s"], *own["to_s"], *states["from_s"], *states["to_s"]})
    for t, until in pairwise(times):
        middle = (t + until) / 2
        now = own[(own["from_s"] < middle) & (middle < own["to_s"])]
        used, shares = defaultdict[str, float](float), defaultdict[tuple[str, int], float](float)
        of_job = defaultdict[str, int](int)
        for row in now.itertuples():
            of_job[row.job_id] += row.gpus
            if math.isnan(fraction[row.job_id]):
                used[row.node] += row.gpus
            else:
                shares[row.node, int(row.gpu)] += fraction[row.job_id]
        for (node, gpu), share in shares.items():
            used[node] += 1
            if share > 1 + 1e-9:
                found.append(f"{middle}: GPU {gpu} of {node} is given {share} times")
        state = states[(states["from_s"] < middle) & (middle < states["to_s"])]
        for row in state.itertuples():
            most = 0 if row.state == "down" else row.gpus
            if used[row.node] > most:
                found.append(f"{middle}: {row.node} gives {used[row.node]} of {most} GPUs")
        spans = done.spans[(done.spans["from_s"] < middle) & (middle < done.spans["to_s"])]
        held = dict(zip(spans["job_id"], spans["gpus"], strict=True))
        if held != dict(of_job):
            found.append(f"{middle}: jobs hold {held}, nodes give {dict(of_job)}")
    return found


@pytest.mark.parametrize("placement", ["repair", "wait"])
@pytest.mark.parametrize("seed", seeds(1, 3))
@pytest.mark.parametrize("policy", series(["srtf", "mip"], 1))
def test_every_gpu_is_given_once_at_every_instant(seed: int, policy: str, placement: str) -> None:
    w = drawn(seed)
    options = SimulationOptions(
        seed=seed,
        placement=placement,
        failures_per_node_hour=0.5,
        failures_per_gpu_hour=0.05,
        node_repair_s=700,
        prove_every=0,
        react_s=60 if placement == "wait" else math.inf,
    )
    done = simulate(w, policy=policy, options=options)
    jobs = w.problem.jobs
    fraction = dict(zip(jobs.job_id, jobs.gpu_fraction.tolist(), strict=True))
    assert done.metrics["node_failures"] > 0 and done.metrics["finished"] == 24
    assert faults(done, fraction) == []


def test_failures_of_nodes_do_not_depend_on_the_policy_or_an_interruption() -> None:
    """Two policies have the same states of nodes, and a simulation goes on from a round with the
    same bytes."""
    options = SimulationOptions(failures_per_node_hour=0.5, prove_every=0)
    kept: list[bytes] = []
    one = continue_simulation(
        initial_state(drawn(1), "greedy", options),
        lambda state, _: kept.append(pickle.dumps(state)),
    )
    other = simulate(drawn(1), policy="las", options=options)
    end = min(one.node_states["to_s"].max(), other.node_states["to_s"].max())
    states = (s.node_states[s.node_states["to_s"] < end] for s in (one, other))
    first, second = (frame.reset_index(drop=True) for frame in states)
    assert len(first) > 4 and first.equals(second)
    whole = texts_of([one])
    assert len(whole["places.csv"].splitlines()) > 24
    again = texts_of([continue_simulation(pickle.loads(kept[len(kept) // 2]))])
    assert {f for f in whole if whole[f] != again[f]} <= {"rounds.csv"}


def test_rows_that_node_events_refuse(tmp_path: Path, capsys: Output) -> None:
    """Unknown nodes and states are faults; capacity of a pool with nodes is warned of."""
    folder = allocator.write_workload(tmp_path / "w", cluster(SCATTERED))
    (folder / "node_events.csv").write_text("at_s,node,state\n10,n9,down\n20,n1,off\n")
    (folder / "capacity.csv").write_text("at_s,pool,gpus\n500,p,3\n")
    code, _, said = call(capsys, f"validate {folder}")
    assert code == 3 and 'node_events.csv:2: node "n9" is not in nodes.csv' in said
    assert "node_events.csv:3: state" in said
    (folder / "node_events.csv").write_text("at_s,node,state\n0,n1,drain\n20,n1,down\n")
    code, _, said = call(capsys, f"validate {folder}")
    assert code == 0 and 'capacity.csv:2: gpus of pool "p" has no effect' in said
    read = allocator.read_workload(folder)
    assert read.problem.nodes.state.tolist() == [UP, DRAIN] and len(read.node_events) == 1
    assert read.problem.pools.gpus.tolist() == [4]


def test_a_job_runs_at_the_speed_of_the_nodes_it_has() -> None:
    """Four GPUs do 6 units a second on two nodes by rates.csv, so 2400 take 400 s. A job that has
    to be on one node does 4 a second."""
    rates = columns("gpu_type gpus work_per_s: A 4 4")
    rates += columns("gpu_type gpus work_per_s spread: A 4 6 2")
    made = cluster([job("a", 4, 600, placement="spread"), job("b", 4, 100, at=600)], rates=rates)
    done = simulate(made, policy="mip")
    assert done.jobs["finished_s"].tolist() == [400, 700]
    assert {n for j, n, *_ in places(done) if j == "a"} == {"n0", "n1"}
