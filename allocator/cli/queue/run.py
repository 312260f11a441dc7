"""`allocator run`: the controller of a queue."""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from allocator.cli.output import note, print_lines, show_result, warn
from allocator.cli.parsing import (
    POLICY,
    QUEUE,
    command,
    duration,
    effort,
    flag,
    group,
    one_of,
    option,
    settings,
    take,
)
from allocator.cli.queue.serve import LISTEN, parse_address, served
from allocator.cli.tables import text
from allocator.cli.termination import is_termination_requested
from allocator.errors import UsageError

if TYPE_CHECKING:
    from allocator.controller.options import ControllerOptions
    from allocator.loop.executor import Executor
    from allocator.queue.database.connection import QueueDatabase

EXAMPLES = """
allocator run cluster.db                                       dry run: say what would be done \
now, do nothing
allocator run cluster.db --executor local --devices a100=0-7,v100=8-15
allocator run cluster.db --executor slurm --state /shared/allocator --every 300 --react 20
allocator run cluster.db --every 300 --react 20 --executor files --state actor --metrics \
/run/allocator.prom
"""
DRY_RUN = "dry-run"
ACTING = ("state", "devices", "metrics", "port", "log", "serve")
"""Options that only a controller has that carries out its decisions."""
# seconds after the grace period within which a killed process is seen to be dead
KILLED_S = 5.0
ABOUT = """\
Without --executor this is a dry run: it decides one round, says what that would stop and start, and
writes nothing. With an executor it acts: on Slurm, Kubernetes, Ray, this machine, or by files.

Decides again and again which job gets which GPUs, writes the round to the journal, and has it
carried out. It may be killed at any time and started again; started twice, the second one stands by
and takes over when the first is gone. SIGTERM ends it in order: jobs run on. The exit code is then
0. A decision may take half of the interval, unless --time-limit says otherwise."""


def _parse_port(text: str) -> tuple[str, int]:
    """Return address and port of [ADDRESS:]PORT. Raises UsageError."""
    return parse_address(text if ":" in text else f"127.0.0.1:{text}", "--port")


@command(
    "run",
    "the controller of a queue",
    ABOUT,
    EXAMPLES,
    QUEUE,
    group(
        "when",
        one_of(
            option(
                "--every",
                "TIME",
                "seconds between rounds (default: interval_s of the queue's settings)",
                duration(0.05),
                dest="every_s",
            ),
            flag(
                "--once",
                "one round now, for cron or a systemd timer; waits "
                "for its stops, at most the grace period and 5 s",
            ),
        ),
        option(
            "--react",
            "TIME",
            "arrivals, ends and changes of the cluster cause early rounds, at least TIME after"
            " the one before",
            duration(1e-3),
            math.inf,
            dest="react_s",
        ),
        option(
            "--poll",
            "TIME",
            "seconds between looks at the machines (default: a tenth of the interval, at most 1)",
            duration(1e-3),
            dest="poll_s",
        ),
    ),
    group(
        "machines",
        option(
            "--executor",
            "NAME",
            "dry-run (default): says what one round would do now, and changes nothing at all;"
            " slurm, kubernetes, ray: jobs of that cluster; local: processes of this machine;"
            " files: an actor of your own; or one that an installed package brings",
            default=DRY_RUN,
        ),
        option(
            "--state", "DIR", "folder of the executor's state (default: next to an SQLite queue)"
        ),
        option(
            "--grace",
            "TIME",
            "local: seconds for a checkpoint between SIGTERM and SIGKILL (default: 60)",
            duration(),
            60.0,
        ),
        option(
            "--devices",
            "POOL=0-3,POOL=4-7",
            "local: GPU indices of each pool, or of each node where it has nodes; more than it has "
            "now allow it to be raised later (default: counted through in the order of the pools)",
        ),
    ),
    POLICY,
    *settings("the queue's", "horizon"),
    effort(None, "each decision"),
    flag("--cold", "every round starts anew instead of from the prices of the one before"),
    group(
        "stability and repair",
        option(
            "--cooldown",
            "TIME",
            "a job that was changed is left alone for TIME",
            duration(),
            0.0,
            dest="cooldown_s",
        ),
        option(
            "--min-run",
            "TIME",
            "a started job runs at least TIME",
            duration(),
            0.0,
            dest="min_run_s",
        ),
        flag(
            "--payback",
            "hold changes back that do not pay for their pause before the next change is expected",
        ),
        option(
            "--stall",
            "TIME",
            "a job without progress for TIME has failed; inf: never (default: ten intervals,"
            " at least 600)",
            duration(1e-3, True),
            dest="stall_s",
        ),
        flag("--no-learning", "do not correct rates by what is observed"),
    ),
    group(
        "what it tells",
        option("--log", "FILE", "append JSON lines to FILE (default: standard error)"),
        option("--metrics", "FILE", "textfile for Prometheus, replaced after every round"),
        option(
            "--port",
            "[ADDRESS:]N",
            "answer /metrics at this port (default of ADDRESS: 127.0.0.1)",
            _parse_port,
        ),
        option(
            "--serve",
            "ADDRESS:PORT",
            f"the pages and the API too, as `allocator serve` (default: {LISTEN})",
            nargs="?",
            const=LISTEN,
        ),
    ),
)
def call(args: argparse.Namespace) -> int:
    from allocator.controller.options import ControllerOptions
    from allocator.executors import registry as executors
    from allocator.loop.stability import Stability
    from allocator.queue.database.connection import open_queue

    options = take(
        ControllerOptions,
        args,
        warm=not args.cold,
        learn=not args.no_learning,
        settle_s=args.grace + KILLED_S,
        stability=take(Stability, args),
    )
    if args.executor != DRY_RUN:
        executors.REGISTRY.get(args.executor)
    is_dry = args.executor == DRY_RUN
    for name in ACTING:
        if is_dry and getattr(args, name) is not None:
            raise UsageError(
                f"--{name} needs an executor that acts, such as --executor local; "
                "without one this is a dry run, which changes nothing"
            )
    with ExitStack() as stack:
        store = open_queue(args.queue, reads_only=is_dry)
        stack.callback(store.close)
        if is_dry:
            return _show_preview(store, options, args.format)
        return _serve(args, store, options, stack)


