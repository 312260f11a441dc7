"""The records of a simulation: rows per round and pool, per round, and per span of a job.

Every table is a mapping from the names of its columns to their values. Data frames are made of them
only when somebody reads one (`Simulation`), as pandas takes a third of a second to load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from allocator.domain.problem import join_names
from allocator.loop.rounds import RoundOutcome
from allocator.simulator.nodes import STATES
from allocator.simulator.results.fragmentation import FRAGMENTATION, fragmentation_rows
from allocator.simulator.world import World

ColumnTable = Mapping[str, Sequence[Any] | np.ndarray[Any, Any]]
"""The columns of a table by name, each with a value for every row."""
TIMELINE = ("round", "at_s", "pool", "gpus", "used", "running", "queued", "price_per_gpu_hour")
ROUNDS = (
    "round",
    "at_s",
    "active",
    "queued",
    "changes",
    "value",
    "bound",
    "gap",
    "decision_s",
    "status",
    "fallback",
    "dollar_price",
    "spent",
    "balance",
)
PLACES = ("job_id", "node", "gpus", "gpu", "from_s", "to_s", "shared_with")
NODE_STATES = ("node", "pool", "gpus", "state", "from_s", "to_s")


class Recorder:
    """Rows of timeline.csv, rounds.csv and fragmentation.csv, taken after each round."""

    def __init__(self) -> None:
        self.timeline: list[tuple[object, ...]] = []
        self.rounds: list[tuple[object, ...]] = []
        self.fragmentation: list[tuple[object, ...]] = []

    def note(self, turn: RoundOutcome, world: World) -> None:
        """Record a round that is over.

        Its bound is proven here, so that the proof does not count as time of the decision.
        """
        holding = world.pool[world.active]
        on = holding[holding >= 0]
        queued = len(holding) - len(on)
        pools = world.problem.pools
        jobs = np.bincount(on, minlength=len(pools)).tolist()
        rows = zip(
            pools.pool,
            world.capacity.tolist(),
            world.used_gpus().tolist(),
            jobs,
            world.price.tolist(),
            strict=True,
        )
        self.timeline += [
            (turn.number, world.now, name, gpus, used_gpus, running, queued, price)
            for name, gpus, used_gpus, running, price in rows
        ]
        self.fragmentation += fragmentation_rows(turn.number, turn.problem, world)
        value = bound = gap = None
        status: str
        fallback: str | None
        status, fallback = type(turn.failure).__name__, str(turn.failure).split("\n")[0]
        if turn.decision is not None:
            value, proposal = turn.decision.value, turn.decision.proposal
            status, fallback = proposal.termination, proposal.fallback
            every = world.options.prove_every
            if turn.decision.task.has_dual or (every > 0 and turn.number % every == 0):
                bound, _, gap = turn.decision.proof
        self.rounds.append(
            (
                *(turn.number, world.now, len(holding), queued, turn.changes),
                *(value, bound, gap, turn.decision_s, status, fallback),
                *_money(turn, world),
            )
        )

    def tables(self) -> dict[str, ColumnTable]:
        """Return timeline.csv, rounds.csv and fragmentation.csv without their column policy.

        `rounds` is the only one with timings.
        """
        return {
            "timeline": _to_columns(TIMELINE, self.timeline),
            "rounds": _to_columns(ROUNDS, self.rounds),
            "fragmentation": _to_columns(FRAGMENTATION, self.fragmentation),
        }


def _to_columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> ColumnTable:
    """Return rows as columns."""
    columns = map(list, zip(*rows, strict=True)) if rows else ([] for _ in names)
    return dict(zip(names, columns, strict=True))


def _money(turn: RoundOutcome, world: World) -> tuple[float, float, float | None]:
    """Return the price of a dollar, the dollars spent and the balance of the long-run budget.

    The price is that of the round. The dollars are those spent before it on GPUs that are not
    reserved. The balance is that of the whole cluster.
    """
    settings = turn.problem.settings
    books = next(
        (book for name in ("longrun", "rental") if (book := settings.get(name, {}).get("account"))),
        None,
    )
    balance = None if books is None else books["income"] - books["spent"]
    return turn.problem.dollar_price, float(world.rented.sum()), balance


def spans_table(world: World) -> ColumnTable:
    """Return spans.csv without its column policy, ordered by start and then by job.

    A span that still runs ends now. `shared_with` is the job that held the GPUs, "" if it is the
    job itself. Two jobs on the same GPUs are two rows, one of them with a primary job.
    """
    r = world.running
    rows = np.concatenate([*world.spans, world.open_spans(r, world.now)])
    rows = rows[np.lexsort((rows[:, 0], rows[:, 3]))]
    rows = rows[rows[:, 4] > rows[:, 3]]
    names = world.problem.jobs.job_id
    pools = world.problem.pools.pool
    primaries = world.primaries_of_span | {
        (g, float(world.since_s[g])): tuple(world.primaries(g).tolist()) for g in r.tolist()
    }
    shared_with = [
        join_names(names[h] for h in primaries[int(j), since]) if first >= 0 else ""
        for j, since, first in zip(rows[:, 0], rows[:, 3], rows[:, 5], strict=True)
    ]
    table: ColumnTable = {
        "job_id": [names[int(j)] for j in rows[:, 0]],
        "pool": [pools[int(p)] for p in rows[:, 1]],
        "gpus": rows[:, 2].astype(np.int64),
        "from_s": rows[:, 3],
        "to_s": rows[:, 4],
        "shared_with": shared_with,
    }
    prices_memory = world.problem.pools.prices_memory
    return {**table, "memory_price": rows[:, 6]} if prices_memory else table


def places_table(world: World) -> ColumnTable:
    """Return places.csv without its column policy: who ran on which node, by start and job.

    `gpu` is the GPU of which the job had a share, empty = whole GPUs. `shared_with` is the job that
    held the GPUs, "" if it is the job itself.
    """
    running = world.running
    spans = [*world.place_spans, *world.spans_on_nodes(running, np.full(len(running), world.now))]
    problem = world.problem
    names = problem.jobs.job_id
    nodes = problem.nodes.node
    rows = [
        (names[j], nodes[n], k, g if g >= 0 else None, since, until, names[h] if h >= 0 else "")
        for j, h, since, until, places in sorted(spans, key=lambda span: (span[2], span[0]))
        for n, k, g in places
        if until > since
    ]
    return _to_columns(PLACES, rows)


def node_states_table(world: World) -> ColumnTable:
    """Return node_states.csv without its column policy: the states of each node over time."""
    problem = world.problem
    nodes = problem.nodes
    pools = problem.pools.pool
    rows = [
        (nodes.node[n], pools[nodes.pool[n]], int(nodes.gpus[n]), STATES[state], since, until)
        for n, state, since, until in world.nodes.spans(world.now)
        if until > since
    ]
    return _to_columns(NODE_STATES, rows)
