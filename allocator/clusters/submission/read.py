"""Read the file with which a user would submit a job, whichever kind it is."""

from __future__ import annotations

import re
from pathlib import Path

from allocator.clusters.submission.new_job import NewJob, Site, refuse
from allocator.clusters.submission.sbatch import read_script
from allocator.domain.findings import did_you_mean, quote
from allocator.domain.schema.cells import parse
from allocator.domain.schema.columns import JOBS
from allocator.domain.snapshot import Snapshot
from allocator.errors import Fault, InvalidInput
from allocator.io.tables.csv_table import ReadingLog, decode, parse_csv
from allocator.objects import Json

MOST_BYTES = 1 << 20  # a larger file describes no job
MANIFEST = re.compile(r"^(apiVersion|kind)\s*:|\A\s*\{", re.MULTILINE)
SCRIPT = re.compile(r"\A#!|^#SBATCH\b", re.MULTILINE)


def read_new_job(path: Path, snapshot: Snapshot, folder: Path | None, now_s: float) -> NewJob:
    """Return the job that a file describes, as a row for a snapshot.

    Parameters
    ----------
    path : Path
        An sbatch script, a manifest in YAML or JSON, or a CSV file with one row of jobs.csv.
    snapshot : Snapshot
        The round that the job would come into.
    folder : Path, optional
        Its folder, which knows the partitions of an observed Slurm.
    now_s : float
        Time of the round.

    Raises
    ------
    InvalidInput
        If it cannot be read, or describes no job for this snapshot.
    """
    file = str(path)
    try:
        with path.open("rb") as opened:
            raw = opened.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise refuse(file, None, f"cannot be read: {why}") from None
    if len(raw) > MOST_BYTES:
        raise refuse(file, None, f"is larger than {MOST_BYTES >> 20} MiB, and so no job")
    reading = ReadingLog(file)
    text = decode(raw, reading) or ""
    for fault in reading.faults:
        raise refuse(file, fault.line, fault.message)
    if not text.strip():
        raise refuse(file, None, "is empty; write an sbatch script, a manifest, or a CSV row")
    site = Site.of(snapshot, folder)
    if SCRIPT.search(text):
        return read_script(file, text, site, now_s)
    if MANIFEST.search(text):
        from allocator.clusters.submission.manifest import read_manifest

        return read_manifest(file, text, site, now_s)
    return _read_row(file, raw, site, now_s)


STARTED = ("pool", "gpus", "shared_with")  # what only a job has that runs


def _read_row(file: str, content: bytes, site: Site, now_s: float) -> NewJob:
    """Return the job of a CSV file with columns of jobs.csv and one row.

    It is submitted now unless it says otherwise, and total_work stands for remaining_work. Raises
    InvalidInput.
    """
    reading = ReadingLog(file)
    table = parse_csv(content, reading)
    if table is None or reading.faults:
        raise InvalidInput(reading.faults)
    known = [column.name for column in JOBS.columns]
    strange = [name for name in table.columns if name not in known]
    if strange:
        raise refuse(
            file,
            1,
            f"{quote(strange[0])} is no column of jobs.csv{did_you_mean(strange[0], known)}; a file"
            " for --submit is an sbatch script, a manifest of Kubernetes, or a row of jobs.csv",
        )
    if len(table) != 1:
        raise refuse(file, None, f"has {len(table)} rows; one job can be submitted at a time")
    line = table.lines[0]
    row: Json = {name: table.texts(name)[0] or None for name in table.columns}
    row["submitted_s"] = row.get("submitted_s") or now_s
    row["remaining_work"] = row.get("remaining_work") or row.get("total_work")
    messages = [
        message
        for column in JOBS.columns
        for _, message in parse(column, [str(row.get(column.name) or "")])[1]
    ]
    if row.get("job_id") in site.job_ids:
        messages.append(f"job_id {quote(row['job_id'])} is there already; give it another name")
    if row.get("state") not in (None, "queued"):
        messages.append(f"state {quote(row['state'])}: a job that is not there yet is queued")
    messages += [
        f"{name}: a job that is not there yet has none" for name in STARTED if row.get(name)
    ]
    if messages:
        raise InvalidInput([Fault(file, line, message) for message in messages])
    return NewJob(row, file, line)
