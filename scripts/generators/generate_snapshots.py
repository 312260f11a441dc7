"""Write the shipped snapshots, by default into data/snapshots.

    python scripts/generators/generate_snapshots.py [FOLDER]

The same code gives the same bytes; tests/bench/test_shipped_data.py checks that they agree.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.cases.shipped import write_all

if __name__ == "__main__":
    target = (
        Path(sys.argv[1])
        if len(sys.argv) > 1
        else Path(__file__).resolve().parents[2] / "data" / "snapshots"
    )
    for path in write_all(target):
        print(
            f"{path.name}: {sum(f.stat().st_size for f in path.iterdir())} bytes", file=sys.stderr
        )