def _show_preview(store: QueueDatabase, options: ControllerOptions, form: str) -> int:
    """Print the decision of one round without carrying it out."""
    from allocator.controller.clock import WallClock
    from allocator.controller.reporting.preview import preview
    from allocator.queue import lease

    clock = WallClock()
    found = preview(store, clock, options)
    with store.read() as connection:
        held = lease.read_current(connection)
    warn(found.result.warnings)
    if found.is_periodic_due:
        note("periodic jobs are due: a controller submits them first, this round is without them")
    if held is not None and held.is_held(clock.now()):
        note(f'"{held.holder}" leads this queue and goes on')
    jobs = len(found.result.jobs["job_id"])
    show_result(
        form,
        {
            "steps": list(found.steps),
            "jobs": jobs,
            "is_periodic_due": found.is_periodic_due,
            "plan": found.result.to_dict(),
        },
        lambda: print_lines(map(text, found.steps)),
    )
    note(
        f"dry run: {len(found.steps) or 'no'} steps for {jobs} jobs; "
        "nothing was written (--executor NAME acts)"
    )
    return 0


def _serve(
    args: argparse.Namespace, store: QueueDatabase, options: ControllerOptions, stack: ExitStack
) -> int:
    from allocator.controller import belonging
    from allocator.controller.clock import WallClock
    from allocator.controller.controller import Controller
    from allocator.controller.reporting.telemetry import Telemetry, open_log, serve
    from allocator.executors.registry import EXECUTORS

    clock = WallClock()
    folder = choose_state_folder(args.executor, store, args.state)
    if args.executor in EXECUTORS and not folder.exists():
        with store.read() as connection:
            belonging.check_new_state(connection, store.name, args.executor, folder)
    executor = make_executor(args.executor, store, args.state, args.grace, args.devices)
    log = sys.stderr if args.log is None else stack.enter_context(open_log(Path(args.log)))
    telemetry = Telemetry(clock.now, log, Path(args.metrics) if args.metrics else None)
    controller = Controller(store, executor, clock, options, telemetry=telemetry)
    if args.port is not None:
        server = serve(telemetry.metrics, *args.port)
        stack.callback(server.shutdown)
        telemetry.event("metrics_port", port=server.server_address[1])
    if args.serve is not None:
        stack.enter_context(served(args.queue, args.serve))
    telemetry.event(
        "started",
        queue=store.name,
        executor=executor.name,
        policy=options.policy,
        every_s=controller.cluster.interval_s,
        holder=controller.cluster.lease_holder.holder,
    )
    with stop_on_signals(controller, clock.wake):
        controller.run(once=args.once)
    show_result(args.format, {"queue": store.name, "has_plan": controller.has_plan})
    return 0 if not args.once or controller.has_plan else 1


def make_executor(
    name: str, store: QueueDatabase, state: str | None, grace_s: float, devices: str | None = None
) -> Executor:
    """Return the executor of the name, with its state in the folder. Raises UsageError.

    `state` None means a folder next to an SQLite queue. `devices` is as --devices.
    """
    from allocator.executors import registry as executors
    from allocator.queue import cluster_tables

    folder = choose_state_folder(name, store, state)
    with store.read() as connection:
        gpus = cluster_tables.gpus(connection)
        nodes = cluster_tables.read_node_sizes(connection)
    site = executors.ExecutorSite(folder, gpus, grace_s, devices, nodes)
    return executors.make_executor(name, site)


def choose_state_folder(name: str, store: QueueDatabase, state: str | None) -> Path:
    """Return the folder for the state of an executor; nothing is written. Raises UsageError.

    `state` is as for `make_executor`.
    """
    path = store.engine.url.database if store.engine.url.get_backend_name() == "sqlite" else None
    if state is None and path is None:
        raise UsageError(
            "a queue on a database server needs --state DIR for what the executor remembers"
        )
    folder = Path(state if state is not None else f"{path}.{name}")
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            f'the executor keeps its state in a folder, and "{folder}" is none; name another with'
            " --state"
        )
    return folder


class Stoppable(Protocol):
    """What ends after its current step, and may be cut off while it decides."""

    stopping: bool
    deciding: bool


@contextmanager
def stop_on_signals(controller: Stoppable, wake: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM and SIGINT end the controller after its current step.

    A decision is cut off. A second signal ends every step at once.
    """
    from allocator.controller.guarded_decision import Stopped

    def stop(number: int, _frame: Any) -> None:
        if controller.stopping:
            raise KeyboardInterrupt
        controller.stopping = True
        wake()
        if controller.deciding:
            raise Stopped

    controller.stopping = is_termination_requested()
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
