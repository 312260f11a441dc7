"""Read the file with which a user would submit a job, whichever kind it is."""

from __future__ import annotations

import re
from pathlib import Path

from allocator.clusters.submission.new_job import NewJob, Site, refuse
from allocator.clusters.submission.row import read_row
from allocator.clusters.submission.sbatch import read_script
from allocator.domain.snapshot import Snapshot
from allocator.io.tables.csv_table import ReadingLog, decode

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
    text = decode(raw, reading)
    for fault in reading.faults:
        raise refuse(file, fault.line, fault.message)
    if text is not None and not text.strip():
        raise refuse(file, None, "is empty; write an sbatch script, a manifest, or a CSV row")
    site = Site.of(snapshot, folder)
    if SCRIPT.search(text or ""):
        return read_script(file, text or "", site, now_s)
    if MANIFEST.search(text or ""):
        from allocator.clusters.submission.manifest import read_manifest

        return read_manifest(file, text or "", site, now_s)
    return read_row(file, raw, site, now_s)
