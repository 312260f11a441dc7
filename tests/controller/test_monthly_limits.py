"""A controller counts the GPU-hours of the month, also after a restart, and stops at the limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from controller_rigs import Rig
from queues import NOW

from allocator.domain.records import USER
from allocator.domain.times import month_start_s
from allocator.queue.costs import read_costs

HOUR = 3600.0
TENANTS = "tenant,parent,gpu_hours_per_month,gpu_hours_used\nred,,0.3,99\nteam,red,,\n"


@pytest.mark.parametrize("restarts", [True, pytest.param(False, marks=pytest.mark.nightly)])
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
    assert rig.said("GPU-hours   red: 0.267 of 0.3 this month; at this rate they are gone ")
    rig.queue.set_tenant("red", {"gpu_hours_per_month": 1}, {})
    rig.steps(120)
    assert rig.wanted()["a"] == ("a", 4)
    rig.replay_all()


def test_costs_by_month_user_and_model(rig: Rig) -> None:
    """A job of 2 GPUs at 2.5 $ from about an hour before December to an hour after its start, and
    one of another model that begins in the middle, split by month."""
    rig.clock.now_s = month_start_s(NOW, 1) - 3720
    rig.submit("a", work=1e6, gpus=2, tenant="blue")
    rig.steps(3600, 600)
    rig.submit("b", model="n", work=1e6, gpus=1, tenant="red", environment={USER: "eve"})
    rig.steps(3600, 600)
    now_s, since_s = rig.clock.now_s, month_start_s(NOW)
    with rig.queue.store.read() as connection:
        rows = read_costs(connection, now_s, since_s, ("month", "user", "model"))
    hours = {(row["month"], row["user"], row["model"]): row["gpu_hours"] for row in rows}
    first = month_start_s(now_s)
    a, b = (rig.history(name)[0]["ordered_s"] for name in "ab")
    assert hours == pytest.approx(
        {
            ("2023-11", "", "m"): 2 * (first - a) / HOUR,
            ("2023-11", "eve", "n"): (first - b) / HOUR,
            ("2023-12", "", "m"): 2 * (now_s - first) / HOUR,
            ("2023-12", "eve", "n"): (now_s - first) / HOUR,
        }
    )
    assert [row["dollars"] for row in rows] == pytest.approx([2.5 * h for h in hours.values()])
