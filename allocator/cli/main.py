"""The command `allocator`: parse the arguments, call the command, and return an exit code.

The exit codes (docs/reference/rules.md, R45):

    0    done, also with a feasible plan at the time limit
    1    internal error
    2    wrong usage
    3    invalid input
    4    infeasible
    5    no plan in time
    130  interrupted
    143  terminated

Standard output carries data only. Every command imports its modules when it runs, so that `--help`
answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from allocator.cli import doctor, examples
from allocator.cli.clusters import admit, observe, plan, rbac, submit_slurm
from allocator.cli.measure import bench, demo, generate, report, simulate
from allocator.cli.models import configure, fit, import_, rent, spot
from allocator.cli.parsing import Parser
from allocator.cli.plan import explain, frontier, promise, schema, solve, validate, whatif
from allocator.cli.queue import history, queue, run as run_command, serve
from allocator.cli.termination import Terminated, Terminator, is_termination_requested
from allocator.errors import AllocatorError

EXAMPLES = """
allocator demo                                   a shipped cluster, MIP against greedy
allocator solve data/snapshots/demo              one decision, with its proof
allocator explain data/snapshots/demo JOB        why a job got what it got
"""
GROUPS = {
    "start here": (demo, examples, doctor),
    "decide one round": (solve, explain, whatif, validate, promise, frontier, schema),
    "advise a cluster that others run": (observe, plan, submit_slurm, admit, rbac),
    "run a cluster": (queue, run_command, serve, history),
    "plan what jobs run on": (configure, fit, spot, rent),
    "simulate and measure": (simulate, generate, import_, bench, report),
}


def parser() -> Parser:
    """The parser of the whole command line; each command's function is in `args.call`."""
    top = Parser(
        "allocator",
        examples=EXAMPLES,
        description="Decides which training job gets which and how many GPUs.",
        epilog=(
            "exit codes: 0 done, 1 internal error, 2 usage, 3 invalid input, 4 infeasible, "
            "5 no plan in time"
        ),
    )
    top.add_argument("--version", action="store_true", help="print the version and stop")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for title, group in GROUPS.items():
        known = set(commands.choices)
        for command in group:
            command.add(commands)
        top.headings[next(name for name in commands.choices if name not in known)] = title
    return top


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code and never raises for anything a user can do."""
    with _terminate_politely():
        try:
            return _flush(_call(argv))
        except BrokenPipeError:
            # the reader of standard output has closed it: this is no error
            _silence(sys.stdout)
            return 0
        except KeyboardInterrupt:
            _silence(sys.stdout)
            return _print_error("interrupted", 130)
        except Terminated:
            _silence(sys.stdout)
            return _print_error("terminated", 143)
        except AllocatorError as error:
            return _print_error(
                "\n".join((*(f"warning: {w}" for w in error.warnings), str(error))), error.exit_code
            )
        except OSError as error:
            _debug()
            _silence(sys.stdout)
            return _print_error(
                f"allocator: {error.strerror or error}"
                + (f": {error.filename}" if error.filename else ""),
                1,
            )
        except Exception as error:
            _debug()
            # a library that is being imported reports Terminated as its own error
            if is_termination_requested():
                return _print_error("terminated", 143)
            first = (str(error).splitlines() or [""])[0]
            return _print_error(
                f"allocator: internal error: {type(error).__name__}: {first} "
                "(ALLOCATOR_DEBUG=1 shows where)",
                1,
            )


def _call(argv: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        # names of jobs may have characters that the terminal cannot show
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    top = parser()
    try:
        args = top.parse_args(argv)
    # argparse has printed help (0) or the error (2)
    except SystemExit as stop:
        return int(stop.code or 0)
    # for other programs: UTF-8 whatever the terminal is set to
    if getattr(args, "format", "") in ("json", "csv"):
        with suppress(AttributeError, ValueError):
            sys.stdout.reconfigure(  # type: ignore[union-attr]
                encoding="utf-8", errors="backslashreplace"
            )
    if args.version:
        from allocator import __version__

        print(f"allocator {__version__}")
        return 0
    if not hasattr(args, "call"):
        top.print_help(sys.stderr)
        return 2
    if _has_password(getattr(args, "queue", None)):
        _print_error(
            "warning: other users of this machine can see the password in the URL while the command"
            " runs; put it into ~/.pgpass or PGPASSWORD",
            0,
        )
    return int(args.call(args))


def _has_password(queue: object) -> bool:
    """Return whether the name of a queue is a URL with a password."""
    if not isinstance(queue, str) or "://" not in queue:
        return False
    account = queue.partition("://")[2].partition("/")[0].rpartition("@")[0]
    return ":" in account or "password=" in queue.partition("?")[2]


def _flush(code: int) -> int:
    sys.stdout.flush()
    return code


def _print_error(text: str, code: int) -> int:
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)
    return code


def _debug() -> None:
    if os.environ.get("ALLOCATOR_DEBUG") == "1":
        import traceback

        traceback.print_exc()


def _silence(stream: object) -> None:
    """Discard what is still buffered, so that the interpreter prints no error when it ends."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[attr-defined]
        os.close(nowhere)


@contextmanager
def _terminate_politely() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, Terminator())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
