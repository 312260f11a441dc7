"""The argument parser of all commands: help that starts with examples, and checked numbers."""

from __future__ import annotations

import argparse
import math
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from inspect import cleandoc
from textwrap import fill
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from allocator import UsageError
from allocator.domain.findings import did_you_mean
from allocator.solvers.effort import GAP, TIME_LIMIT_S

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
            parsed = self._parse(words, namespace)
        else:
            parsed = self._parse_with_queue(words, namespace, self.default_queue)
        if self.takes_command:
            parsed.command = rest
        return parsed, []

    def _parse_with_queue(
        self, given: list[str], namespace: Namespace | None, queue: str
    ) -> Namespace:
        """Parse with the queue or folder that is given, else with the default queue."""
        try:
            parsed = self._parse(given, copy(namespace))
        except WrongCommandLine:
            if any(map(is_queue, given)):
                raise
        else:
            if "folder_or_queue" in parsed or is_queue(parsed.queue):
                return parsed
        return self._parse([queue, *given], namespace)

    def _parse(self, given: list[str], namespace: Namespace | None) -> Namespace:
        parsed, unknown = super().parse_known_args(given, namespace)
        if unknown:
            near = did_you_mean(unknown[0].partition("=")[0], self._option_string_actions)
            if self.takes_command and not unknown[0].startswith("-"):
                near = "; write -- before the command of the job"
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return parsed

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        convert = self._registry_get("type", action.type, action.type)
        try:
            return convert(arg_string)
        except ValueError as error:
            raise argparse.ArgumentError(action, str(error)) from None

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


Add = Callable[[argparse._ActionsContainer], object]
"""Adds an argument, or a group of them, to a parser."""


def option(
    form: str, words: str | None = None, kind: Any = None, default: Any = None, **how: Any
) -> Add:
    """Return an argument, as `--limit N`, whose value `kind` converts; `words` are its help."""
    name, _, metavar = form.partition(" ")
    given = {"metavar": metavar or None, "help": words, "type": kind, "default": default} | how
    return lambda parser: parser.add_argument(name, **given)


def seconds(
    form: str,
    words: str,
    at_least: float = 0.0,
    default: float | None = None,
    infinite: bool = False,
    dest: str = "",
) -> Add:
    """Return an option for a duration; the argument of `--react TIME` is `react_s`."""
    name = form.partition(" ")[0].strip("-").replace("-", "_")
    return option(form, words, duration(at_least, infinite), default, dest=dest or f"{name}_s")


def repeated(form: str, words: str, kind: Any = None, default: Any = (), **how: Any) -> Add:
    """Return an option that may be given several times, whose values are a list."""
    given = None if default is None else [*default]
    return option(form, words, kind, given, action="append", **how)


def flag(name: str, words: str, **how: Any) -> Add:
    """Return an option without a value."""
    return lambda parser: parser.add_argument(
        name, **({"action": "store_true", "help": words} | how)
    )


def one_of(*arguments: Add, is_required: bool = False) -> Add:
    """Return arguments of which a command line may give one."""
    return lambda parser: add_to(
        parser.add_mutually_exclusive_group(required=is_required), arguments
    )


def group(title: str, *arguments: Add) -> Add:
    """Return arguments below a title of their own."""
    return lambda parser: add_to(parser.add_argument_group(title), arguments)


def add_to(parser: argparse._ActionsContainer, arguments: Sequence[Add]) -> None:
    """Add arguments to a parser or a group of it, in their order."""
    for argument in arguments:
        argument(parser)


