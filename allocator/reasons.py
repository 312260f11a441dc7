"""Why a job does not get what it could use: one code and the numbers behind it for every job of a decision.

Codes and their precedence: contract section 5. What each means here, for a job and the options worth more to it than
what it got ("better options"):

    held                  it is on hold, or waits for a job that is not done
    no_matching_gpu_type  no pool has a GPU type it may use and a rate is known for
    exceeds_cluster       every size it may have is larger than every such pool
    exceeds_quota         every better option alone breaks its tenant's max_gpus or budget_per_hour
    protected             the GPUs are held by jobs that may not be moved, or the GPUs it may not leave are gone
    budget                a better option fits the free GPUs and the tenant, but not what is left of budget_per_hour
    quota                 a better option fits the free GPUs and the budget, but not what is left to the tenant, of its
                          GPUs, its dollars or its GPUs in spot pools of one region
    capacity              it offers more than the price, but no whole size of it fits the GPUs that are left
    outranked             it offers less per GPU-hour than the price at which the GPUs go
    not_evaluated         it would fit, and the policy did not try it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Problem, State
from allocator.options.headroom import of_options
from allocator.options.menu import blocked
from allocator.options.round import Round
from allocator.options.types import allowed_types
from formulations import linear
from formulations.headroom import Headroom
from formulations.rows import exposure_label

PAYS = -1e-5            # a job that is just at the price pays it: prices are exact to about this share of a value
CODES = ("held", "no_matching_gpu_type", "exceeds_cluster", "exceeds_quota", "protected", "budget", "quota", "capacity",
         "outranked", "not_evaluated")


@dataclass(frozen=True)
class Prices:
    """Dual prices by name: pool (P,) per GPU; budget per dollar/hour; quota, guarantee (Q,) per GPU of the tenant;
    tenant_budget (Q,) per dollar/hour; churn per kept job; exposure (Q Z,) per GPU of a
    tenant in a zone; idle, headroom (P,) per GPU that is kept for interactive jobs. In units of the
    objective; guarantee and churn <= 0."""

    pool: Floats
    budget: float
    quota: Floats
    tenant_budget: Floats
    guarantee: Floats
    churn: float
    exposure: Floats
    idle: Floats
    headroom: Floats

    @classmethod
    def of(cls, round_: Round, prices: Floats) -> Prices:
        """The row prices (m,) of the round's model, by name."""
        i = round_.instance
        named = {family.kind: (family, prices[family.first:family.stop]) for family in round_.model.families}
        tenants, pools, places = (
            {name: n for n, name in enumerate(names)}
            for names in (i.tenants, i.pools, (exposure_label(q, z) for q, z in product(i.tenants, i.zones))))

        def by(place: dict[str, int], kind: str) -> Floats:
            family, p = named[kind]
            out = np.zeros(len(place))
            out[[place[name] for name in family.labels]] = p
            return out

        def single(kind: str) -> float:
            return float(named[kind][1].sum())

        return cls(named[linear.CAPACITY][1], single(linear.BUDGET), by(tenants, linear.QUOTA),
                   by(tenants, linear.TENANT_BUDGET), by(tenants, linear.GUARANTEE), single(linear.CHURN),
                   by(places, linear.EXPOSURE), by(pools, linear.IDLE), by(pools, linear.HEADROOM))

    def charge(self, round_: Round) -> Floats:
        """(n,) what every option of the whole menu would have to pay for all it uses."""
        m, q = round_.menu, round_.problem.jobs.tenant[round_.menu.job]
        held: Ints = np.where(m.host < 0, m.gpus, 0)
        total = (held * (self.pool[m.pool] + self.quota[q] + self.guarantee[q])
                 + m.cost * (self.budget + self.tenant_budget[q]) + m.keep * self.churn)
        kept = _headroom(round_)
        if kept is not None:
            total = total + kept.batch * self.idle[m.pool] + kept.firm * self.headroom[m.pool]
        if not len(self.exposure):
            return total
        pools = round_.problem.pools
        zone = pools.zone[m.pool]
        return total + held * np.where(zone >= 0, self.exposure[q * len(pools.zones) + zone], 0.0)


