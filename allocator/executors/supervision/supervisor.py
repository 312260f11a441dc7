"""The supervisor of one allocation.

Usage: python -m allocator.executors.supervision.supervisor FOLDER

It starts the command of the job, stops it when stop.json appears, makes sure that none of its
processes is left, and writes exit.json. It runs in its own session, so that it survives the
controller. It holds keeper.lock as long as it lives, so that other processes can see whether it
lives. It imports few modules, because it has to start quickly.

Inside a batch job it runs on the first node of the job. What the batch system gave is compared with
the order before the command starts; a difference ends the allocation as lost, so that the next
round mends it. While the supervisor lives it touches keeper.json once a second. It ends its job
when revoked.json appears, or when somebody else has recorded the end of the allocation.
"""

from __future__ import annotations

import glob
import math
import os
import signal
import subprocess
import sys
import threading
import time
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocator.errors import UsageError
from allocator.executors import report
from allocator.executors.allocation import (
    ERR,
    EXIT,
    LOCK,
    ORDER,
    OUT,
    PROGRESS,
    STOP,
    SUPERVISOR,
    OpenAllocation,
)
from allocator.executors.disk import try_lock, write_json
from allocator.executors.supervision.processes import (
    adopt_orphans,
    find_descendants,
    kill_all,
    read_boot_id,
    read_process,
)
from allocator.io.progress_sources import (
    LOG,
    URL,
    LogFile,
    LogPattern,
    Metric,
    Progress,
    read_source,
)
from allocator.io.tables.limited_reader import read_end, read_json
from allocator.loop.executor import NodePart
from allocator.objects import Json

REVOKED = "revoked.json"
HEARTBEAT_S = 1.0
TICK_S = 0.05  # seconds between two checks
LEFTOVERS_S = 5.0  # seconds that processes left by an ended job have to end by themselves
LAST_WORDS = 400  # characters of stderr in the detail of a failure
# variables of the controller that jobs do not get; ALLOCATOR_* neither
HIDDEN = ("PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE")
MARKER = "ALLOCATOR_ALLOCATION"
LOOK_S = 1.0  # seconds between two looks at the logs
FETCH_EVERY_S = 10.0  # seconds between two answers with metrics


@dataclass
class ProgressReader:
    """The progress of one allocation, from its logs or its metrics.

    `logs` are the files that its job writes, and `progress` the file in which its progress belongs.
    `looked_s` is when it was read last, on the monotonic clock.
    """

    _source: LogPattern | Metric
    _logs: tuple[LogFile, ...]
    _progress: Path
    looked_s: float = -math.inf
    _written: Progress | None = None
    _metric: Progress | None = None
    _fetched_s: float = -math.inf
    _fetching: threading.Thread | None = None

    def update(self, *, is_over: bool = False) -> None:
        """Write the progress if it is another one; look at most once a second until all is over."""
        if not is_over and time.monotonic() < self.looked_s + LOOK_S:
            return
        self.looked_s = time.monotonic()
        seen: Progress | None
        if isinstance(self._source, LogPattern):
            readings = [self._source.find(log.read_lines(is_over=is_over)) for log in self._logs]
            seen = max((reading for reading in readings if reading is not None), default=None)
        else:
            is_busy = self._fetching is not None and self._fetching.is_alive()
            if not is_busy and self.looked_s >= self._fetched_s + FETCH_EVERY_S:
                self._fetched_s = self.looked_s
                # in a thread, so that a slow answer holds nothing up
                self._fetching = threading.Thread(
                    target=self._fetch, args=(self._source,), daemon=True
                )
                self._fetching.start()
            seen = self._metric
        if seen is not None and seen != self._written:
            try:
                report.write(self._progress, *seen)
            except OSError:  # a full disk: the next look tries again
                return
            self._written = seen

    def _fetch(self, metric: Metric) -> None:
        self._metric = metric.fetch() or self._metric


