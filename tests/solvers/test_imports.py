"""Solver libraries that cannot share a process work in one installation, because no parent ever
loads them.
"""

from __future__ import annotations

import os
import subprocess
import sys

from allocator.solvers.registry import SOLVERS

HEAVY = ("highspy", "ortools", "pulp")


def run(code: str) -> str:
    """Output of a fresh interpreter."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    ).stdout


def test_importing_loads_no_solver() -> None:
    """Every module of allocator.solvers can be imported without loading one solver library."""
    loaded = run(f"""
import importlib, pkgutil, sys
import allocator.solvers as package
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module("allocator.solvers." + module.name)
from allocator.solvers import registry
assert all(registry.available(name) for name in registry.SOLVERS)
print([name for name in {HEAVY} if name in sys.modules])
""")
    assert loaded == "[]\n"


def test_all_solvers_work_in_one_parent() -> None:
    """The same parent asks one after the other; all find the 12, and the parent has loaded none
    of them.
    """
    out = run(f"""
import sys
from models import INF, dense
from allocator.solvers import registry
from allocator.solvers.base import SolveLimits
model = dense([6, 5, 5, 1], [(-INF, [5, 4, 4, 1], 10)])
for name in registry.SOLVERS:
    answer = registry.get(name).solve(model, SolveLimits(gap=0.0))
    print(name, str(answer.termination), answer.objective)
print([name for name in {HEAVY} if name in sys.modules])
""")
    assert out.splitlines() == [*(f"{name} gap 12.0" for name in SOLVERS), "[]"]
