"""`allocator run`: the controller of a queue."""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from allocator.cli.output import note, print_json, print_lines, show_result, warn
from allocator.cli.parsing import add_effort, add_queue, add_settings, duration
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


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "run", examples=EXAMPLES, help="the controller of a queue", description=ABOUT
    )
    add_queue(parser)
    when = parser.add_argument_group("when")
    how_often = when.add_mutually_exclusive_group()
    how_often.add_argument(
        "--every",
        type=duration(0.05),
        metavar="TIME",
        help="seconds between rounds (default: interval_s of the queue's settings)",
    )
    how_often.add_argument(
        "--once",
        action="store_true",
        help=(
            "one round now, for cron or a systemd timer; waits "
            "for its stops, at most the grace period and 5 s"
        ),
    )
    when.add_argument(
        "--react",
        type=duration(1e-3),
        default=math.inf,
        metavar="TIME",
        help=(
            "arrivals, ends and changes of the cluster cause early rounds, at least TIME after"
            " the one before"
        ),
    )
    when.add_argument(
        "--poll",
        type=duration(1e-3),
        metavar="TIME",
        help="seconds between looks at the machines (default: a tenth of the interval, at most 1)",
    )
    where = parser.add_argument_group("machines")
    where.add_argument(
        "--executor",
        metavar="NAME",
        default=DRY_RUN,
        help=(
            "dry-run (default): says what one round would do now, and changes nothing at all;"
            " slurm, kubernetes, ray: jobs of that cluster; local: processes of this machine;"
            " files: an actor of your own; or one that an installed package brings"
        ),
    )
    where.add_argument(
        "--state",
        metavar="DIR",
        help="folder of the executor's state (default: next to an SQLite queue)",
    )
    where.add_argument(
        "--grace",
        type=duration(),
        default=60.0,
        metavar="TIME",
        help="local: seconds for a checkpoint between SIGTERM and SIGKILL (default: 60)",
    )
    where.add_argument(
        "--devices",
        metavar="POOL=0-3,POOL=4-7",
        help=(
            "local: GPU indices of each pool, or of each node where it has nodes; more than it has "
            "now allow it to be raised later (default: counted through in the order of the pools)"
        ),
    )
    parser.add_argument(
        "--policy", default="mip", metavar="NAME", help="who decides (default: mip)"
    )
    add_settings(parser, "the queue's", "horizon")
    add_effort(parser, None, "each decision")
    parser.add_argument(
        "--cold",
        action="store_true",
        help="every round starts anew instead of from the prices of the one before",
    )
    _add_stability(parser)
    tell = parser.add_argument_group("what it tells")
    tell.add_argument(
        "--log", metavar="FILE", help="append JSON lines to FILE (default: standard error)"
    )
    tell.add_argument(
        "--metrics", metavar="FILE", help="textfile for Prometheus, replaced after every round"
    )
    tell.add_argument(
        "--port",
        type=partial(parse_address, option="--port", here="127.0.0.1"),
        metavar="[ADDRESS:]N",
        help="answer /metrics at this port (default of ADDRESS: 127.0.0.1)",
    )
    tell.add_argument(
        "--serve",
        nargs="?",
        const=LISTEN,
        metavar="ADDRESS:PORT",
        help=f"the pages and the API too, as `allocator serve` (default: {LISTEN})",
    )
    parser.set_defaults(call=call)


def _add_stability(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("stability and repair")
    group.add_argument(
        "--cooldown",
        type=duration(),
        default=0.0,
        metavar="TIME",
        help="a job that was changed is left alone for TIME",
    )
    group.add_argument(
        "--min-run",
        type=duration(),
        default=0.0,
        metavar="TIME",
        help="a started job runs at least TIME",
    )
    group.add_argument(
        "--payback",
        action="store_true",
        help="hold changes back that do not pay for their pause before the next change is expected",
    )
    group.add_argument(
        "--stall",
        type=duration(1e-3, True),
        metavar="TIME",
        help=(
            "a job without progress for TIME has failed; inf: never (default: ten intervals,"
            " at least 600)"
        ),
    )
    group.add_argument(
        "--no-learning", action="store_true", help="do not correct rates by what is observed"
    )


def call(args: argparse.Namespace) -> int:
    from allocator.controller.options import ControllerOptions
    from allocator.executors import registry as executors
    from allocator.loop.stability import Stability
    from allocator.queue.database.connection import open_queue

    options = ControllerOptions(
        every_s=args.every,
        react_s=args.react,
        poll_s=args.poll,
        policy=args.policy,
        horizon=args.horizon,
        solver=args.solver,
        gap=args.gap,
        time_limit_s=args.time_limit,
        seed=args.seed,
        threads=args.threads,
        warm=not args.cold,
        learn=not args.no_learning,
        stall_s=args.stall,
        settle_s=args.grace + KILLED_S,
        stability=Stability(args.cooldown, args.min_run, args.payback),
    )
    if args.executor != DRY_RUN:
        executors.REGISTRY.get(args.executor)
    is_dry = args.executor == DRY_RUN
    for name in ACTING:
        if is_dry and getattr(args, name) is not None:
            raise UsageError(
                f"--{name} needs an executor that acts: --executor files or local; "
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
    if args.format == "json":
        print_json({"queue": store.name, "has_plan": controller.has_plan})
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
