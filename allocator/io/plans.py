"""Write plans as plan.json and plan.csv, whole or not at all, and as bytes for the journal.

JSON is strict: it has no NaN and no Infinity (such a number becomes null), keys in a fixed order,
and one job per line. The same result gives the same bytes (docs/reference/rules.md, R43).

The journal keeps a plan by columns, because text of every number takes longer than most other parts
of a round. Its bytes are a mark, the length of a compressed JSON document, the document, and the
columns of numbers as doubles.
"""

import errno
import json
import math
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields as fields_of, replace
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

import numpy as np

from allocator.domain.plan import JOB_FIELDS, JobPlan, Plan
from allocator.domain.schema.columns import PLACEMENTS
from allocator.errors import AllocatorError, UsageError
from allocator.io.tables.csv_table import csv_text
from allocator.objects import Json

ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
PLAN_JSON = "plan.json"
PLAN_CSV = "plan.csv"
SQUEEZE = 2  # level of zlib in journals: level 6 takes three times as long and saves a tenth more
MARK = b"columns1"
# numeric fields of a job: stored as doubles, or as JSON if no job has a value
_NUMBERS = [field.name for field in fields_of(JobPlan) if str(field.type).startswith("float")]


def to_json(result: Plan) -> str:
    """Return the plan.json document as strict JSON, ending in a newline."""
    return write_document(read_fields(result), result.jobs)


def read_fields(result: Plan) -> dict[str, Any]:
    """Return the document of plan.json without its jobs."""
    return replace(result, jobs=dict.fromkeys(JOB_FIELDS, ())).to_dict()


def write_document(fields: Mapping[str, Any], jobs: Mapping[str, Sequence[Any]]) -> str:
    """Return the text of plan.json from its other fields and the columns of its jobs."""
    texts = {name: list(map(dumps, jobs[name])) for name in JOB_FIELDS if name in jobs}
    row = "{" + ", ".join(f'"{name}": %s' for name in texts) + "}"
    parts = []
    for name, value in fields.items():
        if name == "jobs":
            items = [row % cells for cells in zip(*texts.values(), strict=True)]
        elif isinstance(value, (list, tuple)):
            items = list(map(dumps, value))
        else:
            parts.append(f" {dumps(name)}: {dumps(value)}")
            continue
        lines = ",\n  ".join(items)
        parts.append(f" {dumps(name)}: [\n  {lines}\n ]" if items else f" {dumps(name)}: []")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def to_csv(result: Plan) -> str:
    """Return the part `jobs` of the plan as CSV; an empty cell is null."""
    return csv_text(JOB_FIELDS, zip(*(map(_cell, result.jobs[f]) for f in JOB_FIELDS), strict=True))


def placements_csv(result: Plan) -> str:
    """Return the nodes of all jobs as placements.csv."""
    names = [column.name for column in PLACEMENTS.columns]
    rows = [
        [job_id, *(place.get(name) for name in names[1:])]
        for job_id, places in zip(result.jobs["job_id"], result.jobs["nodes"], strict=True)
        for place in places or ()
    ]
    return csv_text(names, rows)


def write_plan(result: Plan, folder: Path | str) -> tuple[Path, Path]:
    """Write plan.json and plan.csv into the folder, which is made if needed; return both paths.

    A plan on nodes is also written as placements.csv, as a snapshot has it.

    Each file is replaced in one step, and only after both have reached the disk. A reader at any
    moment, also after a full disk or a kill, finds the old file or the new one, never half of one.
    After an error no temporary file is left.

    Raises
    ------
    UsageError
        If the path cannot be a folder.
    AllocatorError
        If the files cannot be written.
    """
    # plan.json comes last: it announces a whole plan
    texts = {PLAN_CSV: to_csv(result), PLAN_JSON: to_json(result)}
    if result.placement is not None:
        texts = {PLACEMENTS.file: placements_csv(result), **texts}
    paths = write_files(Path(folder), texts)
    return paths[PLAN_JSON], paths[PLAN_CSV]


