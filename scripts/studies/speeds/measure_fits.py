"""Measure how fast fits of speed models are, and what they predict of published profiles.

    # fits per minute only
    python scripts/studies/speeds/measure_fits.py
    # DATA is a folder with sia/profiles, gavel/*.json.gz, mlperf-training/*.csv
    python scripts/studies/speeds/measure_fits.py DATA

scripts/studies/speeds/measure_configure.py measures what the commands make of generated
jobs. This script prints the machine, the seeds and the tables of docs/speed-models.md. Times are
CPU seconds with one thread.
"""

from __future__ import annotations

import platform
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from allocator.domain.problem import Floats, Ints
from allocator.io.observations import read_observations
from allocator.performance import batched
from allocator.performance.fit.choose import SpeedFit, at_rows, fit, fit_batched
from allocator.performance.fit.observations import Observations
from allocator.performance.fit.similar import predict_left_out
from allocator.performance.profiling import (
    MOST,
    expected_gain,
    find_corners,
    select_trials,
    update_beliefs,
)

SEED = 0
SIZES = np.array([8.0, 12.0, 16.0, 20.0])  # Scavenger's numbers of workers


def main() -> None:
    """Measure everything that the arguments allow."""
    data = folder(sys.argv[1:])
    print(
        f"machine: {platform.machine()}, {platform.system()}, Python {platform.python_version()}, "
        f"numpy {np.__version__}; seed {SEED}\n"
    )
    speed()
    if data is not None:
        goodput_on_profiles(data / "sia" / "profiles")
        tables(data)
        configuration_search(data / "sia" / "profiles")


def folder(args: list[str]) -> Path | None:
    """Return the folder of published profiles; None without an argument.

    If the folder does not hold them, the script ends with exit code 2 and a list of what is
    missing.
    """
    if not args:
        return None
    data = Path(args[0])
    wanted = (
        "sia/profiles/*/placements-*.csv*",
        "gavel/simulation_throughputs.json.gz",
        "gavel/physical_cluster_throughputs.json.gz",
        "gavel/shockwave_tacc_throughputs.json.gz",
        "mlperf-training/*.csv",
    )
    missing = [f"  {name}" for name in wanted if not any(data.glob(name))]
    if missing:
        what = "does not have" if data.is_dir() else "is not a folder with"
        print("\n".join([f"measure_fits.py: {data} {what}", *missing]), file=sys.stderr)
        sys.exit(2)
    return data


def draw(jobs: int, rng: np.random.Generator) -> tuple[Floats, Floats, Floats, Floats]:
    """Draw whole tables (jobs, 20) of time to train by the formulas below.

    Returns k, batch, seconds, and K* of the smallest batch. The formulas are e = e* + theta gamma,
    gamma = c0 + c1 / sqrt B, tau = alpha B / K + beta K. Normalised noise is 0.7 to 0.9 and falls
    by 2 to 10 % over the batches. Epochs are 13 to 500 and change by -25 to 25 %. K* is 6 to 40.
    """
    small = rng.random(jobs) < 0.5
    low, high = np.where(small, 384.0, 512.0), np.where(small, 1024.0, 1280.0)
    batch = np.round(low[:, None] + (high - low)[:, None] * np.linspace(0, 1, 5))
    gamma, drop = rng.uniform(0.7, 0.9, jobs), rng.uniform(0.02, 0.1, jobs)
    c1 = drop * gamma / (1 / np.sqrt(low) - 1 / np.sqrt(high))
    c0 = gamma - c1 / np.sqrt(low)
    epochs = np.exp(rng.uniform(np.log(13), np.log(500), jobs))
    theta = -rng.uniform(-0.25, 0.25, jobs) * epochs / (drop * gamma)
    e_star = epochs - theta * gamma
    best = np.exp(rng.uniform(np.log(6), np.log(40), jobs))
    beta = np.exp(rng.uniform(np.log(0.5), np.log(5), jobs)) / (best**2 / 8 + 8)
    alpha = beta * best**2 / batch.mean(axis=1)
    k, b = np.repeat(SIZES, 5)[None] + np.zeros((jobs, 1)), np.tile(batch, (1, 4))
    e = e_star[:, None] + theta[:, None] * (c0[:, None] + c1[:, None] / np.sqrt(b))
    seconds = e * 50_000 / b * (alpha[:, None] * b / k + beta[:, None] * k)
    return k, b, seconds, np.sqrt(alpha * low / beta)


