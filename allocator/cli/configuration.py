"""Options that are typed every day: a configuration file, and ALLOCATOR_QUEUE.

The file is allocator.toml of the working folder, else allocator/config.toml below XDG_CONFIG_HOME
(~/.config). Its keys are options without their dashes, and `queue`; a table named like a command
holds those of that command alone. The command line counts before the environment, and that before
the file.
"""

import argparse
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocator import Fault, InvalidInput
from allocator.cli.output import Answer, Table, Values, pick, text
from allocator.cli.parsing import Parser, find_commands
from allocator.domain.findings import did_you_mean, input_error, quote

QUEUE_VARIABLE = "ALLOCATOR_QUEUE"
FILE = "allocator.toml"


@dataclass(frozen=True)
class Setting:
    """One value that an option has if the command line does not give it.

    `command`: the words of the only command that it is for; empty: of every one with the option.
    `line` is that of the file, None for the environment or where it is not found.
    """

    command: str
    name: str
    value: Any
    source: str
    line: int | None = None

    def fault(self, message: str) -> InvalidInput:
        """Return the error that the setting is wrong."""
        return input_error(self.source, message, self.line)


def find_file() -> Path | None:
    """Return the configuration file that counts, None if there is none."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    for path in (Path(FILE), Path(home) / "allocator" / "config.toml"):
        if path.is_file():
            return path
    return None


def read_settings(build: Callable[[], Parser]) -> list[Setting]:
    """Return the settings of the file and of the environment; a later one overrules an earlier one.

    Raises
    ------
    InvalidInput
        If the file is no TOML, or has keys that are no options.
    """
    path = find_file()
    settings = []
    if path is not None:
        settings = list(_read_file(path))
        _require_known(settings, build())
    if queue := os.environ.get(QUEUE_VARIABLE):
        settings.append(Setting("", "queue", queue, QUEUE_VARIABLE))
    return settings


def _read_file(path: Path) -> Iterator[Setting]:
    import tomllib

    from allocator.io.config_toml import find_lines

    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, ValueError) as error:
        line = re.search(r"at line (\d+)", str(error))
        raise input_error(
            path, f"cannot be read: {error}", int(line[1]) if line else None
        ) from None
    of_all = {name: value for name, value in document.items() if not isinstance(value, dict)}
    lines = find_lines(text)
    for section, table in {"": of_all, **document}.items():
        if isinstance(table, dict):
            # a table with nothing in it may be misspelt, too
            for name, value in (table or {"": None}).items():
                at = lines.get(f"{section}.{name}" if section else name)
                yield Setting(section, name, value, str(path), at)


def _require_known(settings: list[Setting], top: Parser) -> None:
    """Raise InvalidInput with every key and table that is neither an option nor a command."""
    commands = {" ".join(words): find_options(leaf) for words, leaf in find_commands(top)}
    every = {name for options in commands.values() for name in options}
    faults = []
    for setting in settings:
        options = commands.get(setting.command, {}) if setting.command else every
        if setting.command and setting.command not in commands:
            message = f"{quote(setting.command)} is no command" + did_you_mean(
                setting.command, commands
            )
        elif setting.name and setting.name not in options:
            dashed = setting.name.replace("_", "-")
            near = did_you_mean(setting.name, {dashed} & set(options) or options)
            message = f"{quote(setting.name)} is no option that a file can set{near}"
        else:
            continue
        faults.append(Fault(setting.source, setting.line, message))
    if faults:
        raise InvalidInput(faults)


def find_options(leaf: Parser) -> Mapping[str, argparse.Action]:
    """Return the options of a command that a file can set, by name.

    Those that may be given several times or that are required are left to the command line.
    """
    options: dict[str, argparse.Action] = {}
    for action in leaf._actions:
        if action.dest in ("queue", "folder_or_queue") and not action.option_strings:
            options["queue"] = action
        elif (
            isinstance(action, (argparse._StoreAction, argparse._StoreTrueAction))
            and action.option_strings
            and action.nargs in (None, 0)
            and not action.required
        ):
            options[action.option_strings[-1].lstrip("-")] = action
    return options


def apply_settings(build: Callable[[], Parser], words: tuple[str, ...], leaf: Parser) -> None:
    """Give a command the defaults of the file and of the environment.

    Raises
    ------
    InvalidInput
        If a value is none that the option can have.
    """
    options = find_options(leaf)
    for setting in read_settings(build):
        action = options.get(setting.name)
        if action is None or setting.command not in ("", " ".join(words)):
            continue
        if setting.name == "queue":
            leaf.default_queue = str(setting.value)
        else:
            action.default = _convert(leaf, action, setting)


def _convert(leaf: Parser, action: argparse.Action, setting: Setting) -> Any:
    value = setting.value
    if isinstance(action, argparse._StoreTrueAction):
        if not isinstance(value, bool):
            raise setting.fault(f"{setting.name} is {value!r}, not true or false")
        return value
    if isinstance(value, list):
        value = ",".join(map(str, value))
    try:
        converted = leaf._get_value(action, str(value))
        leaf._check_value(action, converted)
    except argparse.ArgumentError as error:
        raise setting.fault(f"{setting.name}: {error.message}") from None
    return converted


def config(args: argparse.Namespace) -> Answer:
    path = find_file()
    settings = [s for s in read_settings(args.command_line) if s.name]
    rows: list[Values] = []
    for n, setting in enumerate(settings):
        overruling = {s.command for s in settings[n + 1 :] if s.name == setting.name}
        rows.append(
            {
                "command": setting.command or None,
                "option": setting.name,
                **pick(setting, "value", "source", "line"),
                "counts": overruling.isdisjoint(("", setting.command)),
            }
        )
    head = f"configuration file: {text(path or 'none')}"
    document = {"file": None if path is None else str(path), "settings": rows}
    return Answer(document, [head, *([Table.of("defaults", rows)] if rows else [])])
