"""Conversion of what the journal keeps of a round to bytes and text, and back."""

from __future__ import annotations

import json
import zlib
from typing import Any

from allocator.queue.snapshot import SQUEEZE


def compress_text(text: str) -> bytes:
    """Compress text for a column of bytes; the same text gives the same bytes."""
    return zlib.compress(text.encode("utf-8", "surrogatepass"), SQUEEZE)


def decompress_text(content: bytes) -> str:
    """Return the text of `compress_text`."""
    return zlib.decompress(content).decode("utf-8", "surrogatepass")


def dumps(value: Any) -> str:
    """Return a value as JSON on one line; floats are read back exactly."""
    return json.dumps(value, separators=(",", ":"))


def loads(text: str | None) -> Any:
    """Return the value of `dumps`; None for None."""
    return None if text is None else json.loads(text)