def speed(groups: int = 1000) -> None:
    """Print fits per minute, including cross-validation and the choice of the form."""
    rng = np.random.default_rng(SEED)
    print(
        "## fits per minute and core\n\n| groups | rows | CPU s | fits per minute"
        " |\n|---|---|---|---|"
    )
    sizes = np.array([1, 2, 4, 8, 16, 32])
    rows = [
        (f"m{i}", k, 5.0 * k / (1 + c * (k - 1)) * np.exp(rng.normal(0, 0.02)))
        for i, c in enumerate(rng.uniform(0, 0.2, groups))
        for k in sizes.tolist()
    ]
    names, k, rate = map(list, zip(*rows, strict=True))
    _timed("6 sizes, no batches", Observations.of(names, ["A"] * len(rows), k, rate), groups)
    some = groups // 20
    k, b, seconds, _ = draw(some, rng)
    names = [f"m{i}" for i in range(some) for _ in range(20)]
    _timed(
        "4 sizes x 5 batches",
        Observations.of(names, names, k.reshape(-1), 1 / seconds.reshape(-1), batch=b.reshape(-1)),
        some,
    )
    print()


def _timed(what: str, seen: Observations, groups: int) -> None:
    begin = time.process_time()
    fit(seen)
    took = time.process_time() - begin
    print(f"| {groups}: {what} | {len(seen)} | {took:.2f} | {60 * groups / took:,.0f} |")


def goodput_on_profiles(folder: Path, seeds: int = 5) -> None:
    """Fit seven parameters to half of the placements and those of one GPU, and predict the others.

    The predictions are steps.
    """
    print(
        "## goodput parameters on the Sia profiles: relative error of step time on placements left"
        " out (median)\n"
    )
    seen = read_observations(folder, "sia")
    errors: dict[str, list[Floats]] = {}
    by_table: dict[str, list[Floats]] = {}
    by_neighbours: dict[str, list[Floats]] = {}
    took = fits = 0.0
    machines: dict[str, dict[str, str]] = {}
    for model, machine, rows in seen.groups():
        if model == "gpt_pmp" or len(np.unique(rows.gpus)) < 4:
            continue
        rng = np.random.default_rng(SEED)
        mine = []
        for _ in range(seeds):
            train = _split(rows, rng)
            begin = time.process_time()
            q = fit_batched("goodput", rows.take(train), rows)
            took, fits = took + time.process_time() - begin, fits + 1
            test = rows.take(~train)
            # errors of seconds, not of speeds
            mine.append(np.abs(_useful(q, test) / at_rows("goodput", q, test) - 1))
            by_table.setdefault(machine, []).append(_table_error(rows, train, q))
            by_neighbours.setdefault(machine, []).append(_neighbour_error(rows, train, q))
        errors.setdefault(machine, []).extend(mine)
        machines.setdefault(machine, {})[model] = _pc(float(np.median(np.concatenate(mine))))
    models = sorted({m for row in machines.values() for m in row})
    print(
        f"| machine | {' | '.join(models)} | all rows | with measured computing | "
        f"corrected by measured neighbours |\n|---|{'---|' * (len(models) + 3)}"
    )
    for machine, row in machines.items():
        both = (
            _pc(np.median(np.concatenate(way[machine])))
            for way in (errors, by_table, by_neighbours)
        )
        print(f"| {machine} | {' | '.join(row.get(m, '-') for m in models)} | {' | '.join(both)} |")
    every = [m for m in machines if m != "dgx"]  # dgx repeats part of dgx-ext
    sia = [m for m in every if m in ("aws", "rtx", "dgx-ext")]
    for name, chosen in (
        ("the three machines of Sia's cluster (aws, rtx, dgx-ext)", sia),
        ("all but dgx", every),
    ):
        plain = np.concatenate([e for m in chosen for e in errors[m]])
        table, near = (
            np.concatenate([e for m in chosen for e in way[m]]) for way in (by_table, by_neighbours)
        )
        groups = [
            float(np.median(np.concatenate(errors[m][i : i + seeds])))
            for m in chosen
            for i in range(0, len(errors[m]), seeds)
        ]
        print(
            f"\n{name}: median over all rows {_pc(np.median(plain))}, over the medians of profiles "
            f"{_pc(float(np.median(groups)))}; with measured computing {_pc(np.median(table))}, "
            f"corrected by measured neighbours {_pc(np.median(near))}"
        )
    print(
        f"\n{60 * fits / took:,.0f} goodput fits per minute and core ({1000 * took / fits:.0f} ms"
        " each)\n"
    )


