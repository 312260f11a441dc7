"""The state of a queue and its controller, as one value and as text."""

from __future__ import annotations

from collections.abc import Sequence

from allocator.controller import profiling, spending
from allocator.controller.learning import STUCK
from allocator.controller.reporting.expected import first_to_start, read_expected
from allocator.domain.times import format_time
from allocator.engine.expected_words import describe_next
from allocator.market.books import RENTED
from allocator.objects import Json, Record
from allocator.queue import cluster_tables, lease, nodes, round_journal
from allocator.queue.costs import RECENT_DAYS, read_tenant_costs
from allocator.queue.holdings import read_secondaries
from allocator.queue.jobs.verbs import counts, list_jobs
from allocator.queue.queue import Queue

SHOWN = 20
ROUND_FIELDS = ("number", "at_s", "outcome", "status", "gap", "detail")
RATE_FIELDS = ("model", "gpu_type", "gpus", "work_per_s")
NODE_FIELDS = ("node", "state", "used", "jobs", "leaves_s", "returns_s")


def status(queue: Queue) -> Json:
    """Return what a queue and its controller do now, as JSON values; times in unix seconds."""
    now = queue.clock()
    with queue.store.read() as connection:
        used = cluster_tables.used(connection)
        last = round_journal.history(connection, limit=1)
        waiting = list_jobs(connection, states=["queued", "paused"])
        expected = read_expected(connection)
        return {
            "now_s": now,
            "controller": describe_controller(lease.read_current(connection), now),
            "jobs": counts(connection),
            "pools": {
                pool: {"gpus": gpus, "used": used[pool]}
                for pool, gpus in cluster_tables.gpus(connection).items()
            },
            "nodes_not_up": [
                _select(node, NODE_FIELDS)
                for node in nodes.read_nodes(connection)
                if describe_state(node, now) != "up"
            ],
            "last_round": _select(vars(last[0]), ROUND_FIELDS) if last else None,
            "parked": [
                {"job_id": job.job_id, "reason": job.park_reason}
                for job in list_jobs(connection, states=["failed"])[-SHOWN:]
            ],
            "retrying": [
                {
                    "job_id": job.job_id,
                    "failures": job.failures,
                    "retry_at_s": job.retry_at_s,
                    "stuck": job.park_reason.startswith(STUCK),
                }
                for job in [job for job in waiting if job.failures][-SHOWN:]
            ],
            "waiting": first_to_start([job.job_id for job in waiting], expected)[:SHOWN],
            "sharing": [
                {"host": primary, "guest": secondary}
                for primary, secondary in sorted(read_secondaries(connection).items())
            ],
            "corrected_rates": [
                _select(rate, RATE_FIELDS)
                for rate in cluster_tables.read_learned_rates(connection)
                if rate["work_per_s"] is not None
            ],
            "trials": profiling.read(connection).report(),
            "noise_scales": cluster_tables.read_noise_scales(connection),
            "corrected_slowdowns": cluster_tables.read_corrected_slowdowns(connection),
            "longrun": spending.report(connection),
            "gpu_hours": spending.report_months(connection),
            "costs": read_tenant_costs(connection, now),
        }


def _select(record: Record, names: Sequence[str]) -> Json:
    return {name: record[name] for name in names}


def describe_controller(current: lease.Lease | None, now_s: float) -> Json:
    """Return which controller leads by its lease, as JSON values."""
    if current is None or not current.holder:
        token = 0 if current is None else current.token
        return {"state": "none", "holder": "", "token": token, "expires_s": None}
    return {
        "state": "in charge" if now_s < current.expires_s else "silent",
        "holder": current.holder,
        "token": current.token,
        "expires_s": current.expires_s,
    }


