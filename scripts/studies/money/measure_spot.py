"""Compare the price at which `mip` with the objective `cost` and other policies meet deadlines.

    # print the tables of docs/spot-results.md
    python scripts/studies/money/measure_spot.py --seeds 6 --out spotted
    # and on real traces: a folder with availability/..., or the published .tar.gz
    python scripts/studies/money/measure_spot.py --seeds 6 --out spotted --traces FOLDER
    # some worlds only, with a picture
    python scripts/studies/money/measure_spot.py --out spotted \\
        --worlds "exposure 0.7" --picture cost.svg

Generated worlds are those of the generators `deadlines` and `exposure`. On real traces the jobs are
those of `deadlines`. A trace says how many machines were available. Where only one machine was
asked for, the pool is assumed to have as many as WORLDS says. Prices of real worlds are constant.
The traces of seed s begin as many days after their first time as WORLDS says. No policy knows the
future. Every simulation runs until all jobs are done. At every time, what tenants and jobs hold on
spot is checked against their limits. Results are kept in the folder, and existing ones are not made
again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from allocator.bench import paired
from allocator.bench.workloads import generate
from allocator.bench.workloads.deadlines import SpotZones, demand, submit_on_market
from allocator.bench.workloads.parts import availability
from allocator.bench.workloads.parts.measured import ON_DEMAND
from allocator.domain.problem import Market
from allocator.domain.workload import Workload
from allocator.io.markets.base import MarketOptions as Ask
from allocator.io.markets.run import TimeWindow, import_markets
from allocator.simulator import Simulation, SimulationOptions as Options, simulate

HOUR, DAY, JOBS = 3600.0, 86_400.0, 120
OURS = "mip, cost"
POLICIES: Mapping[str, tuple[str, bool]] = {  # policy, with spot pools
    "on demand, as asked": ("static", False),
    "on demand, mip, cost": ("mip", False),
    "spot-first": ("spot-first", True),
    "spot-wait": ("spot-wait", True),
    OURS: ("mip", True),
}


@dataclass(frozen=True)
class SpotTraces:
    """Traces of a world.

    Attributes
    ----------
    files : below `availability`.
    machines : GPUs of a pool for each machine of its trace.
    step_d : days between the beginnings of two seeds.
    """

    files: tuple[str, ...]
    machines: int
    step_d: float


YEAR_2023 = "1-node/aws-02-15-2023/us-"
WORLDS: Mapping[str, SpotTraces | None] = {
    **{f"{name} {load}": None for name in ("deadlines", "exposure") for load in (0.35, 0.7, 1.4)},
    **{
        f"16 nodes {load}": SpotTraces(
            tuple(
                f"16-node/aws-08-27-2023/us-{z}_v100_1.json"
                for z in ("west-2a", "west-2c", "east-2b")
            ),
            1,
            1.5,
        )
        for load in (0.35, 0.7, 1.4)
    },
    **{
        f"9 zones {load}": SpotTraces(
            tuple(
                f"{YEAR_2023}{z}_v100_1.json"
                for z in (
                    "west-2a",
                    "west-2b",
                    "west-2c",
                    "east-2a",
                    "east-2b",
                    "east-1a",
                    "east-1c",
                    "east-1d",
                    "east-1f",
                )
            ),
            8,
            6.0,
        )
        for load in (0.35, 0.7, 1.4)
    },
    **{
        f"8-GPU machines {load}": SpotTraces(
            tuple(f"1-node/aws-10-26-2022/us-west-2{z}_v100_8.json" for z in "ab"), 8, 3.0
        )
        for load in (0.7,)
    },
}


def workload(world: str, seed: int, traces: Path | None) -> Workload:
    """Return the workload of a world and seed."""
    name, load = world.rsplit(" ", 1)
    told = WORLDS[world]
    if told is None:
        return generate(name, seed=seed, load=float(load), jobs=JOBS).workload()
    assert traces is not None
    rng = np.random.default_rng(seed)
    market = import_markets(
        "spot-counts",
        [traces / f for f in told.files],
        Ask(gpus=told.machines),
        TimeWindow(seed * told.step_d * DAY),
    )
    price = 0.3 * ON_DEMAND["V100"]
    there = [
        availability.StepFunction(np.append(s.gpus_at, s.end), np.append(s.gpus, s.gpus[-1]))
        for s in market.series
    ]
    zones = SpotZones(
        [s.pool for s in market.series], there, 1, [(np.zeros(1), np.array([price]))] * len(there)
    )
    return submit_on_market(name, rng, demand(rng, JOBS, 16), zones, float(load)).workload()


def believed(w: Workload, availability: float) -> Workload:
    """Return the same workload with another belief about the share of time with spot GPUs."""
    pools = w.problem.pools
    share = np.where(pools.market == Market.SPOT, availability, 1.0)
    return dataclasses.replace(
        w,
        problem=dataclasses.replace(
            w.problem, pools=dataclasses.replace(pools, availability=share)
        ),
    )


def without_spot(w: Workload) -> Workload:
    """Return the same workload, with no job allowed on spot."""
    jobs = dataclasses.replace(w.problem.jobs, max_spot_gpus=np.zeros(len(w.problem.jobs)))
    return dataclasses.replace(w, problem=dataclasses.replace(w.problem, jobs=jobs))


def exposed(w: Workload, s: Simulation) -> float:
    """Return the largest share of a limit on spot GPUs that was in use at any time.

    Raises AssertionError above 1.
    """
    p = w.problem
    job = {name: j for j, name in enumerate(p.jobs.job_id)}
    pool = {name: i for i, name in enumerate(p.pools.pool)}
    j = np.array([job[n] for n in s.spans["job_id"]], dtype=np.int64)
    zone = p.pools.zone[np.array([pool[n] for n in s.spans["pool"]], dtype=np.int64)]
    begin, end, gpus = (s.spans[c].to_numpy() for c in ("from_s", "to_s", "gpus"))
    most = 0.0
    for owner, limit in ((j, p.jobs.max_spot_gpus), (p.jobs.tenant[j], p.tenants.exposure)):
        regions = [zone >= 0] if owner is j else [zone == z for z in range(len(p.pools.zones))]
        for o in np.flatnonzero(np.isfinite(limit)).tolist():
            for region in regions:
                mine = region & (owner == o)
                # what is held rises only at these times
                at = np.unique(begin[mine])
                held = ((begin[mine] <= at[:, None]) & (at[:, None] < end[mine])) @ gpus[mine]
                top = float(held.max(initial=0))
                assert top <= limit[o], (s.policy, o, top, limit[o])
                most = max(most, top / limit[o] if limit[o] else 0.0)
    return most


def measure(
    world: str, seed: int, case: str, traces: Path | None, availability: float | None = None
) -> dict[str, Any]:
    """Return the results of one simulation."""
    policy, spot = POLICIES[case]
    w, begin = workload(world, seed, traces), time.process_time()
    w = w if availability is None else believed(w, availability)
    w = w if spot else without_spot(w)
    s = simulate(w, policy=policy, options=Options(objective="cost", prove_every=0))
    due = dict(zip(w.problem.jobs.job_id, w.problem.jobs.deadline_s.tolist(), strict=True))
    late = s.jobs["finished_s"] - s.jobs["job_id"].map(due)
    on_spot = dict(
        zip(w.problem.pools.pool, (w.problem.pools.market == Market.SPOT).tolist(), strict=True)
    )
    hours = (s.spans["to_s"] - s.spans["from_s"]) * s.spans["gpus"] / HOUR
    spot_h = float(hours[s.spans["pool"].map(on_spot)].sum())
    m = s.metrics
    return {
        "world": world,
        "seed": seed,
        "case": case,
        "dollars": m["dollars"],
        "met": float((late <= 0).mean()),
        "late_h": float(late.max()) / HOUR,
        "restarts": m["restarts"],
        "jct_h": m["jct_s_mean"] / HOUR,
        "spot_h": spot_h,
        "sure_h": float(hours.sum()) - spot_h,
        "exposed": exposed(w, s),
        "limits": int(np.isfinite(w.problem.tenants.exposure).sum()),
        "rounds": m["rounds"],
        "decision_ms": 1e3 * m["decision_s_mean"],
        "failed": int(s.rounds["status"].isin(["Infeasible", "NoPlanInTime"]).sum()),
        "cpu_s": time.process_time() - begin,
    }


def results(args: argparse.Namespace, traces: Path | None) -> Iterator[dict[str, Any]]:
    """Yield every requested simulation, from the folder if it is stored there."""
    args.out.mkdir(parents=True, exist_ok=True)
    for world in args.worlds or WORLDS:
        if WORLDS[world] is not None and traces is None:
            continue
        for seed in range(args.seeds):
            for case in args.cases:
                belief = "" if args.availability is None else f"-{args.availability:g}"
                path = args.out / f"{world}-{seed}-{case}{belief}.json".replace(" ", "_")
                if not path.exists():
                    path.write_text(
                        json.dumps(measure(world, seed, case, traces, args.availability))
                    )
                row = json.loads(path.read_text())
                print(
                    f"# {world} {seed} {case}: {row['dollars']:.0f} $, met {row['met']:.3f},"
                    f" {row['restarts']} restarts, {row['cpu_s']:.0f} s, {row['decision_ms']:.0f}"
                    " ms a decision",
                    flush=True,
                )
                yield row


def table(rows: list[dict[str, Any]], world: str) -> str:
    """Return one line per policy, and the difference of `mip` from it."""
    lines = [
        (
            "| policy | seeds | dollars | deadlines met | worst, h late | restarts | mean"
            " completion, h | GPU-h spot, on demand | limits in use | mip, cost is cheaper by |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    some = {(r["seed"], r["case"]): r for r in rows if r["world"] == world}
    seeds = sorted({s for s, _ in some})
    for case in dict.fromkeys(c for _, c in some):
        mine = [some[s, case] for s in seeds if (s, case) in some]
        both = [s for s in seeds if (s, case) in some and (s, OURS) in some]

        def mean(name: str, mine: list[dict[str, Any]] = mine) -> float:
            return float(np.mean([r[name] for r in mine]))

        saved = ""
        if case != OURS and both:
            c = paired.compare(
                [some[s, OURS]["dollars"] for s in both], [some[s, case]["dollars"] for s in both]
            )
            saved = f"{-c.change_percent:.1f} %" + (
                f" ({-c.high:.1f} to {-c.low:.1f})" if len(both) > 1 else ""
            )
        lines.append(
            f"| {case} | {len(mine)} | {mean('dollars'):,.0f} | {mean('met'):.4f} |"
            f" {max(max(r['late_h'], 0.0) for r in mine):.2f} | {mean('restarts'):.0f} |"
            f" {mean('jct_h'):.2f} | {mean('spot_h'):,.0f}, {mean('sure_h'):,.0f} |"
            f" {max(r['exposed'] for r in mine):.0%} | {saved} |"
        )
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw dollars of every policy in every world; on demand at the request is 1."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "spot", "svg.fonttype": "none", "font.size": 9})
    import matplotlib.pyplot as plt

    worlds = list(dict.fromkeys(r["world"] for r in rows))
    figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
    cases, colours = list(POLICIES)[1:], ("#999999", "#d95f02", "#e6ab02", "#1b5faa")
    first = next(iter(POLICIES))
    for i, (case, colour) in enumerate(zip(cases, colours, strict=True)):
        cost = [
            np.mean([r["dollars"] for r in rows if (r["world"], r["case"]) == (w, case)])
            / np.mean([r["dollars"] for r in rows if (r["world"], r["case"]) == (w, first)])
            for w in worlds
        ]
        axes.bar(np.arange(len(worlds)) + 0.2 * i - 0.3, cost, 0.19, color=colour, label=case)
    axes.set_xticks(
        range(len(worlds)),
        [
            (
                w.replace(" ", "\n")
                if w[0].isalpha()
                else w.rsplit(" ", 1)[0] + "\n" + w.rsplit(" ", 1)[1]
            )
            for w in worlds
        ],
    )
    axes.set_ylabel("dollars, on demand as asked = 1")
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.18))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def unpacked(folder: Path, into: Path) -> Path:
    """Return the folder `availability` of the traces, unpacked if they are packed."""
    for packed in sorted(folder.glob("*.tar.gz")):
        with tarfile.open(packed) as archive:
            archive.extractall(into, filter="data")
        folder = into
    return folder / "availability"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--worlds", type=lambda text: text.split(","))
    parser.add_argument("--cases", type=lambda text: text.split(";"), default=list(POLICIES))
    parser.add_argument(
        "--availability",
        type=float,
        help="what policies believe of spot pools; default the default",
    )
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    print(
        f"# {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy"
        f" {np.__version__}; {JOBS} jobs, seeds 0..{args.seeds - 1}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as scratch:
        rows = list(results(args, unpacked(args.traces, Path(scratch)) if args.traces else None))
    for world in dict.fromkeys(r["world"] for r in rows):
        print(f"\n{world}\n\n{table(rows, world)}")
    if args.picture:
        draw(rows, args.picture)


if __name__ == "__main__":
    main()
