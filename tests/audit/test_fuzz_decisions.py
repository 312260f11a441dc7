"""Damaged snapshots through the whole decision: a located refusal, a named conflict, or an
audited plan.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from examples import count
from fakes.random_rounds import random_snapshot
from mutations import mutate
from places import ROOT

from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.errors import Infeasible, InvalidInput, NoPlanInTime
from allocator.io.snapshots import read_snapshot
from allocator.solvers.base import SolveLimits

SHIPPED = ROOT / "data" / "snapshots"
POLICIES = ("mip", "mip", "greedy", "greedy-naive", "marginal")


def outcome(folder: dict[str, bytes], path: Path, policy: str, objective: str) -> str:
    """What became of one folder; anything but the listed outcomes raises and fails the test."""
    path.mkdir()
    for name, content in folder.items():
        (path / name).write_bytes(content)
    try:
        result = decide(
            validate(read_snapshot(path)),
            policy=policy,
            objective=objective,
            limits=SolveLimits(5.0, 1e-3),
        )
    except InvalidInput as e:
        assert e.faults and all(f.file and f.message for f in e.faults)
        return "refused"
    except Infeasible as e:
        assert e.relaxations
        return "infeasible"
    except NoPlanInTime:
        return "late"
    assert result.objective_value <= result.bound
    return "planned"


def run(number: int, seed: int, tmp_path: Path) -> Counter[str]:
    """Outcomes of `number` mutants."""
    rng = random.Random(seed)
    bases = [
        *({p.name: p.read_bytes() for p in (SHIPPED / n).iterdir()} for n in ("full", "demo")),
        *(random_snapshot(np.random.default_rng(s), 6).files() for s in range(4)),
    ]
    seen: Counter[str] = Counter()
    for i in range(number):
        folder = mutate(rng.choice(bases), rng)
        seen[
            outcome(
                folder,
                tmp_path / str(i),
                rng.choice(POLICIES),
                rng.choice(("progress", "throughput")),
            )
        ] += 1
    return seen


def test_damaged_snapshots_never_crash_a_decision(tmp_path: Path) -> None:
    """Many mutants are refused, many planned, none late."""
    mutants = count(60, 600)
    seen = run(mutants, 1, tmp_path)
    assert seen["refused"] > mutants / 4 and seen["planned"] > mutants / 10 and not seen["late"]


@pytest.mark.soak
def test_damaged_snapshots_soak(tmp_path: Path) -> None:
    """10,000 mutants with another seed."""
    seen = run(10_000, 2, tmp_path)
    assert sum(seen.values()) == 10_000 and not seen["late"]
