"""How far expected starts and ends of jobs are from what happens, by load and by what is known.

    # a file for each simulation; those that FOLDER has are not run again
    python scripts/studies/expected/measure_expected.py run FOLDER --first 0 --seeds 10
    # the factors of allocator/engine/expected_ranges.py, from these runs
    python scripts/studies/expected/measure_expected.py fit FOLDER
    # Markdown for docs/expected.md: errors and coverage of the ranges in the code, on other seeds
    python scripts/studies/expected/measure_expected.py table FOLDER

Every EVERY-th round of a simulation under the default (`mip`, `flow`) is forecast for all its jobs,
and compared with the next start and the end that the simulation gives them later.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from allocator.bench.workloads import generate
from allocator.engine.expected import Forecast, PlannedRound, forecast, seconds_as_requested
from allocator.engine.expected_ranges import (
    CROWDED,
    DONE,
    FEW,
    GUESSED,
    KNOTS,
    KNOWN,
    LATER,
    LEARNED,
    MANY,
    RUN,
    SOME,
    Situation,
    spread,
)
from allocator.loop.rounds import RoundOutcome
from allocator.simulator import SimulationOptions, simulate
from allocator.simulator.run import SimulationState

EVERY = 5


@dataclass(frozen=True)
class Case:
    """A family at a load, with so many jobs, in rounds of interval_s, and what is known."""

    family: str
    load: float
    jobs: int
    interval_s: float
    sizes: str = "known"
    speeds: str = "known"

    @property
    def name(self) -> str:
        """Return the name of its files."""
        return f"{self.family}-{self.load:g}-{self.sizes}-{self.speeds}"


PLACES: tuple[tuple[str, float, int, float], ...] = (
    ("reproduction", 0.24, 250, 300.0),
    ("reproduction", 0.30, 250, 300.0),
    ("reproduction", 0.36, 250, 300.0),
    ("reproduction", 0.60, 250, 300.0),
    ("sharing", 1.0, 150, 300.0),
    ("bursty", 0.7, 200, 300.0),
    ("bursty", 1.4, 200, 300.0),
    ("bursty", 2.8, 200, 300.0),
    ("mixed", 0.7, 150, 300.0),
    ("mixed", 1.3, 150, 300.0),
    ("heterogeneous", 20, 160, 60.0),
    ("heterogeneous", 40, 160, 60.0),
)
CASES = (
    *(Case(*place, sizes=sizes) for place in PLACES for sizes in ("known", "unknown")),
    Case("reproduction", 0.36, 250, 300.0, sizes="predicted"),
)
MISJUDGED = 0.5  # standard deviation of the logarithm of predicted sizes
WHATS = (FEW, SOME, MANY, DONE, CROWDED, LATER, RUN)
KNOWLEDGE = (KNOWN, LEARNED, GUESSED)
LEAST = 40  # observations of a factor; with fewer those of all distances count
COLUMNS = (
    "job", "round", "now_s", "interval_s", "waits", "position", "guessed", "known", "jobs",
    "waiting", "start", "start_low", "start_high", "done", "done_low", "done_high", "saved",
    "saved_low", "saved_high", "true_start", "true_done", "true_saved", "raw_start", "raw_run",
    "crowded",
)  # fmt: skip


def main() -> None:
    """Run simulations, fit factors or print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "fit", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--first", type=int, default=0, help="first seed (default: 0)")
    parser.add_argument("--seeds", type=int, default=5, help="how many (default: 5)")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    seeds = range(args.first, args.first + args.seeds)
    if args.what == "run":
        for seed in seeds:
            for case in CASES:
                path = args.folder / f"{case.name}-{seed}.npz"
                if not path.exists():
                    np.savez_compressed(path, rows=measure(case, seed))
    elif args.what == "fit":
        fit(read(args.folder, seeds))
    else:
        table(read(args.folder, seeds), seeds)


def measure(case: Case, seed: int) -> Any:
    """Return a row of COLUMNS for each forecast of a job, (n, columns)."""
    workload = generate(case.family, seed=seed, load=case.load, jobs=case.jobs).workload()
    names = {name: j for j, name in enumerate(workload.problem.jobs.job_id)}
    truth = workload.problem.jobs.total_work
    rows: list[Any] = []

    def watch(state: SimulationState, turn: RoundOutcome) -> None:
        if turn.number % EVERY or turn.decision is None:
            return
        d = turn.decision
        plan = PlannedRound(d.round, d.task.dual.prices, d.proposal.choice, d.allocation, d.witness)
        told, problem = forecast(plan), d.round.problem
        who = np.array([names[name] for name in problem.jobs.job_id])
        done_before = problem.jobs.total_work - problem.jobs.remaining_work
        rows.append(_rows(turn.number, plan, told, who, (truth[who] - done_before)))

    options = SimulationOptions(
        prove_every=0,
        seed=seed,
        interval_s=case.interval_s,
        objective="flow",
        sizes=case.sizes,
        speeds=case.speeds,
        misjudged_sizes=MISJUDGED if case.sizes == "predicted" else 0.0,
    )
    done = simulate(workload, policy="mip", options=options, on_round=watch)
    return _with_truth(np.concatenate(rows), done, workload.problem.jobs.job_id)


