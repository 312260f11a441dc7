"""The argument parser of all commands: help that starts with examples, and checked numbers."""

from __future__ import annotations

import argparse
import math
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, NoReturn, TypeVar

from allocator.errors import UsageError
from allocator.solvers.effort import GAP, TIME_LIMIT_S

Options = TypeVar("Options")


class WrongCommandLine(UsageError):
    """A command line that the parser refuses: what is wrong, then a line of usage."""

    def __init__(self, message: str, usage: str) -> None:
        super().__init__(f"{message}\n{usage}")
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


class Argument(NamedTuple):
    """An option or a positional argument: its name, and the keywords of `add_argument`."""

    name: str
    how: Mapping[str, Any]


class ArgumentGroup(NamedTuple):
    """Arguments below a title of their own; without a title they exclude each other."""

    title: str
    arguments: Sequence[Argument | ArgumentGroup]
    is_required: bool = False


def option(
    name: str,
    metavar: str | None,
    words: str | None,
    kind: Any = None,
    default: Any = None,
    **how: Any,
) -> Argument:
    """Return an argument with a value, which `kind` converts; `words` are its help."""
    said = {"metavar": metavar, "help": words, "type": kind, "default": default}
    return Argument(name, said | how)


def repeated(name: str, metavar: str, words: str, **how: Any) -> Argument:
    """Return an option that may be given several times, whose values are a list."""
    return Argument(
        name, {"action": "append", "default": [], "metavar": metavar, "help": words} | how
    )


def flag(name: str, words: str, **how: Any) -> Argument:
    """Return an option without a value."""
    return Argument(name, {"action": "store_true", "help": words} | how)


def one_of(*arguments: Argument, is_required: bool = False) -> ArgumentGroup:
    """Return arguments of which a command line may give one."""
    return ArgumentGroup("", arguments, is_required)


def group(title: str, *arguments: Argument | ArgumentGroup) -> ArgumentGroup:
    """Return arguments below a title of their own."""
    return ArgumentGroup(title, arguments)


@dataclass(frozen=True)
class Command:
    """A command: what its help says, its arguments in their order, and the function to call."""

    name: str
    words: str
    about: str
    examples: str
    arguments: Sequence[Argument | ArgumentGroup]
    call: Callable[[Namespace], int]
    takes_command: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    epilog: str | None = None

    def add(self, commands: Any, is_whole: bool = True) -> None:
        """Add the command to the subcommands of a parser, or only its name and what it is for."""
        if not is_whole:
            commands.add_parser(self.name, help=self.words)
            return
        parser = commands.add_parser(
            self.name,
            examples=self.examples,
            help=self.words,
            description=self.about,
            epilog=self.epilog,
        )
        add_arguments(parser, self.arguments)
        parser.takes_command = self.takes_command
        parser.set_defaults(call=self.call, **self.defaults)


@dataclass(frozen=True)
class CommandGroup:
    """A command that does nothing but name others."""

    name: str
    words: str
    about: str
    examples: str
    commands: Sequence[Command | CommandGroup]
    title: str = "verbs"
    metavar: str = "VERB"

    def add(self, commands: Any, is_whole: bool = True) -> None:
        """Add the command and those below it, or only its name and what it is for."""
        if not is_whole:
            commands.add_parser(self.name, help=self.words)
            return
        parser = commands.add_parser(
            self.name, examples=self.examples, help=self.words, description=self.about
        )

        def call(_args: Namespace) -> int:
            parser.print_help(sys.stderr)
            return 2

        parser.set_defaults(call=call)
        below = parser.add_subparsers(
            title=self.title, metavar=self.metavar, parser_class=type(parser)
        )
        for command in self.commands:
            command.add(below)


def command(
    name: str,
    words: str,
    about: str,
    examples: str,
    *arguments: Argument | ArgumentGroup,
    **more: Any,
) -> Callable[[Callable[[Namespace], int]], Command]:
    """Make the command of a function."""
    return lambda call: Command(name, words, about, examples, arguments, call, **more)


def add_arguments(
    parser: argparse._ActionsContainer, arguments: Sequence[Argument | ArgumentGroup]
) -> None:
    """Add arguments and groups of them to a parser, in their order."""
    for one in arguments:
        if isinstance(one, Argument):
            parser.add_argument(one.name, **one.how)
        elif one.title:
            add_arguments(parser.add_argument_group(one.title), one.arguments)
        else:
            exclusive = parser.add_mutually_exclusive_group(required=one.is_required)
            add_arguments(exclusive, one.arguments)


def take(options: type[Options], args: Namespace, **more: Any) -> Options:
    """Return an options class with the arguments that were given and are named like its fields."""
    given = {f.name: getattr(args, f.name, None) for f in fields(options)}  # type: ignore[arg-type]
    return options(**{name: value for name, value in given.items() if value is not None}, **more)


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


