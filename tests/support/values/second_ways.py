"""What a job is given, read a second time: its speed after losses, its pause, its money; and two
jobs on the same GPUs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import second_modes
from second_reading import Option, Row, Rules, kept
from second_speeds import useful_rate

from formulations.transient.lifetimes import useful_fraction
from formulations.transient.revocations import Hazard, mean_hazard

Rated = tuple[float, float, int]
"""Work per second alone, GB of each GPU, row of the rates."""


@dataclass(frozen=True)
class Way:
    """What a job is given: place, speed, seconds lost at first; whether it changes nothing, and
    the share of its GPUs that it pays for."""

    got: Option
    rate: float
    pause: float
    kept: bool
    paid: float = 1.0


@dataclass
class Ways(Rules):
    """A round with its ways."""

    def way(self, j: Row, got: Option) -> Way:
        """An option of which the job holds the GPUs alone."""
        kept = self.held(j) == got
        return Way(got, self.options(j)[got], 0.0 if kept else self.lost(j, got), kept)

    def lost(self, j: Row, got: Option) -> float:
        """Seconds that a change to these GPUs costs."""
        pool = self.at[got[0]]
        if j["state"] != "running":
            return float(pool["startup_s"])
        again, move = j["restart_s"], (j["model"], j["gpus"], got[1])
        for kind in (None, pool["gpu_type"]):
            for row in self.table("pauses"):
                named = (row["model"], row["from_gpus"], row["to_gpus"])
                if row.get("gpu_type") == kind and named == move:
                    again = row["pause_s"]
        return float(pool["startup_s"] + again)

    @kept
    def mode(self, j: Row, got: Option) -> tuple[str, float]:
        """The mode of an option, and its pace."""
        return second_modes.best(
            j, self.at[got[0]], got[1], lambda text: self.share_in(text, j, got, 0.0)
        )

    def pace(self, j: Row, got: Option) -> float:
        """Share of a speed that stragglers leave, in the mode of the option."""
        return self.mode(j, got)[1]

    def share(self, j: Row, got: Option, rate: float) -> float:
        """phi: what revocations and the writing of checkpoints leave of a speed."""
        return max(1e-9, self.share_in(self.mode(j, got)[0], j, got, rate))

    def share_in(self, mode: str, j: Row, got: Option, rate: float) -> float:
        """phi in one mode. Of revocations by age, the mean over the rest of the job counts. At a
        rate of 0 the job never ends."""
        pool = self.at[got[0]]
        work_s = j["remaining_work"] / rate if rate else math.inf
        if not pool["hazard_by_age"] or pool["market"] != "spot":
            return self.share_at(mode, j, got, work_s, pool["revocations_per_gpu_hour"])
        start_h, per_hour = np.array(
            [[float(x) for x in part.split(":")] for part in pool["hazard_by_age"].split("|")]
        ).T
        share = 1.0
        for _ in range(2):
            lasts_s = min(work_s / max(share, 1e-3), pool["lifetime_s"] or math.inf)
            mean = mean_hazard(Hazard(per_hour, start_h), lasts_s / 3600)
            share = self.share_at(mode, j, got, work_s, float(mean))
        return share

    def share_at(self, mode: str, j: Row, got: Option, work_s: float, per_hour: float) -> float:
        """phi in one mode at a constant hazard, `per_hour` for one server. For synchronous workers
        with a hard lifetime this calls the product, because there is no second formula."""
        kind, _ = second_modes.read(mode)
        pool, delta, every = self.at[got[0]], j["checkpoint_s"], j["checkpoint_every_s"]
        spot = pool["market"] == "spot"
        hazard, life = (per_hour / 3600, pool["lifetime_s"]) if spot else (0.0, None)
        saving = every / (every + delta) if every else 1.0
        if not hazard and life is None:
            return saving
        away = pool["startup_s"] + j["restart_s"]
        if kind == "asynchronous":
            one = hazard
            if life is not None:
                one = hazard / -math.expm1(-hazard * life) if hazard else 1 / life
            return float(saving / (1 + one * away))
        if life is not None:
            phi_ = useful_fraction(
                got[1],
                per_hour,
                checkpoint_s=delta,
                checkpoint_every_s=math.nan if every is None else every,
                replace_s=away,
                lifetime_s=life,
                work_s=work_s,
            )
            return float(phi_)
        per_s, left = got[1] * hazard, 1.0
        if kind in ("backup", "replicated") and not pool["hazard_by_age"]:
            c, k, away = pool["straggler_cv"], got[1], j["restart_s"]
            left, per_s = second_modes.long_run(mode, k, c, hazard, pool["startup_s"])
            left /= second_modes.pace(mode, k, c)

        def phi(tau: float) -> float:
            if per_s * (tau + delta) > 700:  # beyond what exp can say
                return 0.0
            once = per_s * tau * math.exp(-per_s * away) / math.expm1(per_s * (tau + delta))
            return left * once

        if every:
            return phi(every)
        if not delta:
            return left * math.exp(-per_s * away)
        low, high = 1e-6, 60 / per_s  # the best interval: thirds of its logarithm
        for _ in range(120):
            a, b = low * (high / low) ** (1 / 3), low * (high / low) ** (2 / 3)
            low, high = (low, b) if phi(a) >= phi(b) else (a, high)
        return phi(low)

    def speed(self, j: Row, w: Way, risky: bool = True) -> float:
        """Work per second as an objective sees it."""
        return w.rate * self.share(j, w.got, w.rate) if risky else w.rate

    @kept
    def seen(self, j: Row) -> dict[Option, float]:
        """Options of a job with the speed that objectives see which look at risk."""
        return {o: r * self.share(j, o, r) for o, r in self.options(j).items()}

    def done(self, j: Row, w: Way, rate: float, lasts: float | None = None) -> float:
        """Work of this round, where the way lasts for so many seconds."""
        lasts = self.lasts(j, w, rate) if lasts is None else lasts
        return float(min(j["remaining_work"], self.most_work(w, rate, lasts)))

    def most_work(self, w: Way, rate: float, lasts: float) -> float:
        """The same, however much is left."""
        return float(rate * self.config["interval_s"] * max(0.0, 1 - w.pause / lasts))

    def lasts(self, j: Row, w: Way, rate: float, spread: bool = False) -> float:
        """Seconds that a pause is compared with: the round, or as long as the way is held."""
        span = float(self.config["interval_s"])
        if not (spread or self.config["spread_pauses"]):
            return span
        unknown = self.config["sizes"] == "unknown"
        past = max(unknown * min(map(self.age, self.jobs)) / 4, self.age(j) / (j["restarts"] + 2))
        twice = unknown and w.rate < self.options(j).get(self.held(j), 0)
        return max(span, min(past, w.pause + j["remaining_work"] / rate)) / (1 + twice)

    def busy(self, j: Row, w: Way, rate: float) -> float:
        """Seconds on GPUs."""
        return float(min(self.config["interval_s"], w.pause + j["remaining_work"] / rate))

    def hourly(self, j: Row, got: Option) -> float:
        """Dollars per hour that an option adds to the bill."""
        reserved = self.at[got[0]]["market"] == "reserved"
        return 0.0 if reserved else self.price(j, got) * got[1]

    def dollars(self, j: Row, w: Way, rate: float) -> float:
        """Of this round."""
        busy = self.busy(j, w, rate)
        billed = busy if w.kept else max(busy, self.at[w.got[0]]["min_billing_s"])
        return self.hourly(j, w.got) * billed / 3600 * w.paid

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

    def colocated_rates(self, a: Row, b: Row, got: Option) -> tuple[float, float] | None:
        """Work per second of two jobs on the same GPUs, None where they do not fit or nothing is
        known."""
        found = self.colocated_ways(a, b, got, got[1])
        return None if found is None else (found[0][0] / found[2][0], found[1][0] / found[2][1])

    def colocated_ways(
        self, a: Row, b: Row, got: Option, gpus: int
    ) -> tuple[Rated, Rated, tuple[float, float]] | None:
        """The ways of two jobs that lose least speed, of those that fit into the memory, and their
        slowdowns. The second job has `gpus` GPUs, among them those of the first."""
        pool = self.at[got[0]]
        slow = self.slowdowns(a, b, got)
        if pool["straggler_cv"] or a["modes"] or b["modes"] or slow is None:
            return None
        on_nodes = any(n["pool"] == got[0] for n in self.table("nodes"))
        if on_nodes and any(j.get("gpu_fraction") or j["gpus_per_pod"] > 1 for j in (a, b)):
            return None
        usual = [self.rate_in(pool, j["model"], k) for j, k in ((a, got[1]), (b, gpus))]
        found = []
        for both in itertools.product(self.ways(a, got), self.ways(b, (got[0], gpus))):
            memory_gb = both[0][1] + both[1][1]
            if memory_gb <= pool["memory_gb"] * (1 + 1e-12) and all(usual):
                shares = [w[0] / s / u for w, s, u in zip(both, slow, usual, strict=True)]
                found.append((-round(sum(shares), 12), 1 / shares[0], memory_gb, both))
        return (*min(found)[3], slow) if found else None

    def slowdowns(self, a: Row, b: Row, got: Option) -> tuple[float, float] | None:
        """Slowdowns of two jobs on the same GPUs, None where they are not known. A pool that
        isolates slows a guaranteed job by `isolation` at most next to a best-effort one, whose
        relative speed loses what that saves."""
        one, other = (self.slowdown(i["model"], j["model"], got) for i, j in ((a, b), (b, a)))
        if not (one and other):
            return None
        if a["best_effort"] == b["best_effort"]:
            return one, other
        first, second = (other, one) if a["best_effort"] else (one, other)
        both = 1 / first + 1 / second
        first = min(first, self.at[got[0]]["isolation"])
        if both <= 1 / first:
            return None
        second = 1 / (both - 1 / first)
        return (second, first) if a["best_effort"] else (first, second)

    def ways(self, j: Row, got: Option) -> list[Rated]:
        """Every row that says its memory, else the usual speed with the job's."""
        pool = self.at[got[0]]
        key = (j["model"], pool["gpu_type"], got[1])
        rows = [
            (useful_rate(r, pool["link_gb_s"]), r["memory_gb"], n)
            for n, r in enumerate(self.rates)
            if (r["model"], r["gpu_type"], r["gpus"]) == key and r["memory_gb"]
        ]
        usual = self.rate_in(pool, j["model"], got[1])
        return rows or ([(usual, j["memory_gb"], -1)] if usual and j["memory_gb"] else [])

    def slowdown(self, a: str, b: str, got: Option) -> float:
        """Return the slowdown of model a that runs with model b, 0 = not known: along straight
        lines between the sizes of sharing.csv."""
        sizes: dict[int, float] = {}
        for row in self.table("sharing"):
            for one, other in ("ab", "ba"):
                named = (row[f"model_{one}"], row[f"model_{other}"], row["gpu_type"])
                if named == (a, b, self.at[got[0]]["gpu_type"]):
                    sizes[row["gpus"]] = max(row[f"slowdown_{one}"], sizes.get(row["gpus"], 1.0))
        known = sorted(sizes)
        return float(np.interp(got[1], known, [sizes[k] for k in known])) if known else 0.0
