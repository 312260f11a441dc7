"""Revocations by age of a server, as pools.csv and clusters.csv write them: "0:0.08|1:0.02"."""

import math
from functools import lru_cache

import numpy as np

from formulations.transient.revocations import Hazard


@lru_cache(maxsize=1024)
def parse_hazard(text: str) -> Hazard:
    """Return the hazard of a text, without a lifetime.

    Raises ValueError with what is wrong with it.

    Examples
    --------
    >>> parse_hazard("0:0.08|1:0.02").per_hour
    array([0.08, 0.02])
    """
    try:
        pairs = [part.split(":") for part in text.split("|")]
        age, rate = np.array([[float(a), float(h)] for a, h in pairs]).T
        is_right = (
            age[0] == 0
            and np.isfinite([age, rate]).all()
            and (np.diff(age) > 0).all()
            and (rate >= 0).all()
        )
    except ValueError:
        is_right = False
    if not is_right:
        raise ValueError(
            "is not HOURS:HAZARD|HOURS:HAZARD.. with hours that "
            'ascend from 0 and hazards per hour at least 0, such as "0:0.08|1:0.02"'
        )
    return Hazard(rate, age)


def name_hazard(hazard: Hazard) -> str:
    """Return the text of a hazard, from which `parse_hazard` makes it again, to 6 digits."""
    pieces = zip(hazard.start_h.tolist(), hazard.per_hour.tolist(), strict=True)
    return "|".join(f"{a:.6g}:{h:.6g}" for a, h in pieces)


def pool_hazard(text: str, per_hour: float) -> Hazard:
    """Return the hazard of a pool, by age if a text gives it, else the same at every age."""
    return parse_hazard(text) if text else Hazard.constant(per_hour, math.inf)
