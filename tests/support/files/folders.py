"""Folders as values."""

from __future__ import annotations

from pathlib import Path


def content(parent: Path) -> dict[str, bytes]:
    """Relative path -> bytes of every file in the folders below."""
    return {str(p.relative_to(parent)): p.read_bytes() for p in sorted(parent.glob("*/*"))}