class Supervisor:
    """The supervisor of the allocation in `folder`, which holds its order.json.

    `identity` is what keeper.json says of this process, besides its pid.
    """

    tick_s = TICK_S

    def __init__(self, folder: Path, order: Json) -> None:
        self.folder = folder
        self.order = order
        self.allocation = OpenAllocation(folder, order)
        self.identity: Json = {}
        self.is_termination_requested = False  # by a signal to the supervisor
        self.is_stop_requested = False  # by stop.json, while the first process of the job lived
        self.status: int | None = None  # of the job's first process, as from waitpid
        self.stopping_since: float | None = None
        self.was_killed = False
        source = None  # its job reports its progress itself
        if LOG in order["environment"] or URL in order["environment"]:
            with suppress(UsageError):  # such a job could not be submitted
                source = read_source(order["environment"])
        logs = (LogFile(folder / OUT), LogFile(folder / ERR))
        progress = folder / PROGRESS
        self._reader = None if source is None else ProgressReader(source, logs, progress)

    def supervise(self) -> Json:
        """Run the command to its end, and return the content of exit.json.

        On return none of its processes is alive.
        """
        try:
            child = self._spawn()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return self._build_exit("failed", None, f"could not be started: {error}")
        while self._check_processes(child.pid):
            time.sleep(self.tick_s)
        child.returncode = 0  # waitpid was called here, so Popen has to be given a code
        return self._judge_exit()

    def _spawn(self) -> subprocess.Popen[bytes]:
        if not self.order["command"]:
            raise ValueError("the job has no command")
        environment, workdir = build_environment(self.folder, self.order)
        Path(workdir).mkdir(parents=True, exist_ok=True)
        with (
            open_for_appending(self.folder / OUT) as out,
            open_for_appending(self.folder / ERR) as err,
        ):
            return subprocess.Popen(
                self.order["command"],
                env=environment,
                cwd=workdir,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                process_group=0,
            )

    def _check_processes(self, pid: int) -> bool:
        """Check the processes and stop.json once; return False when all is over."""
        with suppress(ChildProcessError):  # collect every child that ended, also orphans
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == pid:
                    self.status = ended[1]
        if self._reader is not None:
            self._reader.update()
        self.allocation.remember_base()
        now = time.monotonic()
        grace_s = self.order["grace_s"]
        if self.status is None:
            self.is_stop_requested = self.is_stop_requested or self.allocation.has(STOP)
            is_to_end = self.is_termination_requested or self.is_stop_requested
            if self.stopping_since is None and is_to_end:
                self.stopping_since = now
                # not reaped yet, so no other process has this pid; halted ones go on, so that they
                # can end
                for number in (signal.SIGTERM, signal.SIGCONT):
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(pid, number)
            if self.stopping_since is not None and now - self.stopping_since > grace_s:
                self._kill_descendants()
            return True
        left = find_descendants(os.getpid())
        # the job ended by itself and left processes running
        if left and self.stopping_since is None:
            self.stopping_since = now + LEFTOVERS_S - grace_s
            for p in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(p.pid, signal.SIGTERM)
        if left and now - (self.stopping_since or now) > grace_s:
            self._kill_descendants()
        return bool(left)

    def _kill_descendants(self) -> None:
        self.was_killed = self.was_killed or self.status is None
        kill_all(lambda: find_descendants(os.getpid()), 0.0)

    def _judge_exit(self) -> Json:
        assert self.status is not None
        if self._reader is not None:
            self._reader.update(is_over=True)
            self.allocation.remember_base()
        code = os.waitstatus_to_exitcode(self.status)
        how = f"exit code {code}"
        if code < 0:
            names = {number.value: number.name for number in signal.Signals}
            how = f"killed by {names.get(-code, f'signal {-code}')}"
        done = self.allocation.read_safe_work()
        total_work = self.order["remaining_work"]
        if code == 0 and (
            not (self.is_stop_requested or self.is_termination_requested)
            or (total_work > 0 and done >= total_work * (1 - 1e-9))
        ):
            return self._build_exit("finished", code, how)
        if self.is_stop_requested:
            if self.was_killed:
                how += f" after {self.order['grace_s']:g} s in which it did not stop"
            return self._build_exit("stopped", code, how)
        if self.is_termination_requested:
            return self._build_exit("lost", code, f"its supervisor was told to end; the job: {how}")
        return self._build_exit("failed", code, f"{how}{read_last_words(self.folder / ERR)}")

    def _build_exit(self, phase: str, code: int | None, detail: str) -> Json:
        return self.allocation.build_ending(phase, detail) | {"exit_code": code}

    def install_signal_handlers(self) -> None:
        """Make the signals that would end this process end the job first."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._request_termination)

    def _request_termination(self, number: int, frame: object) -> None:
        self.is_termination_requested = True


def build_environment(folder: Path, order: Json) -> tuple[dict[str, str], str]:
    """Return (environment, working folder) of the job."""
    # a new job under the name of a forgotten one begins without work
    first = int(order["first_generation"])
    place = folder.parent.parent / "jobs" / folder.name.rpartition(".")[0]
    workdir = order["workdir"] or str(place / ("work" if first <= 1 else f"work.{first}"))
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ALLOCATOR_") and name not in HIDDEN
    }
    own = {
        "ALLOCATOR_JOB": order["job_id"],
        "ALLOCATOR_GPUS": str(order["gpus"]),
        "ALLOCATOR_POOL": order["pool"],
        "ALLOCATOR_NODES": "|".join(str(NodePart(**part)) for part in order["nodes"]),
        "ALLOCATOR_GPU_TYPE": order["gpu_type"],
        "ALLOCATOR_GENERATION": str(order["generation"]),
        "ALLOCATOR_REMAINING_WORK": repr(order["remaining_work"]),
        "ALLOCATOR_GRACE_S": repr(order["grace_s"]),
        "ALLOCATOR_PROGRESS": str(folder / PROGRESS),
        "ALLOCATOR_SETTINGS": str(folder / report.SETTINGS_FILE),
        "ALLOCATOR_WORKDIR": workdir,
        MARKER: order["marker"],
    }
    if "devices" in order:  # else a batch system has chosen them
        own["CUDA_VISIBLE_DEVICES"] = ",".join(str(d) for d in order["devices"])
    return {**kept, **order["environment"], **own}, workdir


def read_last_words(path: Path) -> str:
    """Return ': ' and the end of the file in one line, '' if the file is empty or missing."""
    try:
        text = read_end(path, LAST_WORDS).decode("utf-8", "replace")
    except OSError:
        return ""
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return f": {words}" if words else ""


def open_for_appending(path: Path) -> Any:
    """Open the file for appending, readable by its owner only."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def main(folder: Path, make: type[Supervisor] = Supervisor) -> int:
    """Supervise the allocation in the folder; do nothing if another process did or does.

    Returns the exit code of this process.
    """
    lock = try_lock(folder / LOCK)
    order = read_json(folder / ORDER)
    if lock is None or order is None or OpenAllocation(folder, order).has(EXIT, SUPERVISOR):
        return 0
    adopt_orphans()
    supervisor = make(folder, order)
    supervisor.install_signal_handlers()
    me = read_process(os.getpid())
    assert me is not None
    write_json(
        folder / SUPERVISOR,
        {"pid": me.pid, "started": me.started, "boot": read_boot_id(), "at_s": time.time()}
        | supervisor.identity,
    )
    exit_value = supervisor.supervise()
    while folder.is_dir() and not (folder / EXIT).is_file():
        try:
            write_json(folder / EXIT, exit_value)
            return 0
        # a full disk: the allocation counts as running until this is written
        except OSError as error:
            with suppress(OSError):  # its log may be on the same disk
                os.write(2, f"exit.json: {error}\n".encode())
            time.sleep(1.0)
    return 1


