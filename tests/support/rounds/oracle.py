"""An oracle for tiny rounds, written from docs/reference/rules.md alone: it tries every plan and
shares no code with the product.

It reads the rows of a generated folder (tests/cases/folders.py) and covers objective `progress`
with every hard rule, without nodes, sharing, curves, prices over time and
efficiency.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
ROUNDING = 1e-9  # of sums of dollars


@dataclass(frozen=True)
class Choice:
    """One thing a job may get; gpus 0 = nothing."""

    pool: str | None
    gpus: int
    value: float
    cost: float
    changed: bool  # a running job that gets something else than it holds


class Oracle:
    """A round as docs/reference/rules.md defines it."""

    def __init__(self, config: Mapping[str, Any], tables: Mapping[str, Sequence[Row]]) -> None:
        self.config = config
        self.jobs = tables["jobs.csv"]
        self.pools = {p["pool"]: p for p in tables["pools.csv"]}
        self.tenants = {t["tenant"]: t for t in tables.get("tenants.csv", ())}
        self.rates: dict[tuple[str, str], dict[int, float]] = {}
        for r in tables["rates.csv"]:
            of = self.rates.setdefault((r["model"], r["gpu_type"]), {})
            of[r["gpus"]] = max(r["work_per_s"], of.get(r["gpus"], 0.0))
        self.choices = [self._choices(j) for j in self.jobs]

    def rate(self, model: str, gpu_type: str, k: int) -> float:
        """Work per second; 0 where the size is not offered."""
        of = self.rates.get((model, gpu_type), {})
        if k in of:
            return of[k]
        if not of or not min(of) < k < max(of):
            return 0.0
        k1, k2 = max(n for n in of if n < k), min(n for n in of if n > k)
        r1, r2 = of[k1], of[k2]
        return min(r1 + (r2 - r1) * (k - k1) / (k2 - k1), r1 * k / k1)

    def _sizes(self, job: Row, pool: Row) -> set[int]:
        per, low, high = pool.get("gpus_per_node", 8), job.get("min_gpus", 1), job["max_gpus"]
        rule = [k for k in (1, 2, 4, 8, 16, 32) if k <= per]
        named = {-(-low // per) * per, high // per * per, job.get("requested_gpus")}
        named |= set(self.rates.get((job["model"], pool["gpu_type"]), ()))
        for k in range(per, high + 1, per):
            digits = len(f"{k // per:b}".rstrip("0"))
            rule += [k] if k // per <= 1024 or digits <= 8 or k in named else []
        return {k for k in job.get("sizes") or rule if low <= k <= high}

    def _choices(self, job: Row) -> list[Choice]:
        """All choices of a job, "nothing" among them unless it must keep what it holds; best
        first.
        """
        state = job.get("state", "queued")
        running = state == "running"
        holds = (job["pool"], job["gpus"]) if running else None
        nothing = Choice(None, 0, 0.0, 0.0, running)
        if state == "held":
            return [nothing]
        offers: set[tuple[str, int]] = set()
        may_change = not running or (job.get("preemptible", True) and job.get("resizes_left") != 0)
        if may_change:
            offers = {
                (p, k)
                for p, pool in self.pools.items()
                for k in self._sizes(job, pool)
                if not job.get("gpu_types") or pool["gpu_type"] in job["gpu_types"]
            }
        if holds:
            offers.add(holds)
        found = [c for p, k in offers if (c := self._choice(job, p, k, holds)) is not None]
        kept = [c for c in found if running and not c.changed]
        if kept and not job.get("preemptible", True):
            return kept
        return sorted([*found, nothing], key=lambda c: -c.value)

    def _choice(self, job: Row, name: str, k: int, holds: tuple[str, int] | None) -> Choice | None:
        pool = self.pools[name]
        rate = self.rate(job["model"], pool["gpu_type"], k)
        if rate <= 0 or k > pool["gpus"]:
            return None
        pause = float(pool.get("startup_s", 0))
        if holds == (name, k):
            pause = 0.0
        elif holds:
            own = job.get("restart_s")
            pause += self.config.get("restart_s", 30) if own is None else own
        done = rate * max(0.0, self.config.get("interval_s", 300) - pause)
        value = job.get("weight", 1) * min(1.0, done / job["remaining_work"])
        return Choice(
            name,
            k,
            value,
            k * pool.get("price_per_gpu_hour", 0.0),
            bool(holds) and holds != (name, k),
        )

    def usable(self, tenant: str) -> int:
        """Most GPUs, not above its guarantee, that the tenant's jobs could hold alone in the
        cluster.
        """
        promised = self.tenants[tenant].get("guaranteed_gpus", 0)
        names = list(self.pools)
        reached = {(0,) * len(names)}
        for job, choices in zip(self.jobs, self.choices, strict=True):
            if job.get("tenant", "default") == tenant:
                reached |= {
                    tuple(n + c.gpus * (p == c.pool) for n, p in zip(held, names, strict=True))
                    for held in reached
                    for c in choices
                }
                reached = {
                    held
                    for held in reached
                    if sum(held) <= promised
                    and all(n <= self.pools[p]["gpus"] for n, p in zip(held, names, strict=True))
                }
        return max(sum(held) for held in reached)

    def best(self) -> float | None:
        """Value of the best plan, None if no plan keeps every rule. Tries all, but for those
        that cannot win.
        """
        guarantee = {t: self.usable(t) for t in self.tenants}
        return self._search(
            lambda plan: (
                sum(c.value for c in plan)
                if all(self._gpus(plan, t) >= u for t, u in guarantee.items())
                else None
            )
        )

    def _search(self, judged: Callable[[list[Choice]], float | None]) -> float | None:
        """The best of all full plans as judged (None: not allowed, never above the sum of its
        choices' values).
        """
        hope = [0.0]
        for choices in reversed(self.choices):
            hope.append(hope[-1] + max(c.value for c in choices))
        hope.reverse()
        record: float | None = None
        plan: list[Choice] = []

        def search(j: int, value: float) -> None:
            nonlocal record
            if record is not None and value + hope[j] <= record:
                return
            if j == len(self.jobs):
                total = judged(plan)
                record = (
                    total if record is None or (total is not None and total > record) else record
                )
                return
            for choice in self.choices[j]:
                plan.append(choice)
                if self._allowed(plan):
                    search(j + 1, value + choice.value)
                plan.pop()

        search(0, 0.0)
        return record

    def _of(self, plan: Sequence[Choice], tenant: str) -> Iterator[Choice]:
        jobs = self.jobs[: len(plan)]
        return (c for c, j in zip(plan, jobs, strict=True) if j.get("tenant", "default") == tenant)

    def _gpus(self, plan: Sequence[Choice], tenant: str) -> int:
        return sum(c.gpus for c in self._of(plan, tenant))

    def _allowed(self, plan: Sequence[Choice]) -> bool:
        """Whether the first jobs' choices keep every rule of the kind `at most`."""

        def within(amount: float, limit: float | None) -> bool:
            return limit is None or amount <= limit + ROUNDING

        return (
            all(
                sum(c.gpus for c in plan if c.pool == p) <= pool["gpus"]
                for p, pool in self.pools.items()
            )
            and within(sum(c.cost for c in plan), self.config.get("budget_per_hour"))
            and within(sum(c.changed for c in plan), self.config.get("max_changes"))
            and all(
                within(self._gpus(plan, t), row.get("max_gpus"))
                and within(sum(c.cost for c in self._of(plan, t)), row.get("budget_per_hour"))
                for t, row in self.tenants.items()
            )
        )


def knapsack(oracle: Oracle) -> float:
    """Best value of a round with one pool and no rule but its capacity: the exact dynamic
    programme over GPUs.
    """
    (pool,) = oracle.pools.values()
    best = [0.0] * (pool["gpus"] + 1)
    for choices in oracle.choices:
        best = [
            max(best[g - c.gpus] + c.value for c in choices if c.gpus <= g)
            for g in range(len(best))
        ]
    return best[-1]
