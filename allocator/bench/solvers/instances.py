"""Generate synthetic rounds of five sizes for the solver benchmarks, without files.

Each job has these properties:

- It may use about three quarters of the GPU types.
- Its sizes are 1, 2, 4, then multiples of 8 up to its maximum, a power of two of at most 256.
- Its speed-up is concave, with a penalty for leaving the node.
- With probability one half it runs, and every option but the one that it holds loses 4 %.

Tenants have power-law shares, and quotas. In the round after, which measures warm starts, some jobs
are replaced, and some values change.
"""

from dataclasses import dataclass, replace

import numpy as np

from formulations.model.linear import Bools, Floats, Ints
from formulations.model.single_round import Instance, find_needed_options

SIZES = {
    "S": (100, 64, 3),
    "M": (500, 512, 4),
    "L": (2_000, 2_048, 6),
    "XL": (10_000, 16_384, 8),
    "XXL": (50_000, 131_072, 8),
}
"""Name: (jobs, GPUs, GPU types)."""

SPEED = np.array([1.0, 1.9, 3.1, 0.55, 4.2, 1.4, 0.8, 2.4])
PRICE = np.array([1.0, 2.1, 3.9, 0.45, 6.0, 1.3, 0.7, 2.8])
SHARE = np.array([0.30, 0.20, 0.10, 0.12, 0.06, 0.10, 0.07, 0.05])
COUNTS = np.array([1, 2, 4, *range(8, 65, 8), 80, 96, 112, 128, 160, 192, 224, 256])
REPLACED = 0.02
MOVED = 0.05


@dataclass(frozen=True)
class InstanceRules:
    """How tight the limits of an instance are.

    Attributes
    ----------
    demand : sum of the maximum sizes of the jobs over the GPUs.
    budget : share of the cost of renting everything.
    tenants : number of tenants.
    guarantees : share of the tenants that have a guarantee.
    churn : share of the running jobs that may change; 1 means all.
    protected : share of the running jobs that may not move.
    """

    demand: float = 2.5
    budget: float = 0.8
    tenants: int = 20
    guarantees: float = 0.0
    churn: float = 1.0
    protected: float = 0.0


PLAIN = InstanceRules()
TENANTS = InstanceRules(tenants=100)
EVERYTHING = InstanceRules(tenants=100, guarantees=0.5, churn=0.25, protected=0.05)


