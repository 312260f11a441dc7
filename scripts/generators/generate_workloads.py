"""Write the shipped workloads, by default into data/workloads.

    python scripts/generators/generate_workloads.py [FOLDER]

The same code gives the same bytes; tests/bench/test_shipped_workloads.py checks that they agree.
Existing folders are replaced.
"""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))

from cases.small import shipped_folders  # noqa: E402

if __name__ == "__main__":
    target = Path(*sys.argv[1:2] or [ROOT / "data" / "workloads"])
    for made in shipped_folders():
        shutil.rmtree(target / made.name, ignore_errors=True)
        made.write(target / made.name)
