"""Decide which training job gets which and how many GPUs, round by round, with a proof.

    import allocator
    snapshot = allocator.read_snapshot("data/snapshots/demo")
    result = allocator.solve(snapshot, policy="mip", time_limit_s=1.0)
    result.to_frame()

    workload = allocator.read_workload("data/workloads/demo") simulation =
    allocator.simulate(workload, policy="mip", options=allocator.SimulationOptions(seed=1))
    simulation.metrics, simulation.jobs

Importing the package loads no solver and no pandas; names are resolved on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allocator.api import solve as solve
    from allocator.domain.changes import changed as changed
    from allocator.domain.result import Result as Result
    from allocator.domain.snapshot import Snapshot as Snapshot
    from allocator.domain.validate import validate as validate
    from allocator.domain.workload import Workload as Workload
    from allocator.errors import (
        AllocatorError as AllocatorError,
    )
    from allocator.errors import (
        Infeasible as Infeasible,
    )
    from allocator.errors import (
        InvalidInput as InvalidInput,
    )
    from allocator.errors import (
        NoPlanInTime as NoPlanInTime,
    )
    from allocator.files.snapshots import read_snapshot as read_snapshot
    from allocator.files.workloads import read_workload as read_workload
    from allocator.files.workloads import write_workload as write_workload
    from allocator.queue.face import Queue as Queue
    from allocator.rounds import Rounds as Rounds
    from allocator.simulator import Simulation as Simulation
    from allocator.simulator import simulate as simulate
    from allocator.simulator.options import Options

    SimulationOptions = Options

_HOME = {
    "solve": "allocator.api",
    "Result": "allocator.domain.result",
    "Snapshot": "allocator.domain.snapshot",
    "changed": "allocator.domain.changes",
    "validate": "allocator.domain.validate",
    "read_snapshot": "allocator.files.snapshots",
    "Rounds": "allocator.rounds",
    "Workload": "allocator.domain.workload",
    "read_workload": "allocator.files.workloads",
    "write_workload": "allocator.files.workloads",
    "Queue": "allocator.queue.face",
    "simulate": "allocator.simulator",
    "Simulation": "allocator.simulator",
    "SimulationOptions": "allocator.simulator",
    "AllocatorError": "allocator.errors",
    "InvalidInput": "allocator.errors",
    "Infeasible": "allocator.errors",
    "NoPlanInTime": "allocator.errors",
}
_THERE = {"SimulationOptions": "Options"}  # names that are others at home
__all__ = [*_HOME, "__version__"]  # noqa: PLE0604 - names are strings
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'allocator' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), _THERE.get(name, name))
