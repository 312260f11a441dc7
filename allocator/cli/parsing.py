"""The argument parser of all commands: help that starts with examples, and checked numbers."""

from __future__ import annotations

import argparse
import math
import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import fields
from textwrap import fill
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from allocator import UsageError
from allocator.domain.findings import did_you_mean

if TYPE_CHECKING:
    from allocator.solvers.base import SolveLimits

Options = TypeVar("Options")


class WrongCommandLine(UsageError):
    """A command line that the parser refuses: what is wrong, then a line of usage."""

    def __init__(self, message: str, usage: str) -> None:
        super().__init__(f"{message}\n{usage}")
        self.message = message


class Help(argparse.RawDescriptionHelpFormatter):
    """Breaks paragraphs into lines, and makes the column of commands wide enough for the longest.

    argparse measures commands without the indent that it adds later.
    """

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        for inner in self._iter_indented_subactions(action):
            length = len(self._format_action_invocation(inner)) + self._current_indent
            self._action_max_length = max(self._action_max_length, length)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(
            line
            if line.startswith(" ")
            else fill(line, min(width, 100), break_long_words=False, break_on_hyphens=False)
            for line in text.splitlines()
        )


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
        names = [str(a.metavar or a.dest) for a in self._get_positional_actions()]
        usage = f"usage: {' '.join([self.prog, *names])} [options]; --help has options and examples"
        raise WrongCommandLine(f"{self.prog}: error: {message}", usage)

    def parse_known_args(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        namespace: Namespace | None = None,
    ) -> tuple[Namespace, list[str]]:
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
        self, given: list[str], namespace: Namespace | None, queue: str
    ) -> Namespace:
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

    def _parse(self, given: list[str], namespace: Namespace | None) -> Namespace:
        found, unknown = super().parse_known_args(given, namespace)
        if unknown:
            near = did_you_mean(unknown[0].partition("=")[0], self._option_string_actions)
            if self.takes_command and not unknown[0].startswith("-"):
                near = "; write -- before the command of the job"
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = did_you_mean(str(value), map(str, action.choices or ()))
            message = f'unknown value "{value}"{near}' if near else error.message
            raise argparse.ArgumentError(action, message) from None


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


def take(options: type[Options], args: Namespace, **more: Any) -> Options:
    """Return an options class with the arguments that were given and are named like its fields."""
    given = {f.name: getattr(args, f.name, None) for f in fields(options)}  # type: ignore[arg-type]
    return options(**{name: value for name, value in given.items() if value is not None} | more)


def add_common_options(parser: Parser) -> None:
    """Add the options that every command has."""
    common = parser.add_argument_group("of every command")
    for names, words in (
        (["--json"], "the result as JSON, and an error as JSON too"),
        (["-q", "--quiet"], "results and warnings: no notes, no progress"),
        (["-v", "--verbose"], "what is read, and how long it takes, too"),
    ):
        common.add_argument(*names, action="store_true", help=words)
    if not any(action.dest == "format" for action in parser._actions):
        parser.set_defaults(format="text")


def number(low: float = 0.0, infinite: bool = False) -> Callable[[str], float]:
    """Return a converter for a number of at least `low`; `infinite` allows inf."""

    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        return _in_range(value, text, low, infinite)

    convert.__name__ = "number"
    return convert


def _in_range(value: float, text: str, low: float, infinite: bool) -> float:
    if not value >= low or (math.isinf(value) and not infinite):
        least = f">= {low:g}" if not 0 < low < 1e-3 else "above 0"
        raise ArgumentTypeError(f"{text} is not a number {least}")
    return value


UNITS_S = {"s": 1.0, "h": 3600.0, "d": 86400.0}


def duration(low: float = 0.0, infinite: bool = False, unit: str = "s") -> Callable[[str], float]:
    """Return a converter for a duration (domain/times.py), in a unit of UNITS_S.

    A plain number counts in that unit. `low` is in it, too; `infinite` allows inf.
    """

    def convert(text: str) -> float:
        from allocator.domain.times import parse_duration

        try:
            value = parse_duration(text, UNITS_S[unit]) / UNITS_S[unit]
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None
        return _in_range(value, text, low, infinite)

    return convert


def parse_future(text: str) -> float:
    """Return a point in time as unix seconds, counted from now if it is a duration."""
    from allocator.domain.times import parse_time

    try:
        return parse_time(text, time.time())
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def parse_integer(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    """Return a converter for a whole number within bounds."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise ArgumentTypeError(f"{text} is not a whole number from {low} to {high}")
        return value

    convert.__name__ = "whole number"
    return convert


def words(text: str) -> tuple[str, ...]:
    """Return the words of a list with commas.

    argparse shows the name of this function if there are none.
    """
    found = tuple(w.strip() for w in text.split(",") if w.strip())
    if not found:
        raise ArgumentTypeError("a list with nothing in it")
    return found


def many(convert: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Return a converter for a list with commas of what another one converts."""

    def convert_all(text: str) -> tuple[Any, ...]:
        try:
            return tuple(map(convert, words(text)))
        except ArgumentTypeError as error:
            form = f"write {convert.__name__}s with commas, such as 2,4,8"
            raise ArgumentTypeError(f"{error}: {form}") from None

    convert_all.__name__ = f"list of {convert.__name__}s"
    return convert_all


def pair(form: str, whole: bool = False) -> Callable[[str], tuple[str, Any]]:
    """Return a converter for a name and a value, which `form` shows: POOL=GPUS."""

    def split(text: str) -> tuple[str, Any]:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise ArgumentTypeError(f"{text}: write {form}")
        return name.strip(), int(value) if whole else value

    split.__name__ = form
    return split


def parse_value_or_share(text: str) -> tuple[float, bool]:
    """Return (value, whether it is a share) of '95%' or '12.5'."""
    share = text.strip().endswith("%")
    value = number()(text.strip().removesuffix("%")) / (100.0 if share else 1.0)
    if share and value > 1:
        raise ArgumentTypeError(f"{text} is no share from 0% to 100%")
    return value, share


def parse_gpus(text: str) -> int | dict[str, int]:
    """Return a number of GPUs, or numbers by type as "a100=8,v100=16"."""
    whole = parse_integer(1, 10_000_000)
    if "=" not in text:
        return whole(text)
    pairs = [part.rpartition("=") for part in text.split(",")]
    return {name.strip(): whole(n) for name, _, n in pairs}


def parse_shares(text: str) -> tuple[float, ...]:
    """Return the shares of a list that are above 0."""
    found = many(number())(text)
    if any(share > 1 for share in found):
        raise ArgumentTypeError(f"{text}: a share is a number from 0 to 1")
    return tuple(share for share in found if share > 0)


def parse_span(text: str) -> tuple[float, float]:
    """Return the ends of LOW..HIGH, multiples of the size asked for."""
    try:
        low, high = map(number(), text.split(".."))
    except ValueError:
        raise ArgumentTypeError(f"{text} is not LOW..HIGH") from None
    if not low <= 1 <= high:
        raise ArgumentTypeError(f"{text} does not hold 1, the size asked for")
    return low, high


def read_limits(args: Namespace, **more: Any) -> SolveLimits:
    """Return the limits that the options of `effort` ask for."""
    from allocator.solvers.base import SolveLimits

    return take(SolveLimits, args, time_s=args.time_limit_s, **more)
