"""What plans are worth, read a second time from formulations/README.md: on plain rows, with loops
and searches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from second_reading import Option, Row, Rules, below

Levels = list[list[tuple[str, float]]]
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


@dataclass(frozen=True)
class Way:
    """What a job is given: place, speed, seconds lost at first; whether it changes nothing, and
    whether it pays."""

    got: Option
    rate: float
    pause: float
    kept: bool
    pays: bool = True


@dataclass
class Reading(Rules):
    """A round with what its options are worth. `lifetimes`: phi of synchronous workers with a hard
    lifetime, (job, place, rate) -> share, of which only the product has an account."""

    lifetimes: Callable[[str, Option, float], float] = lambda *_: 1.0

    # ------------------------------------------------------------------ plans

    def value_of(self, gets: dict[str, Option]) -> float:
        """Of a plan in which nobody shares GPUs."""
        return sum(self.worth(self.by[name], got) for name, got in gets.items())

    def best(self) -> float | None:
        """The largest value of all plans that keep the rules, None without one."""
        return max((self.value_of(gets) for gets in self.plans()), default=None)

    def worth(self, j: Row, got: Option) -> float:
        """Of an option with which a job holds GPUs alone."""
        lessons = self.once("lessons", self._lessons)
        key = (j["job_id"], self.at[got[0]]["gpu_type"], got[1])
        return self.once(
            ("worth", j["job_id"], got), lambda: self.valued(j, self.way(j, got))
        ) + lessons.get(key, 0.0)

    def pair(
        self,
        host: Row,
        guest: Row,
        got: Option,
        rates: tuple[float, float],
        keeps: tuple[bool, bool],
    ) -> float:
        """Of two jobs on the same GPUs at these speeds; keeps: who changes nothing."""
        total = 0.0
        for j, rate, kept, pays in zip((host, guest), rates, keeps, (True, False), strict=True):
            pause = 0.0 if kept else self.lost(j, got)
            total += self.valued(j, Way(got, rate, pause, kept, pays))
        return total

    def valued(self, j: Row, w: Way) -> float:
        """Of a way: one name, "a=2,b=0.5", or "a > b"; the money it costs is deducted."""
        levels = [
            [
                (term.partition("=")[0].strip(), float(term.partition("=")[2] or 1))
                for term in part.split(",")
            ]
            for part in self.config["objective"].split(">")
        ]
        risky = any(name in RISKY for part in levels for name, _ in part)
        return self.ranked(j, w, levels) - self.mu(j) * self.dollars(j, w, self.speed(j, w, risky))

    def ranked(self, j: Row, w: Way, levels: Levels) -> float:
        """The first level, and the others by their factors."""
        first = sum(factor * self.single(j, w, name) for name, factor in levels[0])
        if len(levels) == 1:
            return first
        return first + self.factor(levels) * self.ranked(j, w, levels[1:])

    def factor(self, levels: Levels) -> float:
        """By which the second level and those after it count."""

        def reach(part: Levels) -> float:
            values = {
                (j["job_id"], o): self.ranked(j, self.way(j, o), part)
                for j in self.jobs
                for o in self.options(j)
            }
            return sum(self.most({key: sign * v for key, v in values.items()}) for sign in (1, -1))

        def find() -> float:
            own, rest = reach(levels[:1]), reach(levels[1:])
            return 0.01 * own / rest if own > 0 and rest > 0 else 1.0

        return float(self.once(("factor", len(levels)), find))

    def most(self, values: dict[tuple[str, Option], float]) -> float:
        """Least over prices of a GPU, at every crossing of two lines, of price x GPUs + what
        options leave."""
        lines = [
            [(0.0, 0), *((values[j["job_id"], o], o[1]) for o in self.options(j))]
            for j in self.jobs
        ]
        prices = {0.0} | {
            (a - b) / (k - h)
            for of in lines
            for (a, k), (b, h) in itertools.combinations(of, 2)
            if k != h
        }
        total = sum(p["gpus"] for p in self.pools)
        return min(
            p * total + sum(max(v - p * k for v, k in of) for of in lines) for p in prices if p >= 0
        )

    # ------------------------------------------------------------------ ways

    def way(self, j: Row, got: Option) -> Way:
        """An option of which the job holds the GPUs alone."""
        kept = self.held(j) == got
        return Way(got, self.options(j)[got], 0.0 if kept else self.lost(j, got), kept)

    def lost(self, j: Row, got: Option) -> float:
        """Seconds that a change to these GPUs costs."""
        pool = self.at[got[0]]
        if j["state"] != "running":
            return float(pool["startup_s"])
        again = j["restart_s"]
        for kind in (None, pool["gpu_type"]):
            for row in self.table("pauses"):
                if (row["model"], row.get("gpu_type"), row["from_gpus"], row["to_gpus"]) == (
                    j["model"],
                    kind,
                    j["gpus"],
                    got[1],
                ):
                    again = row["pause_s"]
        return float(pool["startup_s"] + again)

    def share(self, j: Row, got: Option, rate: float) -> float:
        """phi: what revocations and the writing of checkpoints leave of a speed."""
        pool, delta, every = self.at[got[0]], j["checkpoint_s"], j["checkpoint_every_s"]
        spot = pool["market"] == "spot"
        hazard, life = (
            (pool["revocations_per_gpu_hour"] / 3600, pool["lifetime_s"]) if spot else (0.0, None)
        )
        saving = every / (every + delta) if every else 1.0
        if not hazard and life is None:
            return saving
        away = pool["startup_s"] + j["restart_s"]
        if not j["synchronous"]:
            one = (
                hazard
                if life is None
                else hazard / -math.expm1(-hazard * life)
                if hazard
                else 1 / life
            )
            return float(max(1e-9, saving / (1 + one * away)))
        if life is not None:
            return self.lifetimes(j["job_id"], got, rate)
        per_s = got[1] * hazard

        def phi(tau: float) -> float:
            return per_s * tau * math.exp(-per_s * away) / math.expm1(per_s * (tau + delta))

        if every:
            return max(1e-9, phi(every))
        if not delta:
            return max(1e-9, math.exp(-per_s * away))
        low, high = 1e-6, 60 / per_s  # the best interval: thirds of its logarithm
        for _ in range(120):
            a, b = low * (high / low) ** (1 / 3), low * (high / low) ** (2 / 3)
            low, high = (low, b) if phi(a) >= phi(b) else (a, high)
        return max(1e-9, phi(low))

    def speed(self, j: Row, w: Way, risky: bool = True) -> float:
        """Work per second as an objective sees it."""
        return w.rate * self.share(j, w.got, w.rate) if risky else w.rate

    def seen(self, j: Row) -> dict[Option, float]:
        """Options of a job with the speed that objectives see which look at risk."""
        found: dict[Option, float] = self.once(
            ("seen", j["job_id"]),
            lambda: {o: r * self.share(j, o, r) for o, r in self.options(j).items()},
        )
        return found

    def done(self, j: Row, w: Way, rate: float) -> float:
        """Work of this round."""
        return float(min(j["remaining_work"], rate * max(0.0, self.config["interval_s"] - w.pause)))

    def busy(self, j: Row, w: Way, rate: float) -> float:
        """Seconds on GPUs."""
        return float(min(self.config["interval_s"], w.pause + j["remaining_work"] / rate))

    def hourly(self, got: Option) -> float:
        """Dollars per hour that an option adds to the bill."""
        pool = self.at[got[0]]
        return 0.0 if pool["market"] == "reserved" else float(pool["price_per_gpu_hour"] * got[1])

    def dollars(self, j: Row, w: Way, rate: float) -> float:
        """Of this round."""
        busy = self.busy(j, w, rate)
        billed = busy if w.kept else max(busy, self.at[w.got[0]]["min_billing_s"])
        return self.hourly(w.got) * billed / 3600 * w.pays

    def mu(self, j: Row) -> float:
        """Price of money."""
        return float(self.config["dollar_price"] + self.owner[j["tenant"]]["dollar_price"])

    def age(self, j: Row) -> float:
        """Seconds since submission."""
        return float(max(0.0, self.now - j["submitted_s"]))

    def weight(self, j: Row) -> float:
        """With the time that it held nothing."""
        received = sum(r["seconds"] for r in self.table("received") if r["job_id"] == j["job_id"])
        return float(
            j["weight"]
            * (1 + max(0.0, self.now - j["submitted_s"] - received) / self.config["ageing_s"])
        )

    def together(self, a: Row, b: Row) -> bool:
        """Whether the two run on the same GPUs now."""
        return a["shared_with"] == b["job_id"] or b["shared_with"] == a["job_id"]

    def beside(self, a: Row, b: Row, got: Option) -> tuple[float, float] | None:
        """Work per second of two jobs on the same GPUs, None where they do not fit or nothing is
        known."""
        pool, found = self.at[got[0]], []
        slow = (
            self.slowdown(a["model"], b["model"], got),
            self.slowdown(b["model"], a["model"], got),
        )
        usual = [self.rate(j["model"], pool["gpu_type"], got[1], pool["memory_gb"]) for j in (a, b)]
        for one, other in itertools.product(self.ways(a, got), self.ways(b, got)):
            if one[1] + other[1] <= pool["memory_gb"] * (1 + 1e-12) and all(slow) and all(usual):
                shares = [w[0] / s / u for w, s, u in zip((one, other), slow, usual, strict=True)]
                found.append(
                    (
                        -round(sum(shares), 12),
                        1 / shares[0],
                        one[1] + other[1],
                        (one[0] / slow[0], other[0] / slow[1]),
                    )
                )
        return min(found)[3] if found else None

    def ways(self, j: Row, got: Option) -> list[tuple[float, float]]:
        """(speed, memory) of every row that says its memory, else of the usual speed with the
        job's."""
        kind = self.at[got[0]]["gpu_type"]
        rows = [
            (r["work_per_s"] * r["efficiency"], r["memory_gb"])
            for r in self.rates
            if (r["model"], r["gpu_type"], r["gpus"]) == (j["model"], kind, got[1])
            and r["memory_gb"]
        ]
        usual = self.rate(j["model"], kind, got[1], self.at[got[0]]["memory_gb"])
        return rows or ([(usual, j["memory_gb"])] if usual and j["memory_gb"] else [])

    def slowdown(self, a: str, b: str, got: Option) -> float:
        """Of model a beside model b, 0 = not known: along straight lines between the sizes of
        sharing.csv."""
        sizes: dict[int, float] = {}
        for row in self.table("sharing"):
            for one, other, slow in (
                (row["model_a"], row["model_b"], row["slowdown_a"]),
                (row["model_b"], row["model_a"], row["slowdown_b"]),
            ):
                if (one, other, row["gpu_type"]) == (a, b, self.at[got[0]]["gpu_type"]):
                    sizes[row["gpus"]] = max(slow, sizes.get(row["gpus"], 1.0))
        return (
            float(np.interp(got[1], sorted(sizes), [sizes[k] for k in sorted(sizes)]))
            if sizes
            else 0.0
        )

    # ------------------------------------------------------------------ objectives

    def single(self, j: Row, w: Way, name: str) -> float:
        """Worth of a way in one objective, without the money."""
        rate, span, own = self.speed(j, w, name in RISKY), self.config["interval_s"], self.weight(j)
        done, busy = self.done(j, w, rate), self.busy(j, w, rate)
        if name == "progress":
            return own * done / float(j["remaining_work"])
        if name == "throughput":
            return own * done / self.base(j)
        if name == "cost":
            return self.saving(j, w, rate)
        if name == "utility":
            x = max(0.0, 1 - w.pause / span) * rate / min(self.seen(j).values())
            return own * math.log(1 + 9 * x) / math.sqrt(1 + j["attained_gpu_s"] / 600)
        if name in ("fairness", "maxmin", "makespan"):
            return self.shared(j, done, busy, name)
        if name == "tardiness" and self.in_time(j):
            return 168 * own * (self.risk(j, None) - self.risk(j, w))
        weight = {
            i["job_id"]: self.weight(i) * (self.slope(i) if name == "flow" else 1.0)
            for i in self.jobs
        }
        mine = weight[j["job_id"]]
        least = min(
            (mine + self.mu(j) * self.hourly(o)) / (3600 * r) for o, r in self.seen(j).items()
        )
        if name in ("completion", "flow", "tardiness"):
            length = {
                i["job_id"]: i["remaining_work"] / self.whole(i) / weight[i["job_id"]]
                for i in self.jobs
                if self.options(i) and not (name == "tardiness" and self.in_time(i))
            }
            after = [i for i, hours in length.items() if hours >= length[j["job_id"]] * (1 - 1e-6)]
            least = max(least, sum(weight[i] for i in after) / (3600 * self.whole(j)))
        if name == "flow":
            done = self.spread(j, w, rate)
        return least * done + mine * (span - busy) / 3600

    def base(self, j: Row) -> float:
        """Work of a round as requested, on the slowest type: speeds without losses."""

        def find() -> float:
            asked = []
            for t in {p["gpu_type"] for p in self.pools}:
                rooms = [p["memory_gb"] for p in self.pools if p["gpu_type"] == t]
                room = None if None in rooms else max(rooms)
                r = self.rate(j["model"], t, j["requested_gpus"], room)
                if r and (not j["gpu_types"] or t in j["gpu_types"]):
                    asked.append(r)
            near = min(
                ((abs(k - j["requested_gpus"]), k, r) for (_, k), r in self.options(j).items()),
                default=(0, 0, 1.0),
            )
            return (min(asked) if asked else near[2]) * float(self.config["interval_s"])

        return float(self.once(("base", j["job_id"]), find))

    def slope(self, j: Row) -> float:
        """Of F + d^2 / 1.6 T at the delay d of the job."""

        def find() -> float:
            alone = [
                i["total_work"] / max(self.seen(i).values()) for i in self.jobs if self.options(i)
            ]
            worked = (j["total_work"] - j["remaining_work"]) / max(
                self.seen(j).values(), default=math.inf
            )
            scale = self.config["interval_s"] + sum(alone) / max(1, len(alone))
            return float(1 + max(0.0, self.age(j) - worked) / (0.8 * scale))

        return float(self.once(("slope", j["job_id"]), find))

    def spread(self, j: Row, w: Way, rate: float) -> float:
        """Work done where the pause is spread over the time for which the way is held."""
        span, left = self.config["interval_s"], j["remaining_work"]
        held = max(span, min(self.age(j) / (j["restarts"] + 2), w.pause + left / rate))
        return float(min(left, max(0.0, rate * span - rate * span / held * w.pause)))

    def whole(self, j: Row) -> float:
        """Work per second if every GPU worked on jobs like this one."""
        return float(
            self.once(
                ("whole", j["job_id"]),
                lambda: sum(
                    p["gpus"]
                    * max(
                        (r / k for (q, k), r in self.seen(j).items() if q == p["pool"]), default=0.0
                    )
                    for p in self.pools
                ),
            )
        )

    def shared(self, j: Row, done: float, busy: float, name: str) -> float:
        """Objectives that look at equal shares."""

        def ratio(i: Row, seconds: float, left: float) -> float:
            equal = self.equal(i, alike=name == "makespan")
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
        waiting, planned = (
            ratio(j, span, j["remaining_work"]),
            ratio(j, busy, j["remaining_work"] - done),
        )
        return ((waiting / unit) ** power - (planned / unit) ** power) / power

    def equal(self, j: Row, alike: bool = False) -> float:
        """Rate of a job on its equal share of all GPUs, by weights or with all alike."""
        return float(self.once(("equal", j["job_id"], alike), lambda: self._equal(j, alike)))

    def _equal(self, j: Row, alike: bool) -> float:
        options = self.seen(j)

        def claim(i: Row) -> float:
            return 1.0 if alike else self.weight(i) * float(self.owner[i["tenant"]]["weight"])

        share = (
            sum(p["gpus"] for p in self.pools)
            * claim(j)
            / sum(claim(i) for i in self.jobs if self.options(i))
        )
        slow = {k: min(r for (_, n), r in options.items() if n == k) for _, k in options}
        low, high = min(slow), max(slow)
        under, over = (
            max((k for k in slow if k <= share), default=low),
            min((k for k in slow if k >= share), default=high),
        )
        part = 0.0 if under == over else (share - under) / (over - under)
        return (
            slow[high]
            if share >= high
            else slow[low] * share / low
            if share <= low
            else (slow[under] + part * (slow[over] - slow[under]))
        )

    def in_time(self, j: Row) -> bool:
        """Whether some option leaves the deadline within reach."""
        return bool(
            self.once(
                ("in time", j["job_id"]),
                lambda: any(self.risk(j, self.way(j, o)) < 1 - 1e-9 for o in self.options(j)),
            )
        )

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
        """Least seconds it still needs, at listed sizes, powers of two and the largest that fits.
        """
        sizes = [r["gpus"] for r in self.rates if r["model"] == j["model"]] + [
            c["parameters"].get("max_gpus", 1024)
            for c in self.table("models")
            if c["model"] == j["model"]
        ]
        best = 0.0
        for p in self.pools:
            most = min(j["max_gpus"], p["gpus"], max(sizes, default=0))
            for k in range(j["min_gpus"], most + 1):
                tried = k in j["sizes"] if j["sizes"] else k & (k - 1) == 0 or k == most
                if tried and (not j["gpu_types"] or p["gpu_type"] in j["gpu_types"]):
                    best = max(best, self.rate(j["model"], p["gpu_type"], k, p["memory_gb"]) or 0.0)
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
        late = 10 * self.weight(j) * max(1.0, *(self.hourly(o) for o in options)) / 3600
        own = self.due(j)
        pace, dated = self.base(j) / span, own is not None
        due = (left / pace if own is None else own - self.now) - span

        def mix(work: float, seconds: float) -> float:
            """Every pair of options, the first for a share of the work: none, all, or what ends
            just in time."""
            best = math.inf
            for a, b in itertools.product(options, repeat=2):
                ta, tb = (1 / options[o] / self.at[o[0]]["availability"] for o in (a, b))
                ca, cb = (self.hourly(o) / 3600 / options[o] for o in (a, b))
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
            ends = [
                0.0
                if work <= 0
                else work / options[o]
                + (0 if o == now else self.at[o[0]]["startup_s"] + (j["restart_s"] if now else 0))
                for o in sure
            ]
            return max(0.0, min(ends) + j["restart_s"] - seconds)

        after = due + span - busy
        value = mix(left, due) - self.dollars(j, w, rate) - mix(left - done, after)
        if dated:
            gone = min(left + (j["checkpoint_every_s"] or span) * rate, j["total_work"])
            worst = gone if self.at[w.got[0]]["market"] == "spot" else left - done
            value += late * (over(left, due, None) - over(worst, after, w.got))
        free = not w.pays or self.hourly(w.got) == 0
        return value + (0.001 * late * min(span, done / pace) if free else 0.0)

    # ------------------------------------------------------------------ exploring

    def _lessons(self) -> dict[tuple[str, str, int], float]:
        """[profiling]: (job, GPU type, GPUs) -> worth on top."""
        asked = self.config["profiling"]
        room = asked.get("share", 0.0) * sum(p["gpus"] for p in self.pools)
        if room < 1:
            return {}
        values = {
            (j["job_id"], o): self.valued(j, self.way(j, o))
            for j in self.jobs
            for o in self.options(j)
        }
        best = {
            j["job_id"]: max(0.0, *(values[j["job_id"], o] for o in self.options(j)))
            for j in self.jobs
            if self.options(j)
        }
        tries = [
            t
            for c in self.table("models")
            if (t := self._lesson(c, values, best, asked.get("rounds", 6)))
        ]
        out = {}
        for worth, size, name, kind in sorted(tries, key=lambda t: -round(t[0] / t[1], 12)):
            if size <= room:
                room -= size
                out[name, kind, size] = worth
        return out

    def _lesson(
        self, c: Row, values: dict[tuple[str, Option], float], best: dict[str, float], rounds: float
    ) -> tuple[float, int, str, str] | None:
        """The best try of a curve: worth, size, job, GPU type."""
        error = c["parameters"].get("error", 0.0)
        own = [
            (j, o, r)
            for j in self.jobs
            if j["model"] == c["model"]
            for o, r in self.options(j).items()
            if self.at[o[0]]["gpu_type"] == c["gpu_type"]
        ]
        if not error or not own:
            return None
        measured = sorted(
            {
                r["gpus"]
                for r in self.rates
                if (r["model"], r["gpu_type"]) == (c["model"], c["gpu_type"])
            }
        )
        y: dict[int, float] = {}
        for _, (_, k), r in own:
            y.setdefault(k, math.log(k) / 2 - math.log(r))
        gains = {
            k: self._gain(y, k, 0.0 if k in measured else doubt(k, measured, error)) for k in y
        }
        size = min(y, key=lambda k: (-round(gains[k] / k, 12), k))
        if gains[size] <= 1e-4:
            return None
        name = min(
            (
                (round(best[j["job_id"]] - values[j["job_id"], o], 12), n, j["job_id"])
                for n, (j, o, _) in enumerate(own)
                if o[1] == size
            )
        )[2]
        return (
            rounds * gains[size] * sum(best[i] for i in {j["job_id"] for j, _, _ in own}),
            size,
            name,
            c["gpu_type"],
        )

    @staticmethod
    def _gain(y: dict[int, float], k: int, deviation: float) -> float:
        """How much smaller the least y is expected to get by measuring k: E max(0, distance -
        normal)."""
        others = [value for size, value in y.items() if size != k]
        if not others or not deviation:
            return 0.0
        z = abs(y[k] - min(others)) / deviation
        return max(0.0, deviation * (math.exp(-z * z / 2) / math.sqrt(2 * math.pi) - z * below(-z)))


def doubt(k: int, measured: list[int], error: float) -> float:
    """Standard deviation of a Gaussian process at size k after the sizes measured, in logarithms of
    speed."""

    def cover(a: int, b: int) -> float:
        return error**2 * math.exp(-abs(math.log2(a / b)) / 1.5)

    inner: Any = [[cover(a, b) + (0.03**2 if a == b else 0.0) for a in measured] for b in measured]
    towards = np.array([cover(a, k) for a in measured])
    known = float(
        towards @ np.linalg.solve(np.array(inner).reshape(len(measured), len(measured)), towards)
    )
    return math.sqrt(max(0.0, error**2 - known))
