"""Describe the machine on which figures were measured."""

import importlib.metadata
import os
import platform
from pathlib import Path

from allocator.io.plans import write_files


def machine() -> str:
    """Return processor, cores, Python and package versions in one line."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    packages = []
    for name in ("numpy", "scipy", "numba", "highspy", "ortools", "pulp"):
        try:
            packages.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            packages.append(f"no {name}")
    return (
        f"{cpu}, {os.cpu_count()} cores; Python {platform.python_version()}; {', '.join(packages)}"
    )


def write_machine(folder: Path) -> None:
    """Write machine.txt into a folder of results."""
    write_files(folder, {"machine.txt": machine() + "\n"})
