"""Ways to keep the workers of a job in step, as jobs.csv names them: bulk, backup:2, replicated:3.

The mathematics is in formulations/transient/synchronisation.py.
"""

import re

from formulations.transient.synchronisation import Mode

FORMS = "bulk, backup:K, replicated:R, asynchronous or asynchronous:E"
_WHOLE = re.compile(r"[1-9][0-9]{0,3}")
_LEAST = {"backup": 1, "replicated": 2}


def parse_mode(text: str) -> Mode:
    """Return the mode of a text. Raises ValueError with what is wrong with it."""
    kind, colon, number = text.partition(":")
    if kind in _LEAST and _WHOLE.fullmatch(number) and int(number) >= _LEAST[kind]:
        return Mode(kind, float(number))
    if kind == "bulk" and not colon:
        return Mode(kind)
    if kind == "asynchronous":
        try:
            share = float(number) if colon else 1.0
        except ValueError:
            share = 0.0
        if 0.0 < share <= 1.0:
            return Mode(kind, share)
    raise ValueError(f"is not {FORMS}, with K from 1, R from 2, and E above 0 and at most 1")


def name_mode(mode: Mode) -> str:
    """Return the text of a mode, from which `parse_mode` makes it again."""
    is_plain = mode.kind == "bulk" or (mode.kind == "asynchronous" and mode.number == 1.0)
    return mode.kind if is_plain else f"{mode.kind}:{mode.number:.15g}"
