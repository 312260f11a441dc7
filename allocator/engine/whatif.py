"""Compare two decisions: the round as it is, and with other values.

The value of an option may depend on the round itself: on its GPUs under the objective `flow`, on
its weights under all objectives. So the values of two rounds are on two scales. Both plans are
valued on one of them:

- with the other values, if the present plan keeps every rule there: more was allowed;
- as it is, if only the new plan keeps every rule of the present round: less is allowed;
- with the other values, if each plan breaks a rule of the other round.

In the first case the new plan has at least the value of the present plan, in the second at most,
within the gap. Hours of work do not depend on a scale: they measure a job's work in units of what
it does in an hour at requested_gpus on its slowest allowed type.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.audit import audit
from allocator.domain.allocation import Allocation
from allocator.domain.findings import join_words
from allocator.domain.problem import Bools, Floats, Ints, Placements, Problem, State
from allocator.engine.advice.trials import JobOutcome
from allocator.engine.decided import Decision
from allocator.options.quotas import quota_table
from allocator.policies.hard_rules import GPU_HOURS, RULES, Rule
from formulations.model import linear
from formulations.objectives.context import HOUR

if TYPE_CHECKING:
    import pandas as pd

WHAT = "starts", "stops", "grows", "shrinks", "moves"
WITH = "with the other values"
AS_IS = "as it is"
PRICED = 1e-9  # share of the plan's value: a limit with a larger price per unit binds


@dataclass(frozen=True)
class JobChange:
    """A job that gets something else.

    `what` is starts, stops, grows, shrinks or moves. `left_h_before` and `left_h_after`
    have the hours that its remaining work takes at the speed of each plan, None while it waits.
    """

    job_id: str
    what: str
    before: JobOutcome
    after: JobOutcome
    left_h_before: float | None
    left_h_after: float | None


@dataclass(frozen=True)
class Limit:
    """A limit that binds with the other values: where it is set, and the value of one more unit."""

    place: str
    unit: str
    price: float


@dataclass(frozen=True, repr=False)
class Comparison:
    """Compare the plan as it is with the plan with other values, (before, after) each.

    Attributes
    ----------
    scale : str
        Whose values count: "with the other values" or "as it is".
    value : tuple of float
        Value of both plans in that scale.
    doubt : float
        How far the plan that was decided in that scale may be from the best.
    work_h, dollars : tuple of float
        Hours of work that the round does, and US dollars per hour.
    gpus, running : tuple of int
        GPUs in use, and jobs that hold some.
    jobs : tuple of JobChange
        Jobs that get something else.
    limits : tuple of Limit
        Limits that bind with the other values.
    slack : tuple of str
        Limits that were set and do not bind.

    Examples
    --------
    >>> import allocator
    >>> problem = allocator.Problem.read("data/snapshots/demo")
    >>> more = allocator.whatif(problem, {"pools.v100.gpus": 12})
    >>> more
    Comparison(jobs=2, gpus=(15, 18), value=(7.14, 7.34))
    """

    scale: str
    value: tuple[float, float]
    doubt: float
    work_h: tuple[float, float]
    dollars: tuple[float, float]
    gpus: tuple[int, int]
    running: tuple[int, int]
    jobs: tuple[JobChange, ...]
    limits: tuple[Limit, ...]
    slack: tuple[str, ...]

    def __repr__(self) -> str:
        """Summarise the comparison on one line."""
        before, after = self.value
        return (
            f"Comparison(jobs={len(self.jobs)}, gpus={self.gpus},"
            f" value=({before:.6g}, {after:.6g}))"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the jobs that get something else as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row per job: what changes, and pool and GPUs before and after.
        """
        import pandas as pd

        columns = ("job_id", "what", "pool_before", "gpus_before", "pool_after", "gpus_after")
        rows = [
            (j.job_id, j.what, j.before.pool, j.before.gpus, j.after.pool, j.after.gpus)
            for j in self.jobs
        ]
        return pd.DataFrame(rows, columns=list(columns))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON.

        Returns
        -------
        dict
            The attributes.
        """
        return dataclasses.asdict(self)

    def lines(self) -> Iterator[str]:
        """Return the comparison in sentences.

        Returns
        -------
        iterator of str
            One sentence each.
        """
        if self.jobs:
            yield f"jobs: {', '.join(self._changes())}"
            difference = _describe_difference(*self.work_h, "h", "hours of work as requested")
            yield f"work of this round: {difference}"
        else:
            yield "No job gets anything else."
        if self.dollars[0] != self.dollars[1]:
            yield f"dollars: {_describe_difference(*self.dollars, '$/h', 'per hour')}"
        if self.jobs:
            yield self._value()
        else:
            yield from self._binding()

    @property
    def answer(self) -> str:
        """What the other values change, in one sentence."""
        work, dollars = (after - before for before, after in (self.work_h, self.dollars))
        effect = "as much work as before"
        if abs(work) > 1e-9 * max(1.0, abs(self.work_h[0])):
            effect = f"{abs(work):.4g} {'more' if work > 0 else 'fewer'} hours of work"
        if dollars:
            effect += f" for {abs(dollars):,.2f} $/h {'more' if dollars > 0 else 'less'}"
        number, verb = (changes := self._changes())[0].split()
        changes[0] = f"{number} job{'' if number == '1' else 's'} {verb}"
        return f"{join_words(changes)}: the round does {effect}."

    def _changes(self) -> list[str]:
        count = Counter(job.what for job in self.jobs)
        return [f"{n} {what if n == 1 else what[:-1]}" for what in WHAT if (n := count[what])]

    def _value(self) -> str:
        gain = _describe_gain(*self.value)
        doubt = ""
        if gain and abs(self.value[1] - self.value[0]) <= self.doubt:
            doubt = f"; that is less than the gap leaves open ({self.doubt:.2g})"
        return f"value: {gain or 'the same'}, both plans valued {self.scale}{doubt}"

    def _binding(self) -> Iterator[str]:
        if not self.limits:
            yield "No limit has a price: what is left is of no use to any job."
            return
        yield "What binds, and the value of one more (prices of the round with the other values):"
        for limit in self.limits:
            yield f"  {limit.place:<40} {limit.price:.4g} per {limit.unit}"
        for place in self.slack:
            yield f"{place} has no price: it is not what is short."


def compare(before: Decision, after: Decision, places: Collection[str] = ()) -> Comparison:
    """Compare the decision about a round as it is with that about the round with other values.

    `places` are where the other values were set, as in `allocator.changed`.
    """
    old = _carry_plan(before, after.round.problem)
    new = _carry_plan(after, before.round.problem)
    there = audit(after.round.problem, old, after.round.repairs, after.round.offer)
    here = audit(before.round.problem, new, before.round.repairs, before.round.offer)
    scale, value, own = AS_IS, (before.value, here.objective_value), before
    if not there.faults or here.faults:
        scale, value, own = WITH, (there.objective_value, after.value), after
    return Comparison(
        scale,
        value,
        max(0.0, own.proof[0] - own.value),
        (float(measure_work_h(before).sum()), float(measure_work_h(after).sum())),
        (float(before.witness.cost.sum()), float(after.witness.cost.sum())),
        (int(before.allocation.held.sum()), int(after.allocation.held.sum())),
        (int((before.allocation.gpus > 0).sum()), int((after.allocation.gpus > 0).sum())),
        tuple(_job_changes(before, after)),
        *_binding_limits(after, places),
    )


def _binding_limits(
    decision: Decision, places: Collection[str]
) -> tuple[tuple[Limit, ...], tuple[str, ...]]:
    """Return the limits with a price, the dearest unit first, and those set that have none."""
    round_ = decision.round
    quotas = quota_table(round_.problem)
    places_of = {
        label: [quotas.place[n] for n in quotas.named_by(k).tolist()]
        for k, label in enumerate(quotas.label)
    }
    hours = round_.problem.interval_s / HOUR
    by_hours = {quotas.label[k] for k in np.flatnonzero(quotas.is_by_hours).tolist()}
    price: dict[tuple[str, str], float] = defaultdict(float)
    for family in round_.model.families:
        for row, label in enumerate(family.labels, family.first):
            each = abs(float(decision.prices[row]))
            rule = RULES.get(family.kind, Rule())
            if family.kind == linear.QUOTA and label in by_hours:
                rule, each = GPU_HOURS, each / hours
            for name in places_of[label] if rule.cell.startswith("{}") else [label]:
                price[rule.cell.format(name), rule.unit] += each
    least = PRICED * max(abs(decision.value), 1e-9)
    limits = [Limit(*at, x) for at, x in price.items() if at[0] and x > least]
    binding = tuple(sorted(limits, key=lambda x: -x.price))
    known = {x.place for x in binding}
    columns = {rule.cell.rpartition(".")[2] for rule in (*RULES.values(), GPU_HOURS)}
    slack = []
    for place in places:
        table, _, rest = place.partition(".")
        in_table = not rest or table in (
            "pools",
            "interactive",
            "reservations",
            "tenants",
            "quotas",
        )
        if place not in known and in_table and place.rpartition(".")[2] in columns:
            slack.append(place)
    return binding, tuple(slack)


def _carry_plan(decision: Decision, to: Problem) -> Allocation:
    """Return the plan in the jobs and pools of another round, matched by name.

    Unknown jobs get nothing, and nor do jobs in unknown pools.
    """
    here = decision.round.problem
    plan = decision.allocation
    own = _find(to.jobs.job_id, here.jobs.job_id)[:-1]
    pools = _find(here.pools.pool, to.pools.pool)
    jobs = _find(here.jobs.job_id, to.jobs.job_id)
    pool = pools[np.append(plan.pool, -1)[own]]

    def values_by_name(values: Any, nothing: int) -> Any:
        return np.where(pool >= 0, np.append(values, nothing)[own], nothing)

    return Allocation(
        pool,
        values_by_name(plan.gpus, 0),
        values_by_name(plan.row, -1),
        jobs[values_by_name(plan.primary, -1)],
        _carry_places(here, plan.places, to, jobs[:-1]),
        None if plan.shared_by is None else jobs[values_by_name(plan.shared_by, -1)],
    )


def _find(names: Sequence[str], among: Sequence[str]) -> Ints:
    """Return the number of each name among others, -1 = not there; the last entry stands for -1."""
    number = {name: n for n, name in enumerate(among)}
    return np.array([*(number.get(name, -1) for name in names), -1], np.int64)


def _carry_places(here: Problem, places: Placements, to: Problem, jobs: Ints) -> Placements:
    """Return places in the nodes of another round, matched by name.

    `jobs` has the number of each job there, -1 = none.
    """
    nodes = _find(here.nodes.node, to.nodes.node)
    job = jobs[places.job]
    node = nodes[places.node]
    known = (job >= 0) & (node >= 0)
    return Placements(job[known], node[known], places.gpus[known], places.gpu[known])


def measure_work_h(decision: Decision) -> Floats:
    """Return the hours of work that the plan does in its round, by job, (J,)."""
    p = decision.round.problem
    plain = dataclasses.replace(
        p,
        objective="throughput",
        dollar_price=0.0,
        ageing_s=math.inf,
        settings={},
        jobs=dataclasses.replace(p.jobs, weight=np.ones(len(p.jobs))),
        tenants=dataclasses.replace(p.tenants, dollar_price=np.zeros(len(p.tenants))),
    )
    round_ = decision.round
    audited = audit(plain, decision.allocation, round_.repairs, round_.offer)
    return audited.value * p.interval_s / HOUR


def _job_changes(before: Decision, after: Decision) -> Iterator[JobChange]:
    nothing = JobOutcome(0, "", None, 0.0, 0.0)
    here = before.round.problem.jobs
    there = after.round.problem.jobs
    known = _find(there.job_id, here.job_id)[:-1].tolist()
    leaves = (there.state == State.RUNNING) & ~_stay(after)
    stays = np.append(_stay(before), False)
    for j, (name, own) in enumerate(zip(there.job_id, known, strict=True)):
        old = JobOutcome.of(before, own) if own >= 0 else nothing
        new = JobOutcome.of(after, j)
        if old.place == new.place and not (stays[own] and leaves[j]):
            continue
        kinds = not old.gpus, not new.gpus, new.gpus > old.gpus, new.gpus < old.gpus, True
        left = float(here.remaining_work[own]) if own >= 0 else 0.0
        yield JobChange(
            name,
            WHAT[kinds.index(True)],
            old,
            new,
            _hours(left, old.work_per_s),
            _hours(float(there.remaining_work[j]), new.work_per_s),
        )


def _stay(decision: Decision) -> Bools:
    """Return which running jobs keep their GPUs, (J,)."""
    return np.append(decision.round.instance.keep, False)[decision.proposal.choice]


def _hours(work: float, work_per_s: float) -> float | None:
    return work / work_per_s / HOUR if work_per_s > 0 else None


def _describe_difference(before: float, after: float, unit: str, of: str) -> str:
    gain = _describe_gain(before, after, f" {unit}")
    if not gain:
        return f"the same, {before:.4g} {unit}"
    return f"{gain} ({before:.4g} -> {after:.4g} {of})"


def _describe_gain(before: float, after: float, unit: str = "") -> str:
    """Return how much more or less there is after, "" if it is the same."""
    gained = after - before
    if abs(gained) <= 1e-9 * max(1.0, abs(before)):
        return ""
    return f"{abs(gained):.4g}{unit} {'more' if gained > 0 else 'less'}"
