"""The functions of the verbs of `allocator queue`: each gets the arguments and the open queue."""

import json
import math
import os
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Connection

from allocator import Queue, UsageError, read_snapshot, validate
from allocator.cli.output import (
    Answer,
    Columns,
    Table,
    Values,
    note,
    percent,
    pick,
    text,
    text_of,
    warn,
)
from allocator.cli.parsing import find_given
from allocator.cli.queue.commands import NAMES
from allocator.controller.reporting.expected import TOLD, add_expected, read_expected
from allocator.controller.reporting.status import describe_state
from allocator.domain.findings import did_you_mean, quote
from allocator.domain.plan import EXPECTED_FIELDS
from allocator.domain.records import USER
from allocator.domain.schema.workload_columns import CHANGEABLE, FILTERS
from allocator.domain.times import format_time, month_start_s
from allocator.engine.expected_words import describe_estimate, describe_expected
from allocator.io.plans import write_files
from allocator.io.progress_sources import FIELDS, as_variables
from allocator.io.traces.text import content
from allocator.loop.executor import NodePart
from allocator.queue import cluster_tables, snapshot, tokens
from allocator.queue.costs import KEYS, Cost, add_costs, read_costs
from allocator.queue.database import identity
from allocator.queue.database.connection import create_queue
from allocator.queue.jobs import csv_jobs, verbs
from allocator.queue.jobs.submit import build_submission, change_jobs, submit as submit_to
from allocator.queue.jobs.verbs import Job
from allocator.report.measures import duration

# with up to this many deadlines, a submission checks whether its own deadline can be promised
MOST_DATED = 200
DAY_S = 86400


def call(args: Namespace) -> Answer:
    """Call the function of a verb."""
    with Queue(args.queue) as queue:
        answer: Answer = globals()[args.function](args, queue)
        return answer


def init(args: Namespace) -> Answer:
    from allocator.clusters.folder import leave_jobs

    source = None if args.source is None else leave_jobs(read_snapshot(args.source), args.source)
    if source is not None:
        validate(source)  # a source with faults leaves no queue behind
    store, is_new = create_queue(args.queue)
    document: Values = {"queue": store.name, "made": is_new}
    with Queue(store) as queue:
        note(f"{'made' if is_new else 'is up to date:'} {store.name}")
        if source is not None:
            with store.write() as connection:
                problem, warnings = snapshot.load_at(connection, source, queue.clock())
            warn((*problem.warnings, *warnings))
            jobs = len(problem.jobs)
            pools = len(problem.pools)
            gpus = int(problem.pools.gpus.sum())
            note(f"{jobs} jobs, {pools} pool{'' if pools == 1 else 's'}, {gpus} GPUs")
            document |= {"jobs": jobs, "pools": pools, "gpus": gpus}
    return Answer(document)


def submit(args: Namespace, queue: Queue) -> Answer:
    environment = {USER: os.environ.get("USER", ""), **dict(args.env)}
    environment |= as_variables(find_given(args, FIELDS))
    job = build_submission(
        {
            **pick(args, *NAMES, "key", "command"),
            "environment": environment,
            "workdir": os.path.abspath(args.workdir) if args.workdir else "",
        }
    )
    with queue.store.write() as connection:
        (done,), warnings = submit_to(connection, [job], queue.clock())
    warn(warnings)
    if not done.new:
        note(f'job "{done.job_id}" was submitted before; nothing was added')
    document: Values = {"job_id": done.job_id, "new": done.new}
    if args.format == "table":
        print(done.job_id, flush=True)
    if args.deadline_s:
        document["promise"] = _promise(queue, done.job_id)
    return Answer(document)


