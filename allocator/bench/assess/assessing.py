"""Assess a history: is the simulation true, and what would this allocator do with the same jobs?

1. calibration: the site's own scheduler (`easy`, or `slurm` where jobs are placed on nodes) is
   simulated, and compared with what was recorded
2. this allocator on the same jobs, rigid, and elastic as far as the user says
3. fewer GPUs: the fewest with which waiting and completion are, on average, at most those of the
   site's own scheduler, and the time that this one may let an event wait; by growing
   steps, then by bisection

Every case is compared with the simulated scheduler of the site, not with the record: what the
simulation gets wrong, it gets wrong in both.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.bench.assess import outcomes
from allocator.bench.assess.outcomes import Outcome
from allocator.bench.assess.settled import UnsettledCluster
from allocator.bench.assess.variants import make_elastic, make_rigid, scale_gpus
from allocator.domain.problem import Bools
from allocator.domain.workload import Workload
from allocator.errors import UsageError
from allocator.objects import Json
from allocator.simulator import Simulation, SimulationOptions
from allocator.simulator.run import continue_simulation, initial_state

OURS = "mip"
OWN_REACT_S = 1.0  # a site's scheduler looks at its queue whenever something happens
OWN = {
    "easy": "backfill behind the first of the queue",
    "slurm": "backfill on nodes, with a reservation for each waiting job, as Slurm's",
}
MOST_WAITING = 0.1  # relative difference of mean waiting, and
MOST_USE = 0.02  # difference of the share of GPUs in use, up to which forecasts are believed
STEPS = 20  # the fewest GPUs are found to this part of them
CURVES = (0.005, 0.15)  # c of the best and of the worst published scaling, docs/traces.md
RECORDED, PRESENT, RIGID = "as recorded", "your scheduler, simulated", "this allocator, rigid"
Watch = Callable[[str, float], None]


@dataclass(frozen=True)
class Question:
    """What the user says and asks.

    Attributes
    ----------
    shares, span, curves
        Of elastic jobs: the shares of all jobs to look at, smallest and largest size as multiples
        of the GPUs asked for, and c of the speeds (`make_elastic`).
    react_s : float
        Arrivals and completions cause early rounds of this allocator, so many seconds apart.
    every_s : float, optional
        Seconds between rounds of this allocator, instead of those of the history.
    progress : bool
        Whether jobs that are never stopped report to this allocator what they have done.
    seed : int
        Seed of the simulations, and of the draw of elastic jobs.
    """

    shares: Sequence[float] = ()
    span: tuple[float, float] = (0.5, 2.0)
    curves: Sequence[float] = CURVES
    react_s: float = 60.0
    every_s: float | None = None
    progress: bool = True
    seed: int = 0


class _WorseError(Exception):
    """The service is worse than asked for, so that the simulation need not go on."""


def assess(workload: Workload, question: Question, watch: Watch = lambda what, share: None) -> Json:
    """Return the assessment of a history as JSON values.

    `watch` is called with the name of each simulation and the share of it that is done. Raises
    UsageError where nothing can be assessed.
    """
    problem = workload.problem
    if not len(problem.jobs) or not problem.pools.gpus.sum():
        raise UsageError(f'"{problem.name}" has no jobs, or no GPUs: nothing to assess')
    return _Assessment(workload, question, watch).document()


class _Assessment:
    """The simulations of a history, each with what it assumes."""

    def __init__(self, workload: Workload, question: Question, watch: Watch) -> None:
        self.workload, self.question, self.watch = workload, question, watch
        self.rigid = make_rigid(workload)
        self.gpus = int(workload.problem.pools.gpus.sum())
        self.period, self.period_of = outcomes.periods(workload)
        self.own = "slurm" if workload.problem.has_nodes.any() else "easy"
        run = self._run(self.rigid, self.own, OWN_REACT_S, lambda share, _: watch(PRESENT, share))
        self.present = outcomes.outcome_of(self.rigid, run)
        self.counted: Bools = np.isfinite(self.present.completion_s)
        if not self.counted.any():
            raise UsageError("no job of the history can run on its GPUs: nothing to assess")
        left_out = int((~self.counted).sum())
        self.common = [
            "jobs run as long as the history says, and schedulers know it",
            *([f"{left_out:,} jobs that the GPUs can never hold are left out"] if left_out else []),
            *([f"of the history: {workload.assumed}"] if workload.assumed else []),
        ]

    def document(self) -> Json:
        """Return everything as JSON values."""
        cases, use, calibration = [], {}, None
        record = outcomes.recorded_outcome(self.workload) if len(self.workload.recorded) else None
        known = self.counted.copy()
        if record is not None:
            known &= np.isfinite(record.waiting_s) & np.isfinite(record.completion_s)
        if record is not None and known.any():
            record, present = (
                outcomes.with_rigid_use(self.workload, o, known) for o in (record, self.present)
            )
            calibration = self._calibrate(record, present, known)
            words = (
                f"start and end are recorded of {known.sum():,} of {len(known):,} jobs",
                "a job held the GPUs it asked for",
                *self.common[1:],
            )
            cases.append(self._case(RECORDED, [record], words, known))
            use[RECORDED] = record.used.tolist()
        limited = int(np.isfinite(self.workload.problem.jobs.time_limit_s).sum())
        words = (
            f"policy {self.own}: {OWN[self.own]}, by weight, then submission,"
            f" {OWN_REACT_S:g} s after an event at the latest",
            *(
                [f"it expects the {limited:,} jobs with a time limit to reach it"]
                if limited
                else []
            ),
            *self.common,
        )
        cases.append(self._case(PRESENT, [self.present], words, self.counted))
        use[PRESENT] = self.present.used.tolist()
        for name, workloads, words in self._variants():
            trials = [
                self._try(w, lambda share, _, name=name: self.watch(name, share)) for w in workloads
            ]
            case = self._case(name, trials, (*words, *self.common), self.counted)
            gpus = [self._find_fewest(name, *pair) for pair in zip(workloads, trials, strict=True)]
            cases.append(case | {"fewest_gpus": [min(gpus), max(gpus)]})
            use[name] = trials[0].used.tolist()
        at = outcomes.edges(self.workload)
        return {
            "history": self.workload.problem.name,
            "jobs": len(self.counted),
            "gpus": self.gpus,
            "resampled": self.period,
            "assuming": self.common,
            "calibration": calibration,
            "cases": cases,
            "use": {"until_s": (at[1:] - at[0]).tolist(), "gpus": use},
        }

    def _variants(self) -> Iterator[tuple[str, list[Workload], tuple[str, ...]]]:
        """Yield name, workloads and assumptions of each case of this allocator."""
        question, problem = self.question, self.rigid.problem
        every_s = question.every_s or problem.interval_s
        rounds = f"rounds every {every_s:g} s, and {question.react_s:g} s after an event"
        service = (
            f"fewest GPUs: mean waiting and completion at most {question.react_s:g} s above those"
            f" of your scheduler, simulated; found to {100 / STEPS:g} %"
        )
        if not question.progress:
            rounds += ", to which jobs that are never stopped report no progress"
        ours = (f"policy {OURS}, objective {problem.objective}, {rounds}", service)
        yield RIGID, [self.rigid], ("each job at the GPUs it asked for, and never stopped", *ours)
        low, high = question.span
        for share in question.shares:
            words = (
                f"{100 * share:g} % of the jobs, drawn at random (seed {question.seed}), may use"
                f" {low:g} to {high:g} times the GPUs they ask for",
                "speed on k GPUs k / (1 + c (k - 1)), c "
                + " and ".join(f"{c:g}" for c in question.curves),
                f"a change costs {problem.restart_s:g} s where the history says nothing else",
            )
            workloads = [
                make_elastic(self.rigid, share, question.span, c, question.seed)
                for c in question.curves
            ]
            yield f"this allocator, {100 * share:g} % elastic", workloads, (*words, *ours)

    def _run(
        self, workload: Workload, policy: str, react_s: float, watch: Any, **options_: Any
    ) -> Simulation:
        options = SimulationOptions(
            seed=self.question.seed, react_s=react_s, prove_every=0, **options_
        )
        state = initial_state(workload, policy, options)
        simulated = state.cluster.world.workload
        reserve_after_s = 0.0 if policy in OWN else simulated.problem.reserve_after_s
        state.cluster = UnsettledCluster(simulated, options, reserve_after_s)
        return continue_simulation(
            state, lambda state, turn: watch(state.share, state.cluster.world)
        )

    def _try(self, workload: Workload, watch: Any) -> Outcome:
        question = self.question
        options = {"interval_s": question.every_s, "progress": question.progress}
        run = self._run(workload, OURS, question.react_s, watch, **options)
        return outcomes.outcome_of(workload, run)

    def _find_fewest(self, name: str, workload: Workload, outcome: Outcome) -> float:
        """Return the fewest GPUs that keep the present service, inf = there are too few now."""
        counted, at = self.counted, workload.problem.jobs.submitted_s
        slack_s = self.question.react_s * counted.sum()  # it decides so much later
        limits = [
            float(times[counted].sum()) * (1.0 + 1e-9) + slack_s
            for times in (self.present.waiting_s, self.present.completion_s)
        ]

        def stop_if_worse(share: float, world: Any) -> None:
            self.watch(f"{name}, fewer GPUs", share)
            came = slice(world.arrived)
            for until, most in zip((world.started_s, world.finished_s), limits, strict=True):
                times = np.where(np.isnan(until[came]), world.now, until[came]) - at[came]
                if times[counted[came]].sum() > most:
                    raise _WorseError

        def serves(gpus: int) -> bool:
            less = scale_gpus(workload, gpus / self.gpus)
            try:
                return has_limits(self._try(less, stop_if_worse))
            except _WorseError:
                return False

        def has_limits(outcome: Outcome) -> bool:
            both = (outcome.waiting_s[counted].sum(), outcome.completion_s[counted].sum())
            return all(total <= most for total, most in zip(both, limits, strict=True))

        if not has_limits(outcome):
            return np.inf
        low, high, less = 0, self.gpus, max(1, self.gpus // STEPS)
        while high - low > max(1, high // STEPS):
            middle = max(high - less, (low + high) // 2)
            if serves(middle):
                high, less = middle, 4 * less
            else:
                low = middle
        return int(scale_gpus(workload, high / self.gpus).problem.pools.gpus.sum())

    def _case(
        self, name: str, results: Sequence[Outcome], assuming: Sequence[str], chosen: Bools
    ) -> Json:
        """Return a line: figures and changes from the lowest to the highest of its outcomes."""
        chosen = chosen & np.all([np.isfinite(o.completion_s) for o in results], axis=0)
        lost = int((self.counted & ~chosen).sum()) if name != RECORDED else 0
        figures = [o.figures(chosen, self.gpus) for o in results]
        changes = {}
        for key in ("waiting_s", "completion_s"):
            pairs = [getattr(o, key)[chosen] for o in (*results, self.present)]
            each = [outcomes.change(p, pairs[-1], self.period_of[chosen]) for p in pairs[:-1]]
            if pairs[-1].mean() < OWN_REACT_S:  # percent of next to nothing say nothing
                each = [(np.nan,) * 3]
            percent, low, high = np.array(each).T.tolist()
            changes[key] = {
                "percent": [min(percent), max(percent)],
                "interval": [min(low), max(high)],
            }
        return {
            "name": name,
            "figures": {
                k: [min(f[k] for f in figures), max(f[k] for f in figures)] for k in figures[0]
            },
            "change_percent": changes,
            "assuming": [
                *assuming,
                *([f"{lost:,} jobs were never done and do not count"] if lost else []),
            ],
        }

    def _calibrate(self, record: Outcome, present: Outcome, known: Bools) -> Json:
        """Compare the simulated scheduler with the record, over the known jobs."""
        was, now = (o.figures(known, self.gpus) for o in (record, present))
        waiting, use = (now[k] - was[k] for k in ("waiting_s_mean", "use"))
        relative = waiting / was["waiting_s_mean"] if was["waiting_s_mean"] else np.inf * waiting
        relative = 0.0 if waiting == 0.0 else relative
        apart = np.bincount(self.period_of[known], (present.waiting_s - record.waiting_s)[known])
        return {
            "believed": bool(abs(relative) <= MOST_WAITING and abs(use) <= MOST_USE),
            "waiting_percent": 100.0 * relative,
            "use_points": 100.0 * use,
            "largest": "waiting" if abs(relative) / MOST_WAITING >= abs(use) / MOST_USE else "use",
            "largest_in": f"{self.period} {int(np.abs(apart).argmax()) + 1}" if self.period else "",
            "recorded": was,
            "simulated": now,
        }
