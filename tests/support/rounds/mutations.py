"""Damages to a snapshot folder: bytes, cells, columns, rows, references, numbers, encodings, files,
TOML.

    mutate(folder_bytes, random.Random(7)) -> the folder with one to three things wrong (or, by
    luck, still right)
"""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable

Folder = dict[str, bytes]
Rows = list[list[str]]

NUMBERS = [
    "0",
    "-0",
    "1",
    "-1",
    "2.5",
    "8.0",
    "1e3",
    "1e-5",
    "1e30",
    "1e31",
    "1e308",
    "1e999",
    "-1e999",
    "1e-320",
    "nan",
    "NaN",
    "inf",
    "-Infinity",
    "1_000",
    "1,5",
    "0x10",
    "１２",
    "٣",
    "10000000",
    "10000001",
    "1e15",
    "9007199254740993",
    "9" * 30,
    "9" * 5000,
    "--1",
    "1e",
    ".",
    "+",
    "∞",
]
WORDS = [
    "",
    " ",
    "x",
    "default",
    "running",
    "queued",
    "paused",
    "held",
    "Running",
    "up",
    "spot",
    "true",
    "FALSE",
    "maybe",
    "A100",
    "a100",
    "A100|V100",
    "|",
    "1|2|4",
    "4|x",
    "1|",
    "0|-1",
    "None",
    "null",
    "é",
    "\u202e",
    "\ufeff",
    "\U0001f600",
    "\x07",
    "\x00",
    "a\nb",
    "\r",
    '"',
    "'",
    "a" * 300,
    "b" * 140_000,
    "{}",
    "[]",
    "{",
    "[" * 3000,
    '{"rate_1": NaN, "parallel": 1}',
    '{"rate_1": 1e999}',
    '{"rate_1": true, "exponent": "2"}',
    '{"rate_1": 1, "exponent": 0.5, "max_gpus": 1e7}',
    '{"rate_1": 1, "rate_1": 2}',
    "{" * 900,
    "=1+1",
    "../x",
]
VALUES = [
    "0",
    "-1",
    "1",
    "1e308",
    "nan",
    "inf",
    "-inf",
    "true",
    '"300"',
    '""',
    "[1, 2]",
    "{a = 1}",
    "1979-05-27",
    "1_000",
    "9" * 400,
    "0x10",
    '"progress"',
    '"thruput"',
    "'''\nlong\n'''",
    "[[[[[]]]]]",
    "1e-300",
    "5",
    "-0.0",
]
KEYS = [
    "now_s",
    "interval_s",
    "budget_per_hour",
    "restart_s",
    "max_changes",
    "objective",
    "objektive",
    "solver",
    "sharing",
    "x",
    "a.b.c",
    '"quoted key"',
    '""',
]
TOML = [
    "[solver]",
    "[[solver]]",
    "[",
    "x",
    "= 1",
    "a.b.c = 1",
    "[a" + ".a" * 40 + "]",
    "# é",
    "x = [" * 500,
    '"',
    "\x00",
    "a" + ".a" * 500 + " = 1",
    "[solver]\n[solver]",
    "now_s = ",
    "\r",
    "x = 1 y = 2",
]
BYTES = [
    b"\0",
    b"\xff",
    b"\xe9",
    b'"',
    b",",
    b"\n",
    b"\r",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\x80",
    b"|",
    b";",
    b"\t",
    b"'",
]


def mutate(folder_bytes: Folder, rng: random.Random) -> Folder:
    """A damaged copy; the argument stays as it is. The same state of `rng` gives the same copy."""
    out = dict(folder_bytes)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if out:
            rng.choices(list(DAMAGES), weights=list(DAMAGES.values()))[0](out, rng)
    return out


def _bytes(folder: Folder, rng: random.Random) -> None:
    name = rng.choice(sorted(folder))
    data = folder[name]
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    b = min(b, a + rng.choice((1, 3, 40, 10**6)))
    piece = rng.choice(
        (b"", rng.choice(BYTES), rng.randbytes(rng.randrange(1, 6)), data[a:b] * 2, data[a:b][::-1])
    )
    folder[name] = data[:a] + piece + (data[b:] if rng.random() < 0.7 else data[a:])


def _encoding(folder: Folder, rng: random.Random) -> None:
    name = rng.choice(sorted(folder))
    text = folder[name].decode("utf-8", "replace").replace("a", rng.choice("aaéß€"))
    how = rng.choice(
        ("utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-8-sig", "utf-8", "cp037")
    )
    folder[name] = text.encode(how, "replace")


def _line_ends(folder: Folder, rng: random.Random) -> None:
    name = rng.choice(sorted(folder))
    folder[name] = folder[name].replace(
        b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\r\r\n", b"\n\r", b",\n", b";\n"))
    )


