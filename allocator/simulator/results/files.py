"""The files of `allocator simulate --out` (docs/reference/rules.md, R51).

They are results.json and one CSV file per kind of row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.domain.problem import Problem
from allocator.io.plans import write_files
from allocator.simulator.run import Simulation

if TYPE_CHECKING:
    import pandas as pd

RESULTS = "results.json"
FRAMES = ("jobs", "timeline", "rounds", "spans")
OF_NODES = ("places", "node_states", "fragmentation")  # only where pools have nodes
SCHEMA_VERSION = 1


def results_json(problem: Problem, seed: int, metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """Return results.json: METRICS by policy; a number that does not exist is null.

    `warnings` are those of the workload, with what is assumed of its jobs.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        "workload": problem.name,
        "seed": seed,
        "warnings": problem.warnings,
        "policies": metrics,
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def frame_csv(frame: pd.DataFrame) -> str:
    """Return a frame as CSV text; equal frames give equal bytes.

    Floats are written as their shortest decimal, nan as an empty cell, and lines end with a line
    feed.
    """
    text = frame.to_csv(index=False, lineterminator="\n")
    assert isinstance(text, str)
    return text


def texts_of(simulations: Sequence[Simulation]) -> dict[str, str]:
    """Return jobs.csv, timeline.csv, rounds.csv and spans.csv with the rows of all policies.

    Where pools have nodes, places.csv, node_states.csv and fragmentation.csv are added.
    """
    import pandas as pd

    out = {}
    has_nodes = any(len(s.node_states) for s in simulations)
    for name in (*FRAMES, *(OF_NODES if has_nodes else ())):
        parts = [getattr(s, name).assign(policy=s.policy) for s in simulations]
        full = [p for p in parts if len(p)] or parts[:1]
        whole = pd.concat(full, ignore_index=True)
        out[f"{name}.csv"] = frame_csv(
            whole[["policy", *(c for c in whole.columns if c != "policy")]]
        )
    return out


def write_simulations(
    folder: Path, problem: Problem, seed: int, simulations: Sequence[Simulation]
) -> dict[str, Path]:
    """Write all files into the folder, results.json last, and return their paths.

    Each file is written completely or not at all.
    """
    texts = texts_of(simulations) | {
        RESULTS: results_json(problem, seed, {s.policy: s.metrics for s in simulations})
    }
    return write_files(folder, texts)
