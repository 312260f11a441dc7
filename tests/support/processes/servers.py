"""A real HTTP service of a queue, with a token of each role.

with served(tmp_path) as server: server.client("viewer").get("/api/v1/counts")
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from queues import cluster

from allocator.cli.queue.run import make_executor
from allocator.controller.clock import WallClock
from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.domain.snapshot import Snapshot
from allocator.queue import tokens
from allocator.queue.queue import Queue
from allocator.server.options import ServerOptions
from allocator.server.serving import serve

ROOT = Path(__file__).resolve().parents[3]
WAIT_S = 60.0
ROLES = {  # name of a token: role, tenant
    "viewer": ("viewer", ""),
    "vision": ("member", "vision"),
    "speech": ("member", "speech"),
    "operator": ("operator", ""),
}


@dataclass
class Server:
    """A running service; `tokens` by name of ROLES, `log` the lines that it wrote."""

    url: str
    queue: Path
    tokens: Mapping[str, str]
    process: subprocess.Popen[str] | None = None
    log: list[str] = field(default_factory=list)

    def client(self, name: str | None = None, **more: Any) -> httpx.Client:
        """Return a client with the token of the name; None: without one."""
        headers = {} if name is None else {"Authorization": f"Bearer {self.tokens[name]}"}
        client = httpx.Client(base_url=self.url, timeout=WAIT_S, **more)
        client.headers.update(headers)
        return client

    def rows(self) -> list[dict[str, Any]]:
        """Return the lines of the log as JSON."""
        return [json.loads(line) for line in list(self.log)]


def make_queue(
    folder: Path, source: Snapshot | None = None, *, extras: bool = True
) -> tuple[Path, dict[str, str]]:
    """Make a queue with the small cluster, a job of each of two tenants, and a token of each role.

    Pool "b" has a node "n1". Without `extras` there is the source, and the tokens.
    """
    path = folder / "queue.db"
    with Queue.create(path, source if source is not None else cluster()) as queue:
        if extras:
            queue.configure(unknown_tenants="warn")
        for tenant in ("vision", "speech") if extras else ():
            queue.submit(
                job_id=f"{tenant}-1",
                tenant=tenant,
                model="m",
                total_work=1e6,
                max_gpus=4,
                command=["train", f"--of={tenant}"],
                environment={"SECRET": "hidden value"},
            )
        if extras:
            queue.add_nodes("n1", pool="b", gpus=4)
        return path, add_tokens(queue)


def add_tokens(queue: Queue) -> dict[str, str]:
    """Add a token of each role to a queue, and return them by name."""
    with queue.store.write() as connection:
        return {
            name: tokens.add(connection, queue.clock(), name, role, tenant)[1]
            for name, (role, tenant) in ROLES.items()
        }


def decide_rounds(path: Path, count: int = 2) -> None:
    """Decide rounds of a queue, which nobody carries out, so that its journal has plans."""
    with Queue(path) as queue:
        executor = make_executor("files", queue.store, str(path.with_suffix(".actor")), 0.0)
        for _ in range(count):
            Controller(queue.store, executor, WallClock(), ControllerOptions()).run(once=True)


@contextmanager
def served(
    folder: Path,
    *,
    source: Snapshot | None = None,
    rounds: int = 0,
    extras: bool = True,
    **options: Any,
) -> Iterator[Server]:
    """Serve a new queue until the end of the block, from a thread of this process."""
    path, made = make_queue(folder, source, extras=extras)
    decide_rounds(path, rounds)
    with serving(path, made, **options) as server:
        yield server


@contextmanager
def serving(path: Path, made: Mapping[str, str], **options: Any) -> Iterator[Server]:
    """Serve an existing queue until the end of the block, from a thread of this process.

    The options are those of ServerOptions. A process of its own would import everything anew.
    """
    server = Server("", path, made)
    is_up = threading.Event()
    built: list[uvicorn.Server] = []

    class Log(io.StringIO):
        def write(self, line: str) -> int:
            server.log.append(line)
            if '"serving"' in line:
                server.url = json.loads(line)["url"]
                is_up.set()
            return len(line)

    class KnownServer(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            built.append(self)

    chosen = ServerOptions(**options)
    thread = threading.Thread(
        target=serve, args=(str(path), "127.0.0.1", 0, chosen), kwargs={"log": Log()}, daemon=True
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn, "Server", KnownServer)
        thread.start()
        assert is_up.wait(WAIT_S), server.log
    try:
        yield server
    finally:
        built[0].should_exit = True
        thread.join(WAIT_S)


@contextmanager
def serving_process(
    path: Path,
    made: Mapping[str, str],
    *options: str,
    command: Sequence[str] = ("serve",),
    listen: str = "--listen",
) -> Iterator[Server]:
    """Serve an existing queue until the end of the block, by the command line."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "allocator", *command, str(path)),
            *(listen, "127.0.0.1:0", *options),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    server = Server("", path, made, process)
    is_up = threading.Event()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            server.log.append(line)
            if '"serving"' in line:
                server.url = json.loads(line)["url"]
                is_up.set()
        is_up.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        is_up.wait(WAIT_S)
        assert server.url, "".join(server.log)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(WAIT_S)
        finally:
            process.kill()
            reader.join()
            if process.stderr is not None:
                process.stderr.close()


@contextmanager
def serve_metrics(answer: str) -> Iterator[str]:
    """A server of metrics that answers well, at another path or host, without an end, a byte at a
    time, or with an error.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if answer in ("moved", "elsewhere") and self.path == "/metrics":
                port = server.server_address[1]
                address = "127.0.0.1" if answer == "moved" else "127.0.0.2"
                self.send_response(307)
                self.send_header("Location", f"http://{address}:{port}/metrics/")
                self.end_headers()
                return
            self.send_response(500 if answer == "error" else 200)
            self.end_headers()
            try:
                if answer in ("good", "error", "moved", "elsewhere"):
                    self.wfile.write(b"steps 7\n")
                while answer == "endless":
                    self.wfile.write(b"x" * 65536)
                while answer == "slow":
                    self.wfile.write(b"x")
                    self.wfile.flush()
                    time.sleep(0.02)
            except OSError:
                return

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()
