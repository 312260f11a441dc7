"""How many random examples and rounds a test tries."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings


def examples(few: int, many: int) -> settings:
    """Let a test try a few examples in the default run, and many in the soak.

        ./scripts/test --hypothesis-profile=soak tests/market

    makes new random examples; the default run has the same ones every time.
    """
    return settings(max_examples=count(few, many))


def count(few: int, many: int) -> int:
    """Return the number of random rounds of a test, which `--hypothesis-profile=soak` raises."""
    return many if settings.get_current_profile_name() == "soak" else few


def seeds(few: int, many: int) -> list[object]:
    """Return the parameters of a test with one round for each seed; the later ones are soak."""
    soak = (pytest.param(seed, marks=pytest.mark.soak) for seed in range(few, many))
    return [*range(few), *soak]


def series(values: Sequence[object], by_default: int) -> list[object]:
    """Return values for a parameter of a test, of which the default suite tries the first few.

    The others are marked nightly.
    """
    rest = (pytest.param(value, marks=pytest.mark.nightly) for value in values[by_default:])
    return [*values[:by_default], *rest]
