"""Write the shipped workloads, by default into data/workloads.

    python scripts/generators/generate_workloads.py [FOLDER]

The same code gives the same bytes; tests/bench/test_shipped_workloads.py checks that they agree.
Existing folders are replaced.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from scripts.cases.small import shipped_folders

if __name__ == "__main__":
    target = (
        Path(sys.argv[1])
        if len(sys.argv) > 1
        else Path(__file__).resolve().parents[2] / "data" / "workloads"
    )
    for made in shipped_folders():
        shutil.rmtree(target / made.name, ignore_errors=True)
        path = made.write(target / made.name)
        print(
            f"{path.name}: {sum(f.stat().st_size for f in path.iterdir())} bytes", file=sys.stderr
        )
