"""Write the shipped snapshot medium, by default into data/snapshots.

    python scripts/generators/generate_snapshots.py [FOLDER]

The same code gives the same bytes; tests/bench/test_shipped_data.py checks that they agree.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))

from cases.clusters import MEDIUM, MEDIUM_SEED, generate  # noqa: E402

if __name__ == "__main__":
    generate(MEDIUM, MEDIUM_SEED).write(Path(*sys.argv[1:2] or [ROOT / "data" / "snapshots"]))
