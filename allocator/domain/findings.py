"""Faults and warnings that are found while an input is checked, and their wording."""

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from allocator.errors import Fault, InvalidInput, folded

SHOWN = 60  # characters of a value that a message repeats
ALIKE = 5  # warnings of one kind that are listed one by one
# limits of the names that a misspelt one is compared with: their number, and their length
MOST_COMPARED = 1_000
LONGEST_COMPARED = 64
HINTED = 20


def input_error(path: Path | str, message: str, line: int | None = None) -> InvalidInput:
    """Return the error for one fault of a file; the caller raises it."""
    return InvalidInput([Fault(str(path), line, message)])


class Findings:
    """Collects faults and warnings; `faults` and `warnings` give them by file and line."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._faults = list(faults)
        self._warnings: dict[tuple[str, str], list[Fault]] = {}

    def fault(self, file: str, line: int | None, message: str, subject: str = "") -> None:
        self._faults.append(Fault(file, line, message, subject))

    def warn(
        self, file: str, line: int | None, message: str, sort: str = "", subject: str = ""
    ) -> None:
        """Add a warning.

        Of one `sort` only the first few are listed, then their number; "" = list every one.
        """
        self._warnings.setdefault((file, sort), []).append(Fault(file, line, message, subject))

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(sorted(dict.fromkeys(self._faults), key=_place))

    @property
    def warnings(self) -> tuple[str, ...]:
        out: list[tuple[Fault, str]] = []
        for (file, sort), listed in self._warnings.items():
            texts = folded(dict.fromkeys(listed))
            few = texts if not sort or len(texts) <= ALIKE + 1 else texts[:ALIKE]
            out += few
            if len(few) < len(texts):
                more = Fault(
                    file, texts[ALIKE][0].line, f"and {len(texts) - ALIKE} more like it: {sort}"
                )
                out.append((more, str(more)))
        return tuple(text for _, text in sorted(out, key=lambda pair: _place(pair[0])))


def _place(fault: Fault) -> tuple[str, int]:
    return fault.file, fault.line or 0


def quote(text: str) -> str:
    """Return the text in quotes on one line, with control characters escaped and long texts cut."""
    short = text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
    return (
        f'"{short}"'
        if short.isprintable()
        else f'"{short.encode("unicode_escape").decode("ascii")}"'
    )


def find_nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name most similar to this one, None if none is similar.

    Upper and lower case count as equal.
    """
    if len(name) > LONGEST_COMPARED:
        return None
    folded: dict[str, str] = {}
    for other in known:
        if len(folded) == MOST_COMPARED:
            break
        if len(other) <= LONGEST_COMPARED and other != name:
            folded.setdefault(other.casefold(), other)
    if name.casefold() in folded:
        return folded[name.casefold()]
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


def join_words(words: Sequence[str]) -> str:
    """Return words as a sentence lists them: "a, b and c"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return '; did you mean "bert"?', or nothing."""
    near = find_nearest(name, known)
    return f"; did you mean {quote(near)}?" if near is not None else ""


def suggest_setting(name: str, known: Iterable[str]) -> str:
    """Return `did_you_mean` for names of columns and settings, which are compared by their parts.

    For example "price" and "price_hour" suggest "price_per_gpu_hour". Of several names that have
    these parts, it is the first.
    """
    candidates = list(known)
    near = did_you_mean(name, candidates)
    words = set(name.casefold().split("_"))
    holds = [other for other in candidates if words <= set(other.casefold().split("_"))]
    if near or not holds or len(name) > LONGEST_COMPARED:
        return near
    return f"; did you mean {quote(holds[0])}?"


def suggest_names(names: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Return `did_you_mean` of each distinct name.

    Only the first few are looked up, so that an invalid file is reported quickly.
    """
    distinct = dict.fromkeys(names)
    candidates = list(known)
    return {
        name: did_you_mean(name, candidates) if i < HINTED else ""
        for i, name in enumerate(distinct)
    }


def find_near_miss(name: str, known: Iterable[str], cutoff: float) -> str | None:
    """Return a known name that this one is probably a misspelling of.

    It is almost equal, and not "team-2" for "team-1".
    """
    near = find_nearest(name, known, cutoff)
    same_digits = near is not None and re.findall(r"\d+", near) == re.findall(r"\d+", name)
    return near if same_digits else None
