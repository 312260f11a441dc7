"""GPUs of pools that are kept: at most so many may be taken by the options that count.

    sum_{o in p} amount_o x_o <= most_p

Headroom for interactive jobs, reservations and nodes that leave are rows of this kind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from formulations.model.linear import Floats, Ints


@dataclass(frozen=True)
class KeptGpus:
    """The rows of one kind; n options, P pools.

    Attributes
    ----------
    kind : str
        `IDLE`, `HEADROOM`, `RESERVATION` or `LEAVING` of formulations/model/linear.py.
    amount : (n,)
        GPUs that an option takes of those that are not kept, 0 = it does not count.
    most : (P,)
        Largest sum in a pool, inf = none are kept.
    """

    kind: str
    amount: Ints
    most: Floats

    def take(self, option: Ints) -> KeptGpus:
        """Return the rows for only these options."""
        return replace(self, amount=self.amount[option])
