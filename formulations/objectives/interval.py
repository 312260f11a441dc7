"""What an option does in one interval: seconds lost and used, work done, dollars.

a       = 0 if the option is what the running job holds;
          restart_s + startup_s if a running job changes; startup_s otherwise
done    = r max(0, D - a)
b       = min(D, a + R / r), the seconds in which the GPUs are held
dollars = m b / 3600, where b is at least min_billing_s unless the job holds the option
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Bools, Floats

HOUR = 3600.0  # seconds


def pause_s(keep: Bools, running: Bools, restart_s: Floats, startup_s: Floats) -> Floats:
    """Return the seconds that an option loses before work goes on."""
    return np.where(keep, 0.0, startup_s + np.where(running, restart_s, 0.0))


def work_done(rate: Floats, pause: Floats, interval_s: float) -> Floats:
    """Return the work of one interval, not limited by what remains."""
    return rate * np.maximum(0.0, interval_s - pause)


def busy_s(pause: Floats, rate: Floats, remaining_work: Floats, interval_s: float) -> Floats:
    """Return the seconds of the interval for which an option holds its GPUs."""
    return np.minimum(interval_s, pause + remaining_work / rate)


def dollars(keep: Bools, cost_per_hour: Floats, busy: Floats, min_billing_s: Floats) -> Floats:
    """Return what an option adds to the bill of the interval."""
    return cost_per_hour * np.where(keep, busy, np.maximum(busy, min_billing_s)) / HOUR
