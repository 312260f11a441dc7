"""Conversion of what the journal keeps of a round to bytes and text, and back.

A plan is kept by columns, because text of every number takes longer than most other parts of a
round. Its bytes are a mark, the length of a compressed JSON document, the document, and the columns
of numbers as doubles.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from allocator.domain.plan import JOB_FIELDS, JobPlan, Plan
from allocator.io.plans import dumps as to_strict_json, read_fields, write_document
from allocator.objects import Json
from allocator.queue.snapshot import SQUEEZE

MARK = b"columns1"
# numeric fields of a job: stored as doubles, or as JSON if no job has a value
_NUMBERS = [field.name for field in fields(JobPlan) if str(field.type).startswith("float")]


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
    head = zlib.compress(to_strict_json(document).encode("utf-8", "surrogatepass"), SQUEEZE)
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
