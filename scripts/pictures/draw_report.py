"""Draw the pictures of reports in the documentation.

    # a few minutes
    python scripts/pictures/draw_report.py
    # keep the report folders
    python scripts/pictures/draw_report.py --keep reports
    # one or many: a simulation or a benchmark
    python scripts/pictures/draw_report.py --only one

The script simulates and compares shipped workloads. It then writes the reports and keeps the
pictures.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from allocator.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
ONE = ["simulate", str(ROOT / "data" / "workloads" / "mixed"), "--policy", "mip,las,greedy"]
MANY = [
    "bench",
    "policies",
    "--workloads",
    "reproduction",
    "--loads",
    "0.24,0.36",
    "--jobs-per-workload",
    "120",
    "--seeds",
    "8",
    "--policies",
    "mip,las,static,greedy",
]
KEPT = {
    "one": ("holders",),
    "many": ("changes", "queue"),
}


def main() -> None:
    """Simulate, write the reports, and copy the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="folder of the results (default: thrown away)"
    )
    parser.add_argument("--only", choices=sorted(KEPT), help="draw one of them (default: all)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = args.keep or Path(scratch)
        for name, command in (("one", ONE), ("many", MANY)):
            if args.only not in (None, name):
                continue
            folder = home / name
            for arguments in ([*command, "--out", str(folder)], ["report", str(folder)]):
                if run(arguments):
                    raise SystemExit(f"failed: allocator {' '.join(arguments)}")
            for picture in KEPT[name]:
                shutil.copyfile(
                    folder / "pictures" / f"{picture}.svg", PICTURES / f"report-{picture}.svg"
                )


if __name__ == "__main__":
    main()
