"""Codecs: rows of rates.csv whose speed depends on the link of the pool."""

from __future__ import annotations

import pytest
from builders import snapshot

from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.advice.trials import SolveCommand
from allocator.engine.explain import explain
from allocator.errors import InvalidInput


def test_explain_names_the_codec_of_each_option() -> None:
    """Compression pays where the link is slow."""
    plain = {"gpu_type": "A", "gpus": 2, "work_per_s": 8.0, "compute_s": 0.2, "volume_gb": 0.5}
    coded = plain | {"codec_s": 0.06, "ratio": 20.0, "efficiency": 0.95, "variant": "topk"}
    pools = [{"pool": "slow", "link_gb_s": 1.25}, {"pool": "fast", "link_gb_s": 25.0}]
    round_ = snapshot([{"sizes": [2], "min_gpus": 2}], pools, [plain, coded])
    told = explain(round_, "j0", SolveCommand())
    assert {o["pool"]: o["variant"] for o in told.options} == {"slow": "topk", "fast": None}
    assert any("2 x slow" in line and "(topk)" in line for line in told.lines())


def test_parts_of_a_step_need_the_step() -> None:
    with pytest.raises(InvalidInput, match="volume_gb needs compute_s"):
        validate(snapshot(rates=[{"gpu_type": "A", "gpus": 1, "work_per_s": 1, "volume_gb": 2}]))