def format_status(status: Json) -> list[str]:
    """Return the lines of the status as text."""
    c = status["controller"]
    last = status["last_round"]
    now = status["now_s"]
    who = {
        "none": "no controller leads",
        "in charge": f"{c['holder']} leads (token {c['token']})",
        "silent": f"{c['holder']} led (token {c['token']}), but is silent",
    }[c["state"]]
    out = [f"controller  {who}"]
    out.append(
        "jobs        "
        + (", ".join(f"{n} {state}" for state, n in status["jobs"].items() if n) or "none")
    )
    out += [
        f"pool        {pool}: {p['used']} of {p['gpus']} GPUs used"
        for pool, p in status["pools"].items()
    ]
    out += [_format_node(node, status["now_s"]) for node in status["nodes_not_up"][:SHOWN]]
    out.append(
        "round       "
        + (
            "none yet"
            if last is None
            else f"{last['number']}, {max(0.0, now - last['at_s']):.0f} s ago: {last['outcome']}"
            + (f" ({last['detail']})" if last["detail"] else "")
        )
    )
    out += [
        f"waits       {j['job_id']}: place {j['position']}, {describe_next(j, now)}"
        + (f", {j['reason']}" if j["reason"] else "")
        for j in status["waiting"]
    ]
    out += [
        f"sharing     {p['guest']} runs on the GPUs of {p['host']}"
        for p in status["sharing"][:SHOWN]
    ]
    out += [f"parked      {j['job_id']}: {j['reason']}" for j in status["parked"]]
    out += [
        f"retrying    {j['job_id']}: {j['failures']}"
        f" failure{'s in a row' if j['failures'] > 1 else ''}"
        for j in status["retrying"]
    ]
    out += [
        f"trials      {model}: {trial['gpu_hours']:.3g} GPU-hours; "
        + "; ".join(
            f"{way['gpus']} x {way['gpu_type']}, batch {way['batch_size']}: "
            + (f"{way['work_per_s']:.4g} per second" if way["work_per_s"] else "no speed")
            for way in trial["measured"]
        )
        for model, trial in status["trials"].items()
    ]
    out += [
        f"noise       {model}: gradient noise scale {phi:.4g} samples"
        for model, phi in status["noise_scales"].items()
    ]
    out += [
        f"corrected   {r['model']} on {r['gpus']} x {r['gpu_type']}: {r['work_per_s']:.4g} per"
        " second"
        for r in status["corrected_rates"]
    ]
    out += [
        f"corrected   {r['model_a']} next to {r['model_b']} on {r['gpus']} x {r['gpu_type']}:"
        f" slowdown {r['slowdown_a']:.4g}, and {r['slowdown_b']:.4g} of {r['model_b']}"
        for r in status["corrected_slowdowns"]
    ]
    out += [f"budget      {_format_budget(tenant, b)}" for tenant, b in status["longrun"].items()]
    out += [f"GPU-hours   {tenant}: {format_month(m)}" for tenant, m in status["gpu_hours"].items()]
    out += [
        f"cost        {c['tenant']}: {c['dollars_today']:.2f} $ today, {c['dollars']:.2f} $ in"
        f" {RECENT_DAYS} days"
        for c in status["costs"]
        if c["dollars"] > 0
    ]
    return out


def describe_state(node: Record, now_s: float) -> str:
    """Return the state of a node, and its announced absence if that is not over."""
    leaves_s, returns_s = node["leaves_s"], node["returns_s"]
    if leaves_s is None or (returns_s is not None and returns_s <= now_s):
        return str(node["state"])
    back = "" if returns_s is None else f", back {format_time(returns_s)}"
    verb = "leaves" if leaves_s > now_s else "away since"
    return f"{node['state']}, {verb} {format_time(leaves_s)}{back}"


def _format_node(node: Json, now_s: float) -> str:
    """Return a node that is not up or leaves as text, with the jobs that are still on it."""
    jobs = f", {node['used']} GPUs held by {', '.join(node['jobs'])}" if node["jobs"] else ", empty"
    return f"node        {node['node']}: {describe_state(node, now_s)}{jobs}"


def _format_budget(tenant: str, b: Json) -> str:
    """Return a long-run budget as text."""
    what = (
        f"{b['average_per_hour']:g} $/h on average"
        if b["amount"] is None
        else f"{b['amount']:g} $ until {format_time(b['until_s'])}"
    )
    saved = f"{abs(b['balance']):.2f} $ {'saved' if b['balance'] >= 0 else 'overdrawn'}"
    gone = (
        ""
        if b["runs_out_s"] is None
        else f"; at {b['recent_per_hour']:.2f} $/h it is gone {format_time(b['runs_out_s'])}"
    )
    return (
        f"{f'{tenant}: ' if tenant else ''}{what} {RENTED}: {b['spent']:.2f} $ spent, {saved}, "
        f"{b['remaining']:.2f} $ left, the price of a dollar is {b['dollar_price']:.3g} h{gone}"
    )


def format_month(month: Record) -> str:
    """Return the GPU-hours of a tenant in the present month as text."""
    gone = month["runs_out_s"]
    forecast = "" if gone is None else f"; at this rate they are gone {format_time(gone)}"
    used, most = (
        format(month[key], ",.0f" if month[key] >= 100 else ".3g")
        for key in ("gpu_hours_used", "gpu_hours_per_month")
    )
    return f"{used} of {most} this month{forecast}"