@dataclass(frozen=True)
class Command:
    """A command: what its help says, its arguments in their order, and the commands below it.

    `call` names its function and the module of that, such as "plan.solve:solve"; the module is
    imported when the command runs. `title` is that of the commands below.
    """

    name: str
    words: str
    about: str
    examples: str
    call: str = ""
    arguments: Sequence[Add] = ()
    takes_command: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    epilog: str | None = None
    below: Sequence[Command] = ()
    title: str = "verbs"

    def add(self, commands: Any, is_whole: bool = True) -> None:
        """Add the command to those of a parser, or only its name and what it is for."""
        if not is_whole:
            commands.add_parser(self.name, help=self.words)
            return
        parser = commands.add_parser(
            self.name,
            examples=cleandoc(self.examples),
            help=self.words,
            description=_join_lines(self.about),
            epilog=self.epilog,
        )
        add_to(parser, self.arguments)
        parser.takes_command = self.takes_command
        parser.set_defaults(call=self.call, parser=parser, **self.defaults)
        if self.below:
            metavar = self.title.upper().removesuffix("S")
            below = parser.add_subparsers(
                title=self.title, metavar=metavar, parser_class=type(parser)
            )
            for command in self.below:
                command.add(below)


def command(
    name: str, words: str, about: str, examples: str, call: str = "", *arguments: Add, **more: Any
) -> Command:
    """Return a command with these arguments; the rest is as of `Command`."""
    return Command(name, words, about, examples, call, arguments, **more)


def _join_lines(text: str) -> str:
    """Return paragraphs as a line each."""
    return "\n\n".join(" ".join(part.split()) for part in cleandoc(text).split("\n\n"))


def take(options: type[Options], args: Namespace, **more: Any) -> Options:
    """Return an options class with the arguments that were given and are named like its fields."""
    names = [f.name for f in fields(options)]  # type: ignore[arg-type]
    return options(**find_given(args, names) | more)


def find_given(args: Namespace, names: Collection[str]) -> dict[str, Any]:
    """Return the arguments of these names that were given."""
    return {n: value for n, value in vars(args).items() if n in names and value is not None}


def add_common_options(parser: Parser) -> None:
    """Add the options that every command has."""
    common = parser.add_argument_group("of every command")
    for names, words in (
        (["--json"], "the result as JSON, and an error as JSON too"),
        (["-q", "--quiet"], "results and warnings: no notes, no progress"),
        (["-v", "--verbose"], "what is read, and how long it takes, too"),
    ):
        common.add_argument(*names, action="store_true", help=words)
    parser.set_defaults(format=parser.get_default("format") or "text")


def objective(default: str = "as config.toml says") -> Add:
    """Return --objective, in the form that domain/objectives.py reads."""
    from formulations.objectives import BUILT_IN

    words = (
        f"{', '.join(BUILT_IN)}; or a sum, "
        f"'completion=1,cost=0.2'; or ranks, 'fairness > completion' (default: {default})"
    )
    return option("--objective NAME", words)


QUEUE = option("queue QUEUE", "path or database URL (default: ALLOCATOR_QUEUE)")
SNAPSHOT = option("snapshot SNAPSHOT", "snapshot folder")
POLICY = option("--policy NAME", "who decides (default: mip)", default="mip")


def folder_or_queue(metavar: str, folder: str) -> Add:
    """Return an argument that is a folder or a queue; `folder` says in the help what it holds."""
    what = f"{folder}, or a queue: a path or database URL (default: ALLOCATOR_QUEUE)"
    return option(f"folder_or_queue {metavar}", what)


def formats(*names: str, about: str = "") -> Add:
    """Return --format, of which the first format is the default; `about` explains the others."""
    words = "of standard output" + (f"; {about}" if about else "")
    return option("--format", f"{words} (default: {names[0]})", default=names[0], choices=names)


TABLE = formats("table", "json")
TABLE_OR_CSV = formats("table", "json", "csv")


def number(at_least: float = 0.0, infinite: bool = False) -> Callable[[str], float]:
    """Return a converter for a number of at least `at_least`; `infinite` allows inf."""

    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        return _in_range(value, text, at_least, infinite)

    convert.__name__ = "number"
    return convert


