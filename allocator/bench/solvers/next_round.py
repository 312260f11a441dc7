"""Make the round after a generated one, to measure warm starts.

2 % of the jobs are replaced, and 5 % of the values change.
"""

from dataclasses import replace

import numpy as np

from allocator.policies.memory import Memory
from allocator.solvers.base import SolverResult, WarmStart
from formulations.model.instance import Instance
from formulations.model.linear import LinearModel

REPLACED = 0.02
MOVED = 0.05


def next_round(i: Instance, seed: int) -> Instance:
    """Return another round of the same cluster; options keep their indices.

    The same seed gives the same round. A replaced job is a new job with another name and other
    values, and does not run. A changed value changes by up to 10 %. A guarantee shrinks if jobs
    that held it are gone, so that changing nothing stays allowed.
    """
    rng = np.random.default_rng([seed, len(i.jobs), 1])
    gone = rng.random(len(i.jobs)) < REPLACED
    value = np.where(
        rng.random(len(i.value)) < MOVED, i.value * rng.uniform(0.9, 1.1, len(i.value)), i.value
    )
    value = np.where(gone[i.job], value * rng.uniform(0.5, 2.0, len(i.jobs))[i.job], value)
    keep = i.keep & ~gone[i.job]
    kept = np.flatnonzero(keep)
    held = i.usage(kept, i.gpus[kept]).astype(np.int64)
    left = int(keep.sum()) / max(1, int(i.keep.sum()))
    return replace(
        i,
        value=value,
        keep=keep,
        mandatory=i.mandatory & ~gone,
        guarantee=np.minimum(i.guarantee, held),
        least_kept=int(left * i.least_kept),
        jobs=[f"{name}-next" if g else name for name, g in zip(i.jobs, gone.tolist(), strict=True)],
    )


def warm_hint(before: LinearModel, answer: SolverResult, now: LinearModel) -> WarmStart:
    """Return the warm start that an answer gives to the next round.

    It has the plan, for options that kept their indices, and the prices by row.
    """
    values = answer.values if answer.values is not None and len(answer.values) == now.n else None
    prices = (
        None if answer.prices is None else Memory.of("", before, answer.prices).row_prices(now)[0]
    )
    return WarmStart(values, prices)
