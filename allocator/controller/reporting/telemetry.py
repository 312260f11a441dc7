"""Telemetry of a controller: one JSON line per event, and metrics in the text format of Prometheus.

Lines hold names of jobs, numbers and words. They never hold commands or environments, which may
contain secrets.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from allocator.io.plans import write_files
from allocator.objects import Record

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

    from prometheus_client import Metric

    from allocator.domain.plan import Plan
    from allocator.domain.problem import Problem

PREFIX = "allocator_"
AWAY = ("not_now", "database_unavailable")  # what is asked less and less often while it lasts
MAX_TEXTS = 20
EXECUTOR_FAULTS = ("executor_failed", "not_now", "stale_order")
FAULTS = {"database_unavailable": "database_faults_total", "lease_lost": "lease_lost_total"}
# upper limits of the histogram of decision times, in seconds
BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
KINDS = {"decision_seconds": "histogram"}
HELP = {
    "rounds_total": "Rounds since this controller started, by outcome.",
    "changes_total": "Jobs that plans started, resized, moved or paused.",
    "ended_total": "Allocations that ended, by how.",
    "executor_faults_total": "Calls that the executor could not carry out.",
    "database_faults_total": "Looks that the database cut short.",
    "lease_lost_total": "Times that another controller took over.",
    "decision_seconds": "Wall seconds to decide and audit a round.",
    "jobs": "Jobs of the queue, by state.",
    "pool_gpus": "GPUs of a pool that may be used.",
    "pool_gpus_used": "GPUs of a pool that jobs hold.",
    "round_value": "Value of the last plan.",
    "round_gap": "Proven relative gap of the last plan.",
    "last_round_timestamp_seconds": "When the last round was decided.",
    "in_charge": "1 while this controller holds the lease.",
    "learned_rates": "Rates corrected by what was observed.",
    "longrun_spent_dollars": "Dollars booked on a long-run budget, reserved GPUs not counted; no"
    " tenant: that of the whole cluster.",
    "longrun_balance_dollars": "Its income minus what was booked.",
    "longrun_remaining_dollars": "Dollars left until its date, or the end of its window.",
    "longrun_runs_out_timestamp_seconds": "When they are gone at the recent rate, if that is"
    " before.",
    "longrun_dollar_price": "Value of a dollar in weighted hours, by its books.",
    "tenant_gpu_hours_limit": "Most GPU-hours of a tenant in a calendar month.",
    "tenant_gpu_hours_used": "Its GPU-hours of the present month.",
    "tenant_gpu_hours_run_out_timestamp_seconds": "When the limit is reached at the mean rate of"
    " the month, if that is within it.",
    "overhead_seconds": "Wall seconds of the last round besides its decision.",
}
"""What each metric says. Totals are counters, decision times a histogram, the others gauges."""
LONGRUN = {
    "longrun_spent_dollars": "spent",
    "longrun_balance_dollars": "balance",
    "longrun_remaining_dollars": "remaining",
    "longrun_runs_out_timestamp_seconds": "runs_out_s",
    "longrun_dollar_price": "dollar_price",
}
"""Gauges of a long-run budget, and the key of each in the report of the budget."""
MONTHS = {
    "tenant_gpu_hours_limit": "gpu_hours_per_month",
    "tenant_gpu_hours_used": "gpu_hours_used",
    "tenant_gpu_hours_run_out_timestamp_seconds": "runs_out_s",
}
"""Gauges of the GPU-hours of a tenant, and the key of each in their report."""

MOST_CONNECTIONS = 16  # connections to the metrics port at once; more are refused
IDLE_S = 5.0  # seconds after which a connection that sends nothing is closed
Label = tuple[tuple[str, str], ...]


class Metrics:
    """Numbers by name and labels: a collector of prometheus-client that any thread may read.

    The instruments of the library show a gauge as 0 before its first value, write the bucket
    `le="1"` as `le="1.0"` and add the time of creation of each counter; this class does not.
    """

    def __init__(self) -> None:
        self._values: dict[str, dict[Label, float]] = {}
        self._lock = threading.Lock()

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        with self._lock:
            self._values.setdefault(name, {})[tuple(sorted(labels.items()))] = float(value)

    def add(self, name: str, by: float = 1.0, **labels: str) -> None:
        """Increase a counter."""
        with self._lock:
            values = self._values.setdefault(name, {})
            key = tuple(sorted(labels.items()))
            values[key] = values.get(key, 0.0) + by

    def clear(self, name: str) -> None:
        """Remove a gauge with all its labels."""
        with self._lock:
            self._values.pop(name, None)

    def observe(self, name: str, value: float) -> None:
        """Add a value to a histogram."""
        for bucket in BUCKETS:
            self.add(f"{name}_bucket", float(value <= bucket), le=f"{bucket:g}")
        self.add(f"{name}_bucket", 1.0, le="+Inf")
        self.add(f"{name}_sum", value)
        self.add(f"{name}_count")

    def collect(self) -> Iterator[Metric]:
        """Yield each metric that has a value, as prometheus-client reads them."""
        from prometheus_client import Metric

        with self._lock:
            for name, words in HELP.items():
                kind = "counter" if name.endswith("_total") else KINDS.get(name, "gauge")
                metric = Metric(PREFIX + name.removesuffix("_total"), words, kind)
                for part in (name, f"{name}_bucket", f"{name}_sum", f"{name}_count"):
                    for key, value in self._values.get(part, {}).items():
                        metric.add_sample(PREFIX + part, dict(key), value)
                if metric.samples:
                    yield metric

    def text(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        from prometheus_client import generate_latest

        return generate_latest(self).decode()


@dataclass
class _Fault:
    """Something outside that goes on not to answer."""

    since_s: float
    texts: set[str] = field(default_factory=set)
    is_seen: bool = True  # in this step


@dataclass
class Telemetry:
    """Events and metrics of one controller.

    `log` is where JSON lines go, None for nowhere. `path` is the text file with metrics. `clock`
    returns unix seconds. `on_event` is called with every event.
    """

    clock: Callable[[], float]
    log: TextIO | None = None
    path: Path | None = None
    on_event: Callable[[Record], None] | None = None

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self._faults: dict[tuple[str, str], _Fault] = {}  # by name and call

    def event(self, name: str, **fields: Any) -> None:
        """Write one event as a JSON line; a full disk or a closed pipe is ignored."""
        at_s = self.clock()
        row = {"at": _format_time(at_s), "at_s": round(at_s, 3), "event": name, **fields}
        if name == "ended":
            self.metrics.add("ended_total", phase=str(fields.get("phase", "")))
        self.count(name)
        if self.on_event is not None:
            self.on_event(row)
        if self.log is not None:
            with suppress(OSError, ValueError):
                self.log.write(json.dumps(row, default=str) + "\n")
                self.log.flush()

    def count(self, fault: str) -> None:
        """Count a fault; one that goes on is counted each time."""
        if fault in EXECUTOR_FAULTS:
            self.metrics.add("executor_faults_total", kind=fault)
        elif fault in FAULTS:
            self.metrics.add(FAULTS[fault])

    def fault(self, name: str, detail: str, call: str = "") -> None:
        """Report that something outside keeps a step, or a call of it, from being made.

        While it goes on, each new text of it is one event, and at most MAX_TEXTS of them.
        """
        # addresses of objects are new each time
        text = re.sub("0x[0-9a-f]+", "", detail)
        fault = self._faults.setdefault((name, call), _Fault(self.clock()))
        fault.is_seen = True
        if text in fault.texts or len(fault.texts) == MAX_TEXTS:
            self.count(name)
        else:
            fault.texts.add(text)
            self.event(name, **({"call": call} if call else {}), detail=detail)

    def end_faults(self) -> None:
        """Report the end of each fault that was not seen since the last call of this."""
        for (name, call), fault in list(self._faults.items()):
            if not fault.is_seen:
                del self._faults[name, call]
                lasted_s = round(self.clock() - fault.since_s, 1)
                self.event("over", of=name, **({"call": call} if call else {}), lasted_s=lasted_s)
            fault.is_seen = False

    def is_away(self) -> bool:
        """Return whether the last step met an executor or a database that does not answer."""
        return any(name in AWAY for name, _ in self._faults)

    def round(self, number: int, problem: Problem, plan: Plan, took_s: float, changes: int) -> None:
        """Report a round that has a plan."""
        m = self.metrics
        m.add("rounds_total", outcome="decided")
        m.add("changes_total", changes)
        m.observe("decision_seconds", took_s)
        m.set("round_value", plan.objective_value)
        m.set("round_gap", plan.gap)
        m.set("last_round_timestamp_seconds", problem.now_s)
        self.event(
            "round",
            number=number,
            jobs=len(problem.jobs),
            changes=changes,
            value=plan.objective_value,
            bound=plan.bound,
            gap=plan.gap,
            status=plan.status,
            termination=plan.termination,
            fallback=plan.fallback,
            decide_s=round(took_s, 4),
            digest=plan.digest,
        )

    def failed(self, number: int, words: str, took_s: float) -> None:
        """Report a round that has no plan."""
        self.metrics.add("rounds_total", outcome="failed")
        self.metrics.observe("decision_seconds", took_s)
        self.event("round_failed", number=number, reason=words, decide_s=round(took_s, 4))

    def cluster(self, states: Mapping[str, int], pools: Mapping[str, tuple[int, int]]) -> None:
        """Report the jobs by state, and (GPUs, used GPUs) by pool."""
        for name in ("jobs", "pool_gpus", "pool_gpus_used"):
            self.metrics.clear(name)
        for state, number in states.items():
            self.metrics.set("jobs", number, state=state)
        for pool, (gpus, used) in pools.items():
            self.metrics.set("pool_gpus", gpus, pool=pool)
            self.metrics.set("pool_gpus_used", used, pool=pool)

    def tenants(self, gauges: Mapping[str, str], report: Mapping[str, Record]) -> None:
        """Report what is booked on tenants: LONGRUN or MONTHS, and the values by tenant."""
        for name, key in gauges.items():
            self.metrics.clear(name)
            for tenant, values in report.items():
                if values[key] is not None:
                    self.metrics.set(name, values[key], **({"tenant": tenant} if tenant else {}))

    def write(self) -> None:
        """Replace the text file in one step; a collector of another user can read it."""
        if self.path is None:
            return
        try:
            write_files(self.path.parent, {self.path.name: self.metrics.text()})
            os.chmod(self.path, 0o644)
        except Exception as error:
            self.event("metrics_failed", detail=str(error))


def _format_time(at_s: float) -> str:
    try:
        return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return ""


def serve(metrics: Metrics, address: str, port: int) -> ThreadingHTTPServer:
    """Answer GET /metrics at an address, from a thread that ends with the process.

    Port 0 takes any free port. Raises OSError.

    At most MOST_CONNECTIONS are open at once, and each is closed after IDLE_S without a request.
    Otherwise open connections could use up the files that a process may open, and the controller
    could no longer open its database.
    """
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    free = threading.BoundedSemaphore(MOST_CONNECTIONS)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128  # a burst of connections is refused at once, not a second later

        def verify_request(self, request: Any, client_address: Any) -> bool:
            return free.acquire(blocking=False)  # refused: the connection is closed at once

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            try:
                super().process_request_thread(request, client_address)
            finally:
                free.release()

        def handle_error(self, request: Any, client_address: Any) -> None:
            # a client disconnected; this is not logged
            return

    class Handler(BaseHTTPRequestHandler):
        timeout = IDLE_S

        def do_GET(self) -> None:
            is_metrics = self.path.partition("?")[0] == "/metrics"
            body = metrics.text().encode() if is_metrics else b"see /metrics\n"
            self.send_response(200 if is_metrics else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = Server((address, port), Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def open_log(path: Path) -> TextIO:
    """Open a log to append to; its owner and group may read a new one. Raises OSError."""
    return os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640), "a", encoding="utf-8"
    )
