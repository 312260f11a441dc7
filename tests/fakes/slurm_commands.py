"""A fake of Slurm's commands, which answer from files and keep account of every call.

What is no reading call is refused, so that nothing can write without being seen.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from slurm_looks import Recorded

COMMANDS = ("squeue", "scontrol", "sinfo", "sacctmgr", "sbatch", "scancel")
READING = {
    "squeue --version": "version.txt",
    "squeue --json": "jobs.json",
    "scontrol show nodes --json": "nodes.json",
    "scontrol show partition -a -o": "partitions.txt",
    "scontrol show reservation -o": "reservations.txt",
}
PROGRAM = """#!/bin/sh
call="$(basename "$0") $*"
echo "$call" >> "{folder}/calls"
[ -e "{folder}/down" ] && {{ echo "Unable to contact slurm controller" >&2; exit 1; }}
case "$call" in
{cases}
*) echo "refused: $call" >&2; exit 1 ;;
esac
"""


class FakeSlurm:
    """Recorded answers as commands in a folder for PATH; `recorded` is what a test changes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.recorded = folder, Recorded(folder)
        self.commands = folder / "commands"
        self.commands.mkdir()
        cases = (f'"{call}") cat "{folder}/{file}" ;;' for call, file in READING.items())
        program = folder / "program"
        program.write_text(PROGRAM.format(folder=folder, cases="\n".join(cases)))
        program.chmod(0o755)
        for name in COMMANDS:
            (self.commands / name).symlink_to(program)
        (folder / "version.txt").write_text("slurm 24.11.5\n")
        (folder / "reservations.txt").write_text("No reservations in the system\n")
        shutil.copy(self.recorded.folder / "partitions.txt", folder)
        self.change()

    @property
    def environment(self) -> dict[str, str]:
        """An environment in which these commands are found first."""
        return {**os.environ, "PATH": f"{self.commands}:{os.environ['PATH']}"}

    def change(self, **fields: Any) -> None:
        """Answer from now on as `recorded` is, its first job with other fields."""
        self.recorded.change(**fields)
        for name in ("jobs", "nodes"):
            new = self.folder / f"{name}.new"
            new.write_text(json.dumps(getattr(self.recorded, name)))
            new.replace(self.folder / f"{name}.json")

    def switch(self, is_up: bool) -> None:
        """Let every command fail, or answer again."""
        (self.folder / "down").unlink(missing_ok=True)
        if not is_up:
            (self.folder / "down").touch()

    def writes(self) -> set[str]:
        """The calls that were made and are no reading ones."""
        calls = set((self.folder / "calls").read_text().splitlines())
        return {one for one in calls - READING.keys() if not one.startswith("sacctmgr -n -P show")}

    def count_calls(self) -> int:
        """How many calls were made."""
        calls = self.folder / "calls"
        return len(calls.read_text().splitlines()) if calls.exists() else 0
