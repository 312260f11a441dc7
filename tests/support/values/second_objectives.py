"""The objectives read a second time from formulations/README.md, with loops and searches."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from second_reading import Option, Row, kept
from second_ways import Way, Ways

RISKY = (
    "response",
    "cost",
    "completion",
    "tardiness",
    "utility",
    "fairness",
    "maxmin",
    "makespan",
    "flow",
)
"""Objectives that look at revocations and checkpoints: README of formulations."""


@dataclass
class Objectives(Ways):
    """A round with the value of ways in one objective."""

    def single(self, j: Row, w: Way, name: str) -> float:
        """Value of a way in one objective, without the money."""
        rate, span, own = self.speed(j, w, name in RISKY), self.config["interval_s"], self.weight(j)
        done, busy = self.done(j, w, rate), self.busy(j, w, rate)
        if name == "progress":
            return own * done / float(j["remaining_work"])
        if name == "throughput":
            return own * done / self.base(j)
        if name == "cost":
            return self.saving(j, w, rate)
        if name == "utility":
            value = math.log(self.beside(j, w, rate))
            return value * own / math.sqrt(1 + j["attained_gpu_s"] / 600)
        if name == "flow" and j.get("guessed"):
            worth = self.price_of_work(j, name)[0] * min(self.seen(j).values())
            return float(worth * span * math.log10(self.beside(j, w, rate, spread=True)))
        if name in ("fairness", "maxmin", "makespan"):
            return self.shared(j, done, busy, name)
        if name == "tardiness" and self.in_time(j):
            return 168 * own * (self.risk(j, None) - self.risk(j, w))
        least, mine = self.price_of_work(j, name)
        if name == "flow":
            lasts = self.lasts(j, w, rate, spread=True)
            if self.config["sizes"] == "unknown":
                early = max(0.0, span - w.pause) - self.likely(j, w, rate, span) / rate
                best = max(r / k for (p, k), r in self.seen(j).items() if p == w.got[0])
                idle = w.paid * (w.got[1] - rate / best)
                early -= 2 * idle / self.total_gpus * (span - early)
                return least * self.likely(j, w, rate, lasts) + own * early / 3600
            done = self.done(j, w, rate, lasts)
        return least * done + mine * (span - busy) / 3600

    @property
    def total_gpus(self) -> float:
        """Of all pools."""
        return float(sum(p["gpus"] for p in self.pools))

    def likely(self, j: Row, w: Way, rate: float, lasts: float) -> float:
        """Expected work of this round, where what is left is exponential."""
        worked, mean = self.most_work(w, rate, lasts), j["remaining_work"]
        return float(-mean * math.expm1(-worked / mean))

    def beside(self, j: Row, w: Way, rate: float, spread: bool = False) -> float:
        """What `utility` takes the logarithm of."""
        useful = max(0.0, 1 - w.pause / self.lasts(j, w, rate, spread))
        return 1 + 9 * useful * rate / min(self.seen(j).values())

    def price_of_work(self, j: Row, name: str) -> tuple[float, float]:
        """Hours for a unit of work of the job, and its weight."""
        unknown = self.config["sizes"] == "unknown"
        weight = {
            i["job_id"]: self.weight(i) * (self.slope(i) if name == "flow" and not unknown else 1.0)
            for i in self.jobs
        }
        mine = weight[j["job_id"]]
        least = min(
            (mine + self.mu(j) * self.hourly(j, o)) / (3600 * r) for o, r in self.seen(j).items()
        )
        if name in ("completion", "flow", "tardiness"):
            length = {
                i["job_id"]: i["remaining_work"] / self.whole(i) / weight[i["job_id"]]
                for i in self.jobs
                if self.options(i) and not (name == "tardiness" and self.in_time(i))
            }
            doubtful = name == "flow" and unknown
            least_hours = length[j["job_id"]] * math.exp(-0.1 if doubtful else -1e-6)
            behind = sum(weight[i] for i, hours in length.items() if hours >= least_hours)
            if doubtful:
                behind += 18 * np.mean([weight[i] for i in length])
            least = max(least, behind / (3600 * self.whole(j)))
        return least, mine

    @kept
    def base(self, j: Row) -> float:
        """Work of a round as requested, on the slowest type: speeds without losses."""
        asked = []
        for t in {p["gpu_type"] for p in self.pools}:
            memory_sizes = [p["memory_gb"] for p in self.pools if p["gpu_type"] == t]
            largest_memory_gb = None if None in memory_sizes else max(memory_sizes)
            r = self.rate(j["model"], t, j["requested_gpus"], largest_memory_gb)
            if r and (not j["gpu_types"] or t in j["gpu_types"]):
                asked.append(r)
        near = min(
            ((abs(k - j["requested_gpus"]), k, r) for (_, k), r in self.options(j).items()),
            default=(0, 0, 1.0),
        )
        return min(asked, default=near[2]) * float(self.config["interval_s"])

    @kept
    def slope(self, j: Row) -> float:
        """Of F + d^2 / 1.6 T at the delay d of the job."""
        alone = [i["total_work"] / max(self.seen(i).values()) for i in self.jobs if self.options(i)]
        fastest = max(self.seen(j).values(), default=math.inf)
        worked = (j["total_work"] - j["remaining_work"]) / fastest
        scale = self.config["interval_s"] + sum(alone) / max(1, len(alone))
        return float(1 + max(0.0, self.age(j) - worked) / (0.8 * scale))

    @kept
    def whole(self, j: Row) -> float:
        """Work per second if every GPU worked on jobs like this one."""
        each = {p: [r / k for (q, k), r in self.seen(j).items() if q == p] for p in self.at}
        return float(sum(p["gpus"] * max(each[p["pool"]], default=0.0) for p in self.pools))

    def shared(self, j: Row, done: float, busy: float, name: str) -> float:
        """Objectives that look at equal shares."""

        def ratio(i: Row, seconds: float, left: float) -> float:
            equal = self.equal(i, name == "makespan")
            if name == "makespan":
                return float((seconds + left / equal) / 3600.0)
            return float((self.age(i) + seconds + left / equal) / (i["total_work"] / equal))

        span = self.config["interval_s"]
        unit, power = 1.0, 2.0
        if name == "maxmin":
            others = self.once(
                "others",
                lambda: [ratio(i, span, i["remaining_work"]) for i in self.jobs if self.options(i)],
            )
            unit, power = max(others), max(2.0, math.log(len(others)) / math.log(1.25))
        waiting = ratio(j, span, j["remaining_work"])
        sooner = ratio(j, span - busy, done) - ratio(j, 0.0, 0.0)
        planned = waiting - sooner
        if power == 2.0:  # squares of huge ratios would cancel
            return sooner * (waiting + planned) / 2 / unit**2
        return ((waiting / unit) ** power - (planned / unit) ** power) / power

    @kept
    def equal(self, j: Row, alike: bool) -> float:
        """Rate of a job on its equal share of all GPUs, by weights or with all alike."""

        some = [i for i in self.jobs if self.options(i)]
        share = self.total_gpus * (1 / len(some) if alike else self.fair_part(j, some))
        slow = {0: 0.0}
        for (_, k), r in self.seen(j).items():
            slow[k] = min(r, slow.get(k, math.inf))
        return float(np.interp(share, sorted(slow), [slow[k] for k in sorted(slow)]))

    def fair_part(self, j: Row, some: list[Row]) -> float:
        """Part of all GPUs that is a job's by weights: its line of tenants is walked to the top."""
        own = busy = {i["tenant"] for i in some}
        while above := {self.owner[t].get("parent") or None for t in busy} - busy - {None}:
            busy = busy | above
        weight = {t: float(self.owner[t]["weight"]) for t in busy}
        t = j["tenant"]
        part = self.weight(j) / sum(self.weight(i) for i in some if i["tenant"] == t)
        while t is not None:
            claims = [weight[i] for i in busy if self.owner[i].get("parent") == t]
            part *= weight[t] / (sum(claims) + (t in own))
            t = self.owner[t].get("parent") or None
        return part / sum(weight[i] for i in busy if not self.owner[i].get("parent"))

    @kept
    def in_time(self, j: Row) -> bool:
        """Whether some option leaves the deadline within reach."""
        return any(self.risk(j, self.way(j, o)) < 1 - 1e-9 for o in self.options(j))

    def risk(self, j: Row, w: Way | None) -> float:
        """Of missing the deadline after a round with this way, None = waiting."""
        due, left, fastest = self.due(j), j["remaining_work"], max(self.seen(j).values())
        if due is None:
            return 1.0
        due -= self.now
        if w:
            rate = self.speed(j, w)
            done = self.done(j, w, rate)
            if left - done <= 1e-9 * left:
                return float(self.busy(j, w, rate) > due)
            left -= done
        hours = due - self.config["interval_s"] - j["restart_s"]
        return float(min(1.0, left / fastest / hours) ** 2) if hours > 0 else 1.0

    def shortest(self, j: Row) -> float:
        """Least seconds it still needs, at listed sizes, powers of two and the largest that
        fits.
        """
        sizes = [r["gpus"] for r in self.rates if r["model"] == j["model"]] + [
            c["parameters"].get("max_gpus", 1024)
            for c in self.table("models")
            if c["model"] == j["model"]
        ]
        best, pod = 0.0, j["gpus_per_pod"]
        for p in self.pools:
            most = min(j["max_gpus"], p["gpus"], max(sizes, default=0))
            if self.speeds.unrated(j["model"]):
                most = min(j["max_gpus"], p["gpus"])
            for k in range(j["min_gpus"], most + 1):
                tried = k in j["sizes"] if j["sizes"] else pod > 1 or k & (k - 1) == 0 or k == most
                tried &= k % pod == 0
                if tried and (not j["gpu_types"] or p["gpu_type"] in j["gpu_types"]):
                    best = max(best, self.rate_in(p, j["model"], k) or 0.0)
        return j["remaining_work"] / best if best else 0.0

    def due(self, j: Row) -> float | None:
        """Its own deadline, or when a job that comes after it has to begin: no job here has stages
        on both sides."""
        found = [] if j["deadline_s"] is None else [j["deadline_s"]]
        for s in self.jobs:
            if j["job_id"] in s["after"] and s["deadline_s"] is not None:
                before = max(self.shortest(self.by[name]) for name in s["after"] if name in self.by)
                need = self.shortest(s)
                way = need + before
                found.append(
                    s["deadline_s"]
                    - need * max(1.0, (s["deadline_s"] - self.now) / way if way else 1.0)
                )
        return min(found, default=None)

    def saving(self, j: Row, w: Way, rate: float) -> float:
        """Objective cost: finishing after waiting, minus dollars, minus finishing after this."""
        options, left, span = self.seen(j), j["remaining_work"], self.config["interval_s"]
        done, busy = self.done(j, w, rate), self.busy(j, w, rate)
        sure = (
            [o for o in options if self.at[o[0]]["market"] == "on_demand"]
            or [o for o in options if self.at[o[0]]["market"] == "reserved"]
            or list(options)
        )
        late = 10 * self.weight(j) * max(1.0, *(self.hourly(j, o) for o in options)) / 3600
        own = self.due(j)
        pace, dated = self.base(j) / span, own is not None
        due = (left / pace if own is None else own - self.now) - span

        def mix(work: float, seconds: float) -> float:
            """Every pair of options, the first for a share of the work: none, all, or what ends
            just in time."""
            best = math.inf
            for a, b in itertools.product(options, repeat=2):
                ta, tb = (1 / options[o] / self.at[o[0]]["availability"] for o in (a, b))
                ca, cb = (self.hourly(j, o) / 3600 / options[o] for o in (a, b))
                just = (seconds - work * tb) / (work * (ta - tb)) if work > 0 and ta != tb else 0.0
                for share in {0.0, 1.0, min(1.0, max(0.0, just))}:
                    over = work * (share * ta + (1 - share) * tb) - seconds
                    best = min(
                        best,
                        work * (share * ca + (1 - share) * cb)
                        + late * over * (1 if over > 0 else 0.005),
                    )
            return best

        def over(work: float, seconds: float, now: Option | None) -> float:
            starts = {o: self.at[o[0]]["startup_s"] + bool(now) * j["restart_s"] for o in sure}
            ends = [work / options[o] + (o != now) * starts[o] for o in sure]
            return max(0.0, min(ends) * (work > 0) + j["restart_s"] - seconds)

        after = due + span - busy
        value = mix(left, due) - self.dollars(j, w, rate) - mix(left - done, after)
        if dated:
            gone = min(left + (j["checkpoint_every_s"] or span) * rate, j["total_work"])
            really = left - self.done(j, w, rate, lasts=span)
            worst = gone if self.at[w.got[0]]["market"] == "spot" else really
            value += late * (over(left, due, None) - over(worst, after, w.got))
        free = not w.paid or self.hourly(j, w.got) == 0
        return value + (0.001 * late * min(span, done / pace) if free else 0.0)