@dataclass(frozen=True)
class Reasons:
    """code (J,): reason or None. detail (J,): a sentence or None. best (J,): menu option a job is told about, or -1.
    offered, needed (J,): value per GPU-hour of that option, and the price it has to beat (nan where meaningless)."""

    code: list[str | None]
    detail: list[str | None]
    best: Ints
    offered: Floats
    needed: Floats


def reasons(round_: Round, chosen: Ints, prices: Prices) -> Reasons:
    """Reasons for all jobs. chosen (J,): option of the whole menu that each job got, -1 = nothing.

    Offered and needed are counted for what the better option has more than the chosen one. Told of are options with
    GPUs of their own, not those beside another job.
    """
    problem, m = round_.problem, round_.menu
    J = len(problem.jobs)
    got = np.where(chosen >= 0, m.value[np.maximum(chosen, 0)], 0.0) if len(m) else np.zeros(J)
    better = (m.value > got[m.job] + 1e-12) & (m.host < 0)
    charge = prices.charge(round_)
    surplus = m.value - charge
    wants = np.zeros(J, dtype=bool)
    wants[m.job[better]] = True
    wants |= chosen < 0

    code, best = np.full(J, CODES.index("not_evaluated")), _best(m.job, np.where(better, surplus, -np.inf), J)
    for name, (applies, shown) in reversed(_flags(round_, chosen, better, surplus).items()):
        code[applies] = CODES.index(name)
        best[applies] = _best(m.job, np.where(shown, surplus, -np.inf), J)[applies]

    offered, needed = _per_gpu_hour(round_, best, chosen, m.value), _per_gpu_hour(round_, best, chosen, charge)

    names: list[str | None] = [CODES[c] if w else None for c, w in zip(code.tolist(), wants.tolist(), strict=True)]
    return Reasons(names, _sentences(round_, names, best, offered, needed), best, offered, needed)


def _per_gpu_hour(round_: Round, best: Ints, chosen: Ints, amount: Floats) -> Floats:
    """(J,) by how much `amount` (n,) of the best option is above that of the chosen one, per GPU-hour more it takes
    (per GPU-hour of the option where it takes no more); nan without a best option."""
    gpus, hours = np.append(round_.menu.gpus, 0), round_.problem.interval_s / 3600
    extra = gpus[best] - gpus[chosen]
    more = np.append(amount, 0.0)[best] - np.append(amount, 0.0)[chosen]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(best >= 0, more / (np.where(extra > 0, extra, gpus[best]) * hours), np.nan)


def _best(job: Ints, score: Floats, J: int) -> Ints:
    """(J,) index of the highest score of each job, -1 where it has none."""
    top = np.full(J, -np.inf)
    np.maximum.at(top, job, score)
    at = np.flatnonzero((score > -np.inf) & (score >= top[job]))
    best = np.full(J, -1)
    best[job[at]] = at
    return best


