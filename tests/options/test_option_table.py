"""The option table: sizes, types, speeds, pauses, values; against a plain per-job reading of the
rules.
"""

from __future__ import annotations

import pytest
from builders import LINEAR, problem

from allocator.domain.problem import Problem
from allocator.domain.size_rule import sizes_by_rule
from allocator.options.option_table import OptionTable, option_table
from allocator.performance.table import RateTable


def options(p: Problem, job: int = 0) -> dict[tuple[str, int], float]:
    """{(pool, gpus): value} of one job."""
    m = of(p)
    return {
        (p.pools.pool[m.pool[o]], int(m.gpus[o])): float(m.value[o])
        for o in range(m.start[job], m.start[job + 1])
    }


def of(p: Problem) -> OptionTable:
    return option_table(p, RateTable.of(p))


@pytest.mark.parametrize(
    ("per_node", "largest", "sizes"),
    [
        (8, 32, [1, 2, 4, 8, 16, 24, 32]),
        (4, 13, [1, 2, 4, 8, 12]),
        (6, 18, [1, 2, 4, 6, 12, 18]),
        (1, 3, [1, 2, 3]),
        (8, 5, [1, 2, 4]),
        (3, 0, []),
    ],
)
def test_sizes_by_rule(per_node: int, largest: int, sizes: list[int]) -> None:
    """Powers of two up to a node, then whole nodes."""
    assert sizes_by_rule(per_node, largest).tolist() == sizes


def test_size_between_two_measured_ones_is_interpolated_and_capped() -> None:
    """k=3 between r(2)=3 and r(4)=8: min(3 + 5/2, 3 x 3/2) = 4.5; k=6 between 8 and r(8)=10: 9;
    16 is not offered.
    """
    p = problem(
        [{"sizes": [1, 2, 3, 6, 16], "max_gpus": 16, "remaining_work": 1e6}],
        [{"gpus": 32}],
        {2: 3.0, 4: 8.0, 8: 10.0},
    )
    m = of(p)
    assert m.gpus.tolist() == [2, 3, 6]
    assert m.rate.tolist() == [3.0, 4.5, 9.0]
    assert m.row.tolist() == [0, -1, -1]


def test_types_ranges_lists_and_pool_sizes_limit_the_option_table() -> None:
    """Only allowed types, sizes within the range, and no more than the pool has."""
    pools = [{"gpu_type": "A", "gpus": 8}, {"gpu_type": "B", "gpus": 4}]
    p = problem(
        [{"gpu_types": ["B"], "min_gpus": 2}, {"sizes": [3, 8], "max_gpus": 4}, {}], pools, LINEAR
    )
    assert list(options(p, 0)) == [("p1", 2), ("p1", 4)]
    assert list(options(p, 1)) == [("p0", 3), ("p1", 3)]
    assert list(options(p, 2)) == [
        ("p0", 1),
        ("p0", 2),
        ("p0", 4),
        ("p0", 8),
        ("p1", 1),
        ("p1", 2),
        ("p1", 4),
    ]


def test_throughput_by_hand() -> None:
    """base = 300 s x the slowest allowed type at requested_gpus (B: 0.5/GPU); 4 GPUs of A do 8
    times that of 1 of B.
    """
    rates = [{"gpu_type": "A", "gpus": k, "work_per_s": k} for k in (1, 4)]
    rates += [{"gpu_type": "B", "gpus": k, "work_per_s": k / 2} for k in (1, 4)]
    pools = [{"gpu_type": "A"}, {"gpu_type": "B"}]
    p = problem(
        [{"sizes": [1, 4], "remaining_work": 1e6}], pools, rates, config={"objective": "throughput"}
    )
    assert options(p) == {("p0", 1): 2.0, ("p0", 4): 8.0, ("p1", 1): 1.0, ("p1", 4): 4.0}


def test_what_a_job_holds_is_an_option_whatever_sizes_says() -> None:
    """Holding 3 GPUs of a type it may no longer use: keeping is offered, with no pause."""
    p = problem(
        [{"state": "running", "pool": "p0", "gpus": 3, "sizes": [1], "gpu_types": ["B"]}],
        [{"gpu_type": "A"}, {"gpu_type": "B"}],
        LINEAR,
    )
    m = of(p)
    assert [(int(m.pool[o]), int(m.gpus[o]), bool(m.keep[o])) for o in range(len(m))] == [
        (0, 3, True),
        (1, 1, False),
    ]
    assert m.pause_s.tolist() == [0.0, 30.0]


def test_curve_fills_sizes_without_rows_and_rows_win() -> None:
    """Power law r = 2 k^0.5 offers 1, 2, 4, 8; the measured row at 4 replaces it there."""
    p = problem(
        [{"remaining_work": 1e6}],
        [{}],
        [{"gpu_type": "A", "gpus": 4, "work_per_s": 5}],
        models=[
            {
                "model": "m",
                "gpu_type": "A",
                "kind": "power",
                "parameters": '{"rate_1": 2, "exponent": 0.5}',
            }
        ],
    )
    m = of(p)
    assert m.gpus.tolist() == [1, 2, 4, 8]
    assert m.rate.tolist() == pytest.approx([2.0, 2 * 2**0.5, 5.0, 2 * 8**0.5])
