"""Exploring: who is paid for running where it teaches most; its bounds. What it is
worth is in tests/audit/test_value_matrix.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from builders import problem

from allocator.options.instance_building import compile_round
from allocator.options.option_table import OptionTable


def test_one_job_for_each_curve_and_no_more_gpus_than_the_share() -> None:
    """Of three jobs of a model one is to try four GPUs, the first of those that lose least by it; a
    share of 3 of 8 GPUs, or of none, has no space for four."""
    jobs = [{"remaining_work": 1e6, "sizes": [1, 4], "weight": w} for w in (2, 1, 3)]
    curve = '{"rate_1": 1.0, "exponent": 0.5, "error": 0.3}'
    model = {"model": "m", "gpu_type": "A", "kind": "power", "parameters": curve}

    def offered(**config: Any) -> OptionTable:
        p = problem(jobs, [{"gpus": 8}], {1: 1.0}, models=[model], config=config)
        return compile_round(p, prunes=False).option_table

    without = offered()
    for share, tried in ((0.5, [(0, 4)]), (0.4, []), (0.0, [])):
        m = offered(profiling={"share": share, "rounds": 6})
        more = np.flatnonzero(m.value - without.value)
        assert list(zip(m.job[more].tolist(), m.gpus[more].tolist(), strict=True)) == tried