def _promise(queue: Queue, job_id: str) -> Values | None:
    """Report whether the deadline of a submitted job can be promised.

    It is printed on standard error and returned in full; None if it is not known. The job is in the
    queue even if this fails.
    """
    from allocator.engine.promises import promise

    try:
        problem = validate(queue.snapshot())
        dated = int((~np.isnan(problem.jobs.deadline_s)).sum())
        if job_id not in problem.jobs.job_id:
            raise UsageError("it is over, or submitted for later")
        if dated > MOST_DATED:
            raise UsageError(
                f"{dated} jobs have deadlines; `allocator queue export` and `allocator promise`"
                " tell"
            )
        answer = promise(problem, job_id)
    except Exception as error:
        reason = str(error) or type(error).__name__
        note(f"whether the deadline can be promised is not known: {reason}")
        return None
    done, earliest = (
        at and f"in {duration(at - problem.now_s)} ({math.ceil(at)})"
        for at in (answer.done_s, answer.earliest_s)
    )
    if done is not None and answer.promised:
        note(
            f"the deadline can be promised: done {done}, on at most"
            f" {answer.most_gpus} GPUs of {text(answer.pool)}"
        )
    else:
        offer = "" if earliest is None else f"; earliest that could be: {earliest}"
        note(f"the deadline cannot be promised: {answer.reason}{offer}")
    return answer.to_dict()


def import_csv(args: Namespace, queue: Queue) -> Answer:
    name = "standard input" if args.file == "-" else os.path.basename(args.file)
    submissions, warnings = csv_jobs.parse_submissions(content(Path(args.file)), name)
    warn(warnings)
    with queue.store.write() as connection:
        done, more = submit_to(connection, submissions, queue.clock(), name)
    warn(more)
    new = sum(s.new for s in done)
    before = f", {len(done) - new} were there before" if new < len(done) else ""
    rows = [{"job_id": s.job_id, "new": s.new} for s in done]
    return Answer({"jobs": rows}, notes=[f"{new} jobs submitted{before}"])


def export_csv(args: Namespace, queue: Queue) -> Answer:
    with queue.store.read() as connection:
        jobs = verbs.list_jobs(connection, states=args.state)
        content = csv_jobs.export_jobs(connection, jobs)
        records = csv_jobs.job_records(connection, jobs) if args.format == "json" else []
    if args.file != "-":
        path = Path(args.file)
        write_files(path.parent, {path.name: content})
        content = ""
    return Answer({"file": args.file, "jobs": records}, csv=content)


def list_(args: Namespace, queue: Queue) -> Answer:
    with queue.store.read() as connection:
        jobs = verbs.list_jobs(
            connection, states=args.state, limit=args.limit, **find_given(args, FILTERS)
        )
        now = queue.clock()
        rows = _build_records(connection, jobs, now)
        numbers = verbs.counts(connection)
    return Answer(
        {"queue": queue.store.name, "now_s": now, "counts": numbers, "jobs": rows},
        _show_jobs(rows, numbers, now),
        lambda: csv_jobs.format_csv((*csv_jobs.FIELDS, *TOLD, *Cost._fields), rows),
    )


def _build_records(connection: Connection, jobs: Sequence[Job], now: float) -> list[Values]:
    """Return jobs with what they hold, what is expected of them and what they cost so far."""
    rows = add_expected(csv_jobs.job_records(connection, jobs), read_expected(connection))
    return add_costs(connection, rows, now)


def _show_jobs(
    rows: Sequence[Values], numbers: Mapping[str, int], now: float
) -> Iterator[str | Table]:
    yield ", ".join(f"{n} {state}" for state, n in numbers.items() if n) or "no jobs"
    columns: Columns = {
        "job": "job_id",
        **{name: name for name in FILTERS if any(row[name] for row in rows)},
        "state": "state",
        "holds": lambda r: _place(r["pool"], r["gpus"], r["shared_with"], r["nodes"]),
        "shall hold": lambda r: _place(
            r["want_pool"], r["want_gpus"], r["want_host"], r["want_nodes"]
        ),
        ">done": lambda r: percent(r["progress"]),
        ">age": lambda r: duration(round(now - r["submitted_s"])),
        ">place": "position",
        "starts in": lambda r: describe_estimate(r, "expected_start", now),
        "ends in": lambda r: describe_estimate(r, "expected_done", now),
        ">$": lambda r: f"{r['dollars']:.2f}" if r["dollars"] else "-",
        "note": lambda r: _describe_job(r, now),
    }
    yield Table.of("jobs", rows, columns, ("model", "shall hold", "age", "$", "starts in"))


