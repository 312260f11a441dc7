"""Write capacity.csv and prices.csv of a workload whose spot pools change."""

from __future__ import annotations

from collections.abc import Sequence

from allocator.bench.workloads.parts.availability import StepFunction
from allocator.bench.workloads.parts.tables import Columns
from allocator.domain.problem import Floats

Walk = tuple[Floats, Floats]  # times and dollars per GPU-hour


def changes(
    names: Sequence[str],
    there: Sequence[StepFunction],
    machine: int,
    walks: Sequence[Walk],
    until_s: float,
) -> dict[str, Columns]:
    """Return every change after time 0 up to until_s.

    `there` has the available machines of each pool; a machine has `machine` GPUs. `walks` has the
    prices of each pool.
    """
    moves = sorted(
        (t, n, int(v) * machine)
        for n, z in zip(names, there, strict=True)
        for t, v in zip(z.at_s[1:].tolist(), z.value[1:].tolist(), strict=True)
        if t <= until_s
    )
    prices = sorted(
        (t, n, p)
        for n, (when, price) in zip(names, walks, strict=True)
        for t, p in zip(when[1:].tolist(), price[1:].tolist(), strict=True)
        if t <= until_s
    )
    return {
        "capacity.csv": _columns(("at_s", "pool", "gpus"), moves),
        "prices.csv": _columns(("at_s", "pool", "price_per_gpu_hour"), prices),
    }


def _columns(names: tuple[str, ...], rows: Sequence[tuple[float, str, float]]) -> Columns:
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}
