"""Codecs: rows of rates.csv whose speed depends on the link of the pool."""

from __future__ import annotations

from typing import Any

import pytest
from builders import problem, snapshot
from hypothesis import given, settings, strategies as st

from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
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


def sent(row: Row, link_gb_s: float | None, steps: int = 40, packets: int = 50) -> float:
    """Work a second of steps that happen one after the other: computing, compressing, and each
    packet of the volume by itself."""
    now = work = 0.0
    for _ in range(steps):
        now += row["compute_s"] + row.get("codec_s", 0.0)
        left = row["volume_gb"] / row.get("ratio", 1.0)
        packet = left / packets
        while link_gb_s and left > packet / 2:
            now, left = now + packet / link_gb_s, left - packet
        work += row["work_per_s"] * row["compute_s"] * row.get("efficiency", 1.0)
    return work / now


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.01, 5),
    st.floats(0.01, 5),
    st.lists(
        st.tuples(st.floats(0.001, 2), st.floats(1, 100), st.floats(0.3, 1)), min_size=1, max_size=4
    ),
    st.sampled_from(tuple(LINKS)),
)
def test_the_plan_names_the_fastest_of_all_codecs(
    compute_s: float, volume_gb: float, codecs: list[tuple[float, float, float]], link: str
) -> None:
    """Its speed is that of steps that send packet by packet, and no other codec is faster."""
    listed = rows(compute_s, volume_gb, codecs)
    p = problem(
        [{"sizes": [2], "min_gpus": 2, "remaining_work": 1e6}],
        [{"gpus": 2, "link_gb_s": LINKS[link]}],
        listed,
    )
    plan, speeds = decide(p), [sent(row, LINKS[link]) for row in listed]
    assert plan.jobs["work_per_s"][0] == pytest.approx(max(speeds))
    named = [row.get("variant") for row in listed].index(plan.jobs["variant"][0])
    assert speeds[named] == pytest.approx(max(speeds))


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