def _files(folder: Folder, rng: random.Random) -> None:
    name, other = (rng.choice(sorted(folder)) for _ in range(2))
    what = rng.randrange(5)
    if what == 0:
        del folder[name]
    elif what == 1:
        folder[name] = rng.choice(
            (b"", b"\n", b" ", b"\n\n\n", b",", b'"', b"\xef\xbb\xbf", bytes(100))
        )
    elif what == 2:
        folder[name] = folder[name].split(b"\n")[0] + rng.choice((b"", b"\n"))
    elif what == 3:
        folder[name], folder[other] = folder[other], folder[name]
    else:
        folder[rng.choice(("tenant.csv", "Jobs.csv", "plan.json", "x"))] = folder.pop(name)


def _grid(folder: Folder, rng: random.Random) -> tuple[str, Rows] | None:
    """A CSV file of the folder that can be read, with rows of one length."""
    names = [n for n in sorted(folder) if n.endswith(".csv")]
    if not names:
        return None
    name = rng.choice(names)
    text = folder[name].decode("utf-8", "replace")
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except csv.Error:
        return None
    return (name, rows) if len(rows) > 1 and len(set(map(len, rows))) == 1 else None


def _save(folder: Folder, name: str, rows: Rows) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    folder[name] = out.getvalue().encode("utf-8", "surrogatepass")


def _odd(rng: random.Random, old: str, rows: Rows) -> str:
    """Another text for a cell: an odd number or word, a cell from elsewhere, a slip of the pen."""
    elsewhere = rng.choice(rng.choice(rows))
    at = rng.randrange(len(old) + 1)
    slip = old[:at] + rng.choice(("", "x", "-", ".", "0", " ", "|")) + old[at + 1 :]
    return rng.choice(
        (rng.choice(NUMBERS), rng.choice(NUMBERS), rng.choice(WORDS), elsewhere, slip, "")
    )


def _cell(folder: Folder, rng: random.Random) -> None:
    found = _grid(folder, rng)
    if found:
        name, rows = found
        for _ in range(rng.choice((1, 1, 2, 6))):
            row = rng.choice(rows[1:])
            c = rng.randrange(len(row))
            row[c] = _odd(rng, row[c], rows)
        _save(folder, name, rows)


def _column(folder: Folder, rng: random.Random) -> None:
    found = _grid(folder, rng)
    if not found:
        return
    name, rows = found
    c, d = (rng.randrange(len(rows[0])) for _ in range(2))
    what = rng.randrange(6)
    value = _odd(rng, rows[1][c], rows)
    for i, row in enumerate(rows):
        if what == 0:
            del row[c]
        elif what == 1 and i:
            row[c] = value
        elif what == 2 and not i:
            row[c] = rng.choice(
                (row[c] + "s", row[c].upper(), row[c].replace("_", ""), row[d], "", "note", value)
            )
        elif what == 3:
            row.append(row[c] if i else rng.choice((row[c], "note", "")))
        elif what == 5 or (what == 4 and i):
            row[c], row[d] = row[d], row[c]
    _save(folder, name, rows)


def _row(folder: Folder, rng: random.Random) -> None:
    found = _grid(folder, rng)
    if not found:
        return
    name, rows = found
    i, what = rng.randrange(1, len(rows)), rng.randrange(7)
    if what == 0:
        rows.insert(rng.randrange(len(rows) + 1), list(rows[i]))
    elif what == 1:
        del rows[i]
    elif what == 2:
        rows[i] = rows[i][: rng.randrange(len(rows[i]))]
    elif what == 3:
        rows[i] = [*rows[i], *rng.choices(("", "x", "1"), k=rng.randrange(1, 4))]
    elif what == 4:
        rows[i] = [""] * len(rows[i])
    elif what == 5:
        rows[1:] = rng.sample(rows[1:], len(rows) - 1)
    else:
        rows[1:] = rows[1:] * rng.choice((2, 30))
    _save(folder, name, rows)


def _config(folder: Folder, rng: random.Random) -> None:
    lines = folder.get("config.toml", b"").decode("utf-8", "replace").split("\n")
    at = rng.randrange(len(lines) + 1)
    new = f"{rng.choice(KEYS)} = {rng.choice(VALUES)}" if rng.random() < 0.6 else rng.choice(TOML)
    if rng.random() < 0.5 and at < len(lines):
        key, equals, _ = lines[at].partition("=")
        lines[at] = f"{key}= {rng.choice(VALUES)}" if equals else new
    else:
        lines.insert(at, new)
    folder["config.toml"] = "\n".join(lines).encode("utf-8", "surrogatepass")


DAMAGES: dict[Callable[[Folder, random.Random], None], int] = {
    _cell: 8,
    _column: 4,
    _row: 4,
    _bytes: 5,
    _config: 4,
    _files: 2,
    _encoding: 1,
    _line_ends: 1,
}
