"""`allocator config`: the configuration that counts here, and where each value comes from."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from allocator.cli.configuration import FILE, Setting, find_file, read_settings
from allocator.cli.output import show_result

EXAMPLES = """
allocator config                         what counts here, and where it comes from
allocator config --json
"""
ABOUT = f"""\
Show the values that options have if the command line does not give them: those of {FILE} in the
working folder, else of $XDG_CONFIG_HOME/allocator/config.toml (~/.config/allocator), and of
ALLOCATOR_QUEUE. The command line counts before the environment, and that before the file."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "config", examples=EXAMPLES, help="defaults of options: what counts here", description=ABOUT
    )
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    path = find_file()
    settings = [s for s in read_settings(args.command_line) if s.name]
    document = {
        "file": None if path is None else str(path),
        "settings": [
            {
                "command": s.command or None,
                "option": s.name,
                "value": s.value,
                "source": s.source,
                "line": s.line,
                "counts": not _is_overruled(s, settings[n + 1 :]),
            }
            for n, s in enumerate(settings)
        ],
    }
    show_result(args.format, document, lambda: _show(document))
    return 0


def _is_overruled(setting: Setting, later: Sequence[Setting]) -> bool:
    """Return whether a later setting counts wherever this one would."""
    return any(s.name == setting.name and s.command in ("", setting.command) for s in later)


def _show(document: dict[str, Any]) -> None:
    from allocator.cli.tables import Table, show, text

    head = [f"configuration file: {text(document['file']) if document['file'] else 'none'}"]
    rows = [
        [
            text(s["command"] or "every"),
            text(s["option"]),
            text(s["value"]),
            text(s["source"] if s["line"] is None else f"{s['source']}:{s['line']}"),
            "" if s["counts"] else "no",
        ]
        for s in document["settings"]
    ]
    columns = ("command", "option", "value", "from", "counts")
    show([Table("defaults", columns, rows)] if rows else [], head)
