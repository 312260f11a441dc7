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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from queues import cluster
from waiting import wait_for

from allocator.cli.queue.run import make_executor
from allocator.controller.clock import WallClock
from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
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

    def note(self, line: str) -> int:
        """Keep a line of the log, the first of which says where the service is."""
        self.log.append(line)
        if '"serving"' in line:
            self.url = json.loads(line)["url"]
        return len(line)

    def rows(self) -> list[dict[str, Any]]:
        """Return the lines of the log as JSON."""
        return [json.loads(line) for line in list(self.log)]


def make_queue(folder: Path) -> tuple[Path, dict[str, str]]:
    """Make a queue with the small cluster, a job of each of two tenants, and a token of each role.

    Pool "b" has a node "n1".
    """
    path = folder / "queue.db"
    with Queue.create(path, cluster()) as queue:
        queue.configure(unknown_tenants="warn")
        for tenant in ("vision", "speech"):
            queue.submit(
                job_id=f"{tenant}-1",
                tenant=tenant,
                model="m",
                total_work=1e6,
                max_gpus=4,
                command=["train", f"--of={tenant}"],
                environment={"SECRET": "hidden value"},
            )
        queue.add_nodes("n1", pool="b", gpus=4)
        return path, add_tokens(queue)


def add_tokens(queue: Queue) -> dict[str, str]:
    """Add a token of each role to a queue, and return them by name."""
    with queue.store.write() as connection:
        return {
            name: tokens.add(connection, queue.clock(), name, role, tenant)[1]
            for name, (role, tenant) in ROLES.items()
        }


def decide_rounds(path: Path, count: int) -> None:
    """Decide rounds of a queue, which nobody carries out, so that its journal has plans."""
    with Queue(path) as queue:
        executor = make_executor("files", queue.store, str(path.with_suffix(".actor")), 0.0)
        for _ in range(count):
            Controller(queue.store, executor, WallClock(), ControllerOptions()).run(once=True)


@contextmanager
def served(folder: Path, rounds: int = 0, **options: Any) -> Iterator[Server]:
    """Serve a new queue until the end of the block, from a thread of this process."""
    path, made = make_queue(folder)
    decide_rounds(path, rounds)
    with serving(path, made, **options) as server:
        yield server


@contextmanager
def serving(path: Path, made: Mapping[str, str], **options: Any) -> Iterator[Server]:
    """Serve an existing queue until the end of the block, from a thread of this process.

    The options are those of ServerOptions. A process of its own would import everything anew.
    """
    server = Server("", path, made)
    built: list[uvicorn.Server] = []

    class Log(io.StringIO):
        def write(self, line: str) -> int:
            return server.note(line)

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
        wait_for(lambda: server.url, WAIT_S)
    try:
        yield server
    finally:
        built[0].should_exit = True
        thread.join(WAIT_S)


@contextmanager
def serving_process(path: Path, made: Mapping[str, str], *words: str) -> Iterator[Server]:
    """Serve an existing queue until the end of the block, by the command line.

    The words are those of `allocator serve`, unless others are given.
    """
    words = words or ("serve", str(path), "--listen", "127.0.0.1:0")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "allocator", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    server = Server("", path, made, process)
    reader = threading.Thread(target=lambda: [*map(server.note, process.stderr or ())])
    reader.start()
    try:
        wait_for(lambda: server.url or process.poll() is not None, WAIT_S)
        assert server.url, "".join(server.log)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(WAIT_S)
        finally:
            process.kill()
            reader.join()
            process.communicate()


@contextmanager
def serve_metrics(answer: str) -> Iterator[str]:
    """A server of metrics that answers well, at another path or host, without an end, a byte at a
    time, or with an error.
    """
    address = {"moved": "127.0.0.1", "elsewhere": "127.0.0.2"}.get(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if address and self.path == "/metrics":
                self.send_response(307)
                port = server.server_address[1]
                self.send_header("Location", f"http://{address}:{port}/metrics/")
                self.end_headers()
                return
            self.send_response(500 if answer == "error" else 200)
            self.end_headers()
            piece = {"endless": b"x" * 65536, "slow": b"x"}.get(answer, b"")
            with suppress(OSError):
                self.wfile.write(piece or b"steps 7\n")
                while piece:
                    self.wfile.write(piece)
                    time.sleep(0.02 if answer == "slow" else 0.0)

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