def _place(pool: str | None, gpus: int, primary: str | None, nodes: Sequence[Values] | None) -> str:
    if not pool:
        return "-"
    of = f" of {text(primary)}" if primary else ""
    return f"{gpus} x {text(pool)}{of}{f' on {_nodes(nodes)}' if nodes else ''}"


def _nodes(nodes: Iterable[Values] | None) -> str:
    """Return nodes as plan.csv has them."""
    return "|".join(text(str(NodePart(**part))) for part in nodes or ())


def _describe_job(row: Values, now: float) -> str:
    if row["park_reason"]:
        return text(row["park_reason"])
    if row["request"]:
        return {"hold": "being held", "cancel": "being cancelled"}[row["request"]]
    wait = (row["retry_at_s"] or 0) - now
    if wait > 0:
        often = "once" if row["failures"] == 1 else f"{row['failures']} times"
        return f"failed {often}, next try in {duration(wait)}"
    if row["phase"] in ("ordered", "stopping"):
        return str(row["phase"])
    return "" if row["pool"] else row["reason"] or ""


ALLOCATION_COLUMNS: Columns = {
    ">generation": "generation",
    "pool": "pool",
    ">GPUs": "gpus",
    "phase": "phase",
    ">ordered_s": "ordered_s",
    ">ended_s": "ended_s",
    ">work": "work_done",
    "detail": "detail",
}
"""Columns of the allocations of a job: title, and name in the database."""


def show(args: Namespace, queue: Queue) -> Answer:
    with queue.store.read() as connection:
        job = verbs.show(connection, args.job)
        history = verbs.history(connection, args.job)
        now = queue.clock()
        (row,) = _build_records(connection, [job], now)
        seen = verbs.read_observations(connection, args.job)
        turns = verbs.read_turns(connection, args.job)
    document = {**row, "allocations": history, "shared": turns, "observations": seen}
    facts = [
        (k, text(json.dumps(v, ensure_ascii=False) if isinstance(v, (list, dict)) else v, 12))
        for k, v in {**row, "expected": "; ".join(describe_expected(row, now))}.items()
        if v not in (None, "", {}, []) and k not in ("seq", "version", *EXPECTED_FIELDS)
    ]
    columns = ALLOCATION_COLUMNS | ({"nodes": "nodes"} if any(a["nodes"] for a in history) else {})
    allocations = [a | {"nodes": _nodes(a["nodes"])} for a in history]
    tables = [
        Table(f"job {text(row['job_id'])}", ("what", "value"), facts),
        Table.of("allocations", allocations, columns),
    ]
    if turns:
        rows = [(t["generation"], t["at_s"], t["host"] or "its own") for t in turns]
        tables.append(Table("shared GPUs", (">generation", ">since_s", "GPUs of"), rows))
    return Answer(document, tables)


def change_state(args: Namespace, queue: Queue) -> Answer:
    with queue.store.write() as connection:
        done = verbs.change_state(connection, args.verb, args.jobs, queue.clock())
        return _answer_changed(connection, done)


def change(args: Namespace, queue: Queue) -> Answer:
    values = find_given(args, CHANGEABLE)
    if not values:
        raise UsageError("nothing to change: give --weight, --max-gpus ...")
    with queue.store.write() as connection:
        return _answer_changed(
            connection, change_jobs(connection, args.jobs, values, queue.clock())
        )


def _answer_changed(connection: Connection, done: Sequence[Job]) -> Answer:
    requested = {
        "hold": "held as soon as it has stopped",
        "cancel": "cancelled as soon as it has stopped",
    }
    lines = (f"{text(job.job_id)}: {requested.get(job.request, job.state)}" for job in done)
    return Answer({"jobs": list(csv_jobs.job_records(connection, done))}, text_of(lines))