def _rows(number: int, plan: PlannedRound, told: Forecast, who: Any, true_left: Any) -> Any:
    problem = plan.round.problem
    jobs, J = problem.jobs, len(who)
    known = problem.guessed is None
    waits, same = plan.allocation.pool < 0, np.ones(J)
    asked = seconds_as_requested(plan.round) * true_left / jobs.remaining_work
    crowded = Situation.of(problem, plan.allocation, told.position > 0).done == CROWDED
    columns = {
        "raw_start": told.start_s, "raw_run": told.run_s, "crowded": same * crowded,
        "job": who, "round": same * number,
        "now_s": same * problem.now_s, "interval_s": same * problem.interval_s,
        "waits": waits, "position": told.position, "known": same * known,
        "guessed": np.zeros(J) if known else problem.guessed,
        "jobs": same * J, "waiting": same * (told.position > 0).sum(), "true_saved": asked,
    }  # fmt: skip
    for name in ("start", "done", "saved"):
        one = getattr(told, name)
        columns |= {name: one.middle, f"{name}_low": one.low, f"{name}_high": one.high}
    out = np.full((J, len(COLUMNS)), np.nan)
    for name, values in columns.items():
        out[:, COLUMNS.index(name)] = values
    return out


def _with_truth(rows: Any, done: Any, job_id: Any) -> Any:
    """Fill in the next start, the end, and the seconds saved; nan where they are not known."""
    ends = dict(zip(done.jobs.job_id, done.jobs.finished_s, strict=True))
    begins = {name: np.sort(part.from_s.to_numpy()) for name, part in done.spans.groupby("job_id")}
    at = {name: i for i, name in enumerate(COLUMNS)}
    for row in rows:
        name, now = job_id[int(row[at["job"]])], row[at["now_s"]]
        later = [s for s in begins.get(name, ()) if s > now]
        end = ends[name] - now
        row[at["true_done"]] = end
        row[at["true_start"]] = later[0] - now if later else np.nan
        runs = end - row[at["true_start"]] if row[at["waits"]] else end
        row[at["true_saved"]] -= runs
    return rows


