"""Speeds of a job with some of its GPUs as parameter servers, from measured speeds.

Of the k GPUs of an option, m hold the parameters and w = k - m compute. No law says what a further
server carries, so only measured numbers of servers are offered, and no more workers than were
measured with them. Between two measured numbers of workers the speed is on the line between theirs,
and below the smallest one it is in proportion. A further worker gains no more than the one before
it, because all queue at the same servers. So the line is never above the true speed. `fit_cap` says
what the m servers carry together.

The rows of one size use the same GPUs at the same price. So the fastest one is better than the
others under every objective, and a round needs no more than the rule of rates.csv to choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Floats, Ints
from allocator.performance.fit.transient import CapFit, fit_cap


@dataclass(frozen=True)
class ServerFit:
    """Speeds of one model on one GPU type with one number of servers.

    Attributes
    ----------
    workers, speed : (S,)
        Measured numbers of workers, ascending, and their mean speeds.
    """

    model: str
    gpu_type: str
    servers: int
    workers: Floats
    speed: Floats
    cap: CapFit

    @property
    def variant(self) -> str:
        """Name of the rows with so many servers."""
        if self.servers == 0:
            return "no server"
        return "1 server" if self.servers == 1 else f"{self.servers} servers"

    def rate(self, gpus: Ints) -> Floats:
        """Return the work per second on so many GPUs, servers included, (n,).

        It is nan where no GPU is left to work, or more would work than were measured.
        """
        workers = np.asarray(gpus, np.float64) - self.servers
        rate = np.interp(workers, np.append(0.0, self.workers), np.append(0.0, self.speed))
        return np.where((workers >= 1) & (workers <= self.workers[-1]), rate, np.nan)


def fit_servers(
    model: Sequence[str], gpu_type: Sequence[str], servers: Ints, workers: Ints, speed: Floats
) -> tuple[ServerFit, ...]:
    """Fit the speeds of each model, GPU type and number of servers, in order of their names.

    Parameters
    ----------
    model, gpu_type, servers, workers, speed : (S,)
        The measurements: speed is the work per second of all workers together.

    Raises
    ------
    ValueError
        If some number of servers was measured with one number of workers only.

    Examples
    --------
    >>> import numpy as np
    >>> n = np.array([1, 2, 4, 8])
    >>> (fit,) = fit_servers(["m"] * 4, ["A"] * 4, 0 * n + 1, n, np.minimum(10.0 * n, 25.0))
    >>> fit.variant, fit.rate(np.array([1, 3, 5, 9]))
    ('1 server', array([ nan, 20. , 25. , 25. ]))
    """
    groups: dict[tuple[str, str, int], list[int]] = {}
    for i, key in enumerate(zip(model, gpu_type, servers.tolist(), strict=True)):
        groups.setdefault(key, []).append(i)
    out = []
    for (name, kind, m), rows in sorted(groups.items()):
        try:
            cap = fit_cap(workers[rows].astype(np.float64), speed[rows])
        except ValueError as why:
            raise ValueError(f"{name} on {kind} with {m} servers: {why}") from None
        n, place = np.unique(workers[rows].astype(np.float64), return_inverse=True)
        place = place.reshape(-1)
        mean = np.exp(np.bincount(place, np.log(speed[rows])) / np.bincount(place))
        out.append(ServerFit(name, kind, m, n, mean, cap))
    return tuple(out)


def list_rates(
    fits: Sequence[ServerFit], sizes: Sequence[int] = ()
) -> list[tuple[str, str, int, float, str]]:
    """Return rows of rates.csv: model, gpu_type, gpus, work_per_s, variant.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of GPUs, servers included; none: powers of two up to the largest measured number.
    """
    most = max(int(f.workers[-1]) + f.servers for f in fits)
    wanted = np.array(sorted(set(sizes)) or [1 << i for i in range(most.bit_length())])
    return [
        (f.model, f.gpu_type, k, rate, f.variant)
        for f in fits
        for k, rate in zip(wanted.tolist(), f.rate(wanted).tolist(), strict=True)
        if not np.isnan(rate)
    ]
