"""The records of sacct: rows of text, the GPUs that each held, and its times.

sacct quotes nothing. The character behind the first name of the header separates the cells.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from allocator.domain.findings import quote
from allocator.domain.problem import Floats, Ints
from allocator.domain.times import parse_slurm_duration
from allocator.errors import Fault
from allocator.io.traces.text import (
    CsvRows,
    input_error,
    parse_cells,
    parse_seconds,
    raise_if,
    read_text,
)

TIMES = ("Submit", "Start", "End")
NEEDED = ("JobID", *TIMES)
TRES = ("AllocTRES", "ReqTRES")
OTHERS = (
    *("Account", "Cluster", "Elapsed", "Partition", "Priority", "QOS", "State"),
    *("Timelimit", "User"),
)
NOTHING = ("", "Unknown", "None", "N/A")  # a time that is not there
UNLIMITED = ("UNLIMITED", "Partition_Limit", "INVALID")
UNTYPED = "gpu"  # type of GPUs that the records do not name
GPUS = "gres/gpu"
MOST_DIGITS = 7  # of a number of GPUs or nodes
CALL = "sacct --allusers --duplicates --allocations --parsable2 --format=ALL"


def names_of(header: str) -> list[str]:
    """Return the names of the columns in a header."""
    return [name.strip() for name in header.split(_separator(header))]


def find_missing(names: Sequence[str]) -> str:
    """Return "" for a header with all columns that are needed, else which are missing."""
    missing = [name for name in NEEDED if name not in names]
    if not set(TRES) & set(names):
        missing.append(" or ".join(TRES))
    return f"has no column {', '.join(missing)}" if missing else ""


def read_records(source: Path) -> CsvRows:
    """Return the columns that are used as texts, "" for a time that is not there.

    Raises InvalidInput.
    """
    lines = [line.rstrip("\r") for line in read_text(source).split("\n")]
    separator, header = _separator(lines[0]), names_of(lines[0])
    missing = find_missing(header)
    if missing:
        raise input_error(source, f"{missing}; print it by {CALL}", 1)
    place = {name: header.index(name) for name in (*NEEDED, *TRES, *OTHERS) if name in header}
    cells: dict[str, list[str]] = {name: [] for name in place}
    numbers = []
    faults = []
    for number, line in enumerate(lines[1:], start=2):
        row = line.split(separator)
        if len(row) == len(header):
            numbers.append(number)
            for name, at in place.items():
                cells[name].append(row[at].strip())
        elif line.strip():
            faults.append(
                Fault(
                    str(source),
                    number,
                    f"the row has {len(row)} cells, the header {len(header)}; if a name or comment"
                    f" has {quote(separator)} in it, leave out its column or call sacct with"
                    " another --delimiter",
                )
            )
    for name in TIMES:
        cells[name] = ["" if cell in NOTHING else cell for cell in cells[name]]
    rows = CsvRows(str(source), cells, numbers)
    raise_if(source, [*faults, *_check(rows)])
    return rows


def _separator(header: str) -> str:
    match = re.search(r"[^\w%]", header.strip())
    return match[0] if match else "|"


def _check(rows: CsvRows) -> Iterator[Fault]:
    if not len(rows):
        yield Fault(rows.file, None, "has a header and no rows")
    for name in ("JobID", "Submit"):
        for line, cell in zip(rows.lines, rows[name], strict=True):
            if not cell:
                yield Fault(rows.file, line, f"{name} is empty")
    clusters = rows.values.get("Cluster", ())
    for line, cluster in zip(rows.lines, clusters, strict=False):
        if cluster != clusters[0]:
            yield Fault(
                rows.file,
                line,
                f"Cluster {quote(cluster)} after {quote(clusters[0])}; import one cluster at a"
                " time (sacct --clusters)",
            )


def read_times(rows: CsvRows) -> tuple[Floats, Floats, Floats, Floats]:
    """Return Submit, Start, End and the run time, (n,) each, in seconds; nan = not known.

    A job that still runs has no end, and the run time that Elapsed says. Raises InvalidInput.
    """
    submitted, start, end = (parse_seconds(rows, name)[0] for name in TIMES)
    return submitted, start, end, np.where(np.isnan(end), _durations(rows, "Elapsed"), end - start)


def read_limits(rows: CsvRows) -> Floats:
    """Return the time limits in seconds, (n,); nan = none, or not known. Raises InvalidInput."""
    limits = _durations(rows, "Timelimit")
    return np.where(limits > 0, limits, np.nan)


def _durations(rows: CsvRows, column: str) -> Floats:
    nothing = dict.fromkeys((*NOTHING, *UNLIMITED), np.nan)

    def parse(cell: str) -> float:
        try:
            return nothing[cell] if cell in nothing else parse_slurm_duration(cell)
        except ValueError as error:
            raise ValueError(f"{column} {error}") from None

    cells = rows.values.get(column, [""] * len(rows))
    return np.array(parse_cells(rows, cells, parse), dtype=np.float64)


def read_gpus(rows: CsvRows) -> tuple[list[dict[str, int]], Ints]:
    """Return the GPUs by type that each record held, or else asked for, and its nodes, (n,).

    Raises InvalidInput.
    """
    texts = [rows.values.get(name, [""] * len(rows)) for name in TRES]
    cells = [held or asked for held, asked in zip(*texts, strict=True)]
    parsed = parse_cells(rows, cells, _parse_tres)
    return [gpus for gpus, _ in parsed], np.array([nodes for _, nodes in parsed], dtype=np.int64)


def _parse_tres(cell: str) -> tuple[dict[str, int], int]:
    """Return GPUs by type, and nodes, at least 1: "gres/gpu:a100=4,gres/gpu=4,node=2".

    The number without a type counts all GPUs.
    """
    total, nodes, typed = 0, 1, dict[str, int]()
    for part in cell.split(","):
        name, _, text = part.strip().partition("=")
        if name != "node" and name.partition(":")[0] != GPUS:
            continue
        if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
            raise ValueError(f"{quote(part)} has no whole number of {name}")
        if name == "node":
            nodes = max(1, int(text))
        elif name == GPUS:
            total = int(text)
        elif int(text):
            typed[name.removeprefix(f"{GPUS}:")] = int(text)
    rest = total - sum(typed.values())
    return (typed | {UNTYPED: rest} if rest > 0 else typed), nodes
