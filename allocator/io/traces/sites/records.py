"""Records of other systems in JSON, with the columns of sacct: one way from a record to a job."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from allocator.io.traces.base import Trace, TraceOptions
from allocator.io.traces.sites.slurm import read_rows
from allocator.io.traces.sites.slurm_records import GPUS, NEEDED, OTHERS, TRES, UNTYPED
from allocator.io.traces.text import CsvRows, content, input_error


def read_documents(source: Path) -> list[Any]:
    """Return the JSON documents of a file, which follow each other. Raises InvalidInput."""
    text = content(source).decode("utf-8-sig", "replace").strip()
    found = []
    with faults_of(source):
        while text:
            document, end = json.JSONDecoder().raw_decode(text)
            found.append(document)
            text = text[end:].lstrip()
    return found


@contextmanager
def faults_of(source: Path) -> Iterator[None]:
    """Turn what goes wrong with records of another shape into InvalidInput."""
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        why = f"{error} is missing" if isinstance(error, LookupError) else error
        if isinstance(error, AttributeError | TypeError):
            why = "a value is of another type"
        raise input_error(source, f"has records of another shape: {why}") from None


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
