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

Standard output carries data only. The module of a command is imported when it runs, so that
`--help` answers at once.
"""

import atexit
import gc
import os
import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pkgutil import resolve_name

from allocator import AllocatorError
from allocator.cli import configuration
from allocator.cli.clusters.commands import ADVISE
from allocator.cli.measure.commands import MEASURE
from allocator.cli.models.commands import MODELS
from allocator.cli.output import (
    MODE,
    Answer,
    print_error,
    set_mode,
    show_answer,
    tell_details,
    warn,
)
from allocator.cli.parsing import (
    Command,
    Parser,
    WrongCommandLine,
    add_common_options,
    find_commands,
)
from allocator.cli.plan.commands import PLAN
from allocator.cli.queue.commands import RUN
from allocator.cli.start import START
from allocator.cli.termination import Terminated, Terminator, is_termination_requested

NEW_OBJECTS = 100_000  # that may be in cycles, after which these are searched for
EXAMPLES = """
allocator demo                                   a shipped cluster, MIP against greedy
allocator solve data/snapshots/demo              one decision, with its proof
allocator explain data/snapshots/demo JOB        why a job got what it got
"""
GROUPS: Mapping[str, Sequence[Command]] = {
    "start here": START,
    "decide one round": PLAN,
    "advise a cluster that others run": ADVISE,
    "run a cluster": RUN,
    "plan what jobs run on": MODELS,
    "simulate and measure": MEASURE,
}


def parser(given: Sequence[str] | None = None) -> Parser:
    """The parser of the whole command line; the name of each command's function is `args.call`.

    For the words of a command line, of commands that these do not name it has the names alone.
    """
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
    top.set_defaults(call="", parser=top)
    commands = top.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for title, group in GROUPS.items():
        for command in group:
            command.add(commands, is_whole=given is None or command.name in given)
        top.headings[group[0].name] = title
    for words, leaf in find_commands(top):
        if leaf.get_default("call"):
            add_common_options(leaf)
            leaf.prepare = partial(configuration.apply_settings, parser, words, leaf)
    return top


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code and never raises for anything a user can do."""
    if argv is None:
        # every search for cycles visits all cells of a snapshot or objects of a cluster, and there
        # are hardly any; at the end of the process nobody needs one
        gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
        atexit.register(gc.freeze)
    words = list(sys.argv[1:] if argv is None else argv)
    own = words[: words.index("--")] if "--" in words else words
    set_mode(is_json="--json" in own)  # a wrong command line is reported as JSON too
    try:
        return _run(words)
    finally:
        set_mode()


def _run(argv: Sequence[str]) -> int:
    with _terminate_politely():
        try:
            code = _call(argv)
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            # the reader of standard output has closed it: this is no error
            _silence(sys.stdout)
            return 0
        except KeyboardInterrupt as error:
            _silence(sys.stdout)
            return print_error(error, "interrupted", 130)
        except Terminated as error:
            _silence(sys.stdout)
            return print_error(error, "terminated", 143)
        except WrongCommandLine as error:
            return print_error(error, error.message if MODE.is_json else str(error), 2)
        except AllocatorError as error:
            if not MODE.is_json:
                warn(error.warnings)
            return print_error(error, str(error), error.exit_code)
        except OSError as error:
            _debug()
            _silence(sys.stdout)
            return print_error(
                error,
                f"allocator: {error.strerror or error}"
                + (f": {error.filename}" if error.filename else ""),
                1,
            )
        except Exception as error:
            _debug()
            # a library that is being imported reports Terminated as its own error
            if is_termination_requested():
                return print_error(Terminated(), "terminated", 143)
            first = (str(error).splitlines() or [""])[0]
            return print_error(
                error,
                f"allocator: internal error: {type(error).__name__}: {first} "
                "(ALLOCATOR_DEBUG=1 shows where)",
                1,
            )


def _call(argv: Sequence[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        _show_all_characters(stream)
    complete(parser)
    top = parser(argv)
    try:
        args = top.parse_args(argv)
    # argparse has printed the help
    except SystemExit as stop:
        return int(stop.code or 0)
    if args.version:
        from allocator import __version__

        print(f"allocator {__version__}")
        return 0
    if not args.call:
        args.parser.print_help(sys.stderr)
        return 2
    args.command_line = parser
    set_mode(args.json, args.quiet, args.verbose)
    args.format = "json" if args.json else args.format
    if args.format in ("json", "csv"):
        # for other programs: UTF-8 whatever the terminal is set to
        _show_all_characters(sys.stdout, encoding="utf-8")
    queue = getattr(args, "queue", getattr(args, "folder_or_queue", None))
    if _has_password(queue):
        warn(
            [
                "other users of this machine can see the password in the URL while the command"
                " runs; put it into ~/.pgpass or PGPASSWORD"
            ]
        )
    begin = time.monotonic()
    begin_cpu = time.process_time()
    answer = resolve_name(f"allocator.cli.{args.call}")(args)
    code = answer if isinstance(answer, int) else show_answer(answer, args)
    seconds = time.monotonic() - begin
    cpu = time.process_time() - begin_cpu
    tell_details(f"exit code {code} after {seconds:.2f} s, {cpu:.2f} s of them on the CPU")
    return code


def _show_all_characters(stream: object, **more: str) -> None:
    """Write characters that the terminal cannot show as their codes: names may have them."""
    with suppress(AttributeError, ValueError):
        stream.reconfigure(errors="backslashreplace", **more)  # type: ignore[attr-defined]


def _has_password(queue: object) -> bool:
    """Return whether the name of a queue is a URL with a password."""
    if not isinstance(queue, str) or "://" not in queue:
        return False
    account = queue.partition("://")[2].partition("/")[0].rpartition("@")[0]
    return ":" in account or "password=" in queue.partition("?")[2]


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


def completion(args: Namespace) -> Answer:
    from argcomplete.shell_integration import shellcode

    script = shellcode(["allocator"], shell=args.shell)
    return Answer({"shell": args.shell, "script": script}, script)


def complete(build: Callable[[], Parser]) -> None:
    """Answer a shell that asks for completions, and end; do nothing for any other caller."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(build(), always_complete_options=False)
