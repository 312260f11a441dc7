"""Gradient accumulation: the same global batch in m smaller passes, which need less memory.

    t_iter(B, m) = (m - 1) t(B/m) + (t(B/m)^d + comm^d)^(1/d)          t(x) = a0 + a1 x
    memory(B, m) = fixed + per_sample B/m

B is the batch of one GPU; a0, a1 and comm are seconds. d >= 1 says how much the synchronisation of
the last pass overlaps with computing (1 = not at all). The batch of a step, and with it
convergence, does not depend on m. Which m a pair takes: `allocator/performance/colocated_speed.py`.
Sources: step time, Qiao et al., "Pollux", OSDI 2021, section 3.2; more passes that make two jobs
fit, Luo et al., IWQoS 2024.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Floats


def combine_overlapping_times(a: Floats, b: Floats, gamma: Floats) -> Floats:
    """Return (a^gamma + b^gamma)^(1/gamma) for a, b >= 0 without overflow.

    This is the sum at gamma 1, and nearly the larger of the two at gamma 10.
    """
    most = np.maximum(np.maximum(a, b), 1e-300)
    return most * (1.0 + (np.minimum(a, b) / most) ** gamma) ** (1.0 / gamma)


def step_s(
    a0: Floats, a1: Floats, comm: Floats, d: Floats, batch: Floats, passes: Floats
) -> Floats:
    """Return the seconds of a step of `batch` samples per GPU in `passes` passes.

    All arguments are arrays that broadcast.
    """
    pass_s = a0 + a1 * batch / passes
    return (passes - 1.0) * pass_s + combine_overlapping_times(pass_s, comm, d)


def memory_per_gpu(fixed: Floats, per_sample: Floats, batch: Floats, passes: Floats) -> Floats:
    """Return the memory that the job needs on one GPU, in the unit of `fixed`.

    All arguments are arrays that broadcast.
    """
    return fixed + per_sample * batch / passes
