"""Tenants and their quotas from the accounts and QOS of slurmdbd."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from allocator.clusters.slurm.answers import Answers
from allocator.objects import Json

GPU_LIMIT = re.compile(r"gres/gpu(?::([^=,]+))?=(\d+)")
ROOT = "root"  # account above all others, which is the cluster itself


@dataclass(frozen=True)
class _Limits:
    """What accounting says of a tenant: the most GPUs by type, None for any type."""

    most: dict[str | None, int]
    share: float | None = None
    parent: str = ""


def list_tenants(
    names: Iterable[str], kind: str, answers: Answers, gpu_types: Collection[str]
) -> tuple[list[Json], list[Json], list[str]]:
    """Return the tenants that have jobs, and the accounts above them.

    Parameters
    ----------
    names : iterable of str
        Tenants that have jobs.
    kind : str
        Who is a tenant: "account", "user", "qos" or "partition".
    answers : Answers
        Associations and QOS of the look.
    gpu_types : collection of str
        GPU types of the pools.

    Returns
    -------
    tuple
        Rows of tenants.csv and of quotas.csv, and notes.
    """
    notes = []
    if answers.associations is None:
        notes.append(
            "sacctmgr gives no accounts (no slurmdbd, or no right to ask): tenants have no quotas"
        )
    known = {name: _Limits(_read_gpu_limits(group)) for name, group, *_ in answers.qos or ()}
    if kind != "qos":
        notes += [
            f'the GPU limits of QOS {name} count only with tenant = "qos"'
            for name, limits in known.items()
            if limits.most
        ]
        known = _read_associations(answers, kind)
    listed = dict.fromkeys(sorted(set(names)))
    for name in list(listed):  # the accounts above it, the nearest first, without the root
        above: dict[str, None] = {}
        while (name := known[name].parent if name in known else "") and name not in above:
            above[name] = None
        listed |= above
    tenants = []
    quotas = []
    for name in listed:
        limits = known.get(name, _Limits({}))
        tenants.append(
            {
                "tenant": name,
                "parent": limits.parent or None,
                "weight": limits.share,
                "max_gpus": limits.most.get(None),
            }
        )
        for gpu_type, gpus in limits.most.items():
            if gpu_type in gpu_types:
                quotas.append({"tenant": name, "gpu_type": gpu_type, "max_gpus": gpus})
            elif gpu_type is not None:
                notes.append(
                    f"{name} may hold {gpus} GPUs of type {gpu_type}, which is no type of the"
                    " snapshot; the limit does not count"
                )
    return tenants, quotas, notes


def _read_associations(answers: Answers, kind: str) -> dict[str, _Limits]:
    """Return the limits of accounts, or of users; those of single partitions do not count."""
    limits = {}
    for cluster, account, user, partition, parent, group, share, *_ in answers.associations or ():
        is_here = not answers.cluster or cluster in ("", answers.cluster)
        if is_here and not partition and kind == ("user" if user else "account"):
            limits[user or account] = _Limits(
                _read_gpu_limits(group),
                float(share) if share.isdecimal() and int(share) > 0 else None,
                parent if parent != ROOT and not user else "",
            )
    return limits


def _read_gpu_limits(text: str) -> dict[str | None, int]:
    """Return the GPUs of a TRES list such as "cpu=10,gres/gpu=8,gres/gpu:a100=4" by type."""
    return {kind or None: int(gpus) for kind, gpus in GPU_LIMIT.findall(text)}
