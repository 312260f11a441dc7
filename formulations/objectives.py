"""What an option is worth, as arrays. Formulas: formulations/README.md and contract section 3."""

from __future__ import annotations

import numpy as np

from formulations.linear import Bools, Floats


def pause_s(keep: Bools, running: Bools, restart_s: Floats, startup_s: Floats) -> Floats:
    """Seconds lost before work goes on: 0 to keep, restart + startup for a running job that changes, else startup."""
    return np.where(keep, 0.0, startup_s + np.where(running, restart_s, 0.0))


def work_done(rate: Floats, pause: Floats, interval_s: float) -> Floats:
    """Work of one interval: rate x max(0, interval - pause)."""
    return rate * np.maximum(0.0, interval_s - pause)


def progress(weight: Floats, done: Floats, remaining_work: Floats) -> Floats:
    """weight x min(1, done / remaining_work): the fraction of what is left that this round completes."""
    return weight * np.minimum(1.0, done / remaining_work)


def throughput(weight: Floats, done: Floats, remaining_work: Floats, base: Floats) -> Floats:
    """weight x min(done, remaining_work) / base, base = work of one interval as requested on the slowest type."""
    return weight * np.minimum(done, remaining_work) / base
