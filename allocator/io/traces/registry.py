"""The formats of traces by name.

To add a format, write its module (see the docstring of the package) and add one line here. A format
loads its libraries only when it is used, so that `allocator --help` stays quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from allocator.io.traces.base import TraceFormat


@dataclass(frozen=True)
class ExtraOption:
    """An option `--name VALUE` that only one format has. many: it may be given more than once."""

    name: str
    metavar: str
    help: str
    many: bool = False


@dataclass(frozen=True)
class TraceFormatEntry:
    """A format of traces.

    Attributes
    ----------
    module : has recognise and read.
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


_HERE = "allocator.io.traces"
FORMATS: Mapping[str, TraceFormatEntry] = {
    "philly": TraceFormatEntry(
        f"{_HERE}.philly", "CSV", "Philly jobs: timestamp, duration, num_gpus, cluster"
    ),
    "sia": TraceFormatEntry(
        f"{_HERE}.sia",
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
    "alibaba-openb": TraceFormatEntry(
        f"{_HERE}.openb",
        "CSV",
        "Alibaba 2023 pods and nodes",
        (
            ExtraOption(
                "nodes", "FILE", "node list (default: openb_node_list_gpu_node.csv next to SOURCE)"
            ),
        ),
    ),
    "gavel": TraceFormatEntry(
        f"{_HERE}.gavel",
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
    "slurm": TraceFormatEntry(
        f"{_HERE}.slurm",
        "FILE",
        "what sacct --parsable2 prints, - for standard input",
        (
            ExtraOption("tenant", "WHAT", "account (default), user, qos or partition"),
            ExtraOption("pools", "WHAT", "a pool for each GPU type (default), or each partition"),
            ExtraOption("weight", "WHAT", "of jobs: equal (default), or priority"),
        ),
        has_types=True,
    ),
    "csv": TraceFormatEntry(
        f"{_HERE}.plain",
        "CSV",
        "any table of jobs (Helios and others); columns by --map",
        (
            ExtraOption(
                "map",
                "FIELD=COLUMN",
                "which column is submitted_s, duration_s, started_s, ended_s, gpus, job_id, "
                "tenant, model",
                many=True,
            ),
            ExtraOption("where", "COLUMN=A|B", "keep only rows with one of these texts", many=True),
            ExtraOption("unit", "UNIT", "of times that are no dates: s (default), ms, min, h"),
        ),
    ),
}


def load(name: str) -> TraceFormat:
    """Return the module of a format. Raises KeyError for a name that is not registered."""
    return cast("TraceFormat", import_module(FORMATS[name].module))
