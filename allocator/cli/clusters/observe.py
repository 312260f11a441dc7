"""`allocator observe`: a cluster as it is, as a snapshot folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.cli.output import note, show_result, warn
from allocator.cli.parsing import command, option, repeated

if TYPE_CHECKING:
    from allocator.clusters.adapter import ObserveRequest

EXAMPLES = """
allocator observe slurm --out look                        then: allocator solve look --out look/plan
allocator observe ray --out look --address http://head:8265
allocator observe slurm --out look --answers recorded     from recorded answers, without a cluster
"""
ABOUT = """\
Look at a cluster and write a snapshot of it. Nothing on the cluster is changed. What the snapshot
could not represent goes to standard error."""


LOOK = (
    option("--settings", "FILE", "TOML file of how jobs are taken; docs/slurm.md"),
    repeated(
        "--add",
        "FILE",
        "copy rates.csv, models.csv or another table into the snapshot; may be repeated",
    ),
    option("--answers", "DIR", "read recorded answers in place of the cluster"),
    option("--address", "URL", "address of the dashboard of a Ray, as in its settings"),
)
"""How to look at a cluster."""


@command(
    "observe",
    "a cluster as it is, as a snapshot",
    ABOUT,
    EXAMPLES,
    option(
        "cluster",
        "CLUSTER",
        "kind of the cluster: slurm, ray, kubernetes ...; an unknown name lists all",
    ),
    option("--out", "DIR", "snapshot folder to write", required=True),
    *LOOK,
)
def call(args: argparse.Namespace) -> int:
    from allocator.clusters.folder import write_observation
    from allocator.clusters.registry import get_cluster

    adapter = get_cluster(args.cluster)
    view = adapter.observe(read_request(args))
    added = [Path(name) for name in args.add]
    warnings = write_observation(view, args.cluster, Path(args.out), added)
    note(*(f"note: {remark}" for remark in view.notes))
    warn(warnings)
    rows = {file.removesuffix(".csv"): len(table) for file, table in view.tables.items()}
    note(f"written to {args.out}: {', '.join(f'{n} {name}' for name, n in rows.items())}")
    show_result(
        args.format,
        {
            "folder": args.out,
            "rows": rows,
            "notes": list(view.notes),
            "warnings": list(warnings),
        },
    )
    return 0


def read_request(args: argparse.Namespace) -> ObserveRequest:
    """Return what the options of `add_look` ask for. Raises UsageError."""
    import tomllib

    from allocator.clusters.adapter import ObserveRequest
    from allocator.errors import UsageError

    settings: dict[str, Any] = {}
    if args.settings is not None:
        try:
            settings = tomllib.loads(Path(args.settings).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f'"{args.settings}" cannot be read: {error}') from error
    if args.address is not None:
        settings["address"] = args.address
    return ObserveRequest(settings, None if args.answers is None else Path(args.answers))
