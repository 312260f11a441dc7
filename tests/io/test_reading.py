"""Reading a folder: whatever lies there becomes a Snapshot or located faults; writing and
reading is a round trip.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from builders import snapshot
from examples import examples
from hypothesis import given, strategies as st

from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.schema.columns import TABLES
from allocator.domain.snapshot import Snapshot, Table
from allocator.errors import InvalidInput, UsageError
from allocator.io.snapshots import parse_snapshot, read_snapshot, write_snapshot
from allocator.io.tables import csv_table

HEAD = b"pool,gpu_type,gpus\n"
POOLS = HEAD + b"p,A,4\nq,B,2\n"


def form(content: bytes, file: str = "pools.csv") -> tuple[list[str], list[str]]:
    """Faults and warnings of form of one file."""
    snap = parse_snapshot("x", {file: content})
    return [str(f) for f in snap.faults], list(snap.warnings)


def rows(content: bytes) -> list[tuple[str, ...]]:
    """Cells of pools.csv, row by row."""
    table = parse_snapshot("x", {"pools.csv": content}).tables["pools.csv"]
    return list(zip(*table.columns.values(), strict=True))


def folder(path: Path, **more: bytes) -> Path:
    """A small sound folder on disk; `more` by name without ending replaces or adds CSV files."""
    files = {
        "jobs": b"job_id,model,submitted_s,remaining_work,max_gpus\na,m,0,9,2\n",
        "pools": POOLS,
        "rates": b"model,gpu_type,gpus,work_per_s\nm,A,1,2\nm,B,1,1\n",
    } | more
    path.mkdir(exist_ok=True)
    for name, content in files.items():
        (path / f"{name}.csv").write_bytes(content)
    return path


def faults(path: Path) -> list[str]:
    """What is wrong with a folder, as users see it."""
    with pytest.raises(InvalidInput) as caught:
        validate(read_snapshot(path))
    return [str(f) for f in caught.value.faults]


@pytest.mark.parametrize(
    "content",
    [
        POOLS,
        b"\xef\xbb\xbf" + POOLS,
        POOLS.replace(b"\n", b"\r\n"),
        POOLS.replace(b"\n", b"\r"),
        POOLS.replace(b",", b" , "),
        b'"pool","gpu_type","gpus"\n"p","A","4"\n"q","B","2"',
        POOLS.replace(b"\n", b"\n\n"),
    ],
)
def test_forms_of_the_same_table(content: bytes) -> None:
    """Byte order mark, line ends, blanks around cells, quotes, blank lines, no last line end:
    the same cells.
    """
    assert rows(content) == [("p", "A", "4"), ("q", "B", "2")]
    assert form(content) == ([], [])


def test_lines_are_those_of_the_file() -> None:
    """Blank lines and cells over several lines do not shift the line numbers of messages."""
    content = HEAD + b'\n"a\nb",A,1\n\nc,A,1\n'
    assert list(parse_snapshot("x", {"pools.csv": content}).tables["pools.csv"].lines) == [3, 6]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "pools.csv: is empty; its first line must name the columns"),
        (POOLS.decode().encode("utf-16"), "pools.csv:1: is UTF-16; save it as UTF-8"),
        (HEAD + b"p,\0,4\n", "pools.csv:2: has a NUL byte; is it really UTF-8 text?"),
        (
            HEAD + b"p,A,4\ncaf\xe9,A,4\n",
            "pools.csv:3: byte 0xe9 at place 4 is not UTF-8; save the file as UTF-8",
        ),
        (
            HEAD + b'p,A,4\nq,"A,4\nr,A,4\n',
            "pools.csv:3: a quote that opens in this row is never closed",
        ),
        (
            HEAD + b'p,"A"x,4\n',
            (
                "pools.csv:2: a quoted cell goes on after its closing quote; write a quote inside"
                " quotes twice"
            ),
        ),
        (
            HEAD + b"p," + b"A" * 140_000 + b",4\n",
            "pools.csv:2: a cell is longer than 131072 characters; is a closing quote missing?",
        ),
        (HEAD + b"p,A\n", "pools.csv:2: the row has 2 cells, the header 3"),
        (
            HEAD + b"p,A,4\nq,1,2,4\n",
            (
                "pools.csv:3: the row has 4 cells, the header 3; a cell with a comma in it needs"
                " quotes"
            ),
        ),
        (b"pool,gpu_type,gpus,gpus\np,A,4,4\n", 'pools.csv:1: column "gpus" appears twice'),
        (b"pool,gpu_type,gpus,\np,A,4,x\n", "pools.csv:1: column 4 has no name"),
        (
            b"pool;gpu_type;gpus\np;A;4\n",
            'pools.csv:1: cells are separated by ";"; separate them by commas',
        ),
        (
            b"pool\tgpu_type\tgpus\np\tA\t4\n",
            'pools.csv:1: cells are separated by "\\t"; separate them by commas',
        ),
    ],
)
def test_faults_of_form(content: bytes, fault: str) -> None:
    """Each with file, line and what to do."""
    assert form(content)[0] == [fault]


@pytest.mark.parametrize(
    ("content", "warning"),
    [
        (
            HEAD + b"p,A,4\n,,\n , ,\n",
            "pools.csv:3: the row has only empty cells and is ignored, and 1 more rows like it",
        ),
        (
            HEAD + b"p,A,4,\nq,A,4,,\n",
            (
                "pools.csv:2: empty cells beyond the 3 of the header are ignored, and 1 more rows"
                " like it"
            ),
        ),
        (
            b"pool,gpu_type,gpus,\np,A,4,\n",
            "pools.csv:1: column 4 has no name and only empty cells and is ignored",
        ),
    ],
)
def test_what_spreadsheets_leave_behind_is_ignored_with_a_word(
    content: bytes, warning: str
) -> None:
    """Empty rows and columns at the edges carry nothing."""
    assert form(content) == ([], [warning])
    assert rows(content)[0] == ("p", "A", "4")


def test_rows_next_to_a_broken_one_are_still_judged(tmp_path: Path) -> None:
    """One pass tells everything: the ragged row 2, the bad number in row 3."""
    assert faults(folder(tmp_path / "s", pools=HEAD + b"p,A\nq,A,many\n")) == [
        "pools.csv:2: the row has 2 cells, the header 3",
        'pools.csv:3: gpus "many" is not a whole number (pool "q")',
    ]


def test_slices_join_seamlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut after every second row and with texts remembered for the first few only, the table is
    the same.
    """
    monkeypatch.setattr(csv_table, "SLICE", 2)
    monkeypatch.setattr(csv_table, "FEW", 3)
    content = HEAD + b"".join(b"p%d,A%d, %d\n" % (i, i % 3, i) for i in range(25))
    assert rows(content) == [(f"p{i}", f"A{i % 3}", str(i)) for i in range(25)]


