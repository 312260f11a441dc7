"""`allocator completion`: complete commands, options and choices in a shell."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from allocator.cli.output import show_result
from allocator.cli.parsing import command, option

EXAMPLES = """
allocator completion bash > completion.bash      then: source completion.bash
allocator completion fish > completion.fish      then: source completion.fish
"""
ABOUT = """\
Print the script that completes commands, options and choices in a shell. In ~/.bashrc or ~/.zshrc:
eval "$(allocator completion bash)", or zsh. For fish: ~/.config/fish/completions/allocator.fish."""
SHELLS = ("bash", "zsh", "fish")


@command(
    "completion",
    "completion of commands and options in a shell",
    ABOUT,
    EXAMPLES,
    option("shell", None, "the shell that reads the script", choices=SHELLS),
)
def call(args: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    script = shellcode(["allocator"], shell=args.shell)
    document = {"shell": args.shell, "script": script}
    show_result(args.format, document, lambda: print(script, end=""))
    return 0


def complete(build: Callable[[], argparse.ArgumentParser]) -> None:
    """Answer a shell that asks for completions, and end; do nothing for any other caller."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(build(), always_complete_options=False)