def pools(args: Namespace, queue: Queue) -> Answer:
    if args.changes:
        queue.set_gpus(dict(args.changes))
    with queue.store.read() as connection:
        gpus = cluster_tables.gpus(connection)
        used = cluster_tables.used(connection)
        gpu_types = cluster_tables.read_gpu_types(connection)
    rows = [
        {"pool": p, "gpu_type": gpu_types[p], "gpus": n, "used": used[p], "free": n - used[p]}
        for p, n in gpus.items()
    ]
    return Answer({"pools": rows}, [Table.of("pools", rows)], rows)


def costs(args: Namespace, queue: Queue) -> Answer:
    by = [key for key in KEYS if key in args.by]
    for key in set(args.by) - set(KEYS):
        known = f"{did_you_mean(key, KEYS)} (known: {', '.join(KEYS)})"
        raise UsageError(f"--by: costs are not summed by {quote(key)}{known}")
    now_s = queue.clock()
    since_s = month_start_s(now_s, 1 - args.months)
    with queue.store.read() as connection:
        rows = read_costs(connection, now_s, since_s, by, args.tenant)
    gpu_hours, dollars = (sum(row[name] for row in rows) for name in Cost._fields)
    head = f"{gpu_hours:,.1f} GPU-hours and {dollars:,.2f} $ since {format_time(since_s)}"
    cells = [
        [*(row[key] for key in by), f"{row['gpu_hours']:,.1f}", f"{row['dollars']:,.2f}"]
        for row in rows
    ]
    return Answer(
        {"since_s": since_s, "costs": rows},
        [head, Table("costs", (*by, ">GPU-hours", ">$"), cells)],
        csv_jobs.format_csv((*by, *Cost._fields), rows),
    )


def list_tenants(args: Namespace, queue: Queue) -> Answer:
    tables = queue.tenants()
    return Answer(tables, [Table.of(name, tables[name]) for name in ("tenants", "quotas")])


OF_TENANTS = ("parent", "weight", "max_jobs", "budget_per_hour", "gpu_hours_per_month")
LIMITS = ("guaranteed_gpus", "max_gpus", "lend_gpus")


def set_tenant(args: Namespace, queue: Queue) -> Answer:
    values, limits = find_given(args, OF_TENANTS), find_given(args, LIMITS)
    place = find_given(args, ("gpu_type", "pool"))
    if not place and args.lend_gpus is None:
        values, limits = values | limits, {}
    elif not limits:
        raise UsageError("a quota needs --max-gpus, --guaranteed-gpus or --lend-gpus")
    warnings = queue.set_tenant(args.tenant, values, limits, **place)
    warn(warnings)
    note(f"tenant {args.tenant} is set")
    return Answer({"tenant": args.tenant, "warnings": list(warnings)})


NODE_COLUMNS = (
    *("node", "pool", "gpus", "state", "used", "jobs", "labels", "cpus", "host_memory_gb"),
    *("leaves_s", "returns_s"),
)


def list_nodes(args: Namespace, queue: Queue) -> Answer:
    rows = [row for row in queue.nodes() if args.pool in (None, row["pool"])]
    columns: Columns = {
        "node": "node",
        "pool": "pool",
        ">GPUs": "gpus",
        ">used": "used",
        "state": lambda row: describe_state(row, queue.clock()),
        "labels": lambda row: " ".join(f"{k}={v}" for k, v in row["labels"].items()),
        "jobs": lambda row: " ".join(row["jobs"]),
    }
    head = f"{len(rows)} nodes" if rows else "no nodes: plans count GPUs by pool"
    return Answer(
        {"nodes": rows},
        [head, Table.of("nodes", rows, columns)],
        csv_jobs.format_csv(NODE_COLUMNS, rows),
    )