def objective(default: str = "as config.toml says") -> Argument:
    """Return --objective, in the form that domain/objectives.py reads."""
    from formulations.objectives import BUILT_IN

    words = (
        f"{', '.join(BUILT_IN)}; or a sum, "
        f"'completion=1,cost=0.2'; or ranks, 'fairness > completion' (default: {default})"
    )
    return option("--objective", "NAME", words)


QUEUE = option("queue", "QUEUE", "path or database URL (default: ALLOCATOR_QUEUE)")
SNAPSHOT = option("snapshot", "SNAPSHOT", "snapshot folder")
POLICY = option("--policy", "NAME", "who decides (default: mip)", default="mip")


def folder_or_queue(metavar: str, folder: str) -> Argument:
    """Return an argument that is a folder or a queue; `folder` says in the help what it holds."""
    what = f"{folder}, or a queue: a path or database URL (default: ALLOCATOR_QUEUE)"
    return option("folder_or_queue", metavar, what)


def formats(*names: str, about: str = "") -> Argument:
    """Return --format, of which the first format is the default; `about` explains the others."""
    words = "of standard output" + (f"; {about}" if about else "")
    return option(
        "--format", None, f"{words} (default: {names[0]})", default=names[0], choices=names
    )


def number(at_least: float = 0.0, infinite: bool = False) -> Callable[[str], float]:
    """Return a converter for a number of at least `at_least`; `infinite` allows inf."""

    def convert(text: str) -> float:
        return _in_range(float(text), text, at_least, infinite)

    convert.__name__ = "number"
    return convert


def _in_range(value: float, text: str, at_least: float, infinite: bool) -> float:
    if not value >= at_least or (math.isinf(value) and not infinite):
        least = f">= {at_least:g}" if not 0 < at_least < 1e-3 else "above 0"
        raise argparse.ArgumentTypeError(f"{text} is not a number {least}")
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

        try:
            value = parse_duration(text, unit_s) / unit_s
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return _in_range(value, text, at_least, infinite)

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


def many(convert: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Return a converter for a list with commas of what another one converts."""

    def convert_all(text: str) -> tuple[Any, ...]:
        try:
            return tuple(map(convert, words(text)))
        except ValueError:
            form = f"write {convert.__name__}s with commas, such as 2,4,8"
            raise argparse.ArgumentTypeError(f'"{text}": {form}') from None

    convert_all.__name__ = f"list of {convert.__name__}s"
    return convert_all


def pair(form: str, convert: Callable[[str], Any] = str) -> Callable[[str], tuple[str, Any]]:
    """Return a converter for a name and a value, which `form` shows: POOL=GPUS."""

    def split(text: str) -> tuple[str, Any]:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise argparse.ArgumentTypeError(f"{text}: write {form}")
        return name.strip(), convert(value)

    split.__name__ = form
    return split


def settings(whose: str, *names: str) -> Iterator[Argument]:
    """Yield options that take the place of settings of config.toml.

    `whose` says in the help whose settings they are, such as "the workload's".
    """
    for name, metavar, words, kind, how in (
        ("budget", "USD", f"US dollars per hour for all GPUs, instead of {whose}", number(), {}),
        (
            "interval",
            "TIME",
            f"seconds between rounds, instead of {whose} interval_s",
            duration(1e-3),
            {"dest": "interval_s"},
        ),
        (
            "ageing",
            "TIME",
            f"waiting so long adds a job's weight once more, instead of {whose} ageing_s",
            duration(1e-3),
            {"dest": "ageing_s"},
        ),
        (
            "horizon",
            "H",
            f"intervals that the policy horizon plans, instead of {whose} [horizon]",
            parse_integer(1),
            {},
        ),
    ):
        if name in names:
            yield option(f"--{name}", metavar, words, kind, **how)


def effort(
    time_limit: float | None = TIME_LIMIT_S, of: str = "the decision after reading"
) -> ArgumentGroup:
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
            "--solver",
            "NAME",
            "auto (default), highs, cpsat, pulp: who solves the model of policy mip",
            default="auto",
        ),
        option(
            "--time-limit",
            "TIME",
            f"seconds for {of}; a plan is there by TIME plus one second{default}",
            duration(infinite=True),
            time_limit,
            dest="time_limit_s",
        ),
        option(
            "--gap",
            "G",
            f"stop when (bound - value) / value is proven to be at most G (default: {GAP:g}; "
            "0: search for a proof that the plan is the best)",
            number(),
            GAP,
        ),
        option("--seed", "N", "random seed of the solver (default: 0)", parse_integer(0), 0),
        option("--threads", "N", "threads of the solver (default: 1)", parse_integer(1, 1024), 1),
    )