def _flags(round_: Round, chosen: Ints, better: Bools, surplus: Floats) -> dict[str, tuple[Bools, Bools]]:
    """For every code, in order of precedence: the jobs (J,) to which it applies, and the options (n,) that show it."""
    problem, m, i = round_.problem, round_.menu, round_.instance
    jobs, pools, tenants = problem.jobs, problem.pools, problem.tenants
    J = len(jobs)
    tenant = jobs.tenant[m.job]
    on = chosen >= 0
    mine = np.maximum(chosen, 0)
    gpus = np.where(on & (m.host[mine] < 0), m.gpus[mine], 0) if len(m) else np.zeros(J, dtype=np.int64)
    cost = np.where(on, m.cost[mine], 0.0) if len(m) else np.zeros(J)
    pool = np.where(on, m.pool[mine], -1) if len(m) else np.full(J, -1)

    def left(limit: Floats, used: Floats) -> Floats:
        return limit - used + 1e-9 * np.maximum(1.0, np.where(np.isfinite(limit), limit, 1.0))

    free = problem.pools.gpus - np.bincount(pool[on], gpus[on], minlength=len(pools))
    budget = left(np.array(problem.budget_per_hour), np.array(cost.sum()))
    quota = left(tenants.max_gpus, np.bincount(jobs.tenant, gpus, len(tenants)).astype(float))
    purse = left(tenants.budget_per_hour, np.bincount(jobs.tenant, cost, len(tenants)).astype(float))
    extra, dollars = m.gpus - gpus[m.job], m.cost - cost[m.job]
    room = np.where(pool[m.job] == m.pool, extra, m.gpus) <= free[m.pool]
    room &= _left_by_interactive(round_, chosen)
    payable = dollars <= budget
    granted = (extra <= quota[tenant]) & (dollars <= purse[tenant])
    granted &= _unexposed(problem, m.pool, m.gpus, m.job, pool, gpus)
    purse_full = left(tenants.budget_per_hour, np.zeros(len(tenants)))
    alone = (m.gpus <= tenants.max_gpus[tenant]) & (m.cost <= purse_full[tenant])

    any_ = _any(J, m.job)
    some = any_(better)
    fixed = np.bincount(jobs.pool[i.must], (jobs.gpus * (jobs.host < 0))[i.must], minlength=len(pools))
    movable = m.gpus <= pools.gpus[m.pool] - fixed[m.pool]
    gain = surplus - np.where(chosen[m.job] >= 0, surplus[mine[m.job]], 0.0)
    lost = round_.repairs.released | ((jobs.state == State.RUNNING) & ~jobs.preemptible)
    none, matching = np.zeros(len(m), dtype=bool), _matching(round_)
    offered = any_(~none)
    poor, full = better & room & granted & ~payable, better & room & payable & ~granted
    lumpy, fits = better & (gain > PAYS * np.abs(m.value)) & ~room, better & room & payable & granted
    return {
        "held": (blocked(problem), none),
        "no_matching_gpu_type": (~offered & ~matching, none),
        "exceeds_cluster": (~offered & matching, none),
        "exceeds_quota": (some & ~any_(better & alone), better),
        "protected": ((some & ~any_(better & movable)) | (~on & lost), better),
        "budget": (any_(poor), poor),
        "quota": (any_(full), full),
        "capacity": (any_(lumpy), lumpy),
        "outranked": (some & ~any_(fits), better),
    }


def _headroom(round_: Round) -> Headroom | None:
    """What the options of the whole menu take of the GPUs not kept for interactive jobs."""
    m = round_.menu
    return of_options(round_.problem, round_.instance.must, m.job, np.where(m.host < 0, m.gpus, 0))


def _left_by_interactive(round_: Round, chosen: Ints) -> Bools:
    """(n,) options for which enough is left, beside the plan, of the GPUs not kept for interactive jobs."""
    m, kept = round_.menu, _headroom(round_)
    fits = np.ones(len(m), dtype=bool)
    for amount, most in () if kept is None else ((kept.batch, kept.most_batch), (kept.firm, kept.most_firm)):
        held = np.append(amount, 0)[chosen]
        at = np.append(m.pool, 0)[chosen]
        left = most - np.bincount(at, held, len(most))
        extra = amount - np.where(at[m.job] == m.pool, held[m.job], 0)
        fits &= (extra <= 0) | (extra <= left[m.pool])
    return fits


