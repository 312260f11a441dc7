"""Decide which training job gets which and how many GPUs, round by round, with a proof.

Examples
--------
>>> import allocator
>>> problem = allocator.Problem.build(
...     jobs=[allocator.Job("bert-1", "bert", remaining_work=90_000, max_gpus=4)],
...     pools=[allocator.Pool("a100", "A100", 8)],
...     rates=[allocator.Rate("bert", "A100", 1, 3.0), allocator.Rate("bert", "A100", 4, 11.0)],
... )
>>> plan = allocator.solve(problem)
>>> plan.to_frame()[["job_id", "pool", "gpus", "action"]]
   job_id  pool  gpus action
0  bert-1  a100     4  start

Importing the package loads no solver and no pandas; names are resolved on first use.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allocator.api import audit as audit, explain as explain, solve as solve, whatif as whatif
    from allocator.audit.check import Audit as Audit
    from allocator.domain.changes import changed as changed
    from allocator.domain.objectives import register_objective as register_objective
    from allocator.domain.plan import (
        BudgetPlan as BudgetPlan,
        JobPlan as JobPlan,
        NodePlan as NodePlan,
        Plan as Plan,
        PoolPlan as PoolPlan,
        TenantPlan as TenantPlan,
    )
    from allocator.domain.records import (
        Colocation as Colocation,
        FinishedJob as FinishedJob,
        InteractiveReserve as InteractiveReserve,
        Job as Job,
        Node as Node,
        Pause as Pause,
        Placement as Placement,
        Pool as Pool,
        PoolChange as PoolChange,
        Quota as Quota,
        Rate as Rate,
        Received as Received,
        Reservation as Reservation,
        SpeedModel as SpeedModel,
        Tenant as Tenant,
    )
    from allocator.domain.rules.snapshot_rules import validate as validate
    from allocator.domain.snapshot import Snapshot as Snapshot
    from allocator.domain.workload import Workload as Workload
    from allocator.engine.explain import Explanation as Explanation
    from allocator.engine.rounds import Rounds as Rounds
    from allocator.engine.whatif import Comparison as Comparison
    from allocator.errors import (
        AllocatorError as AllocatorError,
        AuditFailure as AuditFailure,
        Fault as Fault,
        Infeasible as Infeasible,
        InvalidInput as InvalidInput,
        NoPlanInTime as NoPlanInTime,
        Relaxation as Relaxation,
        UsageError as UsageError,
    )
    from allocator.executors.registry import (
        ExecutorEntry as ExecutorEntry,
        ExecutorSite as ExecutorSite,
        register_executor as register_executor,
    )
    from allocator.io.snapshots import read_snapshot as read_snapshot
    from allocator.io.workloads import (
        read_workload as read_workload,
        write_workload as write_workload,
    )
    from allocator.loop.executor import (
        NodePart as NodePart,
        Observation as Observation,
        Order as Order,
        Phase as Phase,
    )
    from allocator.policies.base import (
        PolicyEntry as PolicyEntry,
        Proposal as Proposal,
        Task as Task,
        register_policy as register_policy,
    )
    from allocator.problem import Problem as Problem
    from allocator.queue.queue import Queue as Queue
    from allocator.simulator.options import SimulationOptions as SimulationOptions
    from allocator.simulator.run import Simulation as Simulation, simulate as simulate
    from allocator.solvers.base import (
        SolveLimits as SolveLimits,
        SolverResult as SolverResult,
        Termination as Termination,
    )
    from allocator.solvers.registry import register_solver as register_solver
    from formulations.objectives import Objective as Objective

_HOME = {
    "allocator.api": ("audit", "explain", "solve", "whatif"),
    "allocator.audit.check": ("Audit",),
    "allocator.clusters.adapter": ("Capabilities",),
    "allocator.domain.changes": ("changed",),
    "allocator.loop.executor": ("NodePart", "Observation", "Order", "Phase"),
    "allocator.domain.objectives": ("register_objective",),
    "allocator.domain.records": (
        "Colocation",
        "FinishedJob",
        "InteractiveReserve",
        "Job",
        "Node",
        "Pause",
        "Placement",
        "Pool",
        "PoolChange",
        "Quota",
        "Rate",
        "Received",
        "Reservation",
        "SpeedModel",
        "Tenant",
    ),
    "allocator.domain.plan": (
        "BudgetPlan",
        "JobPlan",
        "NodePlan",
        "Plan",
        "PoolPlan",
        "TenantPlan",
    ),
    "allocator.domain.snapshot": ("Snapshot",),
    "allocator.domain.rules.snapshot_rules": ("validate",),
    "allocator.domain.workload": ("Workload",),
    "allocator.errors": (
        "AllocatorError",
        "AuditFailure",
        "Fault",
        "Infeasible",
        "InvalidInput",
        "NoPlanInTime",
        "Relaxation",
        "UsageError",
    ),
    "allocator.executors.registry": ("ExecutorEntry", "ExecutorSite", "register_executor"),
    "allocator.engine.explain": ("Explanation",),
    "allocator.io.snapshots": ("read_snapshot",),
    "allocator.io.workloads": ("read_workload", "write_workload"),
    "allocator.policies.base": ("PolicyEntry", "Proposal", "Task", "register_policy"),
    "allocator.problem": ("Problem",),
    "allocator.queue.queue": ("Queue",),
    "allocator.engine.rounds": ("Rounds",),
    "allocator.simulator.options": ("SimulationOptions",),
    "allocator.simulator.run": ("Simulation", "simulate"),
    "allocator.solvers.base": ("SolveLimits", "SolverResult", "Termination"),
    "allocator.solvers.registry": ("register_solver",),
    "allocator.engine.whatif": ("Comparison",),
    "formulations.objectives": ("Objective",),
}
_PLACES = {name: module for module, names in _HOME.items() for name in names}
__all__ = [*sorted(_PLACES), "__version__"]  # noqa: PLE0604 - names are strings
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Resolve a public name on first use."""
    if name not in _PLACES:
        raise AttributeError(f"module 'allocator' has no attribute '{name}'")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    """List the public names, which exist from their first use on."""
    return __all__


class _Package(ModuleType):
    """Keep submodules from hiding the public functions of the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in _PLACES):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
