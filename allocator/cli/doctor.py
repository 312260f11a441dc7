"""`allocator doctor`: check versions, solvers, import orders and the demo data.

Every back end solves the demo snapshot, and the solver packages are loaded in both orders.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import NamedTuple

from allocator.cli.output import Answer

NEEDED = ("numpy", "scipy", "pandas", "rich", "numba", "highspy", "ortools", "pulp")
SOLVERS = ("highs", "cpsat", "pulp")
ORDERS = (("highspy", "cpsat"), ("ortools.sat.python.cp_model", "highs"), ("pulp", "cpsat"))
PATIENCE_S = 60.0
DEMO = "snapshots/demo"
BEST = 7.14  # value of the best plan for it


class Finding(NamedTuple):
    """One line: "ok" or "not ok", and what was checked."""

    verdict: str
    text: str


def doctor(args: argparse.Namespace) -> Answer:
    checks = []
    for finding in findings():
        checks.append(finding)
        if args.format != "json":
            print(f"{finding.verdict:<8} {finding.text}", flush=True)
    is_sound = all(finding.verdict == "ok" for finding in checks)
    document = {"ok": is_sound, "checks": [finding._asdict() for finding in checks]}
    return Answer(document, exit_code=0 if is_sound else 1)


def findings() -> Iterator[Finding]:
    """Yield all checks, one after the other."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    good = sys.version_info >= (3, 11)
    yield Finding(
        "ok" if good else "not ok",
        f"Python {platform.python_version()} on {platform.system()}"
        + ("" if good else ", 3.11 or later is needed"),
    )
    for name in NEEDED:
        try:
            yield Finding("ok", f"{name} {version(name)}")
        except PackageNotFoundError:
            yield Finding("not ok", f"{name} is not installed")
    for name in SOLVERS:
        yield solver_works(name)
    for first, solver in ORDERS:
        yield order_works(first, solver)
    yield demo_works()
    yield trace_works()


def solver_works(name: str) -> Finding:
    """Solve the demo snapshot on one back end in its worker process, as every decision does."""
    from allocator import read_snapshot, validate
    from allocator.io.shipped import find_shipped
    from allocator.options.instance_building import compile_round
    from allocator.solvers import registry
    from allocator.solvers.base import SolveLimits

    model = compile_round(validate(read_snapshot(find_shipped(DEMO)))).model
    answer = registry.get(name).solve(model, SolveLimits(time_s=PATIENCE_S, gap=0.0))
    text = f"{name} {answer.version}: demo snapshot in {answer.seconds:.3f} s"
    if all(abs(value - BEST) < 1e-3 for value in (answer.objective, answer.bound)):
        return Finding("ok", text)
    return Finding("not ok", f"{text}: {answer.termination} {answer.detail}".strip())


def order_works(first: str, solver: str) -> Finding:
    """Load one solver package into a fresh process, then solve with another back end.

    The packages do not work together in one process; therefore each has its own worker process.
    """
    import subprocess

    code = (
        f"import sys, {first}\nfrom allocator.cli.doctor import solver_works\n"
        f"if __name__ == '__main__': sys.exit(solver_works({solver!r}).verdict != 'ok')"
    )
    text = f"{first.partition('.')[0]} loaded first, then a solve with {solver}"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding("not ok", f"{text}: no answer")
    if done.returncode == 0:
        return Finding("ok", text)
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return Finding("not ok", f"{text}: {last}")


def demo_works() -> Finding:
    """Read, validate, decide and audit the shipped snapshot."""
    from allocator import read_snapshot, solve
    from allocator.errors import AllocatorError
    from allocator.io.shipped import find_shipped

    try:
        result = solve(read_snapshot(find_shipped(DEMO)), time_limit_s=PATIENCE_S)
    except AllocatorError as error:
        return Finding("not ok", f"demo snapshot: {str(error).splitlines()[0]}")
    return Finding(
        "ok",
        f"demo snapshot: value {result.objective_value:.6g}, bound {result.bound:.6g}, "
        f"{result.seconds['total']:.3f} s",
    )


def trace_works() -> Finding:
    """Simulate the shipped trace; every job must finish."""
    from allocator import read_workload, simulate
    from allocator.errors import AllocatorError
    from allocator.io.shipped import find_shipped

    try:
        m = simulate(read_workload(find_shipped("workloads/demo")), policy="greedy").metrics
    except AllocatorError as error:
        return Finding("not ok", f"demo trace: {str(error).splitlines()[0]}")
    text = f"demo trace: {m['finished']} of {m['jobs']} jobs done in {m['rounds']} simulated rounds"
    return Finding("ok" if m["finished"] == m["jobs"] else "not ok", text)