def test_every_blank_around_a_cell_is_no_part_of_it() -> None:
    """Each character that counts as blank is stripped, also where no other blank is in the file."""
    for blank in filter(str.isspace, map(chr, range(0x3001))):
        if blank not in "\r\n":
            content = HEAD + f"{blank}p,A{blank},8\n".encode()
            assert rows(content) == rows(content.replace(b"\n", b"\r\n")) == [("p", "A", "8")]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"now_s = 1\ninterval_s = = 2\n", "config.toml:2: is not TOML: Invalid value"),
        (b"now_s = 1\nnow_s = 2\n", "config.toml:2: is not TOML: Cannot overwrite a value"),
        (b"x = " + b"9" * 5000, "config.toml: is not TOML: Exceeds the limit"),
        (b"x = " + b"[" * 4000, "config.toml: is not TOML: "),
        (b"[a" + b".a" * 50 + b"]\n", "config.toml: has tables more than 10 deep"),
        (b"# \xff\n", "config.toml:1: byte 0xff at place 3 is not UTF-8; save the file as UTF-8"),
        (b"#" * 30_000, "config.toml: is longer than 20000 bytes; a config.toml has a few lines"),
    ],
)
def test_config_that_cannot_be_read(text: bytes, fault: str) -> None:
    """Syntax with its line; nothing that is slow or deep gets near the parser's limits."""
    found = form(text, "config.toml")[0]
    assert len(found) == 1 and found[0].startswith(fault), found


def test_config_with_its_lines() -> None:
    """Byte order mark and Windows line ends are fine; every key is found again."""
    text = '\ufeff# a\r\nnow_s = 5\r\n"max_changes" = 2\r\n\r\n[solver]\r\ninterval_s = 3\r\n'
    snap = parse_snapshot("x", {"config.toml": text.encode()})
    assert snap.config == {"now_s": 5, "max_changes": 2, "solver": {"interval_s": 3}}
    lines = {"now_s": 2, "max_changes": 3, "solver": 5, "solver.interval_s": 6}
    assert snap.config_lines == lines


