"""`allocator demo --live`: ten small training jobs on eight simulated GPUs, run by the controller.

Everything is real except for the GPUs: the queue, the controller, processes that train,
checkpoints, stops and starts. The state is in a folder, so that the same command continues after a
kill -9.
"""

import csv
import os
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
from allocator.cli.output import Answer, Values, has_progress, note, progress_console, text_of
from allocator.controller.clock import WallClock
from allocator.controller.controller import Controller
from allocator.controller.options import ControllerOptions
from allocator.controller.reporting.telemetry import Telemetry, open_log
from allocator.engine.decision import decide_round
from allocator.executors.example_job import steps_per_second
from allocator.executors.local import LocalExecutor, device_numbers
from allocator.io.tables.private_folders import private_folder

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
        queue, again = _queue(place)
        stack.callback(queue.close)
        events: deque[Any] = deque(maxlen=200)
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
            _watch(controller, queue, events, begin)
        finally:
            controller.stop()
        seconds = time.monotonic() - begin
        counts = queue.counts()
        return Answer(
            {"folder": str(place), "jobs": counts, "seconds": seconds},
            text_of(_summary(place, queue, seconds)),
            exit_code=0 if counts["done"] == len(JOBS) else 1,
        )


def _queue(place: Path) -> tuple[Queue, bool]:
    """Return the queue in the folder, and whether it already existed with unfinished jobs.

    A new queue gets the ten jobs.
    """
    if not (place / MARK).exists() and any(place.iterdir()):
        raise UsageError(f'"{place}" has something else in it; --dir needs a folder of its own')
    again = False
    if (place / QUEUE).exists():
        queue = Queue.create(place / QUEUE)
        counts = queue.counts()
        again = sum(counts.values()) < len(JOBS) or any(
            counts[s] for s in ("queued", "running", "paused", "held")
        )
        if again:
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


def _watch(controller: Controller, queue: Queue, events: deque[Any], begin: float) -> None:
    """Step until every job is over.

    A terminal shows a live table; other outputs get a line per event.
    """
    from rich.live import Live

    console = progress_console()
    said = 0.0
    tty = has_progress()
    with (
        Live(console=console, auto_refresh=False, transient=False) if tty else ExitStack()
    ) as screen:
        while time.monotonic() - begin < PATIENCE_S:
            controller.try_step()
            jobs = queue.jobs()
            if isinstance(screen, Live):
                screen.update(
                    _picture(controller, jobs, events, time.monotonic() - begin), refresh=True
                )
            else:
                said = _print_events(console, events, said)
            if all(job.state in ("done", "cancelled", "failed") for job in jobs):
                return
            controller.clock.sleep(POLL_S)


def _print_events(console: Any, events: deque[Any], said: float) -> float:
    """Print new events in words; return the time of the last one."""
    for event in list(events):
        if event["at_s"] > said and (words := _describe_event(event)):
            console.print(words, soft_wrap=True, markup=False, emoji=False)
    return max((event["at_s"] for event in events), default=said)


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


def _picture(controller: Controller, jobs: Any, events: deque[Any], seconds: float) -> Any:
    """Return the table of the present state."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    held = {job.job_id: job.want_gpus if job.state == "running" else 0 for job in jobs}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("job", "model", "state", "GPUs", "done"):
        table.add_column(name)
    for name in ("", "starts"):
        table.add_column(name, justify="right")
    now = controller.clock.now()
    for job in jobs:
        state = "to come" if job.state == "queued" and job.submitted_s > now else job.state
        bar = round(24 * job.progress)
        table.add_row(
            job.job_id,
            job.values["model"],
            state,
            "#" * held[job.job_id],
            Text("━" * bar, style="green" if job.state == "done" else "cyan")
            + Text("━" * (24 - bar), "dim"),
            f"{job.progress:.0%}",
            str(job.generation),
        )
    last = [words for event in events if (words := _describe_event(event))][-4:]
    done = sum(job.state == "done" for job in jobs)
    head = f"{seconds:4.0f} s   {sum(held.values())} of {GPUS} GPUs wanted   {done} done"
    return Group(Text(head), table, Text("\n".join(last), style="dim"))


def _summary(place: Path, queue: Queue, seconds: float) -> list[str]:
    """Return the result, and the proof that no job started from the beginning again."""
    jobs = queue.jobs()
    anew = [
        job.job_id
        for job in jobs
        if _count_fresh_starts(place / "jobs" / job.job_id / "log.csv") > 1
    ]
    rounds = queue.rounds()
    parked = [f"{job.job_id}: {job.park_reason}" for job in jobs if job.state == "failed"]
    return [
        f"{sum(job.state == 'done' for job in jobs)} of {len(jobs)} jobs done after {seconds:.0f} s"
        f" of this run; {len(rounds)} rounds, {sum(max(0, job.generation - 1) for job in jobs)}"
        " restarts from checkpoints, "
        + (f"begun anew: {', '.join(anew)}" if anew else "none begun anew"),
        *parked,
        f"try next: allocator history {place / QUEUE}; allocator replay {place / QUEUE}",
    ]


def _count_fresh_starts(log: Path) -> int:
    """Return how often a job began at step 0."""
    if not log.exists():
        return 0
    with log.open(encoding="ascii") as file:
        return sum(row["event"] == "start" and row["step"] == "0" for row in csv.DictReader(file))
