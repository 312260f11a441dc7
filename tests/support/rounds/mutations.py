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
Damage = Callable[[Folder, random.Random], None]

LONG = ["a" * 300, "b" * 140_000, "[" * 3000, "{" * 900, "9" * 30, "9" * 5000]
NUMBERS = r"""
0 -0 1 -1 2.5 8.0 1e3 1e-5 1e30 1e31 1e308 1e999 -1e999 1e-320 nan NaN inf -Infinity 1_000 1,5 0x10
１２ ٣ 10000000 10000001 1e15 9007199254740993 --1 1e . + ∞
"""
WORDS = """
x default running queued paused held Running up spot true FALSE maybe A100 a100 A100|V100 | 1|2|4
4|x 1| 0|-1 None null é \ufeff \u202e \U0001f600 \x07 \x00 a\u2028b " ' {} [] { =1+1 ../x
{"rate_1":NaN,"parallel":1} {"rate_1":1e999} {"rate_1":true,"exponent":"2"} {"rate_1":1,"rate_1":2}
{"rate_1":1,"exponent":0.5,"max_gpus":1e7}
"""
VALUES = """
0 -1 1 1e308 nan inf -inf true "300" "" {a=1} 1979-05-27 1_000 0x10 "progress" "thruput" [1,2]
[[[[[]]]]] 1e-300 5 -0.0
"""
KEYS = """
now_s interval_s budget_per_hour restart_s max_changes objective objektive solver sharing x a.b.c
"quoted-key" ""
"""
TOML = [
    "[solver]",
    "[[solver]]",
    "[",
    "= 1",
    "a.b.c = 1",
    "[a" + ".a" * 40 + "]",
    "# é",
    "x = [" * 500,
    '"',
    "a" + ".a" * 500 + " = 1",
    "[solver]\n[solver]",
    "x = '''\nlong\n'''",
    "now_s = ",
    "\r",
    "x = 1 y = 2",
]
BYTES = b"\0\xff\xe9\",\n\r\x80|;\t'"


def mutate(folder_bytes: Folder, rng: random.Random) -> Folder:
    """A damaged copy; the argument stays as it is. The same state of `rng` gives the same copy."""
    out = dict(folder_bytes)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if out:
            rng.choices(list(DAMAGES), weights=list(DAMAGES.values()))[0](out, rng)
    return out


def _word(rng: random.Random, text: str) -> str:
    """One of the words of a text, or at times something long."""
    return rng.choice(text.split() if rng.random() < 0.95 else LONG)


def _bytes(folder: Folder, rng: random.Random) -> None:
    name = rng.choice(sorted(folder))
    data = folder[name]
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    b = min(b, a + rng.choice((1, 3, 40, 10**6)))
    piece = rng.choice(
        (
            b"",
            bytes([rng.choice(BYTES)]),
            rng.randbytes(rng.randrange(1, 6)),
            data[a:b] * 2,
            data[a:b][::-1],
        )
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


def _grid(damage: Callable[[Rows, random.Random], None]) -> Damage:
    """A damage of the rows of a CSV file of the folder that can be read, with rows of one
    length."""

    def change(folder: Folder, rng: random.Random) -> None:
        name = rng.choice([n for n in sorted(folder) if n.endswith(".csv")] or [""])
        text = folder.get(name, b"").decode("utf-8", "replace")
        try:
            rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
        except csv.Error:
            return
        if len(rows) > 1 and len(set(map(len, rows))) == 1:
            damage(rows, rng)
            out = io.StringIO()
            csv.writer(out, lineterminator="\n").writerows(rows)
            folder[name] = out.getvalue().encode("utf-8", "surrogatepass")

    return change


def _odd(rng: random.Random, old: str, rows: Rows) -> str:
    """Another text for a cell: an odd number or word, a cell from elsewhere, a slip of the pen."""
    elsewhere = rng.choice(rng.choice(rows))
    at = rng.randrange(len(old) + 1)
    slip = old[:at] + rng.choice(("", "x", "-", ".", "0", " ", "|")) + old[at + 1 :]
    return rng.choice(
        (_word(rng, NUMBERS), _word(rng, NUMBERS), _word(rng, WORDS), elsewhere, slip, "")
    )


def _cells(rows: Rows, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 6))):
        row = rng.choice(rows[1:])
        c = rng.randrange(len(row))
        row[c] = _odd(rng, row[c], rows)


def _column(rows: Rows, rng: random.Random) -> None:
    c, d = (rng.randrange(len(rows[0])) for _ in range(2))
    what, value = rng.randrange(6), _odd(rng, rows[1][c], rows)
    name = rows[0][c]
    others = (name + "s", name.upper(), name.replace("_", ""), rows[0][d], "", "note", value)
    for i, row in enumerate(rows):
        if what == 0:
            del row[c]
        elif what == 1 and i:
            row[c] = value
        elif what == 2 and not i:
            row[c] = rng.choice(others)
        elif what == 3:
            row.append(row[c] if i else rng.choice((row[c], "note", "")))
        elif what == 5 or (what == 4 and i):
            row[c], row[d] = row[d], row[c]


def _row(rows: Rows, rng: random.Random) -> None:
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


def _config(folder: Folder, rng: random.Random) -> None:
    lines = folder.get("config.toml", b"").decode("utf-8", "replace").split("\n")
    at = rng.randrange(len(lines) + 1)
    new = f"{_word(rng, KEYS)} = {_word(rng, VALUES)}" if rng.random() < 0.6 else rng.choice(TOML)
    if rng.random() < 0.5 and at < len(lines):
        key, equals, _ = lines[at].partition("=")
        lines[at] = f"{key}= {_word(rng, VALUES)}" if equals else new
    else:
        lines.insert(at, new)
    folder["config.toml"] = "\n".join(lines).encode("utf-8", "surrogatepass")


DAMAGES: dict[Damage, int] = {
    _grid(_cells): 8,
    _grid(_column): 4,
    _grid(_row): 4,
    _bytes: 5,
    _config: 4,
    _files: 2,
    _encoding: 1,
    _line_ends: 1,
}
