"""The figures of figures.toml, which the generators draw from."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allocator.objects import Record

FIGURES: Mapping[str, Record] = tomllib.loads(
    Path(__file__).parents[1].joinpath("figures.toml").read_text(encoding="utf-8")
)


def by_size(shares: Record) -> dict[int, Any]:
    """Return a table of figures by number of GPUs, or by another whole number."""
    return {int(size): share for size, share in shares.items()}
