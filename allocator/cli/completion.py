"""`allocator completion`: complete commands, options and choices in a shell."""

import argparse
import os
from collections.abc import Callable

from allocator.cli.output import Answer


def completion(args: argparse.Namespace) -> Answer:
    from argcomplete.shell_integration import shellcode

    script = shellcode(["allocator"], shell=args.shell)
    return Answer({"shell": args.shell, "script": script}, script)


def complete(build: Callable[[], argparse.ArgumentParser]) -> None:
    """Answer a shell that asks for completions, and end; do nothing for any other caller."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(build(), always_complete_options=False)
