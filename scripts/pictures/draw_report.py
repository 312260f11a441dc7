"""Draw the pictures of reports in the documentation.

    # a few minutes; needs the extra "plots" (matplotlib)
    python scripts/pictures/draw_report.py
    # keep the report folders
    python scripts/pictures/draw_report.py --keep reports
    # one, many or live: a simulation, a benchmark or a queue
    python scripts/pictures/draw_report.py --only live

The script simulates and compares shipped workloads, and runs the live demo with a policy that
hangs, breaks rules and crashes. It then writes the reports and keeps the pictures.
"""

from __future__ import annotations

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
LIVE = ["demo", "--live", "--sabotage"]
KEPT = {
    "one": ("holders", "use", "decisions"),
    "many": ("changes", "times", "queue"),
    "live": ("rounds",),
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
        for name, command, out in (
            ("one", ONE, "--out"),
            ("many", MANY, "--out"),
            ("live", LIVE, "--dir"),
        ):
            if args.only not in (None, name):
                continue
            folder = home / name
            source = folder / "queue.db" if name == "live" else folder
            report = folder / "report.html"
            for arguments in (
                [*command, out, str(folder)],
                ["report", str(source), "--out", str(report)],
            ):
                if run(arguments):
                    raise SystemExit(f"failed: allocator {' '.join(arguments)}")
            for picture in KEPT[name]:
                shutil.copyfile(
                    folder / "pictures" / f"{picture}.png", PICTURES / f"report-{picture}.png"
                )


if __name__ == "__main__":
    main()
