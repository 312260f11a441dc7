"""The rules read a second time, on plain rows with loops and exhaustive search: what jobs may
get, at which speed, and which plans keep the rules. The value of plans is in second_values.py."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from second_quotas import keeps_quotas, leaves_requested, leaves_reserves
from second_speeds import STEP, Speeds, below

from allocator.domain.schema.columns import TABLES, ColumnKind
from allocator.domain.snapshot import Snapshot

Row = dict[str, Any]
Option = tuple[str, int]

DEFAULTS: Row = {
    table: {column: None if value == "-" else value for column, value in columns.items()}
    for table, columns in tomllib.loads(
        (Path(__file__).parent / "second_defaults.toml").read_text()
    ).items()
}
JOB, POOL, TENANT, CONFIG = (DEFAULTS[name] for name in ("job", "pool", "tenant", "config"))


def filled(defaults: Row, row: Mapping[str, Any]) -> Row:
    """The row with the defaults in place of what is empty."""
    return {**defaults, **{name: value for name, value in row.items() if value is not None}}


def kept(find: Callable[..., Any]) -> Callable[..., Any]:
    """A method of rules that finds what it is asked of a job once."""

    def ask(rules: Rules, job: Row, *more: Any) -> Any:
        return rules.once((find.__name__, job["job_id"], *more), lambda: find(rules, job, *more))

    return ask


CELLS: dict[ColumnKind, Callable[[str], Any]] = {
    ColumnKind.INTEGER: int,
    ColumnKind.NUMBER: float,
    ColumnKind.BOOLEAN: "true".__eq__,
    ColumnKind.INTEGERS: lambda text: [int(k) for k in text.split("|")],
    ColumnKind.TEXTS: lambda text: text.split("|"),
}


def typed_rows(snapshot: Snapshot) -> tuple[Any, ...]:
    """The arguments of `Rules` for a snapshot as a generator writes it; empty cells are left
    out."""
    rows: dict[str, list[Row]] = {}
    for file, table in snapshot.tables.items():
        kinds = {c.name: c.kind for c in TABLES[file].columns}
        found = rows[file.removesuffix(".csv")] = [dict[str, Any]() for _ in range(len(table))]
        for name in table.columns:
            read = CELLS.get(kinds.get(name, ColumnKind.TEXT), str)
            for number, text in enumerate(table.texts(name)):
                if text:
                    found[number][name] = read(text)
    first = (rows.get(name, []) for name in ("jobs", "pools", "rates", "tenants"))
    return *first, dict(snapshot.config), rows


def mean_rest(median: float, e: float, done: float) -> float:
    """Mean of what is left after `done` of a log-normal size."""
    left = median * math.exp(e * e / 2)
    if done > 0:
        z = math.log(done / median) / e
        left = left * below(e - z) / below(-z) - done
    return left


def learned(sizes: Sequence[float], done: float, least: float, guess: float) -> float:
    """What is left after `done`: the guess, and 16 quantiles of the jobs of the model that are
    done, by how probable it is that such a job is still there."""
    n = len(sizes)
    likely = [((least / (done + least)) ** 2, guess)]
    for q in range(16 if n else 0):
        size = sorted(sizes)[int((q + 0.5) / 16 * n)]
        e = max(0.1, float(np.std(np.log(sizes))) / n**0.2, 0.5 / n)
        alive = below(math.log(size / done) / e) if done > 0 else 1.0
        if alive > 0:
            likely.append((alive * n / 16, max(0.0, mean_rest(size, e, done))))
    return sum(p * rest for p, rest in likely) / sum(p for p, _ in likely)


@dataclass
class Rules:
    """The rows of one round. `further`: tables by name without .csv, those that are not spelt
    out.
    """

    jobs: list[Row]
    pools: list[Row]
    rates: list[Row]
    tenants: list[Row]
    config: Row
    further: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    known: dict[Any, Any] = field(default_factory=dict)  # what was found before

    def __post_init__(self) -> None:
        self.config = filled(CONFIG, self.config)
        self.config.setdefault("now_s", max((j["submitted_s"] for j in self.jobs), default=0.0))
        self.now = self.config["now_s"]
        self.pools = [filled(POOL, p) for p in self.pools]
        for p in self.pools:
            p["availability"] = p["availability"] or (0.4 if p["market"] == "spot" else 1.0)
            self._in_force(p)
        self.at = {p["pool"]: p for p in self.pools}
        self.rates = [
            filled(
                {"model": "m", "efficiency": 1.0, "memory_gb": None, "observed": False} | STEP, r
            )
            for r in self.rates
        ]
        again = {"restart_s": self.config["restart_s"]}
        self.jobs = [
            filled(
                JOB
                | again
                | {
                    "total_work": j["remaining_work"],
                    "requested_gpus": j.get("min_gpus") or 1,
                },
                j,
            )
            for j in self.jobs
        ]
        self.by = {j["job_id"]: j for j in self.jobs}
        self.worked = {j["job_id"]: j["total_work"] - j["remaining_work"] for j in self.jobs}
        self.speeds = Speeds(self.rates, self.table("models"))
        self.tenants = [filled(TENANT, t) for t in self.tenants]
        named = {t["tenant"] for t in self.tenants}
        self.tenants += [
            TENANT | {"tenant": name}
            for name in dict.fromkeys(j["tenant"] for j in self.jobs)
            if name not in named
        ]
        self.owner = {t["tenant"]: t for t in self.tenants}
        for j in self.jobs:
            if self.speeds.unrated(j["model"]):
                self._make_rigid(j)
            self._believe(j)

    def table(self, name: str) -> Sequence[Row]:
        """Rows of a table that may be absent."""
        return self.further.get(name, ())

    def _in_force(self, p: Row) -> None:
        """prices.csv and nodes.csv: what holds now."""
        for row in sorted(self.table("prices"), key=lambda row: float(row["at_s"])):
            if row["pool"] == p["pool"] and row["at_s"] <= self.config["now_s"]:
                for name in ("price_per_gpu_hour", "gpus"):
                    p[name] = p[name] if row.get(name) is None else row[name]
        nodes = [n for n in self.table("nodes") if n["pool"] == p["pool"]]
        if nodes:
            p["gpus"] = sum(n["gpus"] for n in nodes if self._is_there(n))

    def _is_there(self, n: Row) -> bool:
        """Whether a node is up, and does not leave in this round."""
        away = n.get("leaves_s", math.inf) <= self.now + self.config["interval_s"]
        return n.get("state", "up") == "up" and not (
            away and self.now < n.get("returns_s", math.inf)
        )

    def _make_rigid(self, j: Row) -> None:
        """A job of a model without rates has its requested size, and those that were observed."""
        own = [k for k in j["sizes"] if j["min_gpus"] <= k <= j["max_gpus"]]
        if own and j["requested_gpus"] not in own:
            smaller = [k for k in own if k < j["requested_gpus"]]
            j["requested_gpus"] = max(smaller, default=own[0])
        seen = {r["gpus"] for r in self.rates if r["model"] == j["model"]}
        may = {k for k in seen if j["min_gpus"] <= k <= j["max_gpus"] and (not own or k in own)}
        j["sizes"] = sorted(may | {j["requested_gpus"]})

    def _believe(self, j: Row) -> None:
        """`sizes`: what is left as far as it is known."""
        done, how = j["total_work"] - j["remaining_work"], self.config["sizes"]
        if j["loss_work"] is not None:
            rest = max(j["loss_work"] - done, 0.01 * done) * math.exp(j["loss_error"] ** 2 / 2)
            left = min(rest, j["remaining_work"]) if how == "known" else rest
        elif how == "known":
            return
        elif how == "unknown":
            types = {p["gpu_type"] for p in self.pools}
            asked = next(
                rates
                for k in (j["requested_gpus"], j["min_gpus"], None)
                if (rates := [r for t in types if k and (r := self.rate(j["model"], t, k))])
                or k is None
            )
            others = [i for i in self.jobs if i["model"] == j["model"]]
            sizes = [r["total_work"] for r in self.table("finished") if r["model"] == j["model"]]
            by_loss = any(i["loss_work"] is not None for i in self.jobs)
            j["guessed"] = len(others) == 1 and not sizes and not by_loss
            most = max(self.worked[i["job_id"]] for i in others)
            least = min(asked, default=1.0) * self.config["interval_s"]
            left = learned(sizes, done, least, 2 * max(done, most) - done + least)
        else:
            e, guess = self.config["size_error"], j["total_work"]
            left = mean_rest(guess, e, done)
        j["remaining_work"] = max(left, 1e-6 * done)
        j["total_work"] = done + j["remaining_work"]

    def rate(self, model: str, gpu_type: str, k: int, gb: float | None = None) -> float | None:
        """Work per second on k GPUs of so much memory, None where nothing is known."""
        return self.speeds.rate(model, gpu_type, k, gb)

    def rate_in(self, p: Row, model: str, k: int) -> float | None:
        """Work per second on k GPUs of a pool, with its links, None where nothing is known."""
        return self.speeds.rate(model, p["gpu_type"], k, p["memory_gb"], p["link_gb_s"])

    def price(self, j: Row, got: Option) -> float:
        """Dollars per hour of each GPU of an option, with its memory."""
        p = self.at[got[0]]
        gb = self.speeds.memory(j["model"], p, got[1]) or j["memory_gb"] or 0.0
        return float(p["price_per_gpu_hour"] + p["price_per_gb_hour"] * gb)

    def held(self, j: Row) -> Option | None:
        """What the job runs on."""
        return (j["pool"], j["gpus"]) if j["state"] == "running" else None

    def may_have(self, j: Row, p: Row, k: int) -> bool:
        """Whether the job may change to that: its range, sizes, pods, types and market."""
        node, pod = p["gpus_per_node"], j["gpus_per_pod"]
        whole = (k <= node and k & (k - 1) == 0) or k % node == 0 or pod > 1
        size = k % pod == 0 and (k in j["sizes"] if j["sizes"] else whole)
        free = size and j["min_gpus"] <= k <= j["max_gpus"]
        free = free and (
            p["market"] != "spot" or j["max_spot_gpus"] is None or k <= j["max_spot_gpus"]
        )
        return bool(free and (not j["gpu_types"] or p["gpu_type"] in j["gpu_types"]))

    def tied(self, j: Row) -> bool:
        """Whether it may have nothing but what it holds."""
        return bool(j["state"] == "running" and (not j["preemptible"] or j["resizes_left"] == 0))

    def once(self, key: Any, find: Callable[[], Any]) -> Any:
        """What is asked for again and again."""
        if key not in self.known:
            self.known[key] = find()
        return self.known[key]

    @kept
    def options(self, j: Row) -> dict[Option, float]:
        """{(pool, gpus): rate}"""
        if j["state"] == "held" or (j["state"] != "running" and set(self.by) & set(j["after"])):
            return {}
        out = {}
        for p in self.pools:
            for k in range(1, p["gpus"] + 1):
                holds = self.held(j) == (p["pool"], k)
                guess = self.speeds.is_assumed(j["model"], p["gpu_type"], k)
                free = self.may_have(j, p, k) and not (guess and k != j["requested_gpus"])
                if not holds and (self.tied(j) or not free):
                    continue
                r = self.rate_in(p, j["model"], k)
                if r is None and holds:  # it runs there, so it fits
                    r = self.rate_in(p | {"memory_gb": None}, j["model"], k)
                r = r and r * self.pace(j, (p["pool"], k))
                if r:
                    out[p["pool"], k] = r
        return out

    def pace(self, j: Row, got: Option) -> float:
        """Share of a speed that stragglers leave, in the mode of the option."""
        raise NotImplementedError

    def fixed(self, pool: str) -> list[Row]:
        """Non-preemptible jobs that could stay in the pool, one by one."""
        return [
            j
            for j in self.jobs
            if j["state"] == "running"
            and j["pool"] == pool
            and not j["preemptible"]
            and self.held(j) in self.options(j)
        ]

    def released(self) -> set[str]:
        """For each pool the fixed jobs left out of a heaviest set that fits."""
        gone: set[str] = set()
        for p in self.pools:
            jobs = self.fixed(p["pool"])
            sets = [
                s
                for n in range(len(jobs) + 1)
                for s in itertools.combinations(jobs, n)
                if sum(j["gpus"] for j in s) <= p["gpus"]
            ]
            stay = max(sets, key=lambda s: sum(j["gpus"] for j in s))
            gone |= {j["job_id"] for j in jobs if j not in stay}
        return gone

    def forced(self, released: set[str]) -> int:
        """Fewest running jobs that must change because what they hold is not there any more."""
        run = [j for j in self.jobs if j["state"] == "running"]
        able = [j for j in run if self.held(j) in self.options(j) and j["job_id"] not in released]
        for n in range(len(able), -1, -1):
            for stay in itertools.combinations(able, n):
                fits = all(
                    sum(j["gpus"] for j in stay if j["pool"] == p["pool"]) <= p["gpus"]
                    for p in self.pools
                )
                if fits and all(j in stay for j in able if not j["preemptible"]):
                    return len(run) - n
        raise AssertionError("the released jobs leave space for the others")

    def legal(self, gets: dict[str, Option], released: set[str]) -> bool:
        """Whether a plan, {job_id: (pool, GPUs)}, keeps every rule."""
        return self._keeps_others(gets, released) and leaves_reserves(self, gets)

    def _keeps_others(self, gets: dict[str, Option], released: set[str]) -> bool:
        """Whether a plan keeps every rule but that of reserves that are not lent."""
        if any(o not in self.options(self.by[n]) for n, o in gets.items()):
            return False
        for p in self.pools:
            stays = [j for j in self.fixed(p["pool"]) if j["job_id"] not in released]
            if any(gets.get(j["job_id"]) != self.held(j) for j in stays):
                return False
            if sum(k for q, k in gets.values() if q == p["pool"]) > p["gpus"]:
                return False
        dollars = sum(o[1] * self.price(self.by[n], o) for n, o in gets.items())
        if dollars > self.config["budget_per_hour"] + 1e-7:
            return False
        if not keeps_quotas(self, gets):
            return False
        for t in self.tenants:
            mine = [o for n, o in gets.items() if self.by[n]["tenant"] == t["tenant"]]
            spot = {p["pool"]: p["region"] for p in self.pools if p["market"] == "spot"}
            for zone in set(spot.values()):
                held = sum(k for q, k in mine if spot.get(q) == zone)
                if t["max_spot_gpus"] is not None and held > t["max_spot_gpus"]:
                    return False
                if (
                    t["max_spot_share"] is not None
                    and held > t["max_spot_share"] * t["guaranteed_gpus"] + 1e-9
                ):
                    return False
        changed = sum(
            j["state"] == "running" and gets.get(j["job_id"]) != self.held(j) for j in self.jobs
        )
        limit = self.once("limit", lambda: max(self.config["max_changes"], self.forced(released)))
        return (
            changed <= limit
            and leaves_requested(self, gets)
            and all(self._leaves(row, gets, released) for row in self.table("interactive"))
        )

    def _leaves(self, row: Row, gets: dict[str, Option], released: set[str]) -> bool:
        """Whether jobs that are not interactive leave what interactive.csv keeps."""
        name, size = row["pool"], self.at[row["pool"]]["gpus"]
        bound = sum(
            j["gpus"]
            for j in self.fixed(name)
            if not j["interactive"] and j["job_id"] not in released
        )
        kept = max(0, min(self._kept(row, size), size - bound))
        share, held, firm = row.get("shrinkable_share") or 0.0, 0, 0
        for n, (q, k) in gets.items():
            j = self.by[n]
            if q == name and not j["interactive"]:
                held += k
                gives = j["shrinkable"] and j["preemptible"] and j["resizes_left"] != 0
                firm += min(k, j["min_gpus"]) if gives else k
        idle = math.ceil((1 - share) * kept - 1e-9)
        return not (idle and held > size - idle) and not (share and kept and firm > size - kept)

    def _kept(self, row: Row, size: int) -> int:
        if row.get("headroom_gpus") is not None:
            return min(size, int(row["headroom_gpus"]))
        there_s = row["session_s"] + self.config["interval_s"]
        mean, sessions, chance = row["sessions_per_hour"] * there_s / 3600, 0, 0.0
        late = row.get("late_share") or 0.05
        while mean and chance < 1 - late:
            chance += math.exp(-mean) * mean**sessions / math.factorial(sessions)
            sessions += 1
        return min(size, sessions * int(row.get("session_gpus") or 1))

    def plans(
        self,
        worth: Callable[[int, dict[str, Option]], bool] = lambda n, gets: True,
        leaves: bool = True,
    ) -> Iterator[dict[str, Option]]:
        """Every plan that keeps the rules, one after the other, fast options first. worth(n, plan
        of the first n jobs): whether to go on with it; leaves: whether reserves are a rule."""
        released, limit = self.released(), self.config["budget_per_hour"] + 1e-7
        bound = {j["job_id"] for p in self.pools for j in self.fixed(p["pool"])} - released
        keeps = self.legal if leaves else self._keeps_others

        def further(
            n: int, gets: dict[str, Option], left: dict[str, int], dollars: float
        ) -> Iterator[dict[str, Option]]:
            if dollars > limit or not worth(n, gets):
                return
            if n == len(self.jobs):
                if keeps(gets, released):
                    yield gets
                return
            job, name = self.jobs[n], self.jobs[n]["job_id"]
            options = self.options(job)
            for pool, k in sorted(options, key=lambda o: -options[o]):
                if k <= left[pool] and (name not in bound or self.held(job) == (pool, k)):
                    yield from further(
                        n + 1,
                        gets | {name: (pool, k)},
                        left | {pool: left[pool] - k},
                        dollars + k * self.price(job, (pool, k)),
                    )
            if name not in bound:
                yield from further(n + 1, gets, left, dollars)

        yield from further(0, {}, {p["pool"]: p["gpus"] for p in self.pools}, 0.0)
