"""Durations and times as people write them: `90min`, `2h`, an ISO date, plain seconds.

Options, columns of a submission and the HTTP API read them here (docs/reference/commands.md).
"""

import math
import re
from datetime import UTC, datetime

import numpy as np

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
"""Seconds by unit."""
PART = re.compile(rf"(\d+(?:\.\d*)?|\.\d+)\s*({'|'.join(UNITS)})")
DATE = re.compile(r"\d{4}-\d\d")
SLURM = re.compile(
    r"(?:(?P<d>\d{1,9})-(?P<dh>\d{1,9})(?::(?P<dmin>\d\d?)(?::(?P<ds>\d\d?))?)?"
    r"|(?:(?P<h>\d{1,9}):)?(?P<min>\d{1,9}):(?P<s>\d\d?)|(?P<alone>\d{1,9}))(?:\.\d+)?",
    re.ASCII,
)


def parse_duration(text: str, plain_s: float = 1.0) -> float:
    """Return the seconds of a duration.

    Parameters
    ----------
    text : str
        A number with a unit of UNITS, several of them ("1h30min"), a plain number, or "inf".
    plain_s : float
        Seconds that a plain number counts in.

    Raises
    ------
    ValueError
        If the text is no duration.

    Examples
    --------
    >>> parse_duration("90min"), parse_duration("1h30min"), parse_duration("1.5h")
    (5400.0, 5400.0, 5400.0)
    >>> parse_duration("90"), parse_duration("2", plain_s=3600.0)
    (90.0, 7200.0)
    """
    words = text.strip()
    seconds = 0.0
    end = 0
    for part in PART.finditer(words):
        if words[end : part.start()].strip():
            break
        seconds += float(part[1]) * UNITS[part[2]]
        end = part.end()
    if end and end == len(words):
        return seconds
    try:
        value = float(words) * plain_s
    except ValueError:
        value = math.nan
    if math.isnan(value):
        unit = {1.0: "seconds", 3600.0: "hours", 86400.0: "days"}[plain_s]
        raise ValueError(f'"{text}" is no duration: write 90min, 2h, 1.5d, or a number of {unit}')
    return value


def parse_slurm_duration(text: str) -> float:
    """Return the seconds of a time as Slurm writes and reads it.

    Parameters
    ----------
    text : str
        Minutes, min:s, h:min:s, days-h, days-h:min or days-h:min:s.

    Raises
    ------
    ValueError
        If the text is no such time.

    Examples
    --------
    >>> parse_slurm_duration("90"), parse_slurm_duration("1-12"), parse_slurm_duration("02:00:05")
    (5400.0, 129600.0, 7205.0)
    """
    match = SLURM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'"{text}" is no time of Slurm: write minutes, h:min:s or days-h:min:s')
    part = {name: int(value) for name, value in match.groupdict("0").items()}
    hours = 24 * part["d"] + part["dh"] + part["h"]
    minutes = part["dmin"] + part["min"] + part["alone"]
    return 3600.0 * hours + 60.0 * minutes + part["ds"] + part["s"]


def parse_time(text: str, now_s: float) -> float:
    """Return the unix seconds of a point in time.

    Parameters
    ----------
    text : str
        An ISO date with or without a time (UTC if it names no zone), a duration with a unit, which
        counts from `now_s`, or unix seconds.
    now_s : float
        The present time in unix seconds.

    Raises
    ------
    ValueError
        If the text is no point in time.

    Examples
    --------
    >>> parse_time("2026-11-30", 0.0), parse_time("2026-11-30T01:00+01:00", 0.0)
    (1795996800.0, 1795996800.0)
    >>> parse_time("2h", 1000.0), parse_time("1795996800", 0.0)
    (8200.0, 1795996800.0)
    """
    words = text.strip()
    try:
        return float(words)
    except ValueError:
        pass
    try:
        return now_s + parse_duration(words) if not DATE.match(words) else parse_date(words)
    except ValueError:
        raise ValueError(
            f'"{text}" is no time: write a date such as 2026-11-30 or 2026-11-30T18:00, a duration'
            " from now such as 2h, or unix seconds"
        ) from None


def parse_date(text: str) -> float:
    """Return an ISO date as unix seconds; without a zone it is UTC. Raises ValueError.

    Examples
    --------
    >>> parse_date("2017-10-09 08:00:05")
    1507536005.0
    """
    when = datetime.fromisoformat(text)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def month_start_s(now_s: float, months: int = 0) -> float:
    """Return when the month of now_s begins, or that of so many months later, in seconds.

    Examples
    --------
    >>> month_start_s(40 * 86400.0) / 86400, month_start_s(40 * 86400.0, 1) / 86400
    (31.0, 59.0)
    """
    month = np.datetime64(math.floor(now_s), "s").astype("datetime64[M]") + months
    return float(month.astype("datetime64[s]").astype(np.int64))


def format_time(at_s: float) -> str:
    """Return a time as text for people."""
    try:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{at_s:g}"
