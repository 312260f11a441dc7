"""Show a plan on the screen: totals by action, reason, pool and tenant, then the jobs that fit."""

import math
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

from allocator import Comparison, Plan
from allocator.cli.output import Table, percent, text
from allocator.domain.findings import join_words
from allocator.domain.plan import EXPECTED_FIELDS
from allocator.engine.expected_words import describe_next

LEAST_ROWS = 12  # jobs that are shown on the smallest terminal
# in the order in which they are shown
ACTIONS = ("start", "grow", "move", "shrink", "pause", "wait", "keep")


def show_plan(
    result: Plan, has_reasons: bool = False, head: Sequence[str] = ()
) -> Iterator[str | Table]:
    """Yield what is shown of a plan.

    A terminal shows the jobs that fit. A pipe or a file gets all jobs, and so does has_reasons.
    head: lines before the plan, in place of the answer in words.
    """
    first = [by_action(result), by_reason(result), pools_table(result), by_tenant(result)]
    first = [table for table in first if table.rows]
    lines = [*(head or (answer(result), "")), *headline(result)]
    yield from lines
    yield from first
    if not sys.stdout.isatty():
        yield jobs_table(result.jobs, result.now_s)
        return
    used = len(lines) + sum(len(table.rows) + 4 for table in first)
    space = max(LEAST_ROWS, shutil.get_terminal_size().lines - used - 6)
    count = len(result.jobs["job_id"])
    hidden = 0 if has_reasons else max(0, count - space)
    yield jobs_by_action(result, count - hidden)
    if hidden:
        yield (
            f"{hidden} more jobs are not shown: --reasons shows all, --format csv is for programs."
        )
    if has_reasons:
        yield "\nreasons"
        whys = (result.jobs[name] for name in ("job_id", "reason", "detail"))
        for job, code, detail in zip(*whys, strict=True):
            if code:
                yield f"  {text(job)}: {code}" + (f", {text(detail)}" if detail else "")
    elif any(result.jobs["reason"]):
        yield (
            "--reasons says why for every job, `allocator explain SNAPSHOT JOB` what would change"
            " it."
        )


def answer(result: Plan) -> str:
    """Return in words what runs now, what the plan changes, and how much better one could be."""
    jobs, totals = result.jobs, result.pools
    count = Counter(jobs["action"])
    now = sum(pool is not None for pool in jobs["previous_pool"])
    then = sum(pool is not None for pool in jobs["pool"])
    changes = [
        f"{verb}s {count[verb]}"
        for verb in ("start", "grow", "move", "shrink", "pause")
        if count[verb]
    ]
    spent = result.budget.spent_per_hour
    better = (
        "No plan is better."
        if result.gap <= 0
        else f"No plan is more than {math.ceil(result.gap * 1e4) / 100:g} % better."
        if result.gap < 1
        else f"No plan has more than {1 + result.gap:.3g} times its value."
        if math.isfinite(result.gap)
        else "How much better a plan could be is not known."
    )
    waits = len(jobs["job_id"]) - now
    return (
        f"Now {_count(now, 'job runs', 'jobs run')} and {_count(waits, 'waits', 'wait')}."
        f" This plan {join_words(changes) or 'changes nothing'}:"
        f" {_count(then, 'job runs', 'jobs run')}"
        f" on {sum(p.used for p in totals)} of {sum(p.gpus for p in totals)} GPUs"
        f"{f' for {spent:,.2f} $/h' if spent else ''}. {better}"
    )


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"


def headline(result: Plan) -> list[str]:
    """Return what was decided, how good it is, and which solver proved it."""
    limit = result.budget.per_hour
    spent = f"cost {text(result.budget.spent_per_hour)} $/h" + (
        "" if limit is None else f" of {text(limit)} $/h for all GPUs"
    )
    if result.placement is not None:
        p = result.placement
        spent += (
            f"; nodes cost {text(p.lost)} of the value (gap {percent(p.gap)}): {p.moved} jobs move,"
            f" {p.reduced} get another option"
        )
    by = f"{result.solver} {result.solver_version or ''}".strip() if result.solver else "no solver"
    return [
        f"snapshot {text(result.snapshot)}: policy {result.policy}, objective {result.objective},"
        f" {by}" + (f", fallback {result.fallback}" if result.fallback else ""),
        (
            f"value {text(result.objective_value, 7)}, best possible at most"
            f" {text(result.bound, 7)} (gap {percent(result.gap)}, proven by {result.bound_by}):"
            f" {result.status}, ended by {result.termination}"
        ),
        f"{spent}; decided in {result.seconds['total']:.3f} s",
    ]


def log_lines(result: Plan, notes: Sequence[str]) -> list[str]:
    """Return the lines that --log writes: the headline, the notes of the search, and its end."""
    head, proof, spent = headline(result)
    choice = (
        f"solver: {result.solver_choice or result.solver}"
        if result.solver or result.solver_choice
        else f"solver: none was asked, the policy {result.policy} decides by rules"
    )
    times = ", ".join(f"{phase} {seconds:.3f}" for phase, seconds in result.seconds.items())
    warnings = (f"warning: {w}" for w in result.warnings)
    return [head, *notes, choice, proof, spent, f"seconds: {times}", *warnings]


def by_action(result: Plan) -> Table:
    """Return jobs, GPUs, value and cost of every action that the plan takes."""
    columns = [result.jobs[name] for name in ("gpus", "value", "cost_per_hour")]
    actions = result.jobs["action"]
    rows = []
    for action in ACTIONS:
        takes = [name == action for name in actions]
        if any(takes):
            rows.append([action, sum(takes), *(sum(compress(c, takes)) for c in columns)])
    return Table("jobs by action", ("action", ">jobs", ">GPUs", ">value", ">$/h"), rows)


