"""The argument parser of all commands: help that starts with examples, and checked numbers."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, NoReturn

from allocator.errors import UsageError
from allocator.solvers.effort import GAP, TIME_LIMIT_S


class WrongCommandLine(UsageError):
    """A command line that the parser refuses; the text begins with the usage of the command."""

    def __init__(self, usage: str, message: str) -> None:
        super().__init__(usage + message)
        self.message = message


class Help(argparse.RawDescriptionHelpFormatter):
    """Makes the column of commands wide enough for the longest command.

    argparse measures commands without the indent that it adds later.
    """

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        for inner in self._iter_indented_subactions(action):
            length = len(self._format_action_invocation(inner)) + self._current_indent
            self._action_max_length = max(self._action_max_length, length)


class Parser(argparse.ArgumentParser):
    """A parser whose help starts with examples, and which raises errors with suggestions.

    Abbreviated options are refused. `prepare` is called before a command line is parsed.
    `default_queue` is the QUEUE of a command line that gives none. `takes_command`: everything
    after the first `--` is the command of a job.

    `headings` has the title of a group of commands, by the name of its first command.
    """

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", Help)
        super().__init__(*args, **kwargs)
        self.examples = examples
        self.headings: dict[str, str] = {}
        self.prepare: Callable[[], None] = lambda: None
        self.default_queue: str | None = None
        self.takes_command = False

    def format_help(self) -> str:
        lines = "\n".join(f"  {line}" for line in self.examples.strip().splitlines())
        text = (f"examples:\n{lines}\n\n" if lines else "") + super().format_help()
        for command, title in self.headings.items():
            text = text.replace(f"\n    {command} ", f"\n\n  {title}:\n    {command} ", 1)
        return text

    def error(self, message: str) -> NoReturn:
        """Raise WrongCommandLine."""
        raise WrongCommandLine(self.format_usage(), f"{self.prog}: error: {message}")

    def parse_known_args(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        namespace: argparse.Namespace | None = None,
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, and refuse unknown words where the options that they may mean are known."""
        given = list(sys.argv[1:] if args is None else args)
        cut = given.index("--") if "--" in given else len(given)
        own = given[:cut]
        rest = given[cut + 1 :]
        if not {"-h", "--help"} & set(own):
            self.prepare()
        words = own if self.takes_command else given
        if self.default_queue is None:
            found = self._parse(words, namespace)
        else:
            found = self._parse_with_queue(words, namespace, self.default_queue)
        if self.takes_command:
            found.command = rest
        return found, []

    def _parse_with_queue(
        self, given: list[str], namespace: argparse.Namespace | None, queue: str
    ) -> argparse.Namespace:
        """Parse with the queue or folder that is given, else with the default queue."""
        try:
            found = self._parse(given, copy(namespace))
        except WrongCommandLine:
            if any(map(is_queue, given)):
                raise
        else:
            if "folder_or_queue" in found or is_queue(found.queue):
                return found
        return self._parse([queue, *given], namespace)

    def _parse(self, given: list[str], namespace: argparse.Namespace | None) -> argparse.Namespace:
        found, unknown = super().parse_known_args(given, namespace)
        if unknown:
            from allocator.domain.findings import did_you_mean

            near = did_you_mean(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            from allocator.domain.findings import did_you_mean

            near = did_you_mean(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(action, f"{error.message}{near}") from None


QUEUE_ENDINGS = (".db", ".sqlite", ".sqlite3")
SQLITE_HEAD = b"SQLite format 3\0"


def is_queue(word: str) -> bool:
    """Return whether a word names a queue: a URL, a path that ends like one, or an SQLite file."""
    if "://" in word or word.endswith(QUEUE_ENDINGS):
        return True
    try:
        with open(word, "rb") as file:
            return file.read(len(SQLITE_HEAD)) == SQLITE_HEAD
    except (OSError, ValueError):
        return False


def show_help_alone(parser: argparse.ArgumentParser) -> None:
    """Let a command that needs a subcommand print its help and fail if it is called without one."""

    def call(_args: argparse.Namespace) -> int:
        parser.print_help(sys.stderr)
        return 2

    parser.set_defaults(call=call)


def find_commands(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Parser]]:
    """Yield every command that does something, with the words that call it."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        assert isinstance(parser, Parser)
        yield words, parser
    for group in groups:
        for name, below in group.choices.items():
            yield from find_commands(below, (*words, name))


def add_common_options(parser: Parser) -> None:
    """Add the options that every command has."""
    group = parser.add_argument_group("of every command")
    group.add_argument(
        "--json", action="store_true", help="the result as JSON, and an error as JSON too"
    )
    group.add_argument(
        "-q", "--quiet", action="store_true", help="results and warnings: no notes, no progress"
    )
    group.add_argument(
        "-v", "--verbose", action="store_true", help="what is read, and how long it takes, too"
    )
    if not any(action.dest == "format" for action in parser._actions):
        parser.set_defaults(format="text")


def add_objective(parser: argparse._ActionsContainer, default: str = "as config.toml says") -> None:
    """Add --objective, in the form that domain/objectives.py reads."""
    from formulations.objectives import BUILT_IN

    parser.add_argument(
        "--objective",
        metavar="NAME",
        help=(
            f"{', '.join(BUILT_IN)}; or a sum, "
            f"'completion=1,cost=0.2'; or ranks, 'fairness > completion' (default: {default})"
        ),
    )


def add_queue(parser: argparse.ArgumentParser) -> None:
    """Add the argument QUEUE."""
    parser.add_argument(
        "queue", metavar="QUEUE", help="path or database URL (default: ALLOCATOR_QUEUE)"
    )


def add_folder_or_queue(parser: argparse.ArgumentParser, metavar: str, folder: str) -> None:
    """Add an argument that is a folder or a queue; `folder` says in the help what it holds."""
    what = f"{folder}, or a queue: a path or database URL (default: ALLOCATOR_QUEUE)"
    parser.add_argument("folder_or_queue", metavar=metavar, help=what)


def add_settings(parser: argparse._ActionsContainer, whose: str, *names: str) -> None:
    """Add options that take the place of settings of config.toml.

    `whose` says in the help whose settings they are, such as "the workload's".
    """
    known = {
        "budget": (number(), "USD", f"US dollars per hour for all GPUs, instead of {whose}"),
        "interval": (
            duration(1e-3),
            "TIME",
            f"seconds between rounds, instead of {whose} interval_s",
        ),
        "ageing": (
            duration(1e-3),
            "TIME",
            f"waiting so long adds a job's weight once more, instead of {whose} ageing_s",
        ),
        "horizon": (
            parse_integer(1),
            "H",
            f"intervals that the policy horizon plans, instead of {whose} [horizon]",
        ),
    }
    for name in names:
        convert, metavar, words = known[name]
        parser.add_argument(f"--{name}", type=convert, metavar=metavar, help=words)


def add_format(parser: argparse._ActionsContainer, *formats: str, about: str = "") -> None:
    """Add --format, of which the first format is the default; `about` explains the others."""
    words = "of standard output" + (f"; {about}" if about else "")
    parser.add_argument(
        "--format", choices=formats, default=formats[0], help=f"{words} (default: {formats[0]})"
    )


def number(at_least: float = 0.0, infinite: bool = False) -> Callable[[str], float]:
    """Return a converter for a number of at least `at_least`; `infinite` allows inf."""

    def convert(text: str) -> float:
        value = float(text)
        if not value >= at_least or (math.isinf(value) and not infinite):
            raise argparse.ArgumentTypeError(f"{text} is not a number >= {at_least:g}")
        return value

    convert.__name__ = "number"
    return convert


HOUR_S = 3600.0
DAY_S = 86400.0


def duration(
    at_least: float = 0.0, infinite: bool = False, unit_s: float = 1.0
) -> Callable[[str], float]:
    """Return a converter for a duration (domain/times.py), in units of `unit_s` seconds.

    A plain number counts in that unit. `at_least` is in it, too; `infinite` allows inf.
    """

    def convert(text: str) -> float:
        from allocator.domain.times import parse_duration

        try:
            value = parse_duration(text, unit_s) / unit_s
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if not value >= at_least or (math.isinf(value) and not infinite):
            raise argparse.ArgumentTypeError(f"{text} is not a number >= {at_least:g}")
        return value

    return convert


def parse_future(text: str) -> float:
    """Return a point in time as unix seconds, counted from now if it is a duration."""
    from allocator.domain.times import parse_time

    try:
        return parse_time(text, time.time())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_integer(at_least: int, at_most: int = 2**31 - 1) -> Callable[[str], int]:
    """Return a converter for a whole number within bounds."""

    def convert(text: str) -> int:
        value = int(text)
        if not at_least <= value <= at_most:
            raise argparse.ArgumentTypeError(
                f"{text} is not a whole number from {at_least} to {at_most}"
            )
        return value

    convert.__name__ = "whole number"
    return convert


def words(text: str) -> tuple[str, ...]:
    """Return the words of a list with commas.

    argparse shows the name of this function if there are none.
    """
    found = tuple(w.strip() for w in text.split(",") if w.strip())
    if not found:
        raise argparse.ArgumentTypeError("a list with nothing in it")
    return found


def _default(time_limit: float | None) -> str:
    if time_limit is None:
        return ""
    return (
        " (default: none)" if math.isinf(time_limit) else f" (default: {time_limit:g}; inf: none)"
    )


def add_effort(
    parser: argparse.ArgumentParser,
    time_limit: float | None = TIME_LIMIT_S,
    of: str = "the decision after reading",
) -> None:
    """Add the options that limit a search, which all deciding commands share.

    Parameters
    ----------
    parser : of the command.
    time_limit : default in seconds; inf: no limit; None: the description of the command says it.
    of : what is limited.
    """
    group = parser.add_argument_group("effort")
    group.add_argument(
        "--solver",
        default="auto",
        metavar="NAME",
        help=("auto (default), highs, cpsat, pulp: who solves the model of policy mip"),
    )
    group.add_argument(
        "--time-limit",
        type=duration(infinite=True),
        default=time_limit,
        metavar="TIME",
        help=f"seconds for {of}; a plan is there by TIME plus one second{_default(time_limit)}",
    )
    group.add_argument(
        "--gap",
        type=number(),
        default=GAP,
        metavar="G",
        help=(
            f"stop when (bound - value) / value is proven to be at most G (default: {GAP:g}; "
            "0: search for a proof that the plan is the best)"
        ),
    )
    group.add_argument(
        "--seed",
        type=parse_integer(0),
        default=0,
        metavar="N",
        help="random seed of the solver (default: 0)",
    )
    group.add_argument(
        "--threads",
        type=parse_integer(1, 1024),
        default=1,
        metavar="N",
        help="threads of the solver (default: 1)",
    )
