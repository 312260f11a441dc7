"""What holds for the tests of reports."""

from __future__ import annotations

import pytest

from allocator.report.charts import style


@pytest.fixture
def no_png(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw every picture once only: half the time."""
    drawn = style.bytes_of
    monkeypatch.setattr(
        "allocator.report.page.bytes_of",
        lambda figure, kind: drawn(figure, kind) if kind == "svg" else b"",
    )
