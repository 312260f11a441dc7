"""Every objective on every column: the value of options, by three accounts, and the best plan, by
trying all.

The accounts are that of the options (what policies maximise), that of the audit (what plans
have) and a reading of the formulas on plain rows (second_values.py).
tests/support/values/matrix.py has the features. The long run,

    pytest -s -m soak tests/audit/test_value_matrix.py

crosses features with each other. Each feature meets a third of the objectives: by default every
second feature a third of these, nightly every feature all of them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest
from examples import count, series
from matrix import BASE, CROSSED, EVERY, FEATURES, Tables, base, made, schema
from second_reading import Option
from second_values import Reading

from allocator.audit import audit
from allocator.domain.allocation import Allocation
from allocator.domain.objectives import names
from allocator.domain.problem import Problem
from allocator.engine.decided import Decision
from allocator.engine.decision import decide_round, explain_decision
from allocator.errors import Infeasible, InvalidInput
from allocator.options.colocation.secondary_jobs import PairOffer
from allocator.options.instance_building import CompiledRound, compile_round
from allocator.policies.base import POLICIES
from allocator.solvers.base import SolveLimits

GAPS = (0.0, 1e-3)  # asked in turn: the bound of a tiny round is exact whatever gap is asked
SEEDS = 6  # at most so many rounds until a feature shows


def test_every_column_is_in_the_matrix() -> None:
    """A new column, or a new key of config.toml, has to be crossed with the objectives."""
    named = BASE | {c for f in FEATURES.values() for c in f.columns}
    assert schema() - named == set()
    assert named - schema() == set()


@dataclasses.dataclass
class Case:
    """A round under all objectives. plans: every legal one, found once, as no rule knows of
    objectives."""

    tables: Tables
    problem: Problem
    plans: list[dict[str, Option]]

    @classmethod
    def of(cls, tables: Tables) -> Case:
        problem = tables.problem()
        r = reading(tables, "progress")
        rows = sorted(r.table("reservations"), key=lambda row: row["at_s"])
        while not (plans := list(r.plans())) and rows:
            rows = rows[: len(rows) // 2]  # the later half gives way
            r = dataclasses.replace(r, further=r.further | {"reservations": rows}, known={})
        return cls(tables, problem, plans)

    @property
    def shares(self) -> bool:
        """Whether jobs may share GPUs: then there are more plans than were tried."""
        return "sharing" in self.tables.further

    @property
    def paired(self) -> bool:
        """Whether jobs share GPUs now: what they may do apart depends on each other."""
        return any(j.get("shared_with") for j in self.tables.jobs)


def reading(t: Tables, objective: str) -> Reading:
    """The round read a second time."""
    config = t.config | {"objective": objective}
    return Reading(t.jobs, t.pools, t.rates, t.tenants, config, t.further)


Values = dict[tuple[Any, ...], float]
Accounts = tuple[Values, Values, Values]


def told(case: Case, objective: str) -> Accounts:
    """The value of every option: {(job, pool, GPUs): value}, of pairs {(primary job, secondary job,
    pool, GPUs, ...): of both}; by the options, the audit, the second reading."""
    problem = dataclasses.replace(case.problem, objective=objective)
    round_ = compile_round(problem, prunes=False, shares=PairOffer.ALL)
    r = reading(case.tables, objective)
    option_table = round_.option_table
    out: Accounts = ({}, {}, {})
    names_ = problem.jobs.job_id
    secondary = problem.jobs.primary[option_table.job] >= 0
    own = np.flatnonzero((option_table.primary < 0) & ~secondary)
    # in the n-th plan every job has its n-th option: no legal plan, but the audit values each job
    rank = np.arange(len(own)) - np.searchsorted(option_table.job[own], option_table.job[own])
    for n in range(int(rank.max(initial=-1)) + 1):
        some = own[rank == n]
        seen = audited(round_, some)
        for o in some.tolist():
            j, place = (
                int(option_table.job[o]),
                (problem.pools.pool[option_table.pool[o]], int(option_table.gpus[o])),
            )
            key = (names_[j], *place)
            out[0][key], out[1][key] = float(option_table.value[o]), float(seen[j])
            out[2][key] = r.option_value(r.by[names_[j]], place)
    for o in np.flatnonzero((option_table.primary < 0) & secondary).tolist():
        alone(round_, r, o, out)
    for o in np.flatnonzero(option_table.primary >= 0).tolist():
        pair(round_, r, o, out)
    return out


def alone(round_: CompiledRound, r: Reading, o: int, out: Accounts) -> None:
    """An option in which a job that runs on the GPUs of another holds GPUs itself: what it runs on,
    as its primary job leaves; other GPUs of that pool, as its primary job stays; or others."""
    m, p = round_.option_table, round_.problem
    j, place = int(m.job[o]), (p.pools.pool[m.pool[o]], int(m.gpus[o]))
    job, moves = r.by[p.jobs.job_id[j]], apart(round_, o)
    h = int(p.jobs.primary[j])
    stays = (
        [x for x in range(m.start[h], m.start[h + 1]) if m.keep[x] and m.primary[x] < 0]
        if moves
        else []
    )
    key = (p.jobs.job_id[j], *place, moves)
    out[0][key] = float(m.value[o])
    out[1][key] = float(audited(round_, np.array([o, *stays]))[j])
    change = (
        r.valued(job, dataclasses.replace(r.way(job, place), pause=r.lost(job, place), kept=False))
        - r.valued(job, r.way(job, place))
        if moves
        else 0.0
    )
    out[2][key] = r.option_value(job, place) + change


def apart(round_: CompiledRound, o: int) -> bool:
    """Whether the option lets a secondary job leave for other GPUs, as many of the same pool as it
    runs on.
    """
    m, jobs = round_.option_table, round_.problem.jobs
    j = m.job[o]
    return bool(
        jobs.primary[j] >= 0
        and (m.pool[o], m.gpus[o]) == (jobs.pool[j], jobs.gpus[j])
        and not m.keep[o]
    )


def audited(round_: CompiledRound, options: Any) -> Any:
    """(J,) values of the jobs that get these options, by the audit."""
    J, m = len(round_.problem.jobs), round_.option_table
    pool, gpus, row, primary = (
        np.full(J, -1),
        np.zeros(J, dtype=np.int64),
        np.full(J, -1),
        np.full(J, -1),
    )
    j = m.job[options]
    pool[j], gpus[j], row[j], primary[j] = (
        m.pool[options],
        m.gpus[options],
        m.row[options],
        m.primary[options],
    )
    for o in options[m.primary[options] >= 0].tolist():
        row[m.primary[o]] = m.primaries["row"][o, 0]
    plan = Allocation(pool, gpus, row, primary)
    return audit(round_.problem, plan, round_.repairs, round_.offer).value


def pair(round_: CompiledRound, r: Reading, o: int, out: Accounts) -> None:
    """The two jobs of an option with which one runs on the GPUs of another."""
    m, jobs = round_.option_table, round_.problem.jobs
    h, g, k = int(m.primary[o]), int(m.job[o]), int(m.gpus[o])
    place = (round_.problem.pools.pool[m.pool[o]], k)
    primaries = next(
        x
        for x in range(m.start[h], m.start[h + 1])
        if m.primary[x] < 0 and (m.pool[x], m.gpus[x]) == (m.pool[o], k) and not apart(round_, x)
    )
    key = (jobs.job_id[h], jobs.job_id[g], *place)
    out[0][key] = float(m.value[o] + m.value[primaries])
    seen = audited(round_, np.array([primaries, o]))
    out[1][key] = float(seen[h] + seen[g])
    primary, secondary = r.by[jobs.job_id[h]], r.by[jobs.job_id[g]]
    rates = r.colocated_rates(primary, secondary, place)
    assert rates is not None
    keeps = (
        r.held(primary) == place,
        r.together(primary, secondary) and r.held(secondary) == place,
    )
    out[2][key] = r.pair(primary, secondary, place, rates, keeps)


def close(a: float, b: float, scale: float) -> bool:
    """Equal up to rounding, of the sort of `scale` too: dollars saved are small differences of
    large sums."""
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b)) + 1e-12 * scale


def judged(case: Case, objective: str) -> tuple[Values, float | None]:
    """All options valued, and the best value of a plan, after everything that has to agree was
    compared."""
    *others, by_reading = told(case, objective)
    scale = max((abs(v) for v in by_reading.values()), default=1.0) + 100.0 * ("cost" in objective)
    for account, found in zip(("options", "audit"), others, strict=True):
        assert found.keys() == by_reading.keys()
        for key, value in by_reading.items():
            where = (objective, key, account, found[key], value, case.tables)
            assert close(value, found[key], scale), where
    values = {key: v for key, v in by_reading.items() if len(key) == 3}  # of jobs alone
    best = max(
        (
            sum(values[name, *got] for name, got in gets.items())
            for gets in case.plans
            if all((name, *got) in values for name, got in gets.items())
        ),
        default=None,
    )
    return by_reading, best


def decided(case: Case, objective: str, best: float | None, policy: str = "mip") -> None:
    """The bound is the value of the best plan. The plan is the best one, or, where a gap is
    asked, at most so much worse because it changes less; the plan of another policy is not above
    it."""
    problem = dataclasses.replace(case.problem, objective=objective)
    asked, where = GAPS[len(objective) % 2], (objective, policy, best, case.tables)
    limits = SolveLimits(gap=asked)
    try:
        decision = decide_round(problem, policy=policy, limits=limits)
    except Infeasible:
        assert best is None or case.shares, where
        return
    result = explain_decision(problem, decision, policy=policy, limits=limits)
    plans = case.plans
    if decision.round.problem.kept:
        plans = [x for x in plans if keeps_reservations(case, objective, decision, x)]
        own = reading(case.tables, objective)
        best = max((own.value_of(x) for x in plans), default=None)
    if case.shares:
        assert case.paired or best is None or result.bound >= best - tolerance(best), where
        return
    assert best is not None, where
    gap, value, bound = tolerance(best), result.objective_value, result.bound
    assert value <= best + gap and bound >= best - gap, (value, bound, where)
    if policy == "mip":
        assert value >= best - gap - asked * abs(best), (value, where)
        assert bound <= best + gap and (asked or result.status == "optimal")
    plan: dict[str, Option] = {
        str(name): (str(pool), int(str(gpus)))
        for name, pool, gpus in zip(
            result.jobs["job_id"], result.jobs["pool"], result.jobs["gpus"], strict=True
        )
        if pool
    }
    assert plan in plans
    own = reading(case.tables, objective).value_of(plan)
    assert close(result.objective_value, own, 1.0 + 100.0 * ("cost" in objective))


def keeps_reservations(
    case: Case, objective: str, decision: Decision, plan: dict[str, Option]
) -> bool:
    """Whether jobs run whose time it is, and those that may not be stopped and are not done by then
    leave what is kept."""
    r, problem = reading(case.tables, objective), decision.round.problem
    left = dict(zip(problem.jobs.job_id, problem.jobs.remaining_work.tolist(), strict=True))
    overrun = 1 if problem.left_error is None else 2
    for kept in problem.kept:
        there = stays = 0
        if problem.is_due(kept) and problem.jobs.job_id[kept.job] not in plan:
            return False
        for name, (pool, gpus) in plan.items():
            job, owner = r.by[name], problem.jobs.job_id[kept.job]
            if pool != problem.pools.pool[kept.pool] or job["preemptible"] or name == owner:
                continue
            way = r.way(job, (pool, gpus))
            if overrun * (way.pause + left[name] / way.rate) > kept.after_s * (1 + 1e-9):
                there += gpus
                stays += gpus if way.kept else 0
        if not problem.is_due(kept) and there > max(
            int(problem.pools.gpus[kept.pool]) - kept.gpus, stays
        ):
            return False
    return True


def tolerance(best: float) -> float:
    """Solvers keep rows and gaps to so much."""
    return 1e-6 * max(1e-3, abs(best))


def differs(a: tuple[Values, float | None], b: tuple[Values, float | None]) -> bool:
    """Whether options, their values or the best value differ."""
    scale = max((abs(v) for v in a[0].values()), default=1.0)
    if a[0].keys() != b[0].keys() or (a[1] is None) != (b[1] is None):
        return True
    return any(not close(v, b[0][key], scale) for key, v in a[0].items()) or (
        a[1] is not None and b[1] is not None and not close(a[1], b[1], scale)
    )


def acts(name: str, objective: str) -> bool:
    """Whether the feature can change values in the objective."""
    return FEATURES[name].acts == EVERY or not FEATURES[name].acts.isdisjoint(names(objective))


@pytest.fixture(scope="module")
def plain() -> dict[tuple[int, str], tuple[Values, float | None]]:
    """Rounds without a feature, as they are asked for."""
    return {}


@pytest.mark.parametrize("part", series(range(3), 1))
@pytest.mark.parametrize(
    "name", series([*[*FEATURES][::2], *[*FEATURES][1::2]], len(FEATURES) // 2)
)
def test_all_objectives(
    name: str, part: int, plain: dict[tuple[int, str], tuple[Values, float | None]]
) -> None:
    """Options, audit and reading agree about every option, and a plan is the best of all; the
    feature shows in every objective that is said to look at it, and in no other."""
    shown: Counter[str] = Counter()
    few = CROSSED[list(FEATURES).index(name) % 3 :: 3] if count(1, 0) else CROSSED
    asked = few[part::3]
    for seed in range(SEEDS):
        left = [o for o in asked if not shown[o]]
        case = Case.of(made(name, seed))
        for n, objective in enumerate(left):
            if seed and not acts(name, objective):
                continue
            if (seed, objective) not in plain:
                plain[seed, objective] = judged(Case.of(base(seed)), objective)
            found = judged(case, objective)
            shown[objective] += differs(plain[seed, objective], found)
            if (n + seed + len(name)) % 6 == 0:
                decided(case, objective, found[1])
    assert {o for o in asked if shown[o]} == {o for o in asked if acts(name, o)}


def onto(name: str, seed: int, tables: Tables) -> Tables:
    """The round with one more feature, where the two do not contradict each other."""
    more = made(name, seed, tables)
    try:
        more.problem()
    except InvalidInput:
        return tables
    return more


@pytest.mark.parametrize(
    ("seed", "features", "objective"),
    [
        # a job with whole GPUs is not put beside one that has a share of a GPU on a node
        (22149, "shares_of_gpus best_effort priced_memory_of_rows curve_amdahl", "throughput"),
        # two jobs on the same two GPUs of a node of three, and the nodes of one are not known
        (50195, "passed_over places hopeless_spot paused running_pairs", "flow"),
        # two nodes of a pool take no jobs, and the pool has only the two GPUs of the third one
        (51080, "passed_over drained_nodes pairs_in_passes", "flow"),
        # GPUs of a node are kept for one job now, and other GPUs of it for another job later
        (1047, "requested_gpus passed_over places long_rounds", "flow"),
        # headroom may use GPUs of nodes that are away now and will come back
        (51087, "passed_over leaving_nodes predicted_sizes long_rounds headroom", "flow"),
        # a job that may not be stopped shares the GPUs of another job, and somebody reserved them
        (1082, "leaving_nodes requested_gpus pairs_in_passes", "flow"),
    ],
)
def test_rounds_that_were_wrong(seed: int, features: str, objective: str) -> None:
    """Plans of these rounds were withheld, or not the best."""
    first, *others = features.split()
    tables = made(first, seed)
    for name in others:
        tables = onto(name, seed, tables)
    case = Case.of(tables)
    for policy in "mip", "horizon":
        decided(case, objective, judged(case, objective)[1], policy)


@pytest.mark.soak
@pytest.mark.parametrize("name", FEATURES)
def test_features_together(name: str) -> None:
    """The feature with each other one in an objective in turn, and on a round in which three others
    are active under every objective; each against enumeration, with another policy in turn."""
    for n, other in enumerate(FEATURES):
        case = Case.of(onto(other, n, made(name, n)))
        objective = CROSSED[(n + len(name)) % len(CROSSED)]
        decided(case, objective, judged(case, objective)[1])
    mixed = made(name, 100)
    for other in np.random.default_rng([*name.encode()]).choice(list(FEATURES), 3):
        mixed = onto(str(other), 100, mixed)
    case, policies = Case.of(mixed), list(POLICIES)
    for n, objective in enumerate(CROSSED):
        _, best = judged(case, objective)
        decided(case, objective, best)
        decided(case, objective, best, policies[n % len(policies)])
