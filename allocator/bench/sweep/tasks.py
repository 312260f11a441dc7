"""One task of a sweep, identified by everything on which its result depends."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.errors import UsageError

if TYPE_CHECKING:  # heavy; the process of a task needs it only in its runner
    from allocator.simulator.options import SimulationOptions

METRICS_FILE = "metrics.json"
ASSUMED = "assumed"
"""What is assumed of the jobs of the workload, in METRICS_FILE."""
LEAST = "least"
"""The policy of tasks that bound the mean completion time of all policies (bench/least.py)."""
FORMAT = 1
"""Part of the identity of every task; raised when the meaning of a task or its files changes."""


@dataclass(frozen=True)
class SweepTask:
    """One simulation, or one measurement of a solver (solvers/runs.py).

    Attributes
    ----------
    load : of the generator, in its own unit; None for a folder.
    seed : of the generator and of the simulation.
    jobs : how many to generate; None for the default of the generator.
    options : fields of SimulationOptions that differ from their default, by name. A new option
    therefore does not change the identity of existing tasks.
    digest : of the content of a folder, which is simulated unchanged.
    path : location of a folder; it is not part of the identity.
    """

    workload: str
    load: float | None = None
    policy: str = ""
    seed: int = 0
    jobs: int | None = None
    digest: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    path: str = field(default="", compare=False)

    @property
    def identity(self) -> dict[str, object]:
        """Return everything but the code on which the result depends, as plain JSON values."""
        values = asdict(self)
        del values["path"]
        return {"format": FORMAT, **values}

    @property
    def key(self) -> str:
        """Return the SHA-256 of the canonical JSON of the identity; it names the task's folder."""
        text = json.dumps(self.identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def __str__(self) -> str:
        load = "" if self.load is None else f" load {self.load:g}"
        options = "".join(f" {value}" for value in self.options.values() if isinstance(value, str))
        return f"{self.workload}{load} {self.policy} seed {self.seed}{options}"


def from_identity(identity: Mapping[str, object], path: str = "") -> SweepTask:
    """Return the task of an identity; raise UsageError if the identity has another format."""
    if identity.get("format") != FORMAT:
        raise UsageError(
            f"a task of format {identity.get('format')}, not {FORMAT}: choose another folder"
        )
    values: dict[str, Any] = {k: v for k, v in identity.items() if k != "format"}
    return SweepTask(**values, path=path)


def source_of_folder(path: Path | str) -> SweepTask:
    """Return the source of the workload in a folder. Raises UsageError: it has no workload.csv."""
    folder = Path(path)
    if not (folder / "workload.csv").is_file():
        raise UsageError(
            f'"{path}" is neither a generator of workloads nor a folder with a workload.csv'
        )
    place = folder.resolve()
    return SweepTask(place.name, digest=digest(contents(folder)), path=str(place))


def has_seeds(source: SweepTask, options: SimulationOptions) -> bool:
    """Return whether two seeds give different simulations: by chance, or by hazards of servers."""
    if not source.digest or options.is_random:
        return True
    pools = contents(Path(source.path)).get("pools.csv", b"").decode("utf-8-sig", "replace")
    return options.revocations > 0 and any(
        (row.get(name) or "").strip() not in ("", "0", "0.0")
        for row in csv.DictReader(io.StringIO(pools))
        for name in ("revocations_per_gpu_hour", "hazard_by_age")
    )


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a workload that a simulation reads, CSV and TOML, by name."""
    return {
        p.name: p.read_bytes()
        for p in sorted(folder.iterdir())
        if p.suffix in (".csv", ".toml") and p.is_file() and not p.name.startswith(".")
    }


def digest(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of names and contents."""
    lines = "".join(
        f"{hashlib.sha256(content).hexdigest()} {name}\n" for name, content in sorted(files.items())
    )
    return hashlib.sha256(lines.encode()).hexdigest()


def grid(
    sources: Sequence[SweepTask],
    policies: Sequence[str],
    seeds: int,
    options: SimulationOptions,
) -> list[SweepTask]:
    """Return all tasks, seed by seed, so that early results compare policies on equal inputs.

    Sources are tasks without policy and seed. `options` hold for every simulation, except for the
    seed, which is that of the task. A folder without randomness has seed 0 only: other seeds would
    repeat the same simulation, and count as evidence. Raises UsageError for two workloads of one
    name.
    """
    if len({s.workload for s in sources}) < len({(s.workload, s.path) for s in sources}):
        raise UsageError("two workloads have the same name; the tables could not tell them apart")
    given = {
        f.name: value
        for f in fields(options)
        if f.name != "seed" and (value := getattr(options, f.name)) != f.default
    }
    several = [source for source in sources if has_seeds(source, options)]
    return [
        replace(source, policy=policy, seed=seed, options=given)
        for seed in range(seeds)
        for source in (several if seed else sources)
        for policy in dict.fromkeys(policies)
    ]
