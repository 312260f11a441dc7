"""The value of plans, read a second time: sums and ranks of objectives, money, exploring, and the
best plan of all."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from second_objectives import RISKY, Objectives
from second_reading import Option, Row, typed_rows
from second_speeds import below
from second_ways import Way

from allocator.domain.snapshot import Snapshot

Levels = list[list[tuple[str, float]]]


@dataclass
class Reading(Objectives):
    """A round with the value of its plans."""

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot) -> Reading:
        """Return the round of a snapshot."""
        return cls(*typed_rows(snapshot))

    def value_of(self, gets: dict[str, Option]) -> float:
        """Of a plan in which nobody shares GPUs."""
        return sum(self.option_value(self.by[name], got) for name, got in gets.items())

    def best(self) -> float | None:
        """The largest value of all plans that keep the rules, None without one."""
        most = [
            max((self.option_value(j, o) for o in self.options(j)), default=0) for j in self.jobs
        ]
        found: list[float] = []

        def worth(n: int, gets: dict[str, Option]) -> bool:
            hope = self.value_of(gets) + sum(max(0.0, value) for value in most[n:])
            return not found or hope > max(found)

        for gets in self.plans(worth):
            found.append(self.value_of(gets))
        return max(found, default=None)

    def option_value(self, j: Row, got: Option) -> float:
        """Of an option with which a job holds GPUs alone."""
        lessons = self.once("lessons", self._lessons)
        key = (j["job_id"], self.at[got[0]]["gpu_type"], got[1])
        return self.once(
            ("value", j["job_id"], got), lambda: self.valued(j, self.way(j, got))
        ) + lessons.get(key, 0.0)

    def pair(
        self,
        primary: Row,
        secondary: Row,
        got: Option,
        rates: tuple[float, float],
        keeps: tuple[bool, bool],
    ) -> float:
        """Of two jobs on the same GPUs at these speeds; keeps: who changes nothing."""
        total = 0.0
        for j, rate, kept, paid in zip((primary, secondary), rates, keeps, (1.0, 0.0), strict=True):
            pause = 0.0 if kept else self.lost(j, got)
            total += self.valued(j, Way(got, rate, pause, kept, paid))
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
        return min(
            p * self.total_gpus + sum(max(v - p * k for v, k in of) for of in lines)
            for p in prices
            if p >= 0
        )

    # exploring

    def _lessons(self) -> dict[tuple[str, str, int], float]:
        """[profiling]: (job, GPU type, GPUs) -> value on top."""
        asked = self.config["profiling"]
        free_gpus = asked.get("share", 0.0) * self.total_gpus
        if free_gpus < 1:
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
        for option_value, size, name, kind in sorted(tries, key=lambda t: -round(t[0] / t[1], 12)):
            if size <= free_gpus:
                free_gpus -= size
                out[name, kind, size] = option_value
        return out

    def _lesson(
        self, c: Row, values: dict[tuple[str, Option], float], best: dict[str, float], rounds: float
    ) -> tuple[float, int, str, str] | None:
        """Return the best try of a curve: value, size, job, GPU type."""
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
            y[k] = min(math.log(k) / 2 - math.log(r), y.get(k, math.inf))
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