def by_reason(result: Plan) -> Table:
    """Return by reason the jobs that get less than they could use, and how many get nothing."""
    jobs = result.jobs
    every = Counter(filter(None, jobs["reason"]))
    nothing = Counter(
        code for code, pool in zip(jobs["reason"], jobs["pool"], strict=True) if pool is None
    )
    rows = [
        [code, count, nothing[code], count - nothing[code]] for code, count in every.most_common()
    ]
    columns = ("reason", ">jobs", ">get nothing", ">get less")
    return Table("jobs that get less than they could use, by reason", columns, rows)


def pools_table(result: Plan) -> Table:
    """Return the pools of a plan."""
    rows = [(p.pool, p.gpus, p.used, p.marginal_value) for p in result.pools]
    columns = ("pool", ">GPUs", ">used", ">price")
    return Table("pools (price: value of one GPU more)", columns, rows)


def by_tenant(result: Plan) -> Table:
    """Return what every tenant holds, with its limits and the states of its jobs."""
    count = Counter(zip(result.jobs["tenant"], result.jobs["action"], strict=True))
    rows = []
    for t in result.tenants:
        wait, pause = count[t.tenant, "wait"], count[t.tenant, "pause"]
        run = sum(count[t.tenant, action] for action in ACTIONS) - wait - pause
        limits = (t.gpus, t.guaranteed, t.max_gpus, t.cost_per_hour)
        rows.append((t.tenant, run, wait, pause, *limits))
    columns = ("tenant", ">run", ">wait", ">pause", ">GPUs", ">guaranteed", ">at most", ">$/h")
    return Table("tenants", columns, rows, ("guaranteed", "pause"))


def jobs_table(jobs: Mapping[str, Sequence[Any]], now_s: float) -> Table:
    """Return the jobs of a plan, given by their columns."""
    places = ("pool", "gpus", "shared_with", "variant", "mode")
    expected = zip(*(jobs[name] for name in EXPECTED_FIELDS), strict=True)
    columns: tuple[Iterable[Any], ...] = (
        jobs["job_id"],
        jobs["tenant"],
        jobs["action"],
        map(_place, *(jobs[name] for name in places)),
        map(_place, jobs["previous_pool"], jobs["previous_gpus"]),
        jobs["value"],
        jobs["cost_per_hour"],
        (describe_next(dict(zip(EXPECTED_FIELDS, row, strict=True)), now_s) for row in expected),
        (": ".join(filter(None, why)) for why in zip(jobs["reason"], jobs["detail"], strict=True)),
    )
    names = ("job", "tenant", "action", "gets", "held", ">value", ">$/h", "expected", "reason")
    return Table("jobs", names, list(zip(*columns, strict=True)))


def jobs_by_action(result: Plan, count: int) -> Table:
    """Return the first jobs in the order of ACTIONS, without the text of their reasons.

    The highest value of an action comes first.
    """
    jobs = result.jobs
    order = range(len(jobs["job_id"]))
    first = sorted(order, key=lambda j: (ACTIONS.index(jobs["action"][j]), -jobs["value"][j]))
    first = first[:count]
    shown = {name: [column[j] for j in first] for name, column in jobs.items()}
    table = jobs_table(shown | {"detail": [None] * len(first)}, result.now_s)
    return replace(table, droppable=("held", "$/h", "tenant", "value"))


def plans(named: Mapping[str, Plan], title: str = "policy") -> Table:
    """Return the totals of some plans, a row each."""
    rows = [
        (
            name,
            text(r.objective_value, 5),
            text(r.bound, 5),
            percent(r.gap),
            r.status,
            r.budget.spent_per_hour,
            sum(p.used for p in r.pools),
            sum(pool is not None for pool in r.jobs["pool"]),
            f"{r.seconds['total']:.3f}",
        )
        for name, r in named.items()
    ]
    columns = (">value", ">best at most", ">gap", "status", ">$/h", ">GPUs", ">jobs", ">seconds")
    return Table("plans", (title, *columns), rows)


def differences(comparison: Comparison, after: Plan) -> Table:
    """Return the jobs that get something else in one of two plans."""
    reason, nodes = (
        dict(zip(after.jobs["job_id"], after.jobs[name], strict=True))
        for name in ("reason", "nodes")
    )
    rows = []
    for job in comparison.jobs:
        old, new = (
            _place(s.pool, s.gpus, s.shared_with) if s.gpus else "nothing"
            for s in (job.before, job.after)
        )
        if old == new:
            new = f"{new} on {', '.join(part['node'] for part in nodes[job.job_id] or ())}"
        hours = (text(h, 3) for h in (job.left_h_before, job.left_h_after))
        rows.append((job.job_id, job.what, old, new, *hours, reason[job.job_id] or ""))
    return Table(
        f"jobs that differ ({len(rows)} of {len(after.jobs['job_id'])})",
        ("job", "change", "as it is", "with it", ">hours left", ">then", "reason"),
        rows,
    )


def _place(
    pool: str | None,
    gpus: int,
    colocated_job: str | None = None,
    variant: str | None = None,
    mode: str | None = None,
) -> str:
    """Return what a job holds, "-" for nothing."""
    if pool is None:
        return "-"
    return (
        f"{gpus} x {pool}"
        + "".join(f", {how}" for how in (variant, mode) if how)
        + (f" next to {colocated_job}" if colocated_job else "")
    )