def _unexposed(problem: Problem, pool: Ints, gpus: Ints, job: Ints, now: Ints, held: Ints) -> Bools:
    """(n,) options that keep their tenant's limit on spot GPUs of one region. now, held (J,): the plan."""
    pools, tenants, owner = problem.pools, problem.tenants, problem.jobs.tenant
    zones = len(pools.zones)
    if not zones:
        return np.ones(len(job), dtype=bool)
    at = np.where(now >= 0, pools.zone[now], -1)
    on = at >= 0
    used = np.bincount(owner[on] * zones + at[on], held[on], len(tenants) * zones)
    zone = pools.zone[pool]
    before = used[owner[job] * zones + zone] - np.where(at[job] == zone, held[job], 0)
    return np.asarray((zone < 0) | (before + gpus <= tenants.exposure[owner[job]]))


def _any(J: int, job: Ints) -> Callable[[Bools], Bools]:
    def any_(mask: Bools) -> Bools:
        out = np.zeros(J, dtype=bool)
        out[job[mask]] = True
        return out

    return any_


def _matching(round_: Round) -> Bools:
    """(J,) True where a pool has a type that the job may use and a rate is known for at any size."""
    problem = round_.problem
    known = np.zeros((len(problem.models), len(problem.gpu_types)), dtype=bool)
    known[problem.rates.model[problem.rates.rate > 0], problem.rates.gpu_type[problem.rates.rate > 0]] = True
    known[problem.curves.model, problem.curves.gpu_type] = True
    there = np.zeros(len(problem.gpu_types), dtype=bool)
    there[problem.pools.gpu_type] = True
    matching: Bools = np.any(allowed_types(problem) & known[problem.jobs.model] & there, axis=1)
    return matching


SENTENCES = {
    "no_matching_gpu_type": 'no pool has a GPU type it may use with a rate for model "{model}"',
    "exceeds_cluster": "no pool can hold a size between {low} and {high} GPUs with a known rate and enough memory",
    "exceeds_quota": 'even {want} alone is above max_gpus or budget_per_hour of tenant "{tenant}"',
    "protected": "{want} is held by jobs that may not be moved",
    "budget": "{want} is free, but its {cost:.2f} $/h are more than is left of the budget; {worth}",
    "quota": '{want} is free but more than is left to tenant "{tenant}"; {worth}',
    "capacity": "{want} would pay its price, but no whole size fits the GPUs left; {worth}",
    "outranked": "{want}: {worth}",
    "not_evaluated": "{want} would fit, but this policy does not look for it; {worth}",
}


def _sentences(round_: Round, codes: list[str | None], best: Ints, offered: Floats,
               needed: Floats) -> list[str | None]:
    """The numbers behind each code in words; None where there is no code."""
    problem, m, jobs = round_.problem, round_.menu, round_.problem.jobs
    gpus, cost = np.append(m.gpus, 0)[best].tolist(), np.append(m.cost, 0.0)[best].tolist()
    pools = [problem.pools.pool[p] if p >= 0 else "" for p in np.append(m.pool, -1)[best].tolist()]
    tenants, models = jobs.tenant.tolist(), jobs.model.tolist()
    low, high, offers, needs = jobs.min_gpus.tolist(), jobs.max_gpus.tolist(), offered.tolist(), needed.tolist()
    present = set(jobs.job_id)
    out: list[str | None] = []
    for j, code in enumerate(codes):
        if code is None:
            out.append(None)
        elif code == "held":
            names = [a for a in jobs.after[j] if a in present]
            out.append(f"waits for {', '.join(names)}" if names and jobs.state[j] != State.HELD else "on hold")
        elif code == "protected" and (best[j] < 0 or round_.repairs.released[j]):
            out.append("non-preemptible, but the GPUs it held are gone")
        else:
            out.append(SENTENCES[code].format(
                want=f"{gpus[j]} x {pools[j]}", cost=cost[j], tenant=problem.tenants.tenant[tenants[j]], low=low[j],
                high=high[j], model=problem.models[models[j]],
                worth=f"value per GPU-hour: {offers[j]:.4g} offered, {needs[j]:.4g} needed"))
    return out
