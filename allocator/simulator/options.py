"""Options of a simulation. With the defaults the world is exactly as the policy believes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from allocator.domain.schema.columns import SIZES, SPEEDS
from allocator.domain.settings import checked_horizon
from allocator.errors import UsageError
from allocator.solvers.effort import GAP

VICTIMS = ("youngest", "random")
CHECKPOINTS = ("given", "young-daly")
PLACEMENTS = ("repair", "wait")


@dataclass(frozen=True)
class SimulationOptions:
    """The options of a simulation.

    Parameters
    ----------
    seed : int
        Seed of everything random, and of the solver.
    solver, gap, time_limit_s, threads
        Effort of each decision, as of `allocator.solve`.
    objective, sizes, budget, interval_s, ageing_s, horizon
        Instead of those of the workload: the objective, what is known of job sizes, US dollars per
        hour, seconds of a round, seconds of ageing, intervals that the policy `horizon` plans.
    budget_average, budget_amount, budget_window_s : float, optional
        Long-run budget instead of the workload's: US dollars per hour on average, in windows of so
        many seconds; or US dollars until `until_s`.
    speeds : str
        What policies know of speeds. "known": the truth, or what `misjudged` and `noise` leave of
        it. "learned": the speed of a model at its smallest size, and what is fitted to the jobs of
        the model that have run. "noisy": a profile that is wrong by `misjudged` for each model and
        GPU type, corrected by what is observed. See simulator/speed_beliefs.py.
    misjudged, noise : float
        Standard deviation of log(true speed / believed speed) of each job on each GPU type, and of
        each start of an allocation anew.
    misjudged_sizes : float
        Standard deviation of log(believed / true total work), median 1. A job that outlives its
        size is believed to need a tenth of what it has done.
    misjudged_slowdowns : float
        Standard deviation of log(believed / true slowdown) of each two models on the same GPUs, on
        each GPU type; what is observed of colocated jobs corrects it. See
        simulator/slowdown_beliefs.py.
    loss_noise : float, optional
        Jobs report losses, on curves of their own, times a factor whose logarithm has this standard
        deviation: what is left of them follows from these. Default: none. See
        simulator/loss_beliefs.py.
    failures_per_gpu_hour : float
        Rate at which a running job fails and falls back to its last checkpoint.
    failures_per_node_hour, node_repair_s : float
        Rate at which a node goes down with all its jobs, and seconds until it is up again.
    placement : str
        What becomes of a job of a plan for which there are no nodes. "repair": others move, or it
        gets another option, as `allocator.solve` does. "wait": it waits and holds nothing, for
        comparisons.
    revocations : float
        Spot servers are revoked at so many times `revocations_per_gpu_hour` of their pool.
    spot_batch : float
        Mean number of servers that one event takes in a zone whose spot pools are all in use.
    spot_burst, spot_burst_s : float
        Hazard before this age in seconds, relative to that after it.
    startup_spread : float
        Standard deviation of log(start-up time / `startup_s`), mean 1. Each server of a spot pool
        that can lose some draws its own; elsewhere all GPUs of a start come up together.
    victims : str
        Jobs that lose GPUs when capacity falls: "youngest" (the last to start) or "random".
    checkpoints : str
        "given": every `checkpoint_every_s`; "young-daly": every sqrt(2 checkpoint_s / (GPUs x
        hazard)) on pools with a hazard.
    latency_s, latency_factor : float
        A plan takes effect so many seconds after its round, plus so many times the seconds that
        deciding took. With a factor a run is not reproducible to the byte.
    react_s : float
        Arrivals and completions cause early rounds, at least so many seconds after the one before.
    progress : bool
        False: jobs that may not be stopped report no progress, and policies take them for undone.
    announce_s : float
        Changes of the pools are known so many seconds before they come.
    until_s : float
        Stop at this time, in seconds on the workload's clock.
    prove_every : int
        Policies that need no bound to decide get one every so many rounds, for the gap; 0: never.

    Raises
    ------
    UsageError
        For values that make no sense.

    Examples
    --------
    >>> import allocator
    >>> options = allocator.SimulationOptions(seed=1, misjudged=0.2)
    >>> workload = allocator.read_workload("data/workloads/demo")
    >>> allocator.simulate(workload, policy="greedy", options=options).policy
    'greedy'
    """

    seed: int = 0
    solver: str = "auto"
    gap: float = GAP
    time_limit_s: float = math.inf
    threads: int = 1
    objective: str | None = None
    sizes: str | None = None
    budget: float | None = None
    budget_average: float | None = None
    budget_amount: float | None = None
    budget_window_s: float | None = None
    interval_s: float | None = None
    ageing_s: float | None = None
    horizon: int | None = None
    speeds: str = "known"
    misjudged: float = 0.0
    misjudged_sizes: float = 0.0
    misjudged_slowdowns: float = 0.0
    noise: float = 0.0
    loss_noise: float | None = None
    failures_per_gpu_hour: float = 0.0
    failures_per_node_hour: float = 0.0
    node_repair_s: float = 3600.0
    placement: str = "repair"
    revocations: float = 1.0
    spot_batch: float = 1.0
    spot_burst: float = 1.0
    spot_burst_s: float = 3600.0
    startup_spread: float = 0.0
    victims: str = "youngest"
    checkpoints: str = "given"
    latency_s: float = 0.0
    latency_factor: float = 0.0
    react_s: float = math.inf
    progress: bool = True
    announce_s: float = 0.0
    until_s: float = math.inf
    prove_every: int = 1

    def __post_init__(self) -> None:
        for name in (
            "gap",
            "time_limit_s",
            "misjudged",
            "misjudged_sizes",
            "misjudged_slowdowns",
            "noise",
            "failures_per_gpu_hour",
            "failures_per_node_hour",
            "node_repair_s",
            "revocations",
            "spot_burst_s",
            "startup_spread",
            "latency_s",
            "latency_factor",
            "react_s",
            "prove_every",
            "announce_s",
        ):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name} {getattr(self, name)} must not be negative")
        if self.loss_noise is not None and not 0 <= self.loss_noise < math.inf:
            raise UsageError(f"loss_noise {self.loss_noise} must be a number of at least 0")
        for name in (
            "interval_s",
            "ageing_s",
            "budget_average",
            "budget_amount",
            "budget_window_s",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{name} {value} must be above 0")
        self._one_long_run_budget()
        if self.horizon is not None:
            checked_horizon(self.horizon)
        if self.threads < 1:
            raise UsageError(f"threads {self.threads} must be at least 1")
        for name in ("spot_batch", "spot_burst"):
            if not 1 <= getattr(self, name) < math.inf:
                raise UsageError(f"{name} {getattr(self, name)} must be at least 1")
        for name, choices in (
            ("victims", VICTIMS),
            ("checkpoints", CHECKPOINTS),
            ("placement", PLACEMENTS),
            ("sizes", SIZES),
            ("speeds", SPEEDS),
        ):
            if getattr(self, name) not in (None, *choices):
                raise UsageError(
                    f'{name} "{getattr(self, name)}" must be one of {", ".join(choices)}'
                )
        if self.react_s <= 0:
            raise UsageError("react_s must be above 0")

    @property
    def is_random(self) -> bool:
        """Whether two seeds give different worlds, whatever the workload is."""
        return (
            self.misjudged > 0
            or self.misjudged_sizes > 0
            or self.misjudged_slowdowns > 0
            or self.speeds != "known"
            or self.noise > 0
            or self.loss_noise is not None
            or self.failures_per_gpu_hour > 0
            or self.failures_per_node_hour > 0
            or self.startup_spread > 0
            or self.victims == "random"
        )

    def _one_long_run_budget(self) -> None:
        if self.budget_average is not None and self.budget_amount is not None:
            raise UsageError(
                "budget_average and budget_amount are both given; a long-run budget is one of them"
            )
        if self.budget_amount is not None and math.isinf(self.until_s):
            raise UsageError("budget_amount needs until_s: an amount is spent until a date")