def write_files(folder: Path, texts: Mapping[str, str | bytes | Iterable[str]]) -> dict[str, Path]:
    """Write the named texts into the folder in the way that `write_plan` describes.

    A text is a string, an iterable of its pieces, or bytes that are written unchanged.
    """
    waiting: list[tuple[Path, Path]] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            if (folder / name).is_dir():
                raise UsageError(f'cannot write "{folder / name}": it is a folder')
            temporary = folder / f".{name}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
            waiting.append((temporary, folder / name))
            _write_synced(temporary, text)
        for temporary, path in waiting:
            os.replace(temporary, path)
        sync_folder(folder)
    except OSError as error:
        raise _in_words(error, folder) from error
    except ValueError as error:  # the path contains a NUL
        raise UsageError(f'cannot write to "{folder}": {error}') from error
    finally:
        for temporary, _ in waiting:
            with suppress(OSError):
                os.unlink(temporary)
    return {name: folder / name for name in texts}


def _write_synced(path: Path, text: str | bytes | Iterable[str]) -> None:
    """Write the text to a new file, and wait until the disk has it.

    A lone surrogate becomes \\udc80, as in JSON.
    """
    pieces: Iterable[str | bytes] = [text] if isinstance(text, (str, bytes)) else text
    with path.open("xb") as out:
        for piece in pieces:
            if isinstance(piece, str):
                out.write(piece.encode("utf-8", "backslashreplace"))
            else:
                out.write(piece)
        out.flush()
        os.fsync(out.fileno())


def sync_folder(folder: Path) -> None:
    """Flush the new names to the disk, if the file system can synchronise folders."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _in_words(error: OSError, folder: Path) -> AllocatorError:
    place = f'cannot write to "{folder}"'
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return AllocatorError(f"{place}: no space left (disk, quota or file size limit)")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return UsageError(f"{place}: not allowed ({os.strerror(error.errno)})")
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return UsageError(f"{place}: a file of that name is in the way")
    return AllocatorError(f"{place}: {error.strerror or error}")


def dumps(value: Any) -> str:
    """Return strict JSON on one line: numbers that are not finite become null.

    Numpy numbers become plain ones.
    """
    if type(value) is str:
        return encode_basestring(value)
    if value is None:
        return "null"
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    try:
        return ENCODE(value)
    except (ValueError, TypeError):
        return ENCODE(_plain(value))


def _plain(value: Any) -> Any:
    """Return the value with plain Python numbers; None for numbers that are not finite."""
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item() if getattr(value, "ndim", 0) == 0 else value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def _cell(value: Any) -> Any:
    """Return a value as a CSV cell; the items of a list have bars between them.

    A node is written as node:gpus, a share of a GPU as node:fraction@gpu.
    """
    return "|".join(map(_item, value)) if isinstance(value, (list, tuple)) else value


def _item(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    share = f"{value['fraction']:g}@{value['gpu']}" if "gpu" in value else value["gpus"]
    return f"{value['node']}:{share}"


def pack_plan(plan: Plan) -> bytes:
    """Return a plan for the journal; the same plan gives the same bytes."""
    columns = {name: plan.jobs[name] for name in JOB_FIELDS}
    numbers = [name for name in _NUMBERS if any(x is not None for x in columns[name])]
    document = {
        "fields": read_fields(plan),
        "numbers": numbers,
        "columns": {
            name: None if name in numbers else list(values) for name, values in columns.items()
        },
    }
    head = zlib.compress(dumps(document).encode("utf-8", "surrogatepass"), SQUEEZE)
    doubles = [np.array(columns[name], dtype="<f8").tobytes() for name in numbers]
    return b"".join((MARK, len(head).to_bytes(4, "little"), head, *doubles))


def read_plan(content: bytes) -> Json:
    """Return the document of plan.json of a plan that the journal keeps."""
    fields, columns = _unpack(content)
    rows = zip(*columns.values(), strict=True)
    return {**fields, "jobs": [dict(zip(columns, row, strict=True)) for row in rows]}


def read_plan_text(content: bytes) -> str:
    """Return the text of plan.json of a plan that the journal keeps."""
    return write_document(*_unpack(content))


def _unpack(content: bytes) -> tuple[Json, dict[str, Sequence[Any]]]:
    """Return the fields of a plan besides its jobs, and the columns of its jobs."""
    start = len(MARK) + 4
    end = start + int.from_bytes(content[len(MARK) : start], "little")
    document = json.loads(zlib.decompress(content[start:end]).decode("utf-8", "surrogatepass"))
    columns = document["columns"]
    numbers = document["numbers"]
    doubles = np.frombuffer(content, dtype="<f8", offset=end)
    # without jobs no column is one of numbers
    shape = len(numbers), doubles.size // max(len(numbers), 1)
    for name, column in zip(numbers, doubles.reshape(shape).tolist(), strict=True):
        columns[name] = [x if math.isfinite(x) else None for x in column]
    return document["fields"], columns
