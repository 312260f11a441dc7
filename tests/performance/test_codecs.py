"""Codecs: rows of rates.csv whose speed depends on the link of the pool."""

from __future__ import annotations

from typing import Any

import pytest
from builders import snapshot

from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.explain import explain
from allocator.errors import InvalidInput

Row = dict[str, Any]
LINKS = {"slow": 1.25, "fast": 25.0, "none": None}


def rows(compute_s: float, volume_gb: float, codecs: list[tuple[float, float, float]]) -> list[Row]:
    """The row without a codec, and one for each (seconds, ratio, efficiency)."""
    step = {"gpu_type": "A", "gpus": 2, "work_per_s": 8.0, "compute_s": compute_s}
    plain = {**step, "volume_gb": volume_gb}
    return [plain] + [
        {**plain, "codec_s": c, "ratio": r, "efficiency": e, "variant": f"codec-{i}"}
        for i, (c, r, e) in enumerate(codecs)
    ]


def test_explain_names_the_codec_of_each_option() -> None:
    pools = [{"pool": name, "gpus": 2, "link_gb_s": LINKS[name]} for name in ("slow", "fast")]
    told = explain(
        snapshot(
            [{"job_id": "a", "sizes": [2], "min_gpus": 2, "remaining_work": 1e5}],
            pools,
            rows(0.2, 0.5, [(0.06, 20.0, 0.95)]),
        ),
        "a",
    )
    assert {o["pool"]: o["variant"] for o in told.options} == {"slow": "codec-0", "fast": None}
    assert any("2 x slow" in line and "(codec-0)" in line for line in told.lines())


def test_parts_of_a_step_need_the_step() -> None:
    with pytest.raises(InvalidInput, match="volume_gb needs compute_s"):
        validate(snapshot(rates=[{"gpu_type": "A", "gpus": 1, "work_per_s": 1, "volume_gb": 2}]))
