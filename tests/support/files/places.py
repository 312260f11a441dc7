"""Where the repository is."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FAULTY = ROOT / "tests" / "data" / "snapshots"  # its README.md says what is wrong
