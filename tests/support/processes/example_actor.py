"""An example actor for the files executor: python example_actor.py FOLDER

It reconciles: starts what is ordered and has no process yet, sends SIGTERM to what shall stop, says
what it sees. A real one would talk to a batch system instead of starting processes, and would find
them again after a restart.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class Actor:
    """Knows the processes it started, by folder of the allocation."""

    def __init__(self, folder: Path) -> None:
        self.open = folder / "open"
        self.processes: dict[Path, subprocess.Popen[bytes]] = {}

    def step(self) -> None:
        """One look at every open allocation."""
        for place in sorted(p for p in self.open.iterdir() if not p.name.startswith(".")):
            order = json.loads((place / "order.json").read_text())
            said = place / "observation.json"
            if place not in self.processes and not said.exists():
                self.processes[place] = self.launch(place, order)
            process = self.processes.get(place)
            if process is None:
                # ended, or told to stop before we saw it
                continue
            if (place / "stop.json").exists() and process.poll() is None:
                process.terminate()
            self.say(said, place, process)

    def launch(self, place: Path, order: dict[str, Any]) -> subprocess.Popen[bytes]:
        """Start the job's command."""
        environment = {
            **os.environ,
            **order["environment"],
            "ALLOCATOR_JOB": order["job_id"],
            "ALLOCATOR_GPUS": str(order["gpus"]),
            "ALLOCATOR_PROGRESS": str(place / "progress"),
            "ALLOCATOR_SETTINGS": str(place / "settings.json"),
        }
        return subprocess.Popen(order["command"], env=environment)

    def say(self, said: Path, place: Path, process: subprocess.Popen[bytes]) -> None:
        """Write what became of it, in one step."""
        code, phase = process.poll(), "running"
        if code is not None:
            phase = (
                "stopped"
                if (place / "stop.json").exists()
                else "finished"
                if code == 0
                else "failed"
            )
            del self.processes[place]
        progress = place / "progress"
        words = progress.read_text().split() if progress.exists() else ["0", "0"]
        value = {
            **dict(word.split("=") for word in words[2:]),
            "phase": phase,
            "work_done": float(words[1]),
            "at_s": time.time(),
            "detail": f"exit code {code}",
        }
        said.with_suffix(".tmp").write_text(json.dumps(value))
        said.with_suffix(".tmp").replace(said)


if __name__ == "__main__":
    actor = Actor(Path(sys.argv[1]))
    while True:
        actor.step()
        time.sleep(1.0)
