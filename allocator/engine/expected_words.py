"""What is expected of a job in words: each estimate with its range of 90 %."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

UNITS = "min", "h", "days"
UNIT_S = 60.0, 3600.0, 86_400.0
UNIT_FROM_S = 5400.0, 2 * 86_400.0  # from which on the second and the third unit are used


def describe_expected(row: Mapping[str, Any], now_s: float) -> Iterator[str]:
    """Yield sentences on the expected start, end and saved time of a job.

    Parameters
    ----------
    row : mapping
        The job's entry of a plan, with EXPECTED_FIELDS.
    now_s : float
        The present time on the clock of the plan.
    """
    if row["expected_note"] is not None:
        yield f"no start or end: {row['expected_note']}"
    if row["position"] is not None:
        yield f"place {row['position']} of those that wait"
    for name, words in (("expected_start", "start"), ("expected_done", "done")):
        if row[f"{name}_s"] is not None:
            yield f"{words} in {describe_estimate(row, name, now_s)}"
    if row["time_saved_s"] is not None:
        yield f"running time saved against its request: {describe_estimate(row, 'time_saved')}"


def describe_estimate(row: Mapping[str, Any], name: str, now_s: float = 0.0) -> str:
    """Return an estimate of EXPECTED_FIELDS and its range, such as `35 min (10 min to 2.0 h)`.

    A range in the unit of the estimate has no unit of its own: `35 min (10 to 50)`. The answer is
    "-" where nothing is known. A time that has passed is 0.
    """
    seconds = [row.get(f"{name}{end}_s") for end in ("", "_low", "_high")]
    if None in seconds:
        return "-"
    is_time = name != "time_saved"
    middle, low, high = (_tell(s - now_s, is_time) for s in seconds if s is not None)
    unit = middle[middle.index(" ") :]
    if low.endswith(unit) and high.endswith(unit):
        low, high = low[: -len(unit)], high[: -len(unit)]
    return f"{middle} ({low} to {high})"


def describe_next(row: Mapping[str, Any], now_s: float) -> str:
    """Return when a job starts, if it waits, or else when it is done; "-" if nothing is known."""
    waits = row.get("position") is not None
    estimate = describe_estimate(row, "expected_start" if waits else "expected_done", now_s)
    return estimate if estimate == "-" else f"{'starts' if waits else 'done'} in {estimate}"


def _tell(seconds: float, is_time: bool) -> str:
    if is_time:
        return format_duration(max(0.0, seconds))
    sign = "-" if seconds < 0 else ""
    return "0 min" if abs(seconds) < 30 else sign + format_duration(abs(seconds))


def format_duration(seconds: float) -> str:
    """Return seconds in words: 35 min, 3.5 h, 2.1 days."""
    unit = bisect_right(UNIT_FROM_S, seconds)
    number = seconds / UNIT_S[unit]
    return f"{number:.1f} {UNITS[unit]}" if unit else f"{max(1, round(number))} min"
