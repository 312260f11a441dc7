"""Write every round of a simulation as a snapshot folder with its plan.

`allocator solve` can decide each of these snapshots again.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from allocator.engine.results import build_result
from allocator.io.plans import PLAN_CSV, PLAN_JSON, to_csv, to_json, write_files
from allocator.io.problem_tables import snapshot_folder
from allocator.io.snapshots import write_snapshot
from allocator.loop.rounds import RoundOutcome
from allocator.policies.base import name_of
from allocator.simulator.options import SimulationOptions
from allocator.simulator.run import SimulationState


@dataclasses.dataclass(frozen=True)
class RoundFolders:
    """Writes <folder>/<number>/: the believed snapshot of the round, with plan.json and plan.csv.

    `allocator solve` with the policy, gap, seed and solver of the simulation gives the same plans.
    """

    folder: Path
    options: SimulationOptions

    def clear(self) -> None:
        """Remove the rounds of an earlier simulation: folders whose names are numbers."""
        for old in self.folder.glob("[0-9]" * 6):
            shutil.rmtree(old, ignore_errors=True)

    def write(self, state: SimulationState, turn: RoundOutcome) -> None:
        """Write the round that is over."""
        name = f"{turn.number:06d}"
        snapshot = dataclasses.replace(snapshot_folder(turn.problem), name=name)
        path = write_snapshot(snapshot, self.folder / name)
        if turn.decision is None:
            return
        d = turn.decision
        named = dataclasses.replace(turn.problem, name=name, digest=snapshot.digest)
        seconds = {
            "read": 0.0,
            "validate": 0.0,
            "build": d.build_s,
            "solve": d.solve_s,
            "total": turn.decision_s,
        }
        result = build_result(
            named,
            d,
            policy=name_of(state.policy),
            seed=self.options.seed,
            seconds=seconds,
        )
        # placements.csv there is the snapshot's
        write_files(path, {PLAN_CSV: to_csv(result), PLAN_JSON: to_json(result)})
