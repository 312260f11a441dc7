"""Takes memory until there is none."""

import resource
from pathlib import Path


def solve(*_):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 50_000_000, used + 50_000_000))
    hoard = []
    while True:
        hoard.append(bytearray(1_000_000))
