"""The commands as commands.toml declares them, added to a parser.

What the help of a command line that names a command needs is made for that command alone.
"""

import argparse
import tomllib
from argparse import SUPPRESS
from collections.abc import Iterator, Mapping, Sequence
from inspect import cleandoc
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from allocator.cli import parsing
from allocator.cli.job_options import job_options
from allocator.cli.parsing import Parser, many, number, parse_integer
from allocator.io.formats import FormatEntry
from allocator.io.markets.registry import MARKETS
from allocator.io.traces.registry import FORMATS
from allocator.solvers.effort import GAP
from formulations.objectives import BUILT_IN

Table = Mapping[str, Any]
DECLARED: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("commands.toml").read_text(encoding="utf-8")
)
SHARED: Table = DECLARED.pop("shared")
TEMPLATES: Table = DECLARED.pop("formats")
BOUNDS = ("low", "high", "infinite", "unit", "form", "whole")
BOUNDED: Table = {
    "number": number,
    "numbers": lambda **bounds: many(number(**bounds)),
    "integer": parse_integer,
    "integers": lambda **bounds: many(parse_integer(**bounds)),
    "time": parsing.duration,
    "seconds": parsing.duration,
    "pair": parsing.pair,
}
"""What makes the converter of a kind of values from its BOUNDS."""
KINDS: Table = {
    **BOUNDED,
    "flag": None,
    "text": None,
    "path": Path,
    "moment": parsing.parse_future,
    "list": parsing.words,
    "commas": lambda text: text.split(","),
    "value_or_share": parsing.parse_value_or_share,
    "shares": parsing.parse_shares,
    "span": parsing.parse_span,
    "gpus_by_type": parsing.parse_gpus,
}
"""What converts the value of an argument of each kind."""
USUAL = {"objectives": ", ".join(BUILT_IN), "default": "as config.toml says", "gap": GAP}
"""Words of shared arguments where a command has none of its own."""
ANY = FormatEntry("", "FILE", "whichever of the formats below the file is")


def add_commands(parser: Parser, given: Sequence[str] | None) -> None:
    """Add all commands; of those that the words of a command line do not name only their names."""
    below = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for name, table in DECLARED.items():
        if "group" in table:
            parser.headings[name] = table["group"]
        if " " not in name:
            _add_command(below, name, table, is_whole=given is None or name in given)


def _add_command(commands: Any, name: str, table: Table, is_whole: bool = True) -> None:
    words, last = table["words"], name.rpartition(" ")[2]
    if not is_whole:
        commands.add_parser(last, help=words)
        return
    epilog = table.get("epilog")
    parser = commands.add_parser(
        last,
        examples=table["examples"],
        help=words,
        description=_join_lines(table.get("about", f"{words[0].upper()}{words[1:]}.")),
        epilog=epilog and resolve_name(epilog)(),
    )
    _add_arguments(parser, table.get("arguments", {}))
    parser.takes_command = table.get("takes_command", False)
    function = {"function": table["verb"]} if "verb" in table else {}
    call = table.get("call", "queue.verbs:call" if function else "")
    parser.set_defaults(call=call, parser=parser, **function, **table.get("defaults", {}))
    tables = list(_list_formats() if name == "import" else DECLARED.items())
    inner = [(n, t) for n, t in tables if n.rpartition(" ")[0] == name]
    if inner:
        title = table.get("title", "verbs")
        metavar = title.upper().removesuffix("S")
        below = parser.add_subparsers(title=title, metavar=metavar, parser_class=Parser)
        for one in inner:
            _add_command(below, *one)


def _list_formats() -> Iterator[tuple[str, Table]]:
    """Yield the commands that import a format of traces or of spot markets."""
    every = {"jobs": {"auto": ANY, **FORMATS}, "market": MARKETS}
    for kind, entries in every.items():
        for name, entry in entries.items():
            said = {"name": name, "source": entry.source, "words": entry.help}
            table = _fill(TEMPLATES[kind], said)
            if kind == "jobs":
                extras = {
                    f"--{e.name} {e.metavar}": {
                        "text": e.help,
                        "several": True,
                        "dest": f"extra_{e.name}",
                    }
                    for e in entry.extras
                }
                table["arguments"] |= {"this format": extras} if extras else {}
                table["arguments"] |= {"+imported_jobs": {}}
                table["defaults"]["extras"] = [e.name for e in entry.extras]
            yield f"import {name}", table


def _fill(value: Any, said: Table) -> Any:
    """Return declared values with words in place of their {names}."""
    if isinstance(value, dict):
        return {_fill(key, said): _fill(inner, said) for key, inner in value.items()}
    return value.format_map(said) if isinstance(value, str) else value


def _add_arguments(parser: argparse._ActionsContainer, declared: Table) -> None:
    for form, how in declared.items():
        if form == "+job_options":
            _add_arguments(parser, job_options(**how))
        elif form == "+formats":
            _add_formats(parser, **how)
        elif form.startswith("+"):
            _add_arguments(parser, _fill(SHARED[form[1:]], USUAL | how))
        elif form in ("one_of", "any_of"):
            exclusive = parser.add_mutually_exclusive_group(required=form == "any_of")
            _add_arguments(exclusive, how)
        elif KINDS.keys() & how.keys():
            _add_argument(parser, form, **how)
        else:
            known = {group.title: group for group in parser._action_groups}
            _add_arguments(known.get(form) or parser.add_argument_group(form), how)


def _add_argument(
    parser: argparse._ActionsContainer, named: str, several: bool = False, **how: Any
) -> None:
    name, _, metavar = named.partition(" ")
    kind = next(key for key in how if key in KINDS)
    words = how.pop(kind) or None
    more: dict[str, Any] = {"help": SUPPRESS if words == SUPPRESS else words}
    bounds = {key: how.pop(key) for key in BOUNDS if key in how}
    if kind == "flag":
        more["action"] = "store_true"
    else:
        convert = BOUNDED[kind](**bounds) if kind in BOUNDED else KINDS[kind]
        more |= {"metavar": metavar or None, "type": convert}
    if kind == "seconds":
        more["dest"] = f"{name.strip('-').replace('-', '_')}_s"
    if several:
        more |= {"action": "append", "default": []}
    if isinstance(how.get("choices"), str):
        how["choices"] = resolve_name(how["choices"])
    parser.add_argument(name, **more | how)


def _add_formats(parser: argparse._ActionsContainer, of: Sequence[str], about: str = "") -> None:
    """Add --format, of which the first format is the default; `about` explains the others."""
    words = f"of standard output{about and '; '}{about} (default: {of[0]})"
    parser.add_argument("--format", help=words, default=of[0], choices=of)


def _join_lines(text: str) -> str:
    """Return paragraphs as a line each."""
    return "\n\n".join(" ".join(part.split()) for part in cleandoc(text).split("\n\n"))
