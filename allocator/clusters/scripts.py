"""The head of a script that carries a plan out: which plan it is of, and what the plan does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib.resources import files

from allocator.clusters.adapter import PlannedJob
from allocator.objects import Record

HEAD = "script_head.sh"
CHANGES = ("grow", "shrink", "move")


def write_head(
    package: str,
    cluster: str,
    jobs: Sequence[PlannedJob],
    details: Record,
    words: Mapping[str, str],
) -> str:
    """Return the head of a script.

    Parameters
    ----------
    package : str
        Package that has the head.
    cluster : str
        Words for the cluster that was looked at.
    jobs : sequence of PlannedJob
        Jobs that the script is about.
    details : mapping of str to object
        Details of the look.
    words : mapping of str to str
        What stands in place of the marks of the head.
    """
    actions = [job.action for job in jobs]
    counts = ", ".join(f"{actions.count(name)} {name}" for name in dict.fromkeys(actions))
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(details["now_s"]))
    about = f"# A plan for {cluster} seen {when}.\n# Jobs: {counts or 'none'}."
    head = files(package).joinpath(HEAD).read_text(encoding="utf-8")
    for mark, text in {"@ABOUT@": about, **words}.items():
        head = head.replace(mark, text)
    return head
