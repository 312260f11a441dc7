"""Draw the pictures of docs/reports.md: simulate and compare shipped workloads, write the reports, keep the pictures.

    python scripts/draw_report.py                     # a few minutes; needs the extra "plots" (matplotlib)
    python scripts/draw_report.py --keep reports      # keeps both report folders, to look at
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from allocator.cli.main import run

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
ONE = ["simulate", str(ROOT / "data" / "workloads" / "mixed"), "--policy", "mip,las,greedy"]
MANY = ["bench", "policies", "--workloads", "reproduction", "--loads", "0.24,0.36", "--jobs-per-workload", "120",
        "--seeds", "8", "--policies", "mip,las,static,greedy"]
KEPT = {"one": ("holders", "use", "decisions"), "many": ("changes", "times", "queue")}


def main() -> None:
    """Simulate, report, copy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder of the results (default: thrown away)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = args.keep or Path(scratch)
        for name, command in (("one", ONE), ("many", MANY)):
            folder = home / name
            for arguments in ([*command, "--out", str(folder)], ["report", str(folder)]):
                if run(arguments):
                    raise SystemExit(f"failed: allocator {' '.join(arguments)}")
            for picture in KEPT[name]:
                shutil.copyfile(folder / "pictures" / f"{picture}.png", PICTURES / f"report-{picture}.png")


if __name__ == "__main__":
    main()
