"""The standard terms of the field: the private words of earlier versions do not come back."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from places import ROOT

SUFFIXES = (".py", ".md", ".toml")
# each word is written with a class, so that this file does not contain it
WORDS = re.compile(
    r"(?<![A-Za-z])(?:gues[t]s?|hos[t]s?|mat[e]s?|partne[r]s?|compan[y]|besid[e]|residen[t]s?|"
    r"sea[t]s?"
    r"|wort[h]s?|men[u]s?|scen[e]s?|rescu[e]s?|roo[m]s?|natur[e]s?|keepe[r]s?|fac[e]s?"
    r"|charg[e]s?|charg[e]d|contrac[t]\s+sec(?:tion|\.)|desig[n]\s+page)(?![A-Za-z])",
    re.IGNORECASE,
)
# what may stay: (folder or file, pattern, reason)
PERMITTED = (
    ("", r"keepe[r]\.(?:lock|json|log)", "files on disk"),
    ("", r"[\w/-]*(?:in_charg[e]|charg[e][-_]decisions)", "a metric and an option"),
    ("", r"\"in charg[e]\"", "the state of the controller in the JSON of `status`"),
    ("", r"\"(?:besid[e]|compan[y]|hos[t]|gues[t])\"", "keys of JSON and columns of SQL"),
    ("", r"`(?:besid[e]|hos[t])`", "the same keys, named in a text"),
    ("", r"\.besid[e]\b|\bbesid[e]\s?[=:]|\['besid[e]'\]", "the key of order.json"),
    ("", r"want_hos[t]|\.hos[t]\b|\bhos[t]\s?[=:,<]|\['hos[t]'\]|\w_gues[t]\b", "columns of SQL"),
    ("", r"\['gues[t]'\]", "a key of the JSON of `status`"),
    ("", r"allocations [a-z]|\bhos[t], |COALESCE\(a\.hos[t]", "columns of SQL"),
    ("", r"@hos[t]|@HOS[T]|//hos[t]:\d|\?hos[t]", "the machine of a server"),
    ("", r"HOS[T]S", "machines of a price list"),
    ("", r"hos[t]_memory_gb\w*", "the memory of a node"),
    ("", r"residen[t]\s(?:memory|set)", "the term of operating systems"),
    ("allocator/queue/", r"at_s, hos[t]\)", "columns of SQL"),
    ("allocator/queue/migrations/", r"GUES[T]", "columns of SQL"),
    ("allocator/controller/adopt.py", r"\bhos[t]\b", "the name of a machine"),
)


def find_words(path: Path, name: str) -> list[str]:
    """Return a line for every word of the list outside the permitted places."""
    permitted = [pattern for place, pattern, _ in PERMITTED if name.startswith(place)]
    faults = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        rest = re.sub("|".join(permitted), "", line)
        faults += [f"{name}:{number}: {word[0]}: {line.strip()}" for word in WORDS.finditer(rest)]
    return faults


def test_standard_terms() -> None:
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    faults = [
        fault
        for name in names
        if name.endswith(SUFFIXES) and (ROOT / name).exists()
        for fault in find_words(ROOT / name, name)
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("the wort" "h of a job", 1),
        ("two gues" "ts of one hos" "t", 2),
        ("see contrac" "t section 5", 1),
        ("keepe" "r.lock and want_hos" "t", 0),
        ("headroom, prefer, surface", 0),
    ],
)  # fmt: skip
def test_a_private_word_is_found(text: str, faults: int, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    assert len(find_words(path, "page.md")) == faults
