"""Put load on the HTTP service next to a controller, and measure what becomes of both.

    python scripts/benchmarks/bench_service.py [--minutes 10] [--alone 10] [--jobs 1000] > table.md

A controller decides rounds of a queue whose jobs all run on simulated machines, on the real clock:
first alone, then next to `allocator serve` with 200 clients that follow the events and read, and 20
that write. A writer submits a job by a key, submits it again, changes it, and cancels it, so that
the rounds stay as large as before. Everything shares the cores of one machine, the clients too.

Measured are submissions that were lost or doubled, the time of reads, by how much rounds are late,
gaps in the events of any follower, and the memory of the service by minute. Standard output is
Markdown.
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

VIEWERS, WRITERS = 200, 20
READ_S, WRITE_S = 10.0, 1.0  # seconds between two requests of a viewer, of a writer
SETTLE_ROUNDS = 3  # rounds that are not counted: the first ones start all jobs
TOKENS = 10  # of the viewers
READS = ("/api/v1/counts", "/api/v1/jobs?limit=50", "/api/v1/pools", "/api/v1/rounds?limit=20")


class RealClock:
    """The clock of simulated machines that live in real time."""

    offset_s = 0.0

    @property
    def now_s(self) -> float:
        """The time in unix seconds."""
        return time.time()

    def now(self) -> float:
        """Return the time in unix seconds."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(max(0.0, seconds))


def make_queue(path: str, jobs: int, seed: int) -> dict[str, list[str]]:
    """Make a queue of jobs that all have GPUs, and return the tokens of viewers and writers."""
    from allocator.io.snapshots import parse_snapshot
    from allocator.queue import tokens
    from allocator.queue.queue import Queue

    draw = np.random.default_rng(seed)
    rates = "".join(f"m{i},A,{k},{k**0.9 * (1 + i):.6g}\n" for i in range(5) for k in (1, 2, 4))
    source = parse_snapshot(
        "load",
        {
            "jobs.csv": b"job_id,model,submitted_s,remaining_work,max_gpus\n",
            "pools.csv": f"pool,gpu_type,gpus,price_per_gpu_hour\na,A,{jobs * 3},2\n".encode(),
            "tenants.csv": b"tenant,weight\nx,1\ny,2\nz,1\n",
            "rates.csv": f"model,gpu_type,gpus,work_per_s\n{rates}".encode(),
        },
    )
    with Queue.create(path, source) as queue:
        queue.submit_many(
            {
                "job_id": f"job-{i:05d}",
                "model": f"m{int(draw.integers(5))}",
                "tenant": "xyz"[i % 3],
                "total_work": float(draw.uniform(1e6, 1e7)),
                "max_gpus": int(draw.choice([1, 2, 4])),
            }
            for i in range(jobs)
        )
        made: dict[str, list[str]] = {"viewer": [], "operator": []}
        with queue.store.write() as connection:
            for role, number in (("viewer", TOKENS), ("operator", WRITERS)):
                for i in range(number):
                    _, secret = tokens.add(connection, time.time(), f"{role}-{i}", role)
                    made[role].append(secret)
    return made


def run_controller(path: str, jobs: int, every_s: float) -> None:
    """Decide rounds for ever, and print the times of each, in a process of its own."""
    from allocator.controller.controller import Controller
    from allocator.controller.options import ControllerOptions
    from allocator.queue.queue import Queue

    sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
    from fakes.simulated_executor import MachineBehaviour, SimulatedExecutor, SimulatedMachines

    clock: Any = RealClock()
    queue = Queue(path)
    behaviour = MachineBehaviour(rate=lambda order: order.gpus**0.9)
    machines = SimulatedMachines({"a": jobs * 3}, clock, behaviour)
    options = ControllerOptions(every_s=every_s, poll_s=1.0, stall_s=1e12)
    controller = Controller(queue.store, SimulatedExecutor(machines), clock, options)
    while True:
        begin, cpu = time.time(), time.process_time()
        outcome = controller.try_step()
        if outcome is not None:
            end = time.time()
            row = {"begin": begin, "end": end, "cpu": time.process_time() - cpu}
            print(json.dumps(row), flush=True)
        time.sleep(max(0.0, options.poll_s or 1.0))


@dataclass
class Load:
    """What the clients have seen."""

    reads_s: list[float] = field(default_factory=list)
    writes_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    submitted: dict[str, str] = field(default_factory=dict)  # job_id by key, as confirmed
    doubled: list[str] = field(default_factory=list)
    events: int = 0
    gaps: int = 0
    resets: int = 0