def generate(size: str | tuple[int, ...], seed: int = 0, rules: InstanceRules = PLAIN) -> Instance:
    """Return an instance; the same size, seed and rules give the same one.

    `size` is a key of SIZES or (jobs, GPUs, types).
    """
    J, gpus, T = SIZES[size] if isinstance(size, str) else size
    rng = np.random.default_rng([seed, J, rules.tenants])
    capacity = np.maximum(8, np.round(SHARE[:T] / SHARE[:T].sum() * gpus / 8) * 8).astype(np.int64)
    most = _maxima(rng, J, int(capacity.sum()), rules.demand)
    least = np.where((most >= 8) & (rng.random(J) < 0.25), most // 4, 1)
    fits = rng.random((J, T)) < 0.75
    fits[np.arange(J), rng.integers(0, T, J)] = True
    possible = fits[:, :, None] & (most[:, None, None] >= COUNTS) & (least[:, None, None] <= COUNTS)
    job, pool, k = np.nonzero(possible)
    count = COUNTS[k]
    start = np.searchsorted(job, np.arange(J + 1))
    keep, runs = _running(rng, start, count, pool, capacity)
    value = _values(rng, fits, job, pool, count)
    value = np.where(runs[job] & ~keep, 0.96 * value, value)
    tenant, quota = _tenants(rng, rules.tenants, most, int(capacity.sum()))
    held = np.bincount(tenant[job[keep]], count[keep], rules.tenants)
    quota = np.maximum(quota, held)
    promised = rng.random(rules.tenants) < rules.guarantees
    guarantee = np.where(promised, np.floor(0.5 * np.minimum(quota, held)), 0).astype(np.int64)
    mandatory = runs & (rng.random(J) < rules.protected)
    kept = int(keep.sum())
    i = Instance(
        value=value,
        start=start,
        job=job,
        pool=pool,
        gpus=count,
        cost=count * PRICE[pool],
        keep=keep,
        mandatory=mandatory,
        tenant=tenant,
        capacity=capacity,
        budget=rules.budget * float(capacity @ PRICE[:T]),
        quota=quota,
        tenant_budget=np.full(rules.tenants, np.inf),
        guarantee=guarantee,
        zone=np.full(len(capacity), -1),
        exposure=np.full(rules.tenants, np.inf),
        zones=[],
        least_kept=kept - int(rules.churn * kept) if rules.churn < 1 else 0,
        jobs=[f"job-{j}" for j in range(J)],
        pools=[f"type-{t}" for t in range(T)],
        tenants=[f"team-{q}" for q in range(rules.tenants)],
    )
    # jobs that must keep what they hold have only that option
    return i.take(np.flatnonzero((keep | ~mandatory[job]) & find_needed_options(i)))


def _maxima(rng: np.random.Generator, J: int, gpus: int, demand: float) -> Ints:
    """Draw maximum sizes: powers of two with geometric weights and a sum of about demand x gpus."""
    power = 2 ** np.arange(int(np.log2(max(2, min(256, gpus // 16)))) + 1)
    low, high = 1e-3, 3.0
    for _ in range(60):
        ratio = (low + high) / 2
        weight = ratio ** np.arange(len(power))
        weight /= weight.sum()
        low, high = (ratio, high) if weight @ power < demand * gpus / J else (low, ratio)
    return rng.choice(power, J, p=weight)


def _running(
    rng: np.random.Generator, start: Ints, count: Ints, pool: Ints, capacity: Ints
) -> tuple[Bools, Bools]:
    """Let half of the jobs hold a random option, up to 70 % of the GPUs of each pool.

    Returns keep (n,) and runs (J,).
    """
    J = len(start) - 1
    choice = start[:-1] + (rng.random(J) * np.diff(start)).astype(np.int64)
    asks = rng.random(J) < 0.5
    keep = np.zeros(len(count), dtype=bool)
    for t in range(len(capacity)):
        of_pool = choice[asks & (pool[choice] == t)]
        keep[of_pool[np.cumsum(count[of_pool]) <= 0.7 * capacity[t]]] = True
    return keep, np.add.reduceat(keep, start[:-1]) > 0


def _values(rng: np.random.Generator, fits: Bools, job: Ints, pool: Ints, count: Ints) -> Floats:
    J, T = map(int, fits.shape)
    alpha, leave = rng.uniform(0.55, 0.97, J), rng.uniform(0.75, 1.0, J)
    priority = rng.choice([1.0, 2.0, 4.0], J, p=[0.6, 0.3, 0.1]) * rng.uniform(0.7, 1.4, J)
    speed = SPEED[:T] * rng.lognormal(0.0, 0.25, (J, T))
    reference = np.where(fits, speed, 0.0).max(axis=1)
    rate = speed[job, pool] * np.power(count, alpha[job]) * np.where(count > 8, leave[job], 1.0)
    noise = rng.lognormal(0.0, 0.02, len(job))
    return np.asarray(priority[job] * rate / reference[job] * noise, dtype=np.float64)


def _tenants(rng: np.random.Generator, Q: int, most: Ints, gpus: int) -> tuple[Ints, Floats]:
    share = 1.0 / np.arange(1, Q + 1) ** 0.7
    share /= share.sum()
    tenant = rng.choice(Q, len(most), p=share)
    quota = np.maximum(np.ceil(0.6 * gpus * share * rng.uniform(0.8, 2.2, Q) + 2), 8)
    return tenant, np.minimum(quota, np.bincount(tenant, most, Q) + 1)


def next_round(i: Instance, seed: int) -> Instance:
    """Return another round of the same cluster; options keep their indices.

    The same seed gives the same round. A replaced job is a new job with another name and other
    values, and does not run. A changed value changes by up to 10 %. A guarantee shrinks if jobs
    that held it are gone, so that changing nothing stays allowed.
    """
    rng = np.random.default_rng([seed, len(i.jobs), 1])
    gone = rng.random(len(i.jobs)) < REPLACED
    value = np.where(
        rng.random(len(i.value)) < MOVED, i.value * rng.uniform(0.9, 1.1, len(i.value)), i.value
    )
    value = np.where(gone[i.job], value * rng.uniform(0.5, 2.0, len(i.jobs))[i.job], value)
    keep = i.keep & ~gone[i.job]
    kept = np.flatnonzero(keep)
    held = i.usage(kept, i.gpus[kept]).astype(np.int64)
    left = int(keep.sum()) / max(1, int(i.keep.sum()))
    return replace(
        i,
        value=value,
        keep=keep,
        mandatory=i.mandatory & ~gone,
        guarantee=np.minimum(i.guarantee, held),
        least_kept=int(left * i.least_kept),
        jobs=[f"{name}-next" if g else name for name, g in zip(i.jobs, gone.tolist(), strict=True)],
    )
