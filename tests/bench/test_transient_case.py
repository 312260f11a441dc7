"""Published clusters simulated: time, cost and losses of eight spot K80, and shares of servers
lost by age.
"""

from __future__ import annotations

import numpy as np
from cases import transient as case
from places import ROOT

from allocator.domain.schema.spot_columns import CLUSTERS
from allocator.io.tables.one_table import read_table
from allocator.market.clusters import clusters
from allocator.market.spot import RunForecast, forecast_run

SHIPPED = ROOT / "data" / "spot" / "resnet32.csv"


def seen() -> dict[str, RunForecast]:
    """Outlooks of the shipped clusters by name."""
    return {
        o.cluster.name: o
        for o in (forecast_run(c, case.WORK) for c in clusters(*read_table(SHIPPED, CLUSTERS)))
    }


def test_every_published_cluster() -> None:
    """By formula within 8 % in time and 9 % in cost; median error below 4 %."""
    rows = [
        (o.seconds / case.PUBLISHED[name][0], o.dollars / case.PUBLISHED[name][1])
        for name, o in seen().items()
    ]
    errors = np.abs(np.array(rows) - 1)
    assert len(rows) == len(case.PUBLISHED) and (errors.max(axis=0) < [0.08, 0.09]).all()
    assert (np.median(errors, axis=0) < 0.04).all()