def test_missing_folder_and_file_in_its_place(tmp_path: Path) -> None:
    """The folder is named, and a neighbour with almost its name."""
    folder(tmp_path / "cluster-a")
    for path, words in (
        ("clustr-a", 'there is no such folder; did you mean "cluster-a"?'),
        ("cluster-a/jobs.csv", "is a file; a snapshot is a folder"),
        ("a\0b", "cannot be read: "),
        ("x" * 5000, "cannot be read: "),
    ):
        assert words in faults(tmp_path / path)[0]


def test_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Required files are missed by name, with what may have been meant; rates.csv is none of
    them. Who gives the folder around snapshots is told the folder of one.
    """
    monkeypatch.chdir(tmp_path)
    Path("many").mkdir()
    path = folder(Path("many") / "b")
    missing = "jobs.csv: there is no such file in"
    assert faults(Path("many"))[0] == f'{missing} "many"; did you mean "many/b"?'
    (path / "jobs.csv").rename(path / "job.csv")
    (path / "rates.csv").unlink()
    assert faults(path) == [f'{missing} "many/b"; did you mean "job.csv"?']


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Path.mkdir, "is a folder, not a file"),
        (os.mkfifo, "is not a regular file"),
        (
            lambda path: path.symlink_to(path),
            "cannot be read: symbolic links that lead round in a circle",
        ),
        (lambda path: path.symlink_to("nowhere"), "is a link to a file that is not there"),
    ],
)
@pytest.mark.parametrize("file", ["jobs.csv", "tenants.csv", "config.toml"])
def test_what_is_no_file(
    tmp_path: Path, make: Callable[[Path], None], words: str, file: str
) -> None:
    """A folder, a pipe (reading it would never end), links to nowhere: one fault each, for
    optional files too.
    """
    path = folder(tmp_path / "s")
    (path / file).unlink(missing_ok=True)
    make(path / file)
    assert faults(path) == [f"{file}: {words}"]


def test_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No permission is a fault of that file."""
    path = folder(tmp_path / "s")
    refuse = Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr("allocator.io.tables.limited_reader.os.open", refuse)
    words = "cannot be read: Permission denied"
    assert {f"{name}.csv: {words}" for name in ("jobs", "pools", "rates")} == {*faults(path)}


def test_other_files_are_left_alone_but_near_misses_are_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """plan.json and capacity.csv belong to others; tenant.csv is most likely tenants.csv. The name
    is the folder's own, however the path is written.
    """
    path = folder(tmp_path / "mine", capacity=b"\0", tenant=b"tenant\nt\n")
    (path / "plan.json").write_text("{")
    monkeypatch.chdir(path)
    for name in (path, f"{path}/", ".", "../mine/"):
        snap = read_snapshot(name)
        assert (snap.name, snap.faults) == ("mine", ())
    assert set(snap.tables) == {"jobs.csv", "pools.csv", "rates.csv"}
    assert snap.warnings == (
        'tenants.csv: there is no such file; did you mean it by "tenant.csv", which is ignored?',
    )


def test_writing_where_one_cannot(tmp_path: Path) -> None:
    """A file in the way is a message, not a traceback."""
    (tmp_path / "f").write_text("x")
    with pytest.raises(UsageError, match="in the way"):
        write_snapshot(snapshot(), tmp_path / "f")


CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8).map(
    str.strip
)
VALUE = st.one_of(
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    CELL,
    st.dates(),
    st.lists(st.integers()),
)
CONFIGS = st.dictionaries(
    CELL,
    st.one_of(VALUE, st.dictionaries(CELL, st.one_of(VALUE, st.dictionaries(CELL, VALUE)))),
    max_size=4,
)


@st.composite
def tables(draw: st.DrawFn) -> Snapshot:
    """A snapshot with any text in its cells, as long as no row is empty from end to end."""
    file = draw(st.sampled_from(sorted(TABLES)))
    names = draw(st.lists(CELL.filter(bool), min_size=2, max_size=4, unique=True))
    rows = draw(st.lists(st.tuples(*[CELL] * len(names)).filter(any), max_size=5))
    cells = {n: [r[i] for r in rows] for i, n in enumerate(names)}
    return Snapshot("x", draw(CONFIGS), {file: Table(file, cells, range(2, len(rows) + 2))})


@examples(15, 300)
@given(tables())
def test_any_text_survives_writing(
    tmp_path_factory: pytest.TempPathFactory, snap: Snapshot
) -> None:
    """Quotes, commas, line ends, byte order marks and control characters in cells and config
    come back as they were.
    """
    again = read_snapshot(write_snapshot(snap, tmp_path_factory.mktemp("t")))
    assert again.digest == snap.digest
    assert not [f for f in again.faults if f.file in snap.tables]