def read(folder: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the rows of each case, all seeds together."""
    found: dict[str, list[Any]] = {}
    for case in CASES:
        for seed in seeds:
            path = folder / f"{case.name}-{seed}.npz"
            if path.exists():
                found.setdefault(case.name, []).append(np.load(path)["rows"])
    return {
        name: retell(np.concatenate(parts), MISJUDGED if "predicted" in name else 0.0)
        for name, parts in found.items()
    }


def retell(rows: Any, size_error: float) -> Any:
    """Return rows with the starts and ends that the factors in the code make of the model's."""
    rows = rows.copy()
    waits = rows[:, at("waits")] == 1
    start, run = rows[:, at("raw_start")], rows[:, at("raw_run")]
    begin, end = np.full((2, 3, len(rows)), np.nan)
    begin[:, ~waits] = 0.0
    situations = rows[:, [at(n) for n in ("known", "guessed", "waiting", "crowded", "interval_s")]]
    for key in np.unique(situations, axis=0):
        here = (situations == key).all(axis=1)
        known, guessed, number, crowded, interval_s = key.tolist()
        of = Situation(
            np.full(here.sum(), not known),
            np.full(here.sum(), bool(guessed)),
            np.full(here.sum(), size_error),
            FEW if number < 3 else SOME if number < 8 else MANY,
            CROWDED if crowded else DONE,
            interval_s,
        )
        begin[:, here] = np.maximum(interval_s, spread(of.start, of, start[here]))
        soon, late = spread(of.done, of, run[here]), spread(LATER, of, (start + run)[here])
        end[:, here] = np.where(waits[here], np.maximum(late, begin[:, here]), soon)
    for n, part in enumerate(("_low", "", "_high")):
        rows[:, at(f"start{part}")], rows[:, at(f"done{part}")] = begin[n], end[n]
    return rows


def fit(cases: dict[str, Any]) -> None:
    """Print FACTORS: every case has the same weight."""
    parts = [samples(rows) for rows in cases.values()]
    what, known, rounds, ratio = (np.concatenate(column) for column in zip(*parts, strict=True))
    case = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
    edges = np.exp(np.convolve(np.log(KNOTS), [0.5, 0.5], "valid"))
    knot = np.searchsorted(edges, rounds)
    print("FACTORS: Mapping[tuple[str, str], Factors] = {")
    for i, name in enumerate(WHATS):
        for k, information in enumerate(KNOWLEDGE):
            mine = (what == i) & (known == k)
            entries = []
            for n in range(len(KNOTS)):
                at = mine & (knot == n) if (mine & (knot == n)).sum() >= LEAST else mine
                weight = 1.0 / np.bincount(case[at], minlength=len(parts))[case[at]]
                found = [quantile(ratio[at], weight, q) for q in (0.05, 0.5, 0.95)]
                entries.append("(" + ", ".join(f"{x:.3g}" for x in found) + ")")
            print(f"    ({name.upper()}, {information.upper()}): ({', '.join(entries)}),")
    print("}")


MEASURED = (("done", 0, "ends of running jobs"), ("start", 1, "starts"), ("done", 1, "ends"))


def table(cases: dict[str, Any], seeds: Sequence[int]) -> None:
    """Print errors and coverage by case, and over all cases by what is known and how far ahead."""
    print(f"Seeds {seeds[0]} to {seeds[-1]}.\n")
    print(
        "| workload, load, sizes | ends of running jobs | starts of waiting jobs | their ends |",
        end="",
    )
    print(" time saved |\n|---|---|---|---|---|")
    for case in CASES:
        if case.name in cases:
            cells = [describe(cases[case.name], name, waits) for name, waits, _ in MEASURED]
            cells.append(describe(cases[case.name], "saved", None))
            print(f"| {case.family}, {case.load:g}, {case.sizes} | {' | '.join(cells)} |")
    rows = np.concatenate(list(cases.values()))
    known = np.where(rows[:, at("known")] == 1, 0, np.where(rows[:, at("guessed")] == 1, 2, 1))
    print("\n| sizes | rounds ahead | ends of running jobs | starts of waiting jobs | their ends |")
    print("|---|---|---|---|---|")
    edges = (0.0, 3.0, 10.0, 30.0, np.inf)
    for k, information in enumerate(KNOWLEDGE):
        for low, high in itertools.pairwise(edges):
            cells = []
            for name, waits, _ in MEASURED:
                ahead = rows[:, at(name)] / rows[:, at("interval_s")]
                mine = rows[(known == k) & (low <= ahead) & (ahead < high)]
                cells.append(describe(mine, name, waits))
            span = f"{low:g} to {high:g}" if np.isfinite(high) else f"{low:g} or more"
            print(f"| {information} | {span} | {' | '.join(cells)} |")


def describe(rows: Any, name: str, waits: int | None) -> str:
    """Return the median error, the share inside the range, and the number of estimates."""
    truth, told = rows[:, at(f"true_{name}")], rows[:, at(name)]
    here = np.isfinite(truth) & np.isfinite(told)
    here &= (rows[:, at("waits")] == waits) if waits is not None else True
    if here.sum() < LEAST:
        return "-"
    low, high = rows[here, at(f"{name}_low")], rows[here, at(f"{name}_high")]
    truth, told = truth[here], told[here]
    inside = ((low - 1.0 <= truth) & (truth <= high + 1.0)).mean()
    error = np.median(np.abs(truth - told) / np.maximum(np.abs(truth), 1.0))
    words = "" if name == "saved" else f"{100 * error:.0f} %, "
    return f"{words}{100 * inside:.0f} % in range, {here.sum()}"


def at(name: str) -> int:
    """Return the number of a column."""
    return COLUMNS.index(name)


def samples(rows: Any) -> tuple[Any, Any, Any, Any]:
    """Return what, what is known, rounds ahead, and truth / model of each comparison."""
    c = {name: rows[:, i] for i, name in enumerate(COLUMNS)}
    waits = c["waits"] == 1
    known = np.where(c["known"] == 1, 0, np.where(c["guessed"] == 1, 2, 1))
    later = c["raw_start"] + c["raw_run"]
    cases = (
        (waits & (c["waiting"] < 3), c["raw_start"], c["true_start"]),
        (waits & (c["waiting"] >= 3) & (c["waiting"] < 8), c["raw_start"], c["true_start"]),
        (waits & (c["waiting"] >= 8), c["raw_start"], c["true_start"]),
        (~waits & (c["crowded"] == 0), c["raw_run"], c["true_done"]),
        (~waits & (c["crowded"] == 1), c["raw_run"], c["true_done"]),
        (waits, later, c["true_done"]),
        (waits, c["raw_run"], c["true_done"] - c["true_start"]),
    )
    out = []
    for i, (here, model, truth) in enumerate(cases):
        at = here & np.isfinite(model) & np.isfinite(truth) & (model > 0) & (truth > 0)
        rounds = model[at] / c["interval_s"][at]
        out.append((np.full(at.sum(), i), known[at], rounds, truth[at] / model[at]))
    case, sized, rounds, ratio = (np.concatenate(column) for column in zip(*out, strict=True))
    return case, sized, rounds, ratio


def quantile(values: Any, weights: Any, share: float) -> float:
    """Return a weighted quantile."""
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, share * total[-1])])


if __name__ == "__main__":
    main()
