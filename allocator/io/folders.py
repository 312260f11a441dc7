"""Read and write folders of CSV files with a config.toml: snapshots and workloads.

Reading reports every fault of form with its file and line. Files that do not belong to such a
folder (plan.json, README.md ...) are left alone.
"""

import csv
import errno
import io
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from allocator.domain.findings import did_you_mean, find_nearest, input_error, quote
from allocator.domain.schema.columns import TableSchema
from allocator.domain.settings import FILE as CONFIG_FILE
from allocator.domain.snapshot import Snapshot, Table
from allocator.errors import UsageError
from allocator.io.config_toml import format_toml, parse_config
from allocator.io.plans import write_files
from allocator.io.shipped import describe_copy
from allocator.io.tables.csv_table import ReadingLog, parse_csv
from allocator.io.tables.limited_reader import read_all

MOST_BYTES = 1 << 28  # of one file; a larger one is a mistake, and would fill the memory
MOST_FILES = 200  # of a folder that are compared with the names it should have


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder.

    Attributes
    ----------
    what : its name in messages: "a snapshot".
    main : the file that every folder of this kind has.
    schemas : the schema of each table, by file name.
    mistaken : main file of another kind -> the message if that file is present instead.
    foreign : files of other kinds that cause a warning.
    """

    what: str
    main: str
    schemas: Mapping[str, TableSchema]
    mistaken: Mapping[str, str]
    foreign: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        return (CONFIG_FILE, *self.schemas)


def read_folder(path: str | os.PathLike[str], sort: FolderKind) -> Snapshot:
    """Read the tables of a folder as raw text; its faults of form are in `faults`.

    Raises
    ------
    InvalidInput
        If there is no such folder, or it cannot be listed.
    """
    folder = os.fspath(path)
    try:
        present = sorted(os.listdir(folder))
    except (OSError, ValueError) as error:
        why = _why_no_folder(folder, error, sort)
        raise input_error(folder or '""', why) from None
    readings = {file: ReadingLog(file) for file in sort.files}
    contents: dict[str, bytes] = {}
    for file in sort.files:
        if file in present:
            content = read_content(folder, readings[file])
            if content is not None:
                contents[file] = content
        elif file in sort.schemas and sort.schemas[file].required:
            readings[file].fault(
                None,
                f"there is no such file in {quote(folder)}"
                + _describe_missing(folder, file, present, sort),
            )
    _warn_misnamed(present, readings, sort)
    name = os.path.basename(os.path.abspath(folder)) or folder
    return parse_tables(name, contents, readings)


def _describe_missing(folder: str, file: str, present: list[str], sort: FolderKind) -> str:
    """Return the message about a missing file: for the main one also what the folder may be."""
    if file == sort.main:
        for name, words in sort.mistaken.items():
            if name in present:
                return words
        for name in present:
            if os.path.isfile(os.path.join(folder, name, file)):
                return f"; did you mean {quote(os.path.join(folder, name))}?"
    return did_you_mean(file, [name for name in present if name not in sort.files])


def _warn_misnamed(
    present: list[str], readings: Mapping[str, ReadingLog], sort: FolderKind
) -> None:
    """Warn of files that are ignored but were probably meant."""
    absent = [file for file in sort.files if file not in present]
    others = (
        name
        for name in present
        if name.lower().endswith((".csv", ".toml")) and name not in sort.files
    )
    for file in itertools.islice(others, MOST_FILES):
        meant = find_nearest(file, absent, cutoff=0.88)
        if meant is not None:
            readings[meant].warn(
                None, f"there is no such file; did you mean it by {quote(file)}, which is ignored?"
            )
        if file in sort.foreign and sort.main in present:
            readings[sort.main].warn(
                None, f"{file} next to it is no part of {sort.what} and is ignored"
            )


def parse_tables(
    name: str, contents: Mapping[str, bytes], readings: Mapping[str, ReadingLog]
) -> Snapshot:
    """Return the tables of files that are given as bytes by name."""
    tables: dict[str, Table] = {}
    config, lines = parse_config(contents.get(CONFIG_FILE, b""), readings[CONFIG_FILE])
    for file, content in contents.items():
        table = parse_csv(content, readings[file]) if file != CONFIG_FILE else None
        if table is not None:
            tables[file] = table
    faults = tuple(f for r in readings.values() for f in r.faults)
    warnings = tuple(str(w) for r in readings.values() for w in r.warnings)
    return Snapshot(name, config, tables, faults, warnings, lines)


def parse_folder(name: str, contents: Mapping[str, bytes], sort: FolderKind) -> Snapshot:
    """Return the tables of files that are given as bytes by name, as if they were in a folder."""
    return parse_tables(
        name,
        {f: contents[f] for f in sort.files if f in contents},
        {f: ReadingLog(f) for f in sort.files},
    )


def write_folder(raw: Snapshot, folder: str | os.PathLike[str], sort: FolderKind) -> Path:
    """Write the tables and config.toml into a folder, which is made if needed; return its path.

    Reading the folder again gives the same digest. Each file is replaced in one step
    (plans.write_files).

    Raises
    ------
    UsageError
        If the folder holds another file that would be read as part of it.
    AllocatorError
        If the folder cannot be written.
    TypeError
        For a config that TOML cannot hold.
    """
    texts = {file: _csv(table) for file, table in raw.tables.items()}
    if raw.config:
        texts[CONFIG_FILE] = format_toml(raw.config)
    try:
        strange = [
            file for file in sort.files if file not in texts and (Path(folder) / file).exists()
        ]
    except (OSError, ValueError):
        strange = []  # an impossible name is left to the writer, which reports it
    if strange:
        this = sort.what.removeprefix("a ")
        raise UsageError(
            f'"{folder}" holds {", ".join(strange)}, which this {this} has not; remove it, or'
            " choose another folder"
        )
    write_files(Path(folder), texts)
    return Path(folder)


def _why_no_folder(folder: str, error: OSError | ValueError, sort: FolderKind) -> str:
    if isinstance(error, NotADirectoryError):
        return f"is a file; {sort.what} is a folder with {sort.main}, pools.csv, rates.csv"
    if isinstance(error, FileNotFoundError):
        return f"there is no such folder{describe_copy(folder) or _sibling(folder)}"
    return _in_words(error)


def _sibling(folder: str) -> str:
    path = Path(folder).absolute()
    try:
        return did_you_mean(path.name, [p.name for p in path.parent.iterdir() if p.is_dir()])
    except OSError:
        return ""


def read_content(folder: str, reading: ReadingLog) -> bytes | None:
    """Return the bytes of a regular file.

    Other files are not opened, since reading a pipe or a device may never end.
    """
    path = os.path.join(folder, reading.file)
    try:
        return read_all(path, MOST_BYTES)
    except FileNotFoundError:
        linked = os.path.islink(path)
        reading.fault(
            None,
            "is a link to a file that is not there"
            if linked
            else f"there is no such file{describe_copy(path)}",
        )
    except (OSError, ValueError) as error:
        reading.fault(None, _in_words(error))
    return None


def _in_words(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError):
        return f"cannot be read: {error}"
    if error.errno == errno.EFBIG:
        return f"is larger than {MOST_BYTES >> 20} MiB"
    if error.errno in (errno.EISDIR, errno.EINVAL):
        return str(error.strerror)
    if error.errno == errno.ELOOP:
        return "cannot be read: symbolic links that lead round in a circle"
    return f"cannot be read: {error.strerror or error}"


def _csv(table: Table) -> str:
    """Return the table as CSV.

    Every cell is quoted if one has a carriage return, which the writer would not quote.
    """
    columns = [table.texts(name) for name in table.columns]
    bare_return = any("\r" in cell for column in (table.columns, *columns) for cell in column)
    out = io.StringIO()
    writer = csv.writer(
        out, lineterminator="\n", quoting=csv.QUOTE_ALL if bare_return else csv.QUOTE_MINIMAL
    )
    writer.writerow(table.columns)
    writer.writerows(zip(*columns, strict=True))
    text = out.getvalue()
    # reading takes a leading U+FEFF for a byte order mark
    return "\ufeff" * text.startswith("\ufeff") + text
