"""`allocator demo --live`: ten small training jobs on eight simulated GPUs, run by the controller.

Everything is real except for the GPUs: the queue, the controller, processes that train,
checkpoints, stops and starts. The state is in a folder, so that the same command continues after a
kill -9. With --sabotage a policy decides that hangs, breaks rules and crashes in fixed rounds.
"""

import os
import re
import shutil
import sys
import tempfile
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from allocator import Pool, Problem, Queue, Rate, UsageError
from allocator.bench.sabotage import Sabotage
from allocator.cli.output import Answer, Values, note, progress_bar, text_of
from allocator.controller.clock import WallClock
from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.controller.reporting.telemetry import Telemetry, open_log
from allocator.engine.decision import decide_round
from allocator.executors.example_job import steps_per_second
from allocator.executors.local import LocalExecutor, device_numbers
from allocator.io.tables.private_folders import private_folder
from allocator.queue.database.schema import ACTIVE

POOL = "machine"
KIND = "pretended"
GPUS = 8
RATE = 20.0  # steps per second on one GPU
MODELS = {"steady": 0.03, "average": 0.15, "stubborn": 0.5}  # overhead of each further GPU
# name, model, steps, most GPUs, seconds from the start to the submission, weight
JOBS = (
    ("ant", "steady", 700, 8, 0, 1),
    ("bee", "average", 450, 4, 0, 1),
    ("cat", "stubborn", 300, 4, 0, 1),
    ("dog", "steady", 800, 8, 2, 1),
    ("eel", "average", 350, 4, 4, 2),
    ("fox", "steady", 500, 8, 8, 1),
    ("gnu", "stubborn", 250, 2, 10, 1),
    ("hen", "average", 600, 8, 14, 1),
    ("ibis", "steady", 400, 4, 18, 1),
    ("jay", "average", 300, 8, 22, 3),
)
SIZES = (1, 2, 4, 8)
EVERY_S = 4.0
REACT_S = 1.5
POLL_S = 0.2
GRACE_S = 10.0
PATIENCE_S = 900.0
QUEUE = "queue.db"
MARK = "made-by-allocator-demo"


def live(folder: str | None, sabotage: bool = False) -> Answer:
    """Run or continue the demo.

    `sabotage` uses a policy that hangs, breaks rules and crashes.
    """
    place = (
        Path(folder) if folder else Path(tempfile.gettempdir()) / f"allocator-demo-{os.geteuid()}"
    )
    # the queue has commands that are run, and another account could have made a folder of this
    # name; the path is absolute, because jobs and supervisors have other working folders
    place = private_folder(place)
    with ExitStack() as stack:
        queue, again = _open_queue(place)
        stack.callback(queue.close)
        events: deque[Any] = deque()
        clock = WallClock()
        telemetry = Telemetry(
            clock.now,
            stack.enter_context(open_log(place / "log.jsonl")),
            place / "metrics.prom",
            events.append,
        )
        executor = LocalExecutor(place / "executor", device_numbers({POOL: GPUS}), GRACE_S)
        controller = Controller(
            queue.store,
            executor,
            clock,
            ControllerOptions(
                every_s=EVERY_S, react_s=REACT_S, poll_s=POLL_S, time_limit_s=1.0, stall_s=60.0
            ),
            telemetry=telemetry,
            decide=Sabotage() if sabotage else decide_round,
        )
        note(
            f"{'goes on with' if again else 'ten jobs on eight pretended GPUs; state in'} {place}",
            f"kill it with -9 (pid {os.getpid()}) and give the same command again: it goes on",
        )
        begin = time.monotonic()
        try:
            _watch(controller, queue, events)
        finally:
            controller.stop()
        seconds = time.monotonic() - begin
        counts = queue.counts()
        return Answer(
            {"folder": str(place), "jobs": counts, "seconds": seconds},
            text_of(_summary(place, queue, seconds)),
            exit_code=0 if counts["done"] == len(JOBS) else 1,
        )


def _open_queue(place: Path) -> tuple[Queue, bool]:
    """Return the queue in the folder with the ten jobs, and whether some were there, unfinished."""
    if not (place / MARK).exists() and any(place.iterdir()):
        raise UsageError(f'"{place}" has something else in it; --dir needs a folder of its own')
    if (place / QUEUE).exists():
        queue = Queue.create(place / QUEUE)
        states = [job.state for job in queue.jobs()]
        if len(states) < len(JOBS) or not set(states).isdisjoint(ACTIVE):
            _submit(queue, place)
            return queue, True
        queue.close()
    # the folder itself stays, because this account already owns its name
    for old in place.iterdir():
        shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
    (place / MARK).touch()
    queue = Queue.create(place / QUEUE, _snapshot())
    _submit(queue, place)
    return queue, False


