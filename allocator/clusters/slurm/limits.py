"""Tenants and their quotas from the accounts and QOS of slurmdbd."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

GPU_LIMIT = "gres/gpu="


def list_tenants(
    names: Iterable[str],
    kind: str,
    associations: Sequence[tuple[str, ...]] | None,
    qos: Sequence[tuple[str, ...]] | None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of tenants.csv, and notes.

    Parameters
    ----------
    names : iterable of str
        Tenants that have jobs.
    kind : str
        Who is a tenant: "account", "user", "qos" or "partition".
    associations : sequence of tuple of str, optional
        Account, User, ParentName, GrpTRES, MaxTRES and Fairshare of every association.
    qos : sequence of tuple of str, optional
        Name, GrpTRES, MaxTRESPU and Priority of every QOS.
    """
    notes = []
    if associations is None:
        notes.append(
            "sacctmgr gives no accounts (no slurmdbd, or no right to ask): tenants have no quotas"
        )
    most: dict[str, int | None] = {}
    shares: dict[str, float] = {}
    for account, user, _parent, group, _most, share, *_ in associations or ():
        own = user or account
        if kind == ("user" if user else "account"):
            most[own] = _gpu_limit(group)
            if share.isdecimal() and int(share) > 0:
                shares[own] = float(share)
    for name, group, per_user, *_ in qos or ():
        if kind == "qos":
            most[name] = _gpu_limit(group)
        elif _gpu_limit(group) is not None or _gpu_limit(per_user) is not None:
            notes.append(f'the GPU limits of QOS {name} count only with tenant = "qos"')
    rows = [
        {"tenant": name, "weight": shares.get(name), "max_gpus": most.get(name)}
        for name in sorted(set(names))
    ]
    return rows, notes


def _gpu_limit(text: str) -> int | None:
    """Return the GPUs of a TRES list such as "cpu=10,gres/gpu=8"; None: no limit."""
    for part in text.split(","):
        if part.startswith(GPU_LIMIT) and part[len(GPU_LIMIT) :].isdecimal():
            return int(part[len(GPU_LIMIT) :])
    return None
