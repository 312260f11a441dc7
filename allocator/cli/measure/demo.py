"""`allocator demo`: compare MIP with greedy, in one round of a snapshot and over a trace.

Both are shipped with the package.
"""

import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

from allocator import (
    Plan,
    Simulation,
    SimulationOptions,
    UsageError,
    Workload,
    read_snapshot,
    read_workload,
    simulate,
    solve,
)
from allocator.cli.measure.comparison import compare_metrics, comparison
from allocator.cli.output import Answer, Table, Values, percent, text, warn
from allocator.cli.plan.plan_show import plans
from allocator.io.shipped import find_shipped

ROWS_SHOWN = (
    "jct_s_mean",
    "jct_s_p99",
    "queue_s_mean",
    "queue_s_p99",
    "makespan_s",
    "efficiency_mean",
    "ftf_max",
    "gpu_hours",
    "dollars",
    "restarts",
    "decision_s_mean",
)


def demo(args: Namespace) -> Answer:
    if args.live:
        from allocator.cli.measure.demo_live import live

        return live(args.dir, args.sabotage)
    for name, given in (("--sabotage", args.sabotage), ("--dir", args.dir is not None)):
        if given:
            raise UsageError(f"{name} needs --live")
    folder = find_shipped("snapshots/demo")
    trace = find_shipped("workloads/demo")
    snapshot = read_snapshot(folder)
    greedy = solve(snapshot, policy="greedy")
    mip = solve(snapshot, policy="mip", solver=args.solver, gap=0.0)
    warn(mip.warnings)
    workload = read_workload(trace)

    def run() -> list[Simulation]:
        options = SimulationOptions(solver=args.solver)
        return [simulate(workload, policy=policy, options=options) for policy in ("mip", "greedy")]

    def document() -> Values:
        return {
            "snapshot": str(folder),
            "plans": {"greedy": greedy.to_dict(), "mip": mip.to_dict()},
            "workload": str(trace),
            "policies": {s.policy: s.metrics for s in run()},
        }

    return Answer(document, _show(folder, trace, greedy, mip, workload, run))


def _show(
    folder: Path,
    trace: Path,
    greedy: Plan,
    mip: Plan,
    workload: Workload,
    run: Callable[[], list[Simulation]],
) -> Iterator[str | Table]:
    here, there = map(_relative_path, (folder, trace))
    limit = mip.budget.per_hour
    yield "1. One round\n"
    yield (
        f"{here}: {len(mip.jobs['job_id'])} jobs, "
        f"{sum(pool.gpus for pool in mip.pools)} GPUs in {len(mip.pools)} pools, "
        f"rounds of {mip.interval_s:g} s"
        + ("" if limit is None else f", at most {limit:g} $/h for all GPUs")
    )
    yield (
        "A job's value is the share of its remaining work that this round completes, times its"
        " weight."
    )
    yield from (_comparison(greedy, mip), plans({"greedy": greedy, "mip": mip}))
    gained = mip.objective_value - greedy.objective_value
    share = (
        f" ({100 * gained / greedy.objective_value:+.0f} %)" if greedy.objective_value > 0 else ""
    )
    yield (
        f"\nThe value of MIP is {gained:.4g} above that of greedy{share}; no plan can have more"
        f" than {mip.bound:.5g} (gap {percent(mip.gap)}, proven by {mip.bound_by})."
    )
    done = run()
    p = workload.problem
    hours = (p.jobs.submitted_s.max() - p.jobs.submitted_s.min()) / 3600
    yield "\n\n2. Round after round\n"
    yield (
        f"{there}: {len(p.jobs)} jobs arrive within {hours:.1f} h at"
        f" {int(p.pools.gpus.sum())} GPUs; both policies decide every {p.interval_s:g} s."
    )
    yield (
        f"MIP now maximises {p.objective}, the default over many rounds: hours of completion time"
        " saved."
    )
    yield "Jobs may use more or fewer GPUs than they ask for; a change of size costs them a pause."
    yield comparison(done, ROWS_SHOWN, "over the whole trace")
    waits = ["\njobs that wait, one digit per round"]
    width = max(len(s.policy) for s in done)
    for s in done:
        queued = s.timeline.groupby("round")["queued"].first().tolist()
        digits = "".join(str(n) if n < 10 else "+" for n in queued)
        waits.append(f"{s.policy:<{width}}  {digits}")
    yield "\n".join(waits)
    ahead, behind = compare_metrics(done[0], done[1], ROWS_SHOWN)
    worse = f"in {', '.join(behind)}:" if behind else "in nothing that is listed here."
    reasons = zip(mip.jobs["job_id"], mip.jobs["reason"], strict=True)
    waiting = next((name for name, reason in reasons if reason), mip.jobs["job_id"][0])
    yield f"""
Over the trace MIP is better in {", ".join(ahead)}.
It is worse {worse}
many short jobs gain what a few long ones lose; which objective weighs them how: docs/objectives.md.
One trace proves little: `allocator bench policies` repeats this over seeds and loads, with \
intervals.

try next:
  allocator explain {here} {waiting}
  allocator solve {here} --budget 10 --out plans
  allocator simulate {there} --policy mip,greedy,las,srtf --out results
  allocator report results"""


def _comparison(greedy: Plan, mip: Plan) -> Table:
    rows = []
    for g, m in zip(greedy.to_dict()["jobs"], mip.to_dict()["jobs"], strict=True):
        same = (g["pool"], g["gpus"]) == (m["pool"], m["gpus"])
        does = (
            f"{job['action']} {job['gpus']} x {job['pool']}" if job["pool"] else job["action"]
            for job in (g, m)
        )
        values = (text(job["value"], 3) for job in (g, m))
        why = "" if same else _explain_difference(g, m)
        rows.append([m["job_id"], *does, "" if same else "<", *values, why])
    return Table(
        "jobs (< where they differ)",
        ("job", "greedy", "mip", "", ">value greedy", ">value mip", "why"),
        rows,
    )


def _explain_difference(greedy: Values, mip: Values) -> str:
    """Return why the choices of the two policies differ for one job.

    It is the price if the value is the same, and otherwise the reason of the policy that gave less.
    """
    if greedy["value"] == mip["value"] and greedy["cost_per_hour"] != mip["cost_per_hour"]:
        cheap, dear = sorted((greedy, mip), key=lambda job: job["cost_per_hour"])
        return (
            f"{'mip' if cheap is mip else 'greedy'} pays {cheap['cost_per_hour']:.2f} $/h for the"
            f" same, not {dear['cost_per_hour']:.2f}"
        )
    who, less = (
        ("greedy", greedy)
        if (greedy["value"], greedy["gpus"]) <= (mip["value"], mip["gpus"])
        else ("mip", mip)
    )
    if not less["reason"]:
        more = mip if less is greedy else greedy
        return (
            f"{who} gives it {less['gpus']} GPUs, not {more['gpus']}"
            if less["gpus"] != more["gpus"]
            else ""
        )
    # only the first clause: `allocator explain` has the whole reason
    detail = (less["detail"] or "").partition("; ")[0]
    return text(f"{who}: {less['reason']}" + (f": {detail}" if detail else ""))


def _relative_path(folder: Path) -> str:
    """Return the folder as a user would type it in the current folder."""
    relative = os.path.relpath(folder)
    return str(folder) if relative.startswith(os.pardir) else relative
