"""Tenants of a queue: the tree and the quotas are kept, changed, checked and exported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Output, call
from places import ROOT

import allocator
from allocator.errors import InvalidInput, UsageError
from allocator.queue.database.connection import create_queue
from allocator.queue.queue import Queue

DEMO = ROOT / "data" / "snapshots" / "demo"


def test_tenants_are_set_listed_and_exported(capsys: Output, tmp_path: Path) -> None:
    """A tree, a quota by type and what is lent; the export has them, and a new queue again."""
    name = tmp_path / "cluster.db"

    def tenant(*words: object) -> int:
        return call(capsys, "queue", "tenant", "set", name, *words)[0]

    assert call(capsys, "queue", "init", name, "--from", DEMO)[0] == 0
    assert tenant("research", "--max-gpus", 12) == 0
    assert tenant("default", "--parent", "research", "--weight", 2) == 0
    rights = ("--guaranteed-gpus", 4, "--lend-gpus", 2, "--max-gpus", 6)
    assert tenant("default", "--type", "A100", *rights) == 0
    assert tenant("default", "--type", "A100", "--max-gpus", "") == 0
    told = json.loads(call(capsys, "queue", "tenant", "list", name, "--format", "json")[1])
    assert [(t["tenant"], t["parent"], t["max_gpus"]) for t in told["tenants"]] == [
        ("research", "", 12),
        ("default", "research", None),
    ]
    (quota,) = told["quotas"]
    assert (quota["guaranteed_gpus"], quota["max_gpus"], quota["lend_gpus"]) == (4, None, 2)
    out = call(capsys, "queue", "tenant", "list", name)[1]
    assert "research" in out and "A100" in out
    assert call(capsys, "queue", "export", name, tmp_path / "now")[0] == 0
    problem = allocator.validate(allocator.read_snapshot(tmp_path / "now"))
    assert problem.tenants.parent.tolist() == [-1, 0]
    assert problem.quotas.lend_gpus.tolist() == [2.0]
    again = tmp_path / "again.db"
    assert call(capsys, "queue", "init", again, "--from", tmp_path / "now")[0] == 0
    assert json.loads(call(capsys, "queue", "tenant", "list", again, "--format", "json")[1]) == told


def test_a_change_that_breaks_a_rule_changes_nothing(tmp_path: Path) -> None:
    """Circles, unknown names and values are refused with all faults, and nothing is stored."""
    store, _ = create_queue(str(tmp_path / "cluster.db"))
    with Queue(store) as queue:
        queue.set_tenant("a", {})
        queue.set_tenant("b", {"parent": "a"})
        before = queue.tenants()
        with pytest.raises(InvalidInput, match="parent makes a circle"):
            queue.set_tenant("a", {"parent": "b"})
        with pytest.raises(InvalidInput, match='gpu_type "A100" is a type of no pool'):
            queue.set_tenant("a", {"max_gpus": 4}, {"max_gpus": 4}, gpu_type="A100")
        with pytest.raises(UsageError, match="has no column"):
            queue.set_tenant("a", {"lend_gpus": 4})
        assert queue.tenants() == before
