"""Give jobs a speed curve where a trace has no speeds.

If its size may change (TraceOptions.invents), each job gets one of a few measured forms:

    rate(k) = speed k / (1 + c (k - 1))

This is the work per second on k GPUs; it is 1 on one GPU of the reference type. c is what each
further GPU costs all the others. Published scaling within a machine gives c from 0.005 (vision
models, fast links) to 0.15 (translation models), see docs/traces.md. Six values, evenly spaced in
log c, are drawn with equal chance. The work of a job is its duration in the trace times its rate at
the requested size on the slowest type that it may use. On that type and at that size it therefore
runs exactly as long as in the trace, and it runs faster on faster types. For a job that only runs
at the requested size c does not matter and is 0.
"""

from collections.abc import Sequence

import numpy as np

from allocator.domain.problem import Floats, Ints
from allocator.domain.schema.cells import Cells
from allocator.errors import UsageError
from allocator.io.traces.base import TraceOptions, TracePool, map_distinct

PREFIX = "overhead-"


def draw_curves(models: Sequence[str], options: TraceOptions) -> tuple[str, ...]:
    """Draw the curve of each job, of which the trace says the model, or "".

    Jobs of one model scale alike, and the name of their curve keeps it: "bert overhead-0.02". Where
    no model is known, each job has a curve of its own. The result depends on the seed only: a later
    selection of jobs does not change it.
    """
    distinct = sorted(set(models)) if any(models) else models
    drawn = [name(0)] * len(distinct)
    if options.invents:
        if not options.curves or not all(0 <= c <= 10 for c in options.curves):
            raise UsageError(
                "curves must be numbers from 0 to 10, got"
                f" {', '.join(f'{c:g}' for c in options.curves) or 'none'}"
            )
        rng = np.random.default_rng([options.seed, 1])
        at = rng.integers(0, len(options.curves), len(distinct))
        drawn = [name(options.curves[i]) for i in at.tolist()]
    if distinct is models:
        return tuple(drawn)
    curve = dict(zip(distinct, drawn, strict=True))
    return tuple(f"{m} {curve[m]}" if m else curve[m] for m in models)


def name(c: float) -> str:
    return f"{PREFIX}{c:g}"


def overhead(models: Sequence[str]) -> Floats:
    """Return c of each model name, shape (n,)."""
    values = map_distinct(lambda m: float(m.rpartition(PREFIX)[2]), models)
    return np.array(values, dtype=np.float64)


def rate(c: Floats, k: Ints) -> Floats:
    """Return work per second on k GPUs of the reference type."""
    return k / (1.0 + c * (k - 1.0))


def list_curves(models: Sequence[str], pools: Sequence[TracePool]) -> dict[str, Cells]:
    """Return models.csv: each distinct model on each GPU type, up to its largest pool."""
    speed = {p.gpu_type: p.speed for p in pools}
    names = sorted(set(models))
    rows = [
        (model, gpu_type, "overhead", {"rate_1": rate_1, "c": c, "max_gpus": most})
        for model, c in zip(names, overhead(names).tolist(), strict=True)
        for gpu_type, rate_1 in speed.items()
        for most in (max(p.gpus for p in pools if p.gpu_type == gpu_type),)
    ]
    columns = ("model", "gpu_type", "kind", "parameters")
    return dict(zip(columns, zip(*rows, strict=True), strict=True))