def _snapshot() -> Problem:
    """Return the cluster without jobs."""
    rates = [
        Rate(model, KIND, n, steps_per_second(n, RATE, overhead))
        for model, overhead in MODELS.items()
        for n in SIZES
    ]
    pools = [Pool(POOL, KIND, GPUS, gpus_per_node=GPUS, price_per_gpu_hour=1.0)]
    return Problem.build(jobs=[], pools=pools, rates=rates, interval_s=EVERY_S, restart_s=1.5)


def _submit(queue: Queue, place: Path) -> None:
    """Submit the ten jobs; jobs that the queue already has stay."""
    there = {job.job_id for job in queue.jobs()}
    now = queue.clock()
    queue.submit_many(
        [
            {
                "job_id": name,
                "model": model,
                "total_work": steps,
                "max_gpus": most,
                "submitted_s": now + after,
                "weight": weight,
                "sizes": "|".join(str(n) for n in SIZES if n <= most),
                "command": [
                    sys.executable,
                    *f"-m allocator.executors.example_job --steps {steps} --rate {RATE}".split(),
                    *f"--overhead {MODELS[model]} --checkpoint-every 2 --seed {i}".split(),
                ],
                "environment": {"PYTHONPATH": str(Path(__file__).resolve().parents[3])},
                "workdir": str(place / "jobs" / name),
            }
            for i, (name, model, steps, most, after, weight) in enumerate(JOBS)
            if name not in there
        ]
    )


def _watch(controller: Controller, queue: Queue, events: deque[Any]) -> None:
    """Step until every job is over, with a line for each event; a terminal has bars below them."""
    until = time.monotonic() + PATIENCE_S
    with progress_bar(is_counted=False) as bars:
        rows = dict[str, Any]()
        while time.monotonic() < until:
            controller.try_step()
            while events:
                if words := _describe_event(events.popleft()):
                    note(words)
            jobs = queue.jobs()
            for job in jobs:
                if job.job_id not in rows:
                    rows[job.job_id] = bars.add_task("", total=1.0)
                gpus = "#" * job.want_gpus if job.state == "running" else ""
                line = f"{job.job_id:<5} {job.values['model']:<8} {job.state:<7} {gpus:<{GPUS}}"
                bars.update(rows[job.job_id], completed=job.progress, description=line)
            if all(job.state not in ACTIVE for job in jobs):
                return
            controller.clock.sleep(POLL_S)


def _describe_event(event: Values) -> str:
    """Describe an event in one line; "" if it is not of interest."""
    match event["event"]:
        case "round":
            return f"round {event['number']}: {event['jobs']} jobs, {event['changes']} change"
        case "round_failed":
            reason = " ".join(event["reason"].split())
            reason = reason if len(reason) < 100 else f"{reason[:97]}..."
            return f"round {event['number']} failed, all goes on as it was: {reason}"
        case "ended":
            return f"{event['job_id']} {event['phase']}" + (
                f": {event['detail']}" if event["detail"] else ""
            )
        case "standby":
            return f"waits: {event['detail']}"
        case "lease_taken":
            return f"leads, token {event['token']}"
    return ""


def _summary(place: Path, queue: Queue, seconds: float) -> list[str]:
    """Return the result, and the proof that no job started from the beginning again."""
    jobs = queue.jobs()
    anew = []
    for job in jobs:
        log = place / "jobs" / job.job_id / "log.csv"
        begun = re.findall(r"^start,\d+,0,", log.read_text() if log.exists() else "", re.MULTILINE)
        anew += [job.job_id] if len(begun) > 1 else []
    parked = [f"{job.job_id}: {job.park_reason}" for job in jobs if job.state == "failed"]
    return [
        f"{sum(job.state == 'done' for job in jobs)} of {len(jobs)} jobs done after {seconds:.0f} s"
        f" of this run; {len(queue.rounds())} rounds,"
        f" {sum(max(0, job.generation - 1) for job in jobs)} restarts from checkpoints, "
        + (f"begun anew: {', '.join(anew)}" if anew else "none begun anew"),
        *parked,
        f"try next: allocator history {place / QUEUE}; allocator replay {place / QUEUE}",
    ]
