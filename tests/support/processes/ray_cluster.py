"""A real Ray cluster on this machine: a head, and a raylet for each of some nodes with pretended
GPUs.

    ray = shared_ray()                    one for all tests of this run, started by the first one
    ray.call("kill_node", "s1")

A test has it alone until it ends, and gets it whole: all nodes up, no job, all GPUs free.

It runs in a process of its own, so that Ray's warnings are not those of the tests, and ends when
no test process is left that is connected to it, however they end. Nothing is asked of the internet.

    python ray_cluster.py FOLDER          the process itself
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from machine import need_packages
from slurm_cluster import free_ports
from waiting import PATIENCE_S, marked, wait_for

from allocator.clusters.ray.api import RayApi, RayRefused, RayUnreachable
from allocator.clusters.ray.resources import read_holdings, read_nodes

NODES = {  # pool and GPUs of each node; tests that hurt nodes have pools of their own
    "n1": ("a", 16),
    "n2": ("a", 16),
    "s1": ("s", 4),
    "s2": ("s", 4),
    "s3": ("s", 8),
}
MARK = "ALLOCATOR_TEST_RAY"  # variable of every process of the cluster
MEMORY = 80 * 2**20  # bytes of the object store of a node
STOP_S = 10  # seconds that Ray itself gives a job that it stops
START_S = 300.0
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_S),
    "RAY_DEDUP_LOGS": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_worker_niceness": "5",
}


class RayCluster:
    """The cluster, as test processes see it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._connection: Connection[Any, Any] = Client(str(folder / "socket"), "AF_UNIX")
        self._lock = threading.Lock()
        self._is_kept = False
        self._users = os.open(folder / "users", os.O_CREAT | os.O_RDWR)  # locked by who has it
        self.address: str = self.call("address")

    def call(self, name: str, *arguments: Any) -> Any:
        """Have the process of the cluster do something: a method of `_Server`."""
        with self._lock:
            self._connection.send((name, arguments))
            is_done, value = self._connection.recv()
        assert is_done, value
        return value

    def keep(self) -> None:
        """Have the cluster alone, and whole, until `let_go`."""
        if not self._is_kept:
            fcntl.flock(self._users, fcntl.LOCK_EX)
            self._is_kept = True
            self.call("start_all")
            wait_for(self._is_whole, START_S, 0.2)

    def let_go(self) -> None:
        """Let the next test have it."""
        fcntl.flock(self._users, fcntl.LOCK_UN)
        self._is_kept = False

    def _is_whole(self) -> bool:
        """Stop what still runs; return whether nothing did, and all nodes are there and free."""
        api = RayApi(self.address)
        try:
            left = [
                str(job["submission_id"])
                for job in api.list_records("jobs")
                if job["submission_id"] and job["status"] in ("PENDING", "RUNNING")
            ]
            for name in left:
                api.stop(name)
            nodes = [node.name for node in read_nodes(api.list_records("nodes"))]
            lists = map(api.list_records, ("actors", "placement_groups", "tasks"))
            return not left and nodes == sorted(NODES) and not [*read_holdings(*lists)]
        except (RayUnreachable, RayRefused):
            return False

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """Halt the dashboard."""
        self.call("halt_dashboard")
        try:
            yield
        finally:
            self.call("continue_dashboard")


