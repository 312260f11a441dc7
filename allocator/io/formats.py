"""Formats of files that other systems publish: what each is, and which of them a file has.

The docstrings of the packages traces and markets say what the module of a format has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from allocator.domain.findings import did_you_mean
from allocator.errors import UsageError


@dataclass(frozen=True)
class ExtraOption:
    """An option `--name VALUE` that only one format has."""

    name: str
    metavar: str
    help: str


@dataclass(frozen=True)
class FormatEntry:
    """A format.

    Attributes
    ----------
    module : of this package; has recognise and read.
    source : what the user names.
    help : one line.
    extras : options that only this format has.
    has_types : whether `--gpus TYPE=N` makes sense.
    """

    module: str
    source: str
    help: str
    extras: tuple[ExtraOption, ...] = ()
    has_types: bool = False

    def load(self) -> Any:
        """Return the module, which loads its libraries only now: `allocator --help` stays quick."""
        return import_module(f"{__package__}.{self.module}")


def choose_format(
    name: str, path: Path, formats: Mapping[str, FormatEntry], kind: str = "format"
) -> str:
    """Return a format by name; for "auto" the first that recognises the file.

    Parameters
    ----------
    name : str
        Name of a format, or "auto".
    path : Path
        The file.
    formats : mapping of str to FormatEntry
        The formats, in the order in which they are tried.
    kind : str
        What messages call a format.

    Raises
    ------
    UsageError
        For an unknown name. If no format recognises the file, with the reason of every format.
    """
    if name in formats:
        return name
    if name != "auto":
        raise UsageError(
            f'no {kind} "{name}"{did_you_mean(name, formats)}; known: auto, {", ".join(formats)}'
        )
    reasons = []
    for known, entry in formats.items():
        why = entry.load().recognise(path)
        if not why:
            return known
        reasons.append(f"  {known}: {why}")
    raise UsageError(f'"{path}" is of no known {kind}:\n' + "\n".join(reasons))


FORMATS: Mapping[str, FormatEntry] = {
    "philly": FormatEntry(
        "traces.philly", "CSV", "Philly jobs: timestamp, duration, num_gpus, cluster"
    ),
    "sia": FormatEntry(
        "traces.sia",
        "CSV",
        "Sia or Pollux workload with measured profiles",
        (
            ExtraOption(
                "profiles",
                "DIR",
                "folder with one folder per application (default: `profiles` next to or above"
                " SOURCE)",
            ),
            ExtraOption(
                "speed",
                "KIND",
                "goodput (default): best batch size; batches: a row per batch size; tuned: only at"
                " the batch size of each job; samples: as if every sample counted alike",
            ),
            ExtraOption(
                "calibrate",
                "yes|no",
                "divide speeds by the measured slow-down of a real cluster (default: yes)",
            ),
        ),
    ),
    "alibaba-openb": FormatEntry(
        "traces.openb",
        "CSV",
        "Alibaba 2023 pods and nodes",
        (
            ExtraOption(
                "nodes", "FILE", "node list (default: openb_node_list_gpu_node.csv next to SOURCE)"
            ),
        ),
    ),
    "gavel": FormatEntry(
        "traces.gavel",
        "TRACE",
        "Gavel or Shockwave trace with steps per second",
        (
            ExtraOption(
                "throughputs",
                "FILE",
                "JSON of steps per second (default: simulation_throughputs.json next to it)",
            ),
        ),
    ),
    "slurm": FormatEntry(
        "traces.sites.slurm",
        "FILE",
        "what sacct --parsable2 prints, - for standard input",
        (
            ExtraOption("tenant", "WHAT", "account (default), user, qos or partition"),
            ExtraOption("pools", "WHAT", "a pool for each GPU type (default), or each partition"),
            ExtraOption("weight", "WHAT", "of jobs: equal (default), or priority"),
        ),
        has_types=True,
    ),
    "kueue": FormatEntry(
        "traces.sites.kueue",
        "JSON",
        "what kubectl get workloads,events --all-namespaces -o json prints",
        (
            ExtraOption("tenant", "WHAT", "queue (default), namespace or cluster-queue"),
            ExtraOption("weight", "WHAT", "of jobs: equal (default), or priority"),
            ExtraOption("until", "DATE", "when it was printed: until then open workloads ran"),
        ),
        has_types=True,
    ),
    "prometheus": FormatEntry(
        "traces.sites.prometheus",
        "SOURCE",
        "pods with GPUs: kube-state-metrics and DCGM, from a server or its answers",
        (ExtraOption("step", "SECONDS", "between two samples of a server (default: 60)"),),
        has_types=True,
    ),
    "csv": FormatEntry(
        "traces.plain",
        "CSV",
        "any table of jobs (Helios and others); columns by --map",
        (
            ExtraOption(
                "map",
                "FIELD=COLUMN",
                "which column is submitted_s, duration_s, started_s, ended_s, gpus, job_id, "
                "tenant, model",
            ),
            ExtraOption("where", "COLUMN=A|B", "keep only rows with one of these texts"),
            ExtraOption("unit", "UNIT", "of times that are no dates: s (default), ms, min, h"),
        ),
    ),
}
MARKETS: Mapping[str, FormatEntry] = {
    "spot-counts": FormatEntry(
        "markets.counts",
        "JSON",
        "SkyPilot spot traces: machines that can be had, every so many seconds",
    ),
    "spot-events": FormatEntry(
        "markets.events", "CSV", "Bamboo spot traces: milliseconds, add or remove, node"
    ),
    "spot-held": FormatEntry(
        "markets.held", "TXT", "date, time and number of machines that run, in any order"
    ),
    "spot-prices": FormatEntry(
        "markets.prices", "JSON", "AWS spot price history: zone, instance type, price, time"
    ),
    "spot-log": FormatEntry(
        "markets.log",
        "OUT",
        "log of one persistent request per zone: created, running, not running, failed",
    ),
    "catalog": FormatEntry(
        "markets.catalog",
        "CSV",
        "SkyPilot catalogue: prices on demand and spot by accelerator and zone",
    ),
}
