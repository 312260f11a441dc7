"""How many random examples a test tries."""

from __future__ import annotations

from hypothesis import settings


def examples(few: int, many: int) -> settings:
    """Let a test try a few examples in the default run, and many in the soak.

        ./scripts/test --hypothesis-profile=soak tests/market

    makes new random examples; the default run has the same ones every time.
    """
    is_soak = settings.get_current_profile_name() == "soak"
    return settings(max_examples=many if is_soak else few)
