"""Write what a script measured into a page of docs."""

from __future__ import annotations

import sys
from pathlib import Path


def put(text: str, page: Path | None, begin: str, end: str) -> None:
    """Replace the text between two marks of a page; print it if there is no page."""
    if page is None:
        sys.stdout.write(text + "\n")
        return
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
