"""`allocator rbac`: the rights that the allocator needs in a cluster of Kubernetes."""

from __future__ import annotations

import argparse

from allocator.cli.output import show_result
from allocator.cli.parsing import command, option

EXAMPLES = """
allocator rbac run > allocator-run.yaml
"""
ABOUT = """\
Print the roles of Kubernetes for a way of use, and the commands that bind them. They allow what it
does, and nothing else."""
USES = {
    "advise": "observe kubernetes",
    "run": "run QUEUE --executor kubernetes",
    "check": "admit, together with advise",
    "progress": "jobs whose annotations name a source of progress, together with advise",
}


@command(
    "rbac",
    "roles of Kubernetes for the allocator",
    ABOUT,
    EXAMPLES,
    option(
        "use",
        None,
        "what they are for: " + ", ".join(f"{name} ({what})" for name, what in USES.items()),
        choices=tuple(USES),
    ),
)
def call(args: argparse.Namespace) -> int:
    from allocator.clusters.kubernetes.rights import read_role

    roles = read_role(args.use)
    show_result(args.format, {"use": args.use, "yaml": roles}, lambda: print(roles, end=""))
    return 0
