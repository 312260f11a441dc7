"""The one list of policies."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from allocator.errors import UsageError
from allocator.options.guests import Guests
from allocator.policies.afs import afs
from allocator.policies.base import Policy
from allocator.policies.edf import edf
from allocator.policies.elasticflow import elasticflow
from allocator.policies.equal import equal
from allocator.policies.ffdl import ffdl
from allocator.policies.gavel import maxmin
from allocator.policies.greedy import greedy, greedy_naive
from allocator.policies.horizon import horizon
from allocator.policies.las import las
from allocator.policies.optimise import marginal, mip
from allocator.policies.rental import rental
from allocator.policies.sharing import bsbf, ffs
from allocator.policies.sia import sia
from allocator.policies.spot_first import spot_first, spot_wait
from allocator.policies.srtf import srtf
from allocator.policies.static import static


@dataclass(frozen=True)
class Entry:
    """State what the product needs to know of a policy.

    Parameters
    ----------
    decide : Policy
        Function from a `Task` to a `Decision`.
    prunes : bool
        It maximises the objective, so that dominated options may be removed before it decides.
    shares : Guests
        Which pairs of jobs it considers where pools let jobs share GPUs. Most policies leave
        running pairs together at most.

    Examples
    --------
    >>> import allocator
    >>> from allocator.policies.static import static
    >>> entry = allocator.PolicyEntry(static, prunes=False)
    >>> allocator.solve(allocator.Problem.read("data/snapshots/demo"), policy=entry).policy
    'static'
    """

    decide: Policy
    prunes: bool
    shares: Guests = Guests.RUNNING


POLICIES: Mapping[str, Entry] = {
    "mip": Entry(mip, prunes=True, shares=Guests.WORTHWHILE),
    "horizon": Entry(horizon, prunes=False),
    "marginal": Entry(marginal, prunes=True, shares=Guests.WORTHWHILE),
    "greedy": Entry(greedy, prunes=False),
    "greedy-naive": Entry(greedy_naive, prunes=False),
    "static": Entry(static, prunes=False),
    "equal": Entry(equal, prunes=False),
    "srtf": Entry(srtf, prunes=False),
    "las": Entry(las, prunes=False),
    "bsbf": Entry(bsbf, prunes=False, shares=Guests.ALL),
    "ffs": Entry(ffs, prunes=False, shares=Guests.ALL),
    "afs": Entry(afs, prunes=False),
    "ffdl": Entry(ffdl, prunes=False),
    "edf": Entry(edf, prunes=False),
    "elasticflow": Entry(elasticflow, prunes=False),
    "maxmin": Entry(maxmin, prunes=False),
    "sia": Entry(sia, prunes=False),
    "rental": Entry(rental, prunes=False),
    "spot-first": Entry(spot_first, prunes=False),
    "spot-wait": Entry(spot_wait, prunes=False),
}


AnyPolicy = str | Policy | Entry


def policy(policy: AnyPolicy) -> Entry:
    """Return the policy of a name, or a policy given as a function or an entry.

    Raises
    ------
    UsageError
        For an unknown name, with the nearest known one.
    """
    if isinstance(policy, Entry):
        return policy
    if callable(policy):
        return Entry(policy, prunes=False)
    if policy not in POLICIES:
        near = difflib.get_close_matches(policy, POLICIES, 1)
        hint = f', did you mean "{near[0]}"?' if near else ""
        raise UsageError(f'unknown policy "{policy}"{hint} (known: {", ".join(POLICIES)})')
    return POLICIES[policy]


def name_of(policy: AnyPolicy) -> str:
    """Return the name that a plan states for its policy."""
    if isinstance(policy, str):
        return policy
    decide = policy.decide if isinstance(policy, Entry) else policy
    return getattr(decide, "__name__", type(decide).__name__)
