"""Damages to a snapshot folder: bytes, cells, columns, rows, references, numbers, encodings, files,
TOML.

    mutate(folder_bytes, random.Random(7)) -> the folder with one to three things wrong (or, by
    luck, still right)
"""

from __future__ import annotations

import csv
import io
import random

Folder = dict[str, bytes]
Rows = list[list[str]]

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
ENDS = (b"\r\n", b"\r", b"\n\n", b"\r\r\n", b"\n\r", b",\n", b";\n")
ENCODINGS = "utf-16 utf-16-le utf-32 latin-1 cp1252 utf-8-sig utf-8 cp037"


def mutate(folder_bytes: Folder, rng: random.Random) -> Folder:
    """A damaged copy; the argument stays as it is. The same state of `rng` gives the same copy."""
    out = dict(folder_bytes)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if out:
            rng.choices(list(DAMAGES), weights=list(DAMAGES.values()))[0](out, rng)
    return out


def _bytes(folder: Folder, rng: random.Random) -> None:
    """Damage the bytes of a file, its encoding or its ends of lines."""
    name = rng.choice(sorted(folder))
    data, text = folder[name], folder[name].decode("utf-8", "replace")
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    b = min(b, a + rng.choice((1, 3, 40, 10**6)))
    pieces = (b"", bytes([rng.choice(BYTES)]), rng.randbytes(3), data[a:b] * 2, data[a:b][::-1])
    cut = data[:a] + rng.choice(pieces) + (data[b:] if rng.random() < 0.7 else data[a:])
    encoded = text.replace("a", rng.choice("aaéß€")).encode(
        rng.choice(ENCODINGS.split()), "replace"
    )
    ends = data.replace(b"\n", rng.choice(ENDS))
    folder[name] = rng.choice((cut, cut, cut, encoded, ends))


def _files(folder: Folder, rng: random.Random) -> None:
    name, other = (rng.choice(sorted(folder)) for _ in range(2))
    data = folder.pop(name)
    change = rng.choice(
        (
            {},
            {name: rng.choice((b"", b" ", b",", b'"', b"\xef\xbb\xbf", bytes(100), *ENDS))},
            {name: data.split(b"\n")[0] + rng.choice((b"", b"\n"))},
            {name: folder.get(other, b""), other: data},
            {rng.choice(("tenant.csv", "Jobs.csv", "plan.json", "x")): data},
        )
    )
    folder |= change


def _grid(folder: Folder, rng: random.Random) -> None:
    """Damage the cells of a CSV file that can be read, with rows of one length."""
    name = rng.choice([n for n in sorted(folder) if n.endswith(".csv")] or [""])
    text = folder.get(name, b"").decode("utf-8", "replace")
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except csv.Error:
        return
    if len(rows) > 1 and len(set(map(len, rows))) == 1:
        rng.choice((_cells, _cells, _column, _row))(rows, rng)
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(rows)
        folder[name] = out.getvalue().encode("utf-8", "surrogatepass")


def _odd(rng: random.Random, old: str, rows: Rows) -> str:
    """Another text for a cell: an odd number or word, a cell from elsewhere, a slip of the pen."""
    at = rng.randrange(len(old) + 1)
    slip = old[:at] + rng.choice(("", "x", "-", ".", "0", " ", "|")) + old[at + 1 :]
    number, word = rng.choice(NUMBERS.split()), rng.choice([rng.choice(WORDS.split())] * 9 + LONG)
    return rng.choice((number, number, word, rng.choice(rng.choice(rows)), slip, ""))


def _cells(rows: Rows, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 6))):
        row = rng.choice(rows[1:])
        c = rng.randrange(len(row))
        row[c] = _odd(rng, row[c], rows)


def _column(rows: Rows, rng: random.Random) -> None:
    """Remove, fill, rename, repeat or exchange columns."""
    c, d = (rng.randrange(len(rows[0])) for _ in range(2))
    what, value, name = rng.randrange(6), _odd(rng, rows[1][c], rows), rows[0][c]
    if what == 2:
        others = (f"{name}s", name.upper(), name.replace("_", ""), rows[0][d], "", "note", value)
        rows[0][c] = rng.choice(others)
    for row in rows if what in (0, 3, 5) else rows[1:]:
        if what == 0:
            del row[c]
        elif what == 1:
            row[c] = value
        elif what == 3:
            row.append(row[c])
        elif what > 3:
            row[c], row[d] = row[d], row[c]


def _row(rows: Rows, rng: random.Random) -> None:
    """Replace a row by none, two, a short, a long or an empty one, or change the order of all."""
    i = rng.randrange(1, len(rows))
    row, longer = rows[i], rng.choices(("", "x", "1"), k=rng.randrange(1, 4))
    short = row[: rng.randrange(len(row))]
    rows[i : i + 1] = rng.choice(
        ([], [row, row], [short], [row + longer], [[""] * len(row)], rows[1:] * rng.choice((2, 30)))
    )
    if rng.random() < 0.2:
        rows[1:] = rng.sample(rows[1:], len(rows) - 1)


def _config(folder: Folder, rng: random.Random) -> None:
    lines = folder.get("config.toml", b"").decode("utf-8", "replace").split("\n")
    at, value = (
        rng.randrange(len(lines) + 1),
        rng.choice([rng.choice(VALUES.split())] * 19 + LONG[:1]),
    )
    new = f"{rng.choice(KEYS.split())} = {value}" if rng.random() < 0.6 else rng.choice(TOML)
    if rng.random() < 0.5 and at < len(lines):
        key, equals, _ = lines[at].partition("=")
        lines[at] = f"{key}= {value}" if equals else new
    else:
        lines.insert(at, new)
    folder["config.toml"] = "\n".join(lines).encode("utf-8", "surrogatepass")


DAMAGES = {_grid: 16, _bytes: 7, _config: 4, _files: 2}