class Client:
    """A connection that is kept, with a token."""

    def __init__(self, port: int, token: str) -> None:
        self.port, self.token = port, token
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def send(self, method: str, path: str, body: Any = None) -> asyncio.StreamReader:
        """Send a request, over a new connection where the old one is closed."""
        if self.writer is None or self.reader is None or self.reader.at_eof():
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self.writer.write(head.encode() + content)
        await self.writer.drain()
        return self.reader

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and JSON of the answer; a connection that was closed is opened again."""
        try:
            return await self._ask(method, path, body)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.close()
            return await self._ask(method, path, body)

    async def _ask(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        reader = await self.send(method, path, body)
        status, headers = await read_head(reader)
        content = await reader.readexactly(int(headers["content-length"]))
        return status, json.loads(content)

    def close(self) -> None:
        """Close the connection."""
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Return status and headers of an answer."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return int(lines[0].split()[1]), {name.lower(): value.strip() for name, _, value in pairs}


async def follow(client: Client, load: Load) -> None:
    """Follow the events, and count those that are missing between two numbers."""
    reader = await client.send("GET", "/api/v1/events")
    await read_head(reader)
    last = None
    while line := await reader.readline():
        if line.startswith(b"id: "):
            number = int(line.rpartition(b"-")[2])
            load.gaps += last is not None and number > last + 1
            last, load.events = number, load.events + 1
        load.resets += line == b"event: reset\n"


async def view(client: Client, load: Load, first_s: float, number: int) -> None:
    """Read again and again."""
    await asyncio.sleep(first_s)
    while True:
        start = time.perf_counter()
        status, _ = await client.ask("GET", READS[number % len(READS)])
        load.reads_s.append(time.perf_counter() - start)
        load.statuses[status] += 1
        number += 1
        await asyncio.sleep(max(0.0, READ_S - (time.perf_counter() - start)))


async def write(client: Client, load: Load, name: str, first_s: float) -> None:
    """Submit jobs, each twice, change them and cancel them."""
    await asyncio.sleep(first_s)
    number = 0

    async def act(method: str, path: str, body: Any) -> Any:
        start = time.perf_counter()
        status, answer = await client.ask(method, path, body)
        load.writes_s.append(time.perf_counter() - start)
        load.statuses[status] += 1
        await asyncio.sleep(max(0.0, WRITE_S - (time.perf_counter() - start)))
        return answer

    while True:
        number += 1
        key = f"{name}-{number}"
        body = {"key": key, "model": "m1", "total_work": 1e6, "max_gpus": 2, "tenant": "x"}
        names = [(await act("POST", "/api/v1/jobs", body)).get("job_id") for _ in range(2)]
        if names[0] is None:
            continue
        load.submitted[key] = names[0]
        if names[0] != names[1]:
            load.doubled.append(key)
        await act("PATCH", f"/api/v1/jobs/{names[0]}", {"weight": 2})
        await act("POST", f"/api/v1/jobs/{names[0]}/cancel", None)


async def press(port: int, made: dict[str, list[str]], seconds: float, pid: int) -> Any:
    """Run all clients for some time; return what they saw, and the memory of the service.

    The memory is in MB, at the start and at the end of each minute.
    """
    load, memory = Load(), [read_memory_mb(pid)]
    tasks = []
    for i in range(VIEWERS):
        token = made["viewer"][i % TOKENS]
        tasks.append(asyncio.create_task(follow(Client(port, token), load)))
        tasks.append(asyncio.create_task(view(Client(port, token), load, READ_S * i / VIEWERS, i)))
    for i, token in enumerate(made["operator"]):
        tasks.append(
            asyncio.create_task(write(Client(port, token), load, f"w{i}", WRITE_S * i / WRITERS))
        )
    end = time.monotonic() + seconds
    while (left_s := end - time.monotonic()) > 0:
        await asyncio.sleep(min(60.0, left_s))
        memory.append(read_memory_mb(pid))
        for task in tasks:
            if task.done() and task.exception() is not None:
                raise task.exception() or RuntimeError
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return load, memory


def read_memory_mb(pid: int) -> float:
    """Return the memory of a process in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def read_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Rounds:
    """Rounds of one phase: seconds from tick to end, CPU seconds, and between ends."""

    late_s: list[float]
    cpu_s: list[float]
    periods_s: list[float]


def measure_rounds(rows: list[dict[str, float]], every_s: float) -> Rounds:
    """Return the rounds of a phase; ticks are every `every_s`, as early as the rounds allow."""
    first = min(row["begin"] - every_s * i for i, row in enumerate(rows))
    ends = [row["end"] for row in rows]
    return Rounds(
        [row["end"] - first - every_s * i for i, row in enumerate(rows)],
        [row["cpu"] for row in rows],
        [after - before for before, after in pairwise(ends)],
    )