def _in_range(value: float, text: str, at_least: float, infinite: bool) -> float:
    if not value >= at_least or (math.isinf(value) and not infinite):
        least = f">= {at_least:g}" if not 0 < at_least < 1e-3 else "above 0"
        raise ValueError(f"{text} is not a number {least}")
    return value


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

        return _in_range(parse_duration(text, unit_s) / unit_s, text, at_least, infinite)

    return convert


def parse_future(text: str) -> float:
    """Return a point in time as unix seconds, counted from now if it is a duration."""
    from allocator.domain.times import parse_time

    return parse_time(text, time.time())


def parse_integer(at_least: int, at_most: int = 2**31 - 1) -> Callable[[str], int]:
    """Return a converter for a whole number within bounds."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = at_least - 1
        if not at_least <= value <= at_most:
            raise ValueError(f"{text} is not a whole number from {at_least} to {at_most}")
        return value

    convert.__name__ = "whole number"
    return convert


def words(text: str) -> tuple[str, ...]:
    """Return the words of a list with commas."""
    parts = tuple(w.strip() for w in text.split(",") if w.strip())
    if not parts:
        raise ValueError("a list with nothing in it")
    return parts


def many(convert: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Return a converter for a list with commas of what another one converts."""

    def convert_all(text: str) -> tuple[Any, ...]:
        try:
            return tuple(map(convert, words(text)))
        except ValueError as error:
            form = f"write {convert.__name__}s with commas, such as 2,4,8"
            raise ValueError(f"{error}: {form}") from None

    return convert_all


def pair(form: str, convert: Callable[[str], Any] = str) -> Callable[[str], tuple[str, Any]]:
    """Return a converter for a name and a value, which `form` shows: POOL=GPUS."""

    def split(text: str) -> tuple[str, Any]:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise ValueError(f"{text}: write {form}")
        return name.strip(), convert(value)

    return split


def settings(whose: str, *names: str) -> Iterator[Add]:
    """Yield options that take the place of settings of config.toml.

    `whose` says in the help whose settings they are, such as "the workload's".
    """
    known = {
        "budget": option(
            "--budget USD", f"US dollars per hour for all GPUs, instead of {whose}", number()
        ),
        "interval": seconds(
            "--interval TIME", f"seconds between rounds, instead of {whose} interval_s", 1e-3
        ),
        "ageing": seconds(
            "--ageing TIME",
            f"waiting so long adds a job's weight once more, instead of {whose} ageing_s",
            1e-3,
        ),
        "horizon": option(
            "--horizon H",
            f"intervals that the policy horizon plans, instead of {whose} [horizon]",
            parse_integer(1),
        ),
    }
    return map(known.__getitem__, names)


def effort(time_limit: float | None = TIME_LIMIT_S, of: str = "the decision after reading") -> Add:
    """Return the options that limit a search, which all deciding commands share.

    Parameters
    ----------
    time_limit : default in seconds; inf: no limit; None: the description of the command says it.
    of : what is limited.
    """
    default = (
        ""
        if time_limit is None
        else " (default: none)"
        if math.isinf(time_limit)
        else f" (default: {time_limit:g}; inf: none)"
    )
    return group(
        "effort",
        option(
            "--solver NAME",
            "auto (default), highs, cpsat, pulp: who solves the model of policy mip",
            default="auto",
        ),
        seconds(
            "--time-limit TIME",
            f"seconds for {of}; a plan is there by TIME plus one second{default}",
            default=time_limit,
            infinite=True,
        ),
        option(
            "--gap G",
            f"stop when (bound - value) / value is proven to be at most G (default: {GAP:g}; "
            "0: search for a proof that the plan is the best)",
            number(),
        ),
        option("--seed N", "random seed of the solver (default: 0)", parse_integer(0)),
        option("--threads N", "threads of the solver (default: 1)", parse_integer(1, 1024)),
    )


def read_limits(args: Namespace, **more: Any) -> SolveLimits:
    """Return the limits that the options of `effort` ask for."""
    from allocator.solvers.base import SolveLimits

    return take(SolveLimits, args, time_s=args.time_limit_s, **more)
