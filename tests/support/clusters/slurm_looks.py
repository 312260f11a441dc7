"""A whole Slurm as text, and recorded answers that tests change."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from cluster_tables import show
from slurm_cluster import SlurmCluster

from allocator.clusters.adapter import ClusterView, ObserveRequest
from allocator.clusters.slurm.adapter import SlurmAdapter

RECORDED = Path(__file__).resolve().parents[3] / "data" / "recorded" / "slurm"
SHOWN = ("job", "node", "partition", "config", "reservation", "step")
CLOCKS = re.compile(  # values that change by themselves
    r"\b(?:RunTime|CPULoad|FreeMem|LastSchedEval|Scheduler|BOOT_TIME|Configuration data as of"
    r"|NEXT_JOB_ID)[= ]\S+"
)


def whole_state(slurm: SlurmCluster) -> str:
    """Everything that Slurm shows of jobs, nodes, partitions, reservations and its configuration,
    without what its clocks change, and the names and contents of the saved state of jobs.
    """
    shown = [slurm.run("scontrol", "show", what, "-a", "-d", "-o") for what in SHOWN]
    shown.append(slurm.run("squeue", "-a", "-r", "-h", "-o", "%A|%i|%T|%r|%b|%D|%N|%P|%k|%j|%Q|%V"))
    shown.append(slurm.run("sinfo", "-a", "-h", "-N", "-o", "%N|%T|%G|%E|%P"))
    return CLOCKS.sub("", "\n".join(shown))


def look(answers: Path, **settings: Any) -> ClusterView:
    """What recorded answers say."""
    return SlurmAdapter().observe(ObserveRequest(settings, answers))


class Recorded:
    """A copy of the recorded answers of 24.11, which a test changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "answers"
        shutil.copytree(RECORDED, self.folder)
        self.jobs = self._read("jobs.json")
        self.nodes = self._read("nodes.json")
        self.job: dict[str, Any] = self.jobs["jobs"][0]

    def _read(self, name: str) -> dict[str, Any]:
        document = json.loads((self.folder / name).read_text(encoding="utf-8"))
        assert isinstance(document, dict)
        return document

    def add_job(self, ident: int, **fields: Any) -> dict[str, Any]:
        """One more job like the recorded one, which waits unless `fields` say otherwise."""
        waiting = {
            "job_id": ident,
            "name": f"job-{ident}",
            "job_state": ["PENDING"],
            "nodes": "",
            "gres_detail": [],
            **_wrap(start_time=0, end_time=0, time_limit=60),
        }
        job = {**self.job, **waiting, **_wrap(**fields)}
        self.jobs["jobs"].append(job)
        return job

    def change(self, **fields: Any) -> None:
        """The recorded job, which runs, has other fields."""
        self.job |= _wrap(**fields)

    def node(self, name: str) -> dict[str, Any]:
        """A recorded node."""
        found: dict[str, Any] = next(n for n in self.nodes["nodes"] if n["name"] == name)
        return found

    def look(self, **settings: Any) -> ClusterView:
        """What the changed answers say."""
        (self.folder / "jobs.json").write_text(json.dumps(self.jobs), encoding="utf-8")
        (self.folder / "nodes.json").write_text(json.dumps(self.nodes), encoding="utf-8")
        return look(self.folder, **settings)

    def show(self, columns: str, table: str = "jobs", **settings: Any) -> str:
        """Columns of a table that the changed answers make, "1 running; 2 queued"."""
        return show(self.look(**settings), table, columns)

    def notes(self, **settings: Any) -> str:
        """What the look says of the answers."""
        return "\n".join(self.look(**settings).notes)


def _wrap(**fields: Any) -> dict[str, Any]:
    """Fields with their numbers as Slurm writes them since 23.02; the id is a plain one."""
    return {
        name: {"set": True, "infinite": False, "number": value}
        if isinstance(value, int | float) and name != "job_id"
        else value
        for name, value in fields.items()
    }
