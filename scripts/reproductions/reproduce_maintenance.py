"""A tenth of the nodes leaves for four hours on each day of a week, as it was announced before.

    # 10 seeds; a quarter of an hour
    python scripts/reproductions/reproduce_maintenance.py

Ten nodes of 8 GPUs; jobs of 1 to 16 GPUs and 4 hours on average, checkpointed every hour, half of
which may not be stopped, keep 80 % of the GPUs busy. Rounds of 15 minutes.
"""

import argparse

import numpy as np

from allocator.io.workloads import parse_workload
from allocator.simulator.run import Simulation, simulate

NODES, DAY_S, ROUND_S, AWAY_S = 10, 86400.0, 900.0, 4 * 3600.0
NEEDED_S = ROUND_S + 60.0  # a round, the pause of a start, and that of a move
NEVER = ""


def run(seed: int, lead_s: float | None) -> tuple[Simulation, float, list[tuple[float, str]]]:
    """Return the run, the GPU-hours that jobs need, and when which node leaves."""
    rng = np.random.default_rng(seed)
    sizes = np.array([1, 2, 4, 8, 16])
    rate = 0.8 * 8 * NODES / (sizes.mean() * 4 * 3600)
    at_s = np.cumsum(rng.exponential(1 / rate, int(rate * 7 * DAY_S)))
    gpus, hours = rng.choice(sizes, len(at_s)), rng.exponential(4, len(at_s))
    firm = rng.random(len(at_s)) < 0.5
    jobs = [
        f"j{n},{at},m,{h * 3600 * k},{k},{k},{k},{not no},3600,0"
        for n, (at, k, h, no) in enumerate(zip(at_s, gpus, hours, firm, strict=True))
    ]
    leaves = [
        (day * DAY_S + float(rng.uniform(0, DAY_S - AWAY_S)), f"n{rng.integers(NODES)}")
        for day in range(1, 7)
    ]
    events = [
        f"{t},{n},{state},{NEVER if lead_s is None else max(0.0, at - lead_s)}"
        for at, n in leaves
        for t, state in ((at, "down"), (at + AWAY_S, "up"))
    ]
    head = "job_id,submitted_s,model,total_work,requested_gpus,min_gpus,max_gpus,preemptible"
    files = {
        "workload.csv": [f"{head},checkpoint_every_s,checkpoint_s", *jobs],
        "pools.csv": ["pool,gpu_type,gpus,gpus_per_node", f"p,A,{8 * NODES},8"],
        "nodes.csv": ["node,pool,gpus", *(f"n{n},p,8" for n in range(NODES))],
        "node_events.csv": ["at_s,node,state,announced_s", *events],
        "rates.csv": ["model,gpu_type,gpus,work_per_s", *(f"m,A,{k},{k}" for k in sizes)],
        "config.toml": [f"interval_s = {ROUND_S}"],
    }
    contents = {name: "\n".join(lines).encode() for name, lines in files.items()}
    done = simulate(parse_workload("maintenance", contents), policy="mip")
    return done, float(gpus @ hours), leaves


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    print("| announced | GPU-hours lost | jobs stopped | soon after they came | complete, h |")
    print("|---|---:|---:|---:|---:|")
    for name, lead_s in (("24 h before", DAY_S), ("at the start", 7 * DAY_S), ("never", None)):
        rows = []
        for seed in range(parser.parse_args().seeds):
            done, needed, leaves = run(seed, lead_s)
            on = done.places
            ends = dict(zip(done.jobs["job_id"], done.jobs["finished_s"], strict=True))
            hit = [
                at - row.from_s
                for at, node in leaves
                for row in on[(on.node == node) & (on.to_s == at)].itertuples()
                if ends[row.job_id] > at
            ]
            soon = sum(there_s < NEEDED_S for there_s in hit)
            lost = done.metrics["gpu_hours"] - needed
            rows.append((lost, len(hit), soon, done.metrics["jct_s_mean"] / 3600))
        lost, hits, soon, jct = np.mean(rows, axis=0)
        print(f"| {name} | {lost:.2f} | {hits:.1f} | {soon:.1f} | {jct:.2f} |", flush=True)


if __name__ == "__main__":
    main()
