"""What the journal keeps of a round, as bytes and text."""

from __future__ import annotations

import json
import zlib
from typing import Any

from allocator.queue.snapshot import SQUEEZE


def compress_text(text: str) -> bytes:
    """Text for a column of bytes; the same text gives the same bytes."""
    return zlib.compress(text.encode("utf-8", "surrogatepass"), SQUEEZE)


def decompress_text(content: bytes) -> str:
    """The text of `compress_text`."""
    return zlib.decompress(content).decode("utf-8", "surrogatepass")


def dumps(value: Any) -> str:
    """JSON on one line; floats read back as the same."""
    return json.dumps(value, separators=(",", ":"))


def loads(text: str | None) -> Any:
    """The value of `dumps`; None for None."""
    return None if text is None else json.loads(text)