class _Server:
    """What the process of the cluster does when it is asked."""

    def __init__(self, folder: Path) -> None:
        from ray._common.utils import get_default_ray_temp_dir
        from ray.cluster_utils import Cluster

        self.folder = folder
        # Ray writes the address of the cluster there, and does not make the folder
        Path(get_default_ray_temp_dir()).mkdir(parents=True, exist_ok=True)
        head = {
            "num_cpus": 0,
            "include_dashboard": True,
            "dashboard_port": free_ports(1)[0],
            # by default 52365, which another cluster of this machine may have
            "dashboard_agent_listen_port": free_ports(1)[0],
        }
        place = {"temp_dir": str(folder / "t"), "object_store_memory": MEMORY}
        self.cluster = Cluster(initialize_head=True, head_node_args=head | place)
        self.nodes: dict[str, Any] = {}
        self.start_all()

    def start_all(self) -> None:
        """Have every process run."""
        self.continue_dashboard()
        for name in NODES:
            self.start_node(name)

    def address(self) -> str:
        return f"http://{self.cluster.webui_url}"

    def start_node(self, name: str) -> None:
        """Start a raylet, again if Ray gives it up, as it does after 30 s."""
        if name in self.nodes:
            return
        pool, gpus = NODES[name]
        for tries_left in (4, 3, 2, 1, 0):
            try:
                node = self.cluster.add_node(
                    wait=False,
                    num_cpus=8,
                    num_gpus=gpus,
                    object_store_memory=MEMORY,
                    node_name=name,
                    labels={"allocator.example/pool": pool},
                )
                self.cluster._wait_for_node(node, timeout=PATIENCE_S)
                self.nodes[name] = node
                return
            except Exception as error:
                if not tries_left:
                    raise RuntimeError(self._read_newest_log("raylet*")) from error
                self._kill_raylets(name)

    def _read_newest_log(self, pattern: str) -> str:
        """The ends of the two logs of Ray that were written last."""
        logs = [*(self.folder / "t" / "session_latest" / "logs").glob(pattern)]
        logs.sort(key=lambda path: path.stat().st_mtime)
        return "\n".join(f"{log.name}:\n{log.read_text()[-3000:]}" for log in logs[-2:])

    def _kill_raylets(self, name: str) -> None:
        """Kill every raylet of a name, so that none registers late as a second node of it."""
        for pid in _marked(self.folder):
            with suppress(OSError):
                if f"--node-name={name}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    def kill_node(self, name: str) -> None:
        """Kill the raylet with -9, and what belongs to it."""
        if name in self.nodes:
            self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)

    def drain_node(self, name: str) -> None:
        import ray

        client = ray._raylet.GcsClient(address=self.cluster.address)
        is_accepted, why = client.drain_node(self.nodes[name].unique_id, 2, "test", 2**62)
        assert is_accepted, why

    def halt_dashboard(self) -> None:
        self._signal_dashboard(signal.SIGSTOP)

    def continue_dashboard(self) -> None:
        self._signal_dashboard(signal.SIGCONT)

    def _signal_dashboard(self, number: signal.Signals) -> None:
        for one in self.cluster.head_node.all_processes["dashboard"]:
            os.kill(one.process.pid, number)

    def close(self) -> None:
        self.continue_dashboard()
        self.cluster.shutdown()


def _marked(folder: Path) -> list[int]:
    """Processes that belong to the cluster of a folder."""
    return marked(f"{MARK}={folder}")


def _serve(folder: Path) -> None:
    """Answer until nobody is connected any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = _Server(folder)
    asked: Queue[tuple[Any, ...]] = Queue()
    connected = [0]
    began = time.monotonic()

    def forward(connection: Connection[Any, Any]) -> None:
        with suppress(EOFError, OSError):
            while True:
                done = threading.Event()
                asked.put((connection, *connection.recv(), done))
                done.wait()
        connected[0] -= 1

    def answer_one() -> None:
        """In the main thread, as Ray sets signal handlers."""
        with suppress(Empty):
            connection, name, arguments, done = asked.get(timeout=0.2)
            try:
                value = (True, getattr(server, name)(*arguments))
            except Exception as error:
                value = (False, f"{name}: {error!r}")
            with suppress(OSError):
                connection.send(value)
            done.set()

    def accept() -> None:
        while True:
            connection = listener.accept()
            connected[0] += 1
            threading.Thread(target=forward, args=(connection,), daemon=True).start()

    try:
        listener = Listener(str(folder / "socket"), "AF_UNIX", backlog=16)
        threading.Thread(target=accept, daemon=True).start()
        while connected[0] or time.monotonic() - began < 10.0:
            answer_one()
    finally:
        with suppress(Exception):
            server.close()
        for pid in _marked(folder):
            if pid != os.getpid():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


def shared_ray() -> RayCluster:
    """The cluster of this run of the tests, which its processes share, one test at a time."""
    need_packages("ray")
    made = _connect()
    made.keep()
    return made


def let_go() -> None:
    """The test is over (tests/conftest.py)."""
    if _connect.cache_info().currsize:
        _connect().let_go()


@cache
def _connect() -> RayCluster:
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"one-{os.getpid()}")
    note = Path(tempfile.gettempdir()) / f"allocator-ray-{os.getuid()}-{run}.json"
    atexit.register(lambda: [note.with_suffix(end).unlink(True) for end in (".json", ".lock")])
    with open(note.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if note.exists():
            with suppress(OSError):
                return RayCluster(Path(json.loads(note.read_text())["folder"]))
        folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        with open(folder / "log", "wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-W", "ignore", __file__, str(folder)],
                env={**os.environ, **ENVIRONMENT, MARK: str(folder), "PYTHONWARNINGS": "ignore"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        log_file = folder / "log"
        wait_for(lambda: (folder / "socket").exists() or child.poll() is not None, START_S, 0.1)
        assert child.poll() is None, log_file.read_text()[-3000:]
        note.write_text(json.dumps({"folder": str(folder)}))
        return RayCluster(folder)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    _serve(Path(sys.argv[1]))
