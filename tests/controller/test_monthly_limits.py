"""A controller counts the GPU-hours of the month, also after a restart, and stops at the limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from controller_rigs import Rig

HOUR = 3600.0
TENANTS = "tenant,parent,gpu_hours_per_month,gpu_hours_used\nred,,0.3,99\nteam,red,,\n"


@pytest.mark.parametrize("restarts", [False, True])
def test_the_limit_of_a_month(make: Callable[..., Rig], restarts: bool) -> None:
    """A job of 4 GPUs uses .0667 GPU-hours a minute: .3 of its tenant's parent are used up after
    four rounds and a half, so it stops after the fourth. What an imported snapshot says of use does
    not count. A higher limit lets it go on. Every round can be decided again."""
    rig = make(tables={"tenants.csv": TENANTS})
    rig.submit("a", work=5000, gpus=4, tenant="team")
    rig.steps(150)
    if restarts:
        rig.renew()
    rig.steps(450)
    held = sum((a["ended_s"] - a["ordered_s"]) * a["gpus"] for a in rig.history("a")) / HOUR
    assert 0.2 < held <= 0.3
    assert rig.wanted()["a"] == ("", 0)
    [line] = rig.said("GPU-hours")
    assert line.startswith("GPU-hours   red: 0.267 of 0.3 this month; at this rate they are gone")
    assert float(rig.column("tenants", "gpu_hours_per_month")[0]) == 0.3
    rig.queue.set_tenant("red", {"gpu_hours_per_month": 1}, {})
    rig.steps(120)
    assert rig.wanted()["a"] == ("a", 4)
    rig.replay_all()
