"""The shipped snapshots show what their pages say, and medium is what its generator makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases.clusters import MEDIUM, MEDIUM_SEED, generate
from examples import series
from folders import content
from places import FAULTY, ROOT

import allocator
from allocator.domain.schema.columns import TABLES

DATA = ROOT / "data" / "snapshots"
FAULTS = sorted(path.name for path in FAULTY.glob("fault-*"))
POLICIES = ("mip", "greedy", "greedy-naive", "marginal")


def test_regenerating_changes_no_byte(tmp_path: Path) -> None:
    """The generator writes exactly the committed folder."""
    generate(MEDIUM, MEDIUM_SEED).write(tmp_path)
    assert content(tmp_path).items() <= content(DATA).items()


@pytest.mark.parametrize("name", FAULTS)
def test_faulty_folder_is_refused_as_expected(name: str) -> None:
    """Reading and validating reports the lines of expected.txt, each with its file."""
    folder = FAULTY / name
    with pytest.raises(allocator.InvalidInput) as caught:
        allocator.validate(allocator.read_snapshot(folder))
    lines = (folder / "expected.txt").read_text(encoding="utf-8").splitlines()
    assert str(caught.value).splitlines() == lines
    assert all(line.split(":")[0] in {*TABLES, "config.toml"} for line in lines)


CULPRITS = {
    "infeasible-guarantees-above-capacity": "guarantee",
    "infeasible-fixed-above-budget": "budget",
    "infeasible-guarantee-above-quota": "guarantee",
    "infeasible-quota-cut-without-changes": "max_changes",
}


@pytest.mark.parametrize("policy", series(POLICIES, 1))
@pytest.mark.parametrize("name", CULPRITS)
def test_infeasible_folder_names_the_rule(name: str, policy: str) -> None:
    """Sound input, no plan, whatever the policy: the rule that stands in the way is named with a
    relaxation.
    """
    with pytest.raises(allocator.Infeasible) as caught:
        allocator.solve(allocator.read_snapshot(FAULTY / name), policy=policy)
    assert caught.value.relaxations
    assert CULPRITS[name] in str(caught.value)


@pytest.mark.parametrize("policy", series(POLICIES, 1))
def test_repaired_folder_gets_a_plan_and_a_warning(policy: str) -> None:
    """A plan within what is left of the pool, and a warning that names the pool or the job."""
    result = allocator.solve(
        allocator.read_snapshot(DATA / "repaired-drained-under-fixed"), policy=policy
    )
    big = next(p for p in result.pools if p.pool == "big")
    assert big.used <= big.gpus == 2
    assert any("bert-1" in w or '"big"' in w for w in result.warnings), result.warnings