NODE_VALUES = ("pool", "gpus", "cpus", "host_memory_gb", "labels")
CHANGED = {"add": "added", "set": "changed", "remove": "removed"}
"""What is said of a node after a verb; of the others the verb itself, which is its state."""
BUSY = {"drain": "the next round moves them", "down": "they are lost"}


def change_nodes(args: Namespace, queue: Queue) -> Answer:
    given = {name: getattr(args, name) for name in NODE_VALUES if hasattr(args, name)}
    if "labels" in given:
        given["labels"] = dict(args.labels)
    if args.verb not in CHANGED:
        given["state"] = args.verb
    change = {"add": queue.add_nodes, "remove": queue.remove_nodes}.get(
        args.verb, queue.change_nodes
    )
    word = CHANGED.get(args.verb, args.verb)
    return _answer_nodes(args, queue, change(*args.nodes, **given), word)


def drain_nodes(args: Namespace, queue: Queue) -> Answer:
    if args.at is None:
        if args.until is not None:
            raise UsageError("--until needs --at, the time when the nodes leave")
        changed = queue.change_nodes(*args.nodes, state="drain")
        return _answer_nodes(args, queue, changed, "drain")
    at = format_time(args.at)
    if args.until is not None and args.until <= args.at:
        raise UsageError(f"--until {format_time(args.until)} is not after --at {at}")
    changed = queue.change_nodes(*args.nodes, leaves_s=args.at, returns_s=args.until)
    return _answer_nodes(args, queue, changed, f"leaves {at}")


def _answer_nodes(args: Namespace, queue: Queue, changed: Sequence[str], word: str) -> Answer:
    notes = [] if changed else ["nothing was changed"]
    if word in BUSY:
        notes += (
            f'node "{row["node"]}" has {len(row["jobs"])} jobs; {BUSY[word]}'
            for row in queue.nodes()
            if row["node"] in args.nodes and row["jobs"]
        )
    lines = text_of(f"{text(name)}: {word}" for name in changed)
    return Answer({"changed": list(changed)}, lines, notes=notes)


def reserve(args: Namespace, queue: Queue) -> Answer:
    at_s = queue.clock() if args.at_s is None else args.at_s
    given = pick(args, "pool", "gpus", "until_s", "job_id", "tenant")
    end = "on" if args.until_s is None else f"until {format_time(args.until_s)}"
    span = f"from {format_time(at_s)} {end}"
    if args.until_s is not None and args.until_s <= at_s:
        raise UsageError(f"{span} is no time: the end is not after the begin")
    warnings = queue.reserve(args.reservation, at_s=at_s, **given)
    warn(warnings)
    whom = args.job_id or args.tenant or "nobody"
    note(f"{args.gpus} GPUs of pool {args.pool} are kept for {whom} {span}")
    return Answer({"reservation": args.reservation, "warnings": list(warnings)})


def list_reservations(args: Namespace, queue: Queue) -> Answer:
    rows = queue.reservations()
    columns: Columns = {
        "reservation": "reservation",
        "pool": "pool",
        ">GPUs": "gpus",
        "from": lambda row: format_time(row["at_s"]),
        "until": lambda row: "" if row["until_s"] is None else format_time(row["until_s"]),
        "for": lambda row: row["job_id"] or row["tenant"] or "nobody",
    }
    return Answer({"reservations": rows}, [Table.of("reservations", rows, columns)], rows)


def cancel_reservation(args: Namespace, queue: Queue) -> Answer:
    queue.cancel_reservation(args.reservation)
    return Answer({"cancelled": args.reservation}, notes=[f"{args.reservation} is cancelled"])


def config(args: Namespace, queue: Queue) -> Answer:
    changes = {key: _setting(value) for key, value in args.changes}
    if changes:
        queue.configure(**changes)
    with queue.store.read() as connection:
        settings = cluster_tables.config(connection)
    lines = (f"{key} = {json.dumps(value)}" for key, value in settings.items())
    return Answer(settings, text_of(lines))


