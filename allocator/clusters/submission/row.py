"""A CSV file with one row of jobs.csv."""

from __future__ import annotations

from allocator.clusters.adapter import Json
from allocator.clusters.submission.new_job import NewJob, Site, refuse
from allocator.domain.findings import did_you_mean, quote
from allocator.domain.schema.cells import parse
from allocator.domain.schema.columns import JOBS
from allocator.errors import Fault, InvalidInput
from allocator.io.tables.csv_table import ReadingLog, parse_csv

STARTED = ("pool", "gpus", "shared_with")  # what only a job has that runs


def read_row(file: str, content: bytes, site: Site, now_s: float) -> NewJob:
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
    found = [
        message
        for column in JOBS.columns
        for _, message in parse(column, [str(row.get(column.name) or "")])[1]
    ]
    if row.get("job_id") in site.job_ids:
        found.append(f"job_id {quote(row['job_id'])} is there already; give it another name")
    if row.get("state") not in (None, "queued"):
        found.append(f"state {quote(row['state'])}: a job that is not there yet is queued")
    found += [f"{name}: a job that is not there yet has none" for name in STARTED if row.get(name)]
    if found:
        raise InvalidInput([Fault(file, line, message) for message in found])
    return NewJob(row, file, line)