def read_rounds(process: subprocess.Popen[str], seconds: float, skip: int = 0) -> list[Any]:
    """Return the rounds that a controller reports within some time."""
    assert process.stdout is not None
    rows: list[Any] = []
    end: float | None = None
    os.set_blocking(process.stdout.fileno(), False)
    while end is None or time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit("the controller has ended")
        for line in process.stdout:
            rows.append(json.loads(line))
        if end is None and len(rows) >= skip:
            rows, end = rows[skip:], time.monotonic() + seconds
        time.sleep(0.2)
    return rows


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="with the service")
    parser.add_argument("--alone", type=float, default=10.0, help="minutes before it, without it")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between rounds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--controller", metavar="QUEUE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.controller:
        run_controller(args.controller, args.jobs, args.every)
        return
    seconds = 60 * args.minutes
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "queue.db")
        made = make_queue(path, args.jobs, args.seed)
        controller = subprocess.Popen(
            [
                *(sys.executable, __file__, "--controller", path),
                *("--jobs", str(args.jobs), "--every", str(args.every)),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            alone = measure_rounds(
                read_rounds(controller, 60 * args.alone, SETTLE_ROUNDS), args.every
            )
            service = subprocess.Popen(
                [sys.executable, "-m", "allocator", "serve", path, "--listen", "127.0.0.1:0"],
                stderr=subprocess.PIPE,
                text=True,
            )
            try:
                report(args, path, made, controller, service, seconds, alone)
            finally:
                service.send_signal(signal.SIGTERM)
                service.wait()
        finally:
            controller.kill()
            controller.wait()


def report(
    args: argparse.Namespace,
    path: str,
    made: dict[str, list[str]],
    controller: subprocess.Popen[str],
    service: subprocess.Popen[str],
    seconds: float,
    alone: Rounds,
) -> None:
    """Measure the second phase, and print both."""
    import threading

    from allocator.queue.queue import Queue

    assert service.stderr is not None
    port = int(json.loads(service.stderr.readline())["url"].rpartition(":")[2])
    log = iter(service.stderr.readline, "")
    threading.Thread(target=lambda: [None for _ in log], daemon=True).start()
    cpu_s = read_cpu_s(service.pid)
    found: list[Any] = []
    pressing = threading.Thread(
        target=lambda: found.extend(asyncio.run(press(port, made, seconds, service.pid)))
    )
    read_rounds(controller, 0.0)  # rounds of the start of the service count for nobody
    pressing.start()
    loaded = measure_rounds(read_rounds(controller, seconds), args.every)
    pressing.join()
    load, memory = found
    cpu_s = read_cpu_s(service.pid) - cpu_s
    with Queue(path) as queue:
        kept = Counter(job.submission_key for job in queue.jobs() if job.submission_key is not None)
        running = queue.counts()["running"]
    lost = [key for key in load.submitted if kept[key] != 1]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python")
    print(f"{platform.python_version()}, seed {args.seed}, {time.strftime('%Y-%m-%d')}:")
    print(f"{args.alone:g} minutes alone, then {args.minutes:g} minutes with the service,")
    print(f"{running} running jobs, a round every {args.every:g} s,")
    print(f"{VIEWERS} followers that read every {READ_S:g} s, {WRITERS} writers.\n")
    print("| rounds | number | tick to end, median | p95 | CPU median | between ends, median |")
    print("|---|---|---|---|---|---|")
    for name, one in (("alone", alone), ("with the service", loaded)):
        print(
            f"| {name} | {len(one.late_s)} | {statistics.median(one.late_s):.2f} s "
            f"| {np.quantile(one.late_s, 0.95):.2f} s | {statistics.median(one.cpu_s):.2f} s "
            f"| {statistics.median(one.periods_s or [0.0]):.2f} s |"
        )
    print("\n| service | |\n|---|---|")
    rows = {
        "submissions confirmed": f"{len(load.submitted)}, each sent twice",
        "lost, doubled": f"{len(lost)}, {len(load.doubled)}",
        "reads": f"{len(load.reads_s)}: median {1e3 * statistics.median(load.reads_s):.0f} ms, "
        f"p99 {1e3 * np.quantile(load.reads_s, 0.99):.0f} ms",
        "changes": f"{len(load.writes_s)}: median {1e3 * statistics.median(load.writes_s):.0f} ms, "
        f"p99 {1e3 * np.quantile(load.writes_s, 0.99):.0f} ms",
        "answers by status": ", ".join(f"{n} x {s}" for s, n in sorted(load.statuses.items())),
        "events received": f"{load.events}, {load.gaps} gaps, {load.resets} resets",
        "memory, MB": f"{memory[0]:.0f} at the start; at the end of each minute "
        + ", ".join(f"{size:.0f}" for size in memory[1:]),
        "CPU": f"{cpu_s / seconds:.2f} cores",
    }
    for what, value in rows.items():
        print(f"| {what} | {value} |")


if __name__ == "__main__":
    main()