def _setting(value: str) -> Any:
    if value == "":
        return None
    try:
        return json.loads(value)
    except ValueError:
        return value


def purge(args: Namespace, queue: Queue) -> Answer:
    number = queue.purge(args.older_than * DAY_S)
    return Answer({"forgotten": number}, notes=[f"{number} jobs forgotten"])


ADOPTED = {
    "running": "runs on",
    "done": "has ended and is done",
    "stopped": "was told to stop: no job of this queue runs there so",
    "lost": "does not run: it is started again when a round gives it GPUs",
}


def adopt(args: Namespace, queue: Queue) -> Answer:
    from allocator.cli.queue.run import make_executor
    from allocator.controller.adopt import adopt as adopt_state
    from allocator.executors.ledger_executor import LedgerExecutor

    with queue.store.read() as connection:
        known = identity.state(connection)
    kind = args.executor or (known.kind if known is not None else None)
    if kind is None:
        raise UsageError(
            "no controller has acted on this queue yet: name the executor with --executor"
        )
    folder = args.state
    if folder is None and known is not None and known.kind == kind:
        folder = known.place.partition(":")[2]
    executor = make_executor(kind, queue.store, folder, 0.0)
    if not isinstance(executor, LedgerExecutor):
        raise UsageError(f'executor "{kind}" keeps no ledger that a queue can be compared with')
    adopted = adopt_state(queue.store, executor, queue.clock())
    rows = {name: [*jobs] for name, jobs in pick(adopted, *ADOPTED).items()}
    lines = (f"{text(job)}: {words}" for name, words in ADOPTED.items() for job in rows[name])
    next_token = adopted.token + 1
    return Answer(
        {"token": adopted.token, **rows},
        text_of(lines),
        notes=[
            f"the queue and the state agree; the next controller goes on with token {next_token}"
        ],
    )


def add_token(args: Namespace, queue: Queue) -> Answer:
    with queue.store.write() as connection:
        now = queue.clock()
        end = None if args.expires_days is None else now + args.expires_days * DAY_S
        token, secret = tokens.add(connection, now, args.name, args.role, args.tenant, end)
    return Answer(
        {"token": secret, **vars(token)},
        f"{secret}\n",
        notes=[f"token {token.id}; it is shown this once, and the queue keeps its hash only"],
    )


def list_tokens(args: Namespace, queue: Queue) -> Answer:
    with queue.store.read() as connection:
        stored = tokens.list_tokens(connection)
        now = queue.clock()
    rows = [{**vars(token), "valid": token.is_valid(now)} for token in stored]
    shown = [
        {
            **pick(token, "id", "name", "role", "tenant"),
            "age": duration(round(now - token.created_s)),
            "note": _describe_token(token, now),
        }
        for token in stored
    ]
    return Answer({"tokens": rows}, [Table.of("tokens", shown)])


def _describe_token(token: tokens.Token, now: float) -> str:
    if token.revoked_s is not None:
        return "revoked"
    if token.expires_s is None:
        return ""
    left = token.expires_s - now
    return f"ends in {duration(left)}" if left > 0 else "ended"


def revoke_token(args: Namespace, queue: Queue) -> Answer:
    with queue.store.write() as connection:
        ended = tokens.revoke(connection, queue.clock(), args.id)
    if args.format != "json":
        note(f"token {ended.id} of {text(ended.name)} is revoked")
    return Answer(vars(ended))


def replace_cluster(args: Namespace, queue: Queue) -> Answer:
    with queue.store.write() as connection:
        warnings = snapshot.replace_cluster(connection, read_snapshot(args.source), queue.clock())
    warn(warnings)
    return Answer({"source": args.source, "warnings": list(warnings)})


def export(args: Namespace, queue: Queue) -> Answer:
    from allocator.io.snapshots import write_snapshot

    folder = write_snapshot(queue.snapshot(), args.folder)
    return Answer({"folder": str(folder)}, f"{folder}\n")
