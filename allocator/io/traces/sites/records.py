"""Records of other systems in JSON, with the columns of sacct: one way from a record to a job."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from allocator.io.traces.base import Trace, TraceOptions
from allocator.io.traces.sites.slurm import read_rows
from allocator.io.traces.sites.slurm_records import GPUS, NEEDED, OTHERS, TRES, UNTYPED
from allocator.io.traces.text import CsvRows, content, form_of, input_error

RECORDS = "file of such records"  # what a file with records of another shape is not


def read_documents(source: Path) -> list[Any]:
    """Return the JSON documents of a file, which follow each other. Raises InvalidInput."""
    text = content(source).decode("utf-8-sig", "replace").strip()
    documents = []
    with form_of(source, RECORDS):
        while text:
            document, end = json.JSONDecoder().raw_decode(text)
            documents.append(document)
            text = text[end:].lstrip()
    return documents


def read_trace(
    source: Path,
    records: Sequence[Mapping[str, object]],
    options: TraceOptions,
    tenants: Mapping[str, str],
    assumed: Sequence[str],
) -> Trace:
    """Return the trace of records whose keys are columns of sacct.

    A column that a record lacks is empty. `tenants` has the columns that --tenant may name. Raises
    InvalidInput and UsageError.
    """
    if not records:
        raise input_error(source, "has no record of a job")
    names = (*NEEDED, TRES[0], *OTHERS)
    cells = {name: [str(r.get(name) or "") for r in records] for name in names}
    trace = read_rows(CsvRows(str(source), cells, range(1, len(records) + 1)), options, tenants)
    return replace(trace, assumed=(*trace.assumed, *assumed))


def tres(gpus: Mapping[str, int], nodes: int) -> str:
    """Return GPUs by type as the text of a column of sacct, such as AllocTRES."""
    typed = [f"{GPUS}:{name}={n}" for name, n in gpus.items() if name != UNTYPED]
    return ",".join([*typed, f"{GPUS}={sum(gpus.values())}", f"node={nodes}"])


def minutes(seconds: float) -> str:
    """Return seconds as a duration of Slurm."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