class BatchSupervisor(Supervisor):
    """The supervisor of one batch job."""

    tick_s = 0.25

    def __init__(self, folder: Path, order: Json) -> None:
        super().__init__(folder, order)
        self.identity = self.read_given()
        self._touched = 0.0

    def supervise(self) -> Json:
        """Run the command to its end if the job was given what the order asks for."""
        difference = self.describe_difference()
        if difference:
            return self._build_exit("lost", None, difference)
        return super().supervise()

    @abstractmethod
    def read_given(self) -> Json:
        """Return what the batch system gave to this batch job."""

    @abstractmethod
    def describe_difference(self) -> str:
        """Return how what was given differs from the order; "" if it does not."""

    def _build_exit(self, phase: str, code: int | None, detail: str) -> Json:
        revoked = self.allocation.read(REVOKED)
        words = detail if revoked is None else f"{detail}; {revoked['why']}"
        return super()._build_exit(phase, code, words)

    def _check_processes(self, pid: int) -> bool:
        if time.monotonic() - self._touched >= HEARTBEAT_S:
            self._touched = time.monotonic()
            self._renew_lease()
        return super()._check_processes(pid)

    def _renew_lease(self) -> None:
        with suppress(OSError):
            os.utime(self.folder / SUPERVISOR)
        if not self.folder.is_dir() or self.allocation.has(EXIT):
            self._kill_descendants()  # the job may run somewhere else by now
        elif self.allocation.has(REVOKED):
            self.is_termination_requested = True


def supervise_batch_job(folder: Path, make: type[BatchSupervisor]) -> int:
    """Supervise an allocation to its end, and hold its GPUs while another allocation uses them.

    Returns the exit code of this process.
    """
    code = main(folder, make)
    while any(folder.parent.glob(f"*/on.{glob.escape(folder.name)}")):
        time.sleep(HEARTBEAT_S)
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
