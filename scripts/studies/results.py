"""Read what the studies write: files with one result in JSON per line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_results(*files: Path) -> list[dict[str, Any]]:
    """Return the results in the files that exist."""
    return [
        json.loads(line)
        for file in files
        if file.exists()
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