def _split(
    rows: Observations, rng: np.random.Generator
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return the rows of half of the placements (GPUs, nodes), always with those of one GPU."""
    place = rows.gpus * 1000 + rows.nodes.astype(np.int64)
    kinds = np.unique(place)
    kept = rng.permutation(kinds)[: (len(kinds) + 1) // 2]
    return np.isin(place, kept) | (rows.gpus == 1)


def _useful(q: dict[str, float], rows: Observations) -> Floats:
    """Return measured steps with the efficiency of the model, to compare only the step time."""
    return np.asarray(
        rows.rate
        * batched.goodput_efficiency(q, np.maximum(rows.batch, q["batch_0"]))
        * _level(q, rows)
    )


def _level(q: dict[str, float], rows: Observations) -> float:
    """Return the level of the useful share that fit_batched removed from the seconds."""
    known = ~np.isnan(rows.efficiency)
    if not known.any():
        return 1.0
    model = batched.goodput_efficiency(q, np.maximum(rows.batch[known], q["batch_0"]))
    return float(np.exp(np.mean(np.log(rows.efficiency[known] / model))))


def _table_error(
    rows: Observations, train: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], q: dict[str, float]
) -> Floats:
    """Return the error of the second method.

    It takes the computing time of each local batch as measured on one GPU, and the model for the
    rest.
    """
    k, local = rows.gpus.astype(np.float64), rows.batch / rows.gpus
    level = _level(q, rows)
    grad = {
        b: float(np.mean((rows.batch / rows.rate)[(k == 1) & (local == b)]))
        for b in np.unique(local)
        if ((k == 1) & (local == b)).any()
    }
    test = np.flatnonzero(~train & np.isin(local, list(grad)))
    g = np.array([grad[b] for b in local[test].tolist()])
    beyond = np.maximum(k[test] - 2, 0)
    near, far = (level * (q[f"alpha_{w}"] + q[f"beta_{w}"] * beyond) for w in "rn")
    sync = np.where(rows.nodes[test] > 1, far, near)
    step = batched.combine_overlapping_times(
        g, np.where(k[test] > 1, sync, 0.0), np.asarray(q["gamma"])
    )
    return np.abs(step / (rows.batch / rows.rate)[test] - 1)


def _neighbour_error(
    rows: Observations, train: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], q: dict[str, float]
) -> Floats:
    """Return the error of the third method: seven parameters and a Gaussian process.

    The process describes the errors of the parameters over local batch, GPUs and nodes
    (performance/profiling.py, as in the configuration search).
    """
    local = rows.batch / (rows.gpus * rows.passes)
    x = np.log2(np.stack([local, rows.gpus, np.maximum(rows.nodes, 1.0)], axis=1))
    wrong = np.log(_useful(q, rows) / at_rows("goodput", q, rows))  # errors of step times
    left, _ = update_beliefs(wrong, x, np.flatnonzero(train), np.zeros(int(train.sum())))
    return np.abs(np.exp(left[~train]) - 1)


def tables(data: Path) -> None:
    """Print the forms of curves on the Gavel and MLPerf tables."""
    print("## forms on the Gavel and MLPerf tables\n")
    print(
        "| table | groups (2+ sizes) | error on its rows, median | mean | groups within 10 % | "
        "sizes left out, median | mean | groups within 10 % |\n|---|---|---|---|---|---|---|---|"
    )
    for file in ("simulation", "physical_cluster", "shockwave_tacc"):
        found = fit(read_observations(data / "gavel" / f"{file}_throughputs.json.gz", "gavel"))
        far = [f.gpu_type.endswith("unconsolidated") for f in found]
        _line(
            f"gavel {file}, packed", [f for f, spread in zip(found, far, strict=True) if not spread]
        )
        _line(f"gavel {file}, spread", [f for f, spread in zip(found, far, strict=True) if spread])
        for name, wanted in (("packed", False), ("spread", True)):
            _similar_line(
                f"gavel {file}, {name}, by effects",
                [f for f, spread in zip(found, far, strict=True) if spread == wanted],
            )
    found = fit(read_observations(next((data / "mlperf-training").glob("*.csv")), "mlperf"))
    _line("mlperf", found)
    _line("mlperf, 4 sizes and more", [f for f in found if len(f.sizes) >= 4])
    print()


def _line(name: str, found: list[SpeedFit]) -> None:
    some = [f for f in found if len(f.sizes) > 1]
    if some:
        inside, out = np.array([f.inside for f in some]), np.array([f.mean for f in some])
        said = [
            _pc(value)
            for e in (inside, out)
            for value in (np.median(e), e.mean(), np.mean(e <= 0.1))
        ]
        print(f"| {name} | {len(some)} | {' | '.join(said)} |")


def _similar_line(name: str, found: list[SpeedFit]) -> None:
    """Print the second method of prediction for sizes that were left out.

    It uses what the model does on other GPUs, and other models on these.
    """
    best = [f.seen.take(f.seen.fastest()) for f in found]
    owner = np.repeat(np.arange(len(found)), [len(b) for b in best])
    model, kind = (
        np.unique([getattr(f, n) for f in found], return_inverse=True)[1].reshape(-1)[owner]
        for n in ("model", "gpu_type")
    )
    y = np.log(np.concatenate([b.useful for b in best]))
    wrong = np.abs(
        np.exp(predict_left_out(model, kind, np.concatenate([b.gpus for b in best]), y) - y) - 1
    )
    out = np.array([wrong[owner == i].mean() for i in range(len(found)) if len(best[i]) > 1])
    said = " | ".join(_pc(value) for value in (np.median(out), out.mean(), np.mean(out <= 0.1)))
    print(f"| {name} | {len(out)} | - | - | - | {said} |")


def configuration_search(folder: Path) -> None:
    """Print line 2: choose size and batch from a few measurements.

    The choice is compared with the best and with the median arbitrary choice.
    """
    print("## configuration search on the Sia profiles\n")
    out: dict[tuple[str, float], list[Floats]] = {}
    more: dict[str, list[Floats]] = {}
    for model, machine, every in read_observations(folder, "sia").groups():
        per_node = 4 if machine in ("aws", "quad") else 8
        rows = every.average_equal_settings()
        rows = rows.take(~np.isnan(rows.efficiency) & (rows.nodes <= np.ceil(rows.gpus / per_node)))
        if model == "gpt_pmp" or machine == "dgx" or len(np.unique(rows.gpus)) < 4:
            continue
        if machine == "quad":
            more.setdefault("four profiles of another machine (quad)", []).append(
                _outcome(rows, _corners(rows), MOST, True, 0.5)
            )
            continue
        for try_s in (30.0, 120.0):
            more.setdefault(f"{try_s:g} s for each tried", []).append(
                _outcome(rows, _corners(rows), MOST, True, 0.5, try_s)
            )
        for price in AIMS.values():
            for name, first, most, priced in _searches(rows):
                out.setdefault((name, price), []).append(_outcome(rows, first, most, priced, price))
    print(
        f"{len(next(iter(out.values())))} profiles, packed placements, work of {HOURS} hours at the"
        f" fastest; {TRY_S:g} s for each configuration tried, on its GPUs. Means.\n"
    )
    print(
        "| aim | search | tried | time over the oracle's | cost over the oracle's | faster than the"
        " median arbitrary | cheaper | time, cost over the oracle's without profiling"
        " |\n|---|---|---|---|---|---|---|---|"
    )
    for aim, price in AIMS.items():
        for name in dict.fromkeys(name for name, _ in out):
            _outcome_line(aim, name, out[name, price])
    for name, some in more.items():
        _outcome_line("least time x cost", f"3 corners, then by price; {name}", some)
    print()


def _outcome_line(aim: str, name: str, some: list[Floats]) -> None:
    time_, cost, faster, dearer, tried, pick, pick_cost = np.array(some).mean(axis=0)
    print(
        f"| {aim} | {name} | {tried:.1f} | {_pc(time_ - 1)} | {_pc(cost - 1)} | {faster:.1f} x |"
        f" {_pc(1 - dearer)} | {_pc(pick - 1)}, {_pc(pick_cost - 1)} |"
    )


HOURS, TRY_S = 3.0, 60.0
# exponent of the GPUs in addition to that of the time
AIMS = {"fastest": 0.0, "least time x cost": 0.5, "cheapest": 1.0}
Search = tuple[str, Ints, int, bool]


def _searches(rows: Observations) -> list[Search]:
    """Return (name, first tries, most tries, whether tries have a price)."""
    four, rng = _corners(rows, 4), np.random.default_rng(SEED)
    return [
        ("4 corners", four, 4, False),
        ("4 corners + 2", four, 6, False),
        ("4 corners + 4", four, 8, False),
        ("from 1 GPU, by price", _corners(rows, 2), MOST, True),
        ("3 corners, then by price", _corners(rows), MOST, True),
        ("3 corners, then by price, up to 6", _corners(rows), 6, True),
        ("8 arbitrary", rng.permutation(len(rows))[:8], 8, False),
    ]


def _corners(rows: Observations, many: int = 3) -> Ints:
    """Return the first tries.

    2: of the smallest size only; 3: as planned; 4: also the largest size with its smallest batch.
    """
    planned = find_corners(
        np.zeros(len(rows), dtype=np.int64), rows.gpus, rows.batch.astype(np.int64)
    )
    large = np.flatnonzero(rows.gpus == rows.gpus.max())
    if many == 4:
        planned.append(int(large[np.argmin(rows.batch[large])]))
    return np.array(list(dict.fromkeys(i for i in planned if many > 2 or i not in large)))


def _search(
    rows: Observations, first: Ints, most: int, priced: bool, price: float, try_s: float
) -> tuple[Ints, Floats]:
    """Measure `first`, then search; return the tried rows and the log speed believed at the end.

    The next try is the row where log time + price log GPUs may fall most. If tries are priced, it
    is the row where the fall is largest for the cost of the try, until no try pays for itself.
    """
    x = np.stack([np.log2(rows.gpus), np.log2(rows.batch / rows.gpus)], axis=1)
    truth, size = np.log(rows.useful), price * np.log(rows.gpus)
    tried = first
    while True:
        mean, deviation = update_beliefs(_believed(rows.take(tried), rows), x, tried, truth[tried])
        gain = expected_gain(size - mean, deviation)
        gain[tried] = 0.0
        best = int(np.argmin(size - mean))
        run_s = HOURS * 3600.0 * float(np.exp(mean.max() - mean[best]))
        costs = (
            try_s / run_s * (1.0 - price + price * rows.gpus / rows.gpus[best])
            if priced
            else np.zeros(len(rows))
        )
        left = select_trials(gain, costs)
        if not left or len(tried) >= most:
            return tried, mean
        tried = np.append(tried, left[0])


def _believed(some: Observations, rows: Observations) -> Floats:
    """Return the log speed of every row from a model of a few rows.

    The model is iteration over batches, or goodput if that is clearly better.
    """
    best, least = np.zeros(len(rows)), np.inf
    for kind in ("iteration", "goodput")[: 1 + (len(some) >= 8)]:
        bounds = (
            replace(rows, efficiency=np.full(len(rows), np.nan)) if kind == "iteration" else some
        )
        q = fit_batched(kind, some, bounds) | {"max_batch": float(rows.batch.max())}
        q |= {"batch_0": float(rows.batch.min())} if kind == "goodput" else {}
        log_speed = np.log(np.maximum(at_rows(kind, q, rows), 1e-9))
        wrong = float(
            np.mean(np.abs(np.log(np.maximum(at_rows(kind, q, some), 1e-9) / some.useful)))
        )
        if wrong < 0.7 * least:
            best, least = log_speed, wrong
    return best


def _outcome(
    rows: Observations, first: Ints, most: int, priced: bool, price: float, try_s: float = TRY_S
) -> Floats:
    """Return the result of a search relative to the oracle and to arbitrary choices.

    The numbers are: time and cost over those of the oracle; median arbitrary time over the time,
    and cost over the median arbitrary cost, all including the cost of profiling; the number of
    tries; and the first two without profiling.
    """
    time_s = HOURS * 3600.0 * rows.useful.max() / rows.useful
    cost = time_s * rows.gpus
    tried, mean = _search(rows, first, most, priced, price, try_s)
    spent_s, spent = try_s * len(tried), try_s * float(rows.gpus[tried].sum())
    taken, best = (
        int(np.argmin(price * np.log(rows.gpus) - y)) for y in (mean, np.log(rows.useful))
    )
    t, c = time_s[taken] + spent_s, cost[taken] + spent
    return np.array(
        [
            t / time_s[best],
            c / cost[best],
            float(np.median(time_s)) / t,
            c / float(np.median(cost)),
            len(tried),
            time_s[taken] / time_s[best],
            cost[taken] / cost[best],
        ]
    )


def _pc(share: float) -> str:
    return f"{100 * share:.1f} %"


if __name__ == "__main__":
    main()
