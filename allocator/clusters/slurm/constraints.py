"""What keeps a waiting job from starting, in Slurm's words: features, dependencies, reasons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from allocator.clusters.slurm.jobs import SlurmJob

SIMPLE = re.compile(r"[\w.\-+:@/]+(?:[&|,][\w.\-+:@/]+)*")
NEVER = frozenset(
    {
        "DEPENDENCYNEVERSATISFIED",
        "BADCONSTRAINTS",
        "LICENSES",
        "INVALIDACCOUNT",
        "INVALIDQOS",
        "PARTITIONTIMELIMIT",
        "PARTITIONNODELIMIT",
        "PARTITIONDOWN",
        "PARTITIONINACTIVE",
    }
)
LIMIT = ("ASSOC", "QOS")  # beginnings of reasons that name a limit of accounting
WAITS_FOR_END = ("afterok", "afterany", "aftercorr")
DEPENDENCY = re.compile(r"(\w+):([\d_*]+)(?:\+\d+)?\((\w+)\)")


def asked_features(jobs: Iterable[SlurmJob]) -> frozenset[str]:
    """Return every feature that some job asks for."""
    return frozenset(
        name
        for job in jobs
        if SIMPLE.fullmatch(job.features)
        for name in re.split(r"[&|,]", job.features)
    )


def has_features(asked: str, features: frozenset[str]) -> bool:
    """Return whether a node has what a job asks for: names with & or , between, or with |.

    False where counts or brackets are asked for.
    """
    if not asked:
        return True
    if not SIMPLE.fullmatch(asked):
        return False
    return any(
        features.issuperset(re.split(r"[&,]", alternative)) for alternative in asked.split("|")
    )


def find_predecessors(
    job: SlurmJob, tasks: Mapping[str, Sequence[str]]
) -> tuple[list[str], str | None]:
    """Return the jobs that must have ended before this one, or why that cannot be said.

    Parameters
    ----------
    job : SlurmJob
        A job that waits.
    tasks : mapping of str to sequence of str
        Jobs of the snapshot by the id that dependencies name: a job itself, all tasks of an array
        ("3" and "3_*"), one of them ("3_1").
    """
    if not job.dependency:
        return [], None
    if "?" in job.dependency:
        return [], "it waits for one of several jobs"
    found: list[str] = []
    parts = DEPENDENCY.findall(job.dependency)
    if not parts:
        return [], "it has a dependency of another kind"
    for kind, ident, state in parts:
        if state == "fulfilled":
            continue
        if kind not in WAITS_FOR_END:
            return [], f'it has a dependency "{kind}"'
        name = ident
        if kind == "aftercorr" and "_" in job.name_of_id:
            name = f"{ident.partition('_')[0]}_{job.name_of_id.partition('_')[2]}"
        if name not in tasks:
            return [], "it waits for a job that is not in the snapshot"
        found += tasks[name]
    return found, None


def index_tasks(jobs: Iterable[SlurmJob]) -> dict[str, list[str]]:
    """Return the jobs by every id that a dependency may name."""
    found: dict[str, list[str]] = {}
    for job in jobs:
        names = {job.name_of_id, str(job.record_id)}
        if job.array_id:
            names |= {str(job.array_id), f"{job.array_id}_*"}
        for name in names:
            found.setdefault(name, []).append(job.name_of_id)
    return found
