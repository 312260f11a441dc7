"""The contract and the formulas of objectives read a second time, on plain rows with loops and exhaustive search."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Option = tuple[str, int]


@dataclass
class Reading:
    """The rows of one scene, read anew."""

    jobs: list[Row]
    pools: list[Row]
    rates: list[Row]
    tenants: list[Row]
    config: Row
    factors: dict[int, float] = field(default_factory=dict)         # by number of levels left, found when asked for

    def rate(self, gpu_type: str, k: int) -> float | None:
        known: dict[int, float] = {}
        for r in self.rates:
            if r["gpu_type"] == gpu_type:
                known[r["gpus"]] = max(known.get(r["gpus"], 0.0), r["work_per_s"])
        if k in known:
            return known[k]
        if not known or not min(known) < k < max(known):
            return None
        a, b = max(n for n in known if n < k), min(n for n in known if n > k)
        return min(known[a] + (known[b] - known[a]) * (k - a) / (b - a), known[a] * k / a)

    def held(self, j: Row) -> Option | None:
        return (j["pool"], j["gpus"]) if j["state"] == "running" else None

    def options(self, j: Row) -> dict[Option, float]:
        """{(pool, gpus): rate}"""
        names = {x["job_id"] for x in self.jobs}
        if j["state"] == "held" or (j["state"] != "running" and names & set(j["after"])):
            return {}
        tied = j["state"] == "running" and (not j["preemptible"] or j["resizes_left"] == 0)
        out = {}
        for p in self.pools:
            for k in range(1, p["gpus"] + 1):
                node = p["gpus_per_node"]
                size = k in j["sizes"] if j["sizes"] else (k <= node and k in (1, 2, 4, 8)) or k % node == 0
                free = size and j["min_gpus"] <= k <= j["max_gpus"] and not tied
                free = free and (p["market"] != "spot" or j["max_spot_gpus"] is None or k <= j["max_spot_gpus"])
                free = free and (not j["gpu_types"] or p["gpu_type"] in j["gpu_types"])
                r = self.rate(p["gpu_type"], k)
                if r and (free or self.held(j) == (p["pool"], k)):
                    out[p["pool"], k] = r
        return out

    def fixed(self, pool: str) -> list[Row]:
        """Non-preemptible jobs that could stay in the pool, one by one."""
        return [j for j in self.jobs if j["state"] == "running" and j["pool"] == pool and not j["preemptible"]
                and self.held(j) in self.options(j)]

    def released(self) -> set[str]:
        """For each pool the fixed jobs left out of a heaviest set that fits."""
        gone: set[str] = set()
        for p in self.pools:
            jobs = self.fixed(p["pool"])
            sets = [s for n in range(len(jobs) + 1) for s in itertools.combinations(jobs, n)
                    if sum(j["gpus"] for j in s) <= p["gpus"]]
            stay = max(sets, key=lambda s: sum(j["gpus"] for j in s))
            gone |= {j["job_id"] for j in jobs if j not in stay}
        return gone

    def forced(self, released: set[str]) -> int:
        """Fewest running jobs that must change because what they hold is not there any more."""
        run = [j for j in self.jobs if j["state"] == "running"]
        able = [j for j in run if self.held(j) in self.options(j) and j["job_id"] not in released]
        for n in range(len(able), -1, -1):
            for stay in itertools.combinations(able, n):
                fits = all(sum(j["gpus"] for j in stay if j["pool"] == p["pool"]) <= p["gpus"] for p in self.pools)
                if fits and all(j in stay for j in able if not j["preemptible"]):
                    return len(run) - n
        raise AssertionError("the released jobs leave room for the others")

    def usable(self, t: Row) -> int:
        menus = [[None, *self.options(j)] for j in self.jobs if j["tenant"] == t["tenant"]]
        best = 0
        for pick in itertools.product(*menus):
            some = [o for o in pick if o]
            total = sum(k for _, k in some)
            if total <= t["guaranteed_gpus"] and all(
                    sum(k for q, k in some if q == p["pool"]) <= p["gpus"] for p in self.pools):
                best = max(best, total)
        return best

    def base(self, j: Row) -> float:
        asked = [r for t in {p["gpu_type"] for p in self.pools} if not j["gpu_types"] or t in j["gpu_types"]
                 if (r := self.rate(t, j["requested_gpus"]))]
        near = min(((abs(k - j["requested_gpus"]), k, r) for (_, k), r in self.options(j).items()), default=(0, 0, 1))
        return (min(asked) if asked else near[2]) * self.config["interval_s"]

    def worth(self, j: Row, got: Option) -> float:
        """Of an option: one name, "a=2,b=0.5", or "a > b"."""
        levels = [[(term.partition("=")[0].strip(), float(term.partition("=")[2] or 1)) for term in part.split(",")]
                  for part in self.config["objective"].split(">")]
        _, _, _, dollars = self.brings(j, got)
        return self.ranked(j, got, levels) - self.mu(j) * dollars

    def ranked(self, j: Row, got: Option, levels: list[list[tuple[str, float]]]) -> float:
        first = sum(factor * self.single(j, got, name) for name, factor in levels[0])
        if len(levels) == 1:
            return first
        return first + self.factor(levels) * self.ranked(j, got, levels[1:])

    def factor(self, levels: list[list[tuple[str, float]]]) -> float:
        """By which the second level and those after it count."""
        if len(levels) not in self.factors:
            own, reach = (sum(self.most(lambda i, o, sign=sign, part=part: sign * self.ranked(i, o, part))
                              for sign in (1, -1)) for part in (levels[:1], levels[1:]))
            self.factors[len(levels)] = 0.01 * own / reach if own > 0 and reach > 0 else 1.0
        return self.factors[len(levels)]

    def most(self, value: Any) -> float:
        """Least over prices of a GPU, at every crossing of two lines, of price x GPUs + what options leave."""
        lines = [[(0.0, 0), *((value(j, o), o[1]) for o in self.options(j))] for j in self.jobs]
        prices = {0.0} | {(a - b) / (k - h) for of in lines for (a, k), (b, h) in itertools.combinations(of, 2)
                          if k != h}
        total = sum(p["gpus"] for p in self.pools)
        return min(p * total + sum(max(v - p * k for v, k in of) for of in lines) for p in prices if p >= 0)

    def brings(self, j: Row, got: Option) -> tuple[float, float, float, float]:
        """(rate, work done, seconds on GPUs, dollars) of this round."""
        pool, pause = next(p for p in self.pools if p["pool"] == got[0]), self.pause(j, got)
        rate, span = self.options(j)[got], self.config["interval_s"]
        busy = min(span, pause + j["remaining_work"] / rate)
        billed = busy if self.held(j) == got else max(busy, pool["min_billing_s"])
        return rate, min(j["remaining_work"], rate * max(0, span - pause)), busy, self.hourly(got) * billed / 3600

    def pause(self, j: Row, got: Option) -> float:
        """Seconds that it loses."""
        pool = next(p for p in self.pools if p["pool"] == got[0])
        pause = pool["startup_s"] + (j["restart_s"] if j["state"] == "running" else 0)
        return 0.0 if self.held(j) == got else float(pause)

    def mu(self, j: Row) -> float:
        """Price of money."""
        owner = next(t for t in self.tenants if t["tenant"] == j["tenant"])
        return float(self.config["dollar_price"] + owner["dollar_price"])

    def single(self, j: Row, got: Option, name: str) -> float:
        """Worth of an option in one objective, without the money."""
        _, done, busy, dollars = self.brings(j, got)
        if name == "progress":
            return float(j["weight"] * done / j["remaining_work"])
        if name == "throughput":
            return float(j["weight"] * done / self.base(j))
        if name == "cost":
            return self.saving(j, got, done, dollars, busy)
        if name == "utility":
            part = max(0.0, 1 - self.pause(j, got) / self.config["interval_s"])
            x = part * self.options(j)[got] / min(self.options(j).values())
            return float(j["weight"] * math.log(1 + 9 * x) / math.sqrt(1 + j["attained_gpu_s"] / 600))
        if name in ("fairness", "maxmin", "makespan"):
            return self.shared(j, done, busy, name)
        if name == "tardiness" and self.in_time(j):
            return float(168 * j["weight"] * (self.risk(j, None) - self.risk(j, got)))
        weight = {i["job_id"]: i["weight"] * (self.slope(i) if name == "flow" else 1.0) for i in self.jobs}
        mine = weight[j["job_id"]]
        least = min((mine + self.mu(j) * self.hourly(o)) / (3600 * r) for o, r in self.options(j).items())
        if name in ("completion", "flow", "tardiness"):
            length = {i["job_id"]: i["remaining_work"] / self.whole(i) / weight[i["job_id"]] for i in self.jobs
                      if self.options(i) and not (name == "tardiness" and self.in_time(i))}
            after = [i for i, hours in length.items() if hours >= length[j["job_id"]] * (1 - 1e-6)]
            least = max(least, sum(weight[i] for i in after) / (3600 * self.whole(j)))
        if name == "flow":
            done = self.spread(j, got)
        return float(least * done + mine * (self.config["interval_s"] - busy) / 3600)

    def slope(self, j: Row) -> float:
        """Of F + d^2 / 1.6 T at the delay d of the job."""
        alone = [i["total_work"] / max(self.options(i).values()) for i in self.jobs if self.options(i)]
        worked = (j["total_work"] - j["remaining_work"]) / max(self.options(j).values(), default=math.inf)
        scale = self.config["interval_s"] + sum(alone) / len(alone)
        return float(1 + max(0, -j["submitted_s"] - worked) / (0.8 * scale))

    def spread(self, j: Row, got: Option) -> float:
        """Work done where the pause is spread over the time for which the option is held."""
        rate, span, pause = self.options(j)[got], self.config["interval_s"], self.pause(j, got)
        left, age = j["remaining_work"], -j["submitted_s"]
        held = max(span, min(age / (j["restarts"] + 2), pause + left / rate))
        return float(min(left, max(0.0, rate * span - rate * span / held * pause)))

    def shared(self, j: Row, done: float, busy: float, name: str) -> float:
        """Objectives that look at equal shares."""
        def ratio(i: Row, seconds: float, left: float) -> float:
            equal = self.equal(i, alike=name == "makespan")
            if name == "makespan":
                return float((seconds + left / equal) / 3600.0)
            return float((-i["submitted_s"] + seconds + left / equal) / (i["total_work"] / equal))

        span = self.config["interval_s"]
        unit, power = 1.0, 2.0
        if name == "maxmin":
            others = [ratio(i, span, i["remaining_work"]) for i in self.jobs if self.options(i)]
            unit, power = max(others), max(2.0, math.log(len(others)) / math.log(1.25))
        waiting, planned = ratio(j, span, j["remaining_work"]), ratio(j, busy, j["remaining_work"] - done)
        return ((waiting / unit) ** power - (planned / unit) ** power) / power

    def equal(self, j: Row, alike: bool = False) -> float:
        """Rate of a job on its equal share of all GPUs, by weights or with all alike."""
        options = self.options(j)

        def claim(i: Row) -> float:
            tenant = next(t for t in self.tenants if t["tenant"] == i["tenant"])
            return 1.0 if alike else float(i["weight"] * tenant["weight"])

        share = sum(p["gpus"] for p in self.pools) * claim(j) / sum(claim(i) for i in self.jobs if self.options(i))
        slow = {k: min(r for (_, n), r in options.items() if n == k) for _, k in options}
        low, high = min(slow), max(slow)
        below, above = (max((k for k in slow if k <= share), default=low), min((k for k in slow if k >= share),
                                                                               default=high))
        part = 0.0 if below == above else (share - below) / (above - below)
        return slow[high] if share >= high else slow[low] * share / low if share <= low else (
            slow[below] + part * (slow[above] - slow[below]))

    def in_time(self, j: Row) -> bool:
        """Whether some option leaves the deadline within reach."""
        return any(self.risk(j, o) < 1 - 1e-9 for o in self.options(j))

    def risk(self, j: Row, got: Option | None) -> float:
        """Of missing the deadline after a round with this option, None = waiting."""
        due, left, fastest = self.due(j), j["remaining_work"], max(self.options(j).values())
        if due is None:
            return 1.0
        if got:
            _, done, busy, _ = self.brings(j, got)
            if left - done <= 1e-9 * left:
                return float(busy > due)
            left -= done
        hours = due - self.config["interval_s"] - j["restart_s"]
        return float(min(1.0, left / fastest / hours) ** 2) if hours > 0 else 1.0

    def whole(self, j: Row) -> float:
        """Work per second if every GPU worked on jobs like this one."""
        return sum(p["gpus"] * max((r / k for (q, k), r in self.options(j).items() if q == p["pool"]), default=0.0)
                   for p in self.pools)

    def shortest(self, j: Row) -> float:
        """Least seconds it still needs, at listed sizes, powers of two and the largest that fits; now is 0."""
        best = 0.0
        for p in self.pools:
            most = min(j["max_gpus"], p["gpus"], max(r["gpus"] for r in self.rates))
            for k in range(j["min_gpus"], most + 1):
                tried = k in j["sizes"] if j["sizes"] else k in (1, 2, 4, 8, most)
                if tried and (not j["gpu_types"] or p["gpu_type"] in j["gpu_types"]):
                    best = max(best, self.rate(p["gpu_type"], k) or 0.0)
        return j["remaining_work"] / best if best else 0.0

    def due(self, j: Row) -> float | None:
        """Its own deadline, or when a job that comes after it has to begin: no job here has stages on both sides."""
        found = [] if j["deadline_s"] is None else [j["deadline_s"]]
        for s in self.jobs:
            if j["job_id"] in s["after"] and s["deadline_s"] is not None:
                need = self.shortest(s)
                way = need + self.shortest(j)
                found.append(s["deadline_s"] - need * max(1.0, s["deadline_s"] / way if way else 1.0))
        return min(found, default=None)

    def saving(self, j: Row, got: Option, done: float, dollars: float, busy: float) -> float:
        """Objective cost: finishing after waiting, minus dollars, minus finishing after this."""
        pools = {p["pool"]: p for p in self.pools}
        options, left, span = self.options(j), j["remaining_work"], self.config["interval_s"]
        sure = [o for o in options if pools[o[0]]["market"] == "on_demand"] or [
            o for o in options if pools[o[0]]["market"] == "reserved"] or list(options)
        late = 10 * j["weight"] * max(1.0, *(self.hourly(o) for o in options)) / 3600
        own = self.due(j)
        pace, dated = self.base(j) / span, own is not None
        due = (left / pace if own is None else own) - span

        def mix(work: float, seconds: float) -> float:
            """Every pair of options, the first for a share of the work: none, all, or what ends just in time."""
            best = math.inf
            for a, b in itertools.product(options, repeat=2):
                ta, tb = (1 / options[o] / pools[o[0]]["availability"] for o in (a, b))
                ca, cb = (self.hourly(o) / 3600 / options[o] for o in (a, b))
                just = (seconds - work * tb) / (work * (ta - tb)) if work > 0 and ta != tb else 0.0
                for share in {0.0, 1.0, min(1.0, max(0.0, just))}:
                    over = work * (share * ta + (1 - share) * tb) - seconds
                    best = min(best, work * (share * ca + (1 - share) * cb) + late * over * (1 if over > 0 else 0.005))
            return best

        def over(work: float, seconds: float, now: Option | None) -> float:
            ends = [0.0 if work <= 0 else work / options[o] + (0 if o == now else pools[o[0]]["startup_s"] + (
                j["restart_s"] if now else 0)) for o in sure]
            return max(0.0, min(ends) + j["restart_s"] - seconds)

        after = due + span - busy
        value = mix(left, due) - dollars - mix(left - done, after)
        if dated:
            gone = min(left + span * options[got], j["total_work"])
            worst = gone if pools[got[0]]["market"] == "spot" else left - done
            value += late * (over(left, due, None) - over(worst, after, got))
        return value + (0.001 * late * min(span, done / pace) if self.hourly(got) == 0 else 0.0)

    def hourly(self, got: Option) -> float:
        """Dollars per hour that an option adds to the bill."""
        pool = next(p for p in self.pools if p["pool"] == got[0])
        return 0.0 if pool["market"] == "reserved" else float(pool["price_per_gpu_hour"] * got[1])

    def legal(self, gets: dict[str, Option], released: set[str]) -> bool:
        by = {j["job_id"]: j for j in self.jobs}
        price = {p["pool"]: p["price_per_gpu_hour"] for p in self.pools}
        if any(o not in self.options(by[n]) for n, o in gets.items()):
            return False
        for p in self.pools:
            stays = [j for j in self.fixed(p["pool"]) if j["job_id"] not in released]
            if any(gets.get(j["job_id"]) != self.held(j) for j in stays):
                return False
            if sum(k for q, k in gets.values() if q == p["pool"]) > p["gpus"]:
                return False
        if sum(k * price[q] for q, k in gets.values()) > self.config["budget_per_hour"] + 1e-7:
            return False
        for t in self.tenants:
            mine = [o for n, o in gets.items() if by[n]["tenant"] == t["tenant"]]
            gpus = sum(k for _, k in mine)
            if gpus > t["max_gpus"] or gpus < self.usable(t):
                return False
            if sum(k * price[q] for q, k in mine) > t["budget_per_hour"] + 1e-7:
                return False
            spot = {p["pool"]: p["region"] for p in self.pools if p["market"] == "spot"}
            for zone in set(spot.values()):
                held = sum(k for q, k in mine if spot.get(q) == zone)
                if t["max_spot_gpus"] is not None and held > t["max_spot_gpus"]:
                    return False
                if t["max_spot_share"] is not None and held > t["max_spot_share"] * t["guaranteed_gpus"]:
                    return False
        changed = sum(j["state"] == "running" and gets.get(j["job_id"]) != self.held(j) for j in self.jobs)
        return changed <= max(self.config["max_changes"], self.forced(released))
