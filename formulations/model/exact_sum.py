"""The correctly rounded sum of an array, as `math.fsum` has it, in a fraction of the time.

The array is split into parts of which each is a multiple of one power of two, so that the sum of a
part is exact whatever the order (Rump, Ogita and Oishi 2008, "Accurate floating-point summation,
part I", SIAM J. Sci. Comput. 31). Two or three parts are the whole of most arrays.
"""

from __future__ import annotations

import math

import numpy as np

from formulations.model.linear import Floats

FEW = 500  # numbers that math.fsum adds as fast
PARTS = 8  # at most; more are needed only by numbers of very different sizes
LARGEST = 2.0**900  # size above which the splitting could overflow


def exact_sum(numbers: Floats) -> float:
    """Return the correctly rounded sum of finite numbers (n,).

    Examples
    --------
    >>> import numpy as np
    >>> from formulations.model.exact_sum import exact_sum
    >>> exact_sum(np.tile([0.1, 1e17, -1e17], 1000)) == math.fsum([0.1] * 1000)
    True
    """
    if len(numbers) <= FEW:
        return math.fsum(numbers.tolist())
    rest = numbers
    sums: list[float] = []
    spread = math.ceil(math.log2(len(numbers) + 2))
    for _ in range(PARTS):
        largest = float(np.abs(rest).max())
        if largest == 0.0:
            return math.fsum(sums)
        if not largest < LARGEST:  # also nan
            break
        limit = math.ldexp(1.0, math.frexp(largest)[1] + spread)
        part = (limit + rest) - limit
        sums.append(float(part.sum()))
        rest = rest - part
    return math.fsum(numbers.tolist())
