"""Tenants and their quotas from the accounts and QOS of slurmdbd."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from allocator.clusters.slurm.answers import Answers

GPU_LIMIT = re.compile(r"gres/gpu(?::([^=,]+))?=(\d+)")
ROOT = "root"  # account above all others, which is the cluster itself

Row = dict[str, Any]


@dataclass(frozen=True)
class Quotas:
    """Hold the rows of tenants.csv and quotas.csv, and notes."""

    tenants: list[Row]
    quotas: list[Row]
    notes: list[str]


@dataclass(frozen=True)
class _Limits:
    """What accounting says of a tenant: the most GPUs by type, None for any type."""

    most: dict[str | None, int]
    share: float | None = None
    parent: str = ""


def list_tenants(
    names: Iterable[str], kind: str, answers: Answers, gpu_types: Collection[str]
) -> Quotas:
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
    """
    notes = []
    if answers.associations is None:
        notes.append(
            "sacctmgr gives no accounts (no slurmdbd, or no right to ask): tenants have no quotas"
        )
    known = _qos_limits(answers) if kind == "qos" else _association_limits(answers, kind)
    if kind != "qos":
        notes += [
            f'the GPU limits of QOS {name} count only with tenant = "qos"'
            for name, limits in _qos_limits(answers).items()
            if limits.most
        ]
    all_names = dict.fromkeys(sorted(set(names)))
    for name in list(all_names):
        all_names |= dict.fromkeys(_accounts_above(name, known))
    tenants = []
    quotas = []
    for name in all_names:
        limits = known.get(name, _Limits({}))
        parent = limits.parent if limits.parent in all_names else None
        most = limits.most.get(None)
        tenants.append({"tenant": name, "parent": parent, "weight": limits.share, "max_gpus": most})
        for gpu_type, gpus in limits.most.items():
            if gpu_type in gpu_types:
                quotas.append({"tenant": name, "gpu_type": gpu_type, "max_gpus": gpus})
            elif gpu_type is not None:
                notes.append(
                    f"{name} may hold {gpus} GPUs of type {gpu_type}, which is no type of the"
                    " snapshot; the limit does not count"
                )
    return Quotas(tenants, quotas, notes)


def _accounts_above(name: str, known: dict[str, _Limits]) -> list[str]:
    """Return the parents of an account, the nearest first, without the root."""
    found: list[str] = []
    while (name := known[name].parent if name in known else "") and name not in found:
        found.append(name)
    return found


def _association_limits(answers: Answers, kind: str) -> dict[str, _Limits]:
    """Return the limits of accounts, or of users; those of single partitions do not count."""
    found = {}
    for cluster, account, user, partition, parent, group, share, *_ in answers.associations or ():
        is_here = not answers.cluster or cluster in ("", answers.cluster)
        if not is_here or partition or kind != ("user" if user else "account"):
            continue
        found[user or account] = _Limits(
            read_gpu_limits(group),
            float(share) if share.isdecimal() and int(share) > 0 else None,
            parent if parent != ROOT and not user else "",
        )
    return found


def _qos_limits(answers: Answers) -> dict[str, _Limits]:
    return {name: _Limits(read_gpu_limits(group)) for name, group, *_ in answers.qos or ()}


def read_gpu_limits(text: str) -> dict[str | None, int]:
    """Return the GPUs of a TRES list by type.

    Examples
    --------
    >>> read_gpu_limits("cpu=10,gres/gpu=8,gres/gpu:a100=4")
    {None: 8, 'a100': 4}
    """
    return {kind or None: int(gpus) for kind, gpus in GPU_LIMIT.findall(text)}
