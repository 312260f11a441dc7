"""The one list of policies."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from allocator.errors import UsageError
from allocator.options.colocation.secondary_jobs import PairOffer
from allocator.policies.base import Policy
from allocator.policies.horizon import horizon
from allocator.policies.mip import marginal, mip
from allocator.policies.rules.afs import afs
from allocator.policies.rules.edf import edf
from allocator.policies.rules.elasticflow import elasticflow
from allocator.policies.rules.equal import equal
from allocator.policies.rules.ffdl import ffdl
from allocator.policies.rules.gavel import maxmin
from allocator.policies.rules.greedy import greedy, greedy_naive
from allocator.policies.rules.las import las
from allocator.policies.rules.rental import rental
from allocator.policies.rules.sharing import bsbf, ffs
from allocator.policies.rules.sia import sia
from allocator.policies.rules.spot_first import spot_first, spot_wait
from allocator.policies.rules.srtf import srtf
from allocator.policies.rules.static import static


@dataclass(frozen=True)
class PolicyEntry:
    """State what the product needs to know of a policy.

    Parameters
    ----------
    decide : Policy
        Function from a `Task` to a `Proposal`.
    prunes : bool
        It maximises the objective, so that dominated options may be removed before it decides.
    shares : PairOffer
        Which pairs of jobs it considers where pools let jobs share GPUs. Most policies leave
        running pairs together at most.

    Examples
    --------
    >>> import allocator
    >>> from allocator.policies.rules.static import static
    >>> entry = allocator.PolicyEntry(static, prunes=False)
    >>> allocator.solve(allocator.Problem.read("data/snapshots/demo"), policy=entry).policy
    'static'
    """

    decide: Policy
    prunes: bool
    shares: PairOffer = PairOffer.RUNNING


POLICIES: Mapping[str, PolicyEntry] = {
    "mip": PolicyEntry(mip, prunes=True, shares=PairOffer.PROFITABLE),
    "horizon": PolicyEntry(horizon, prunes=False),
    "marginal": PolicyEntry(marginal, prunes=True, shares=PairOffer.PROFITABLE),
    "greedy": PolicyEntry(greedy, prunes=False),
    "greedy-naive": PolicyEntry(greedy_naive, prunes=False),
    "static": PolicyEntry(static, prunes=False),
    "equal": PolicyEntry(equal, prunes=False),
    "srtf": PolicyEntry(srtf, prunes=False),
    "las": PolicyEntry(las, prunes=False),
    "bsbf": PolicyEntry(bsbf, prunes=False, shares=PairOffer.ALL),
    "ffs": PolicyEntry(ffs, prunes=False, shares=PairOffer.ALL),
    "afs": PolicyEntry(afs, prunes=False),
    "ffdl": PolicyEntry(ffdl, prunes=False),
    "edf": PolicyEntry(edf, prunes=False),
    "elasticflow": PolicyEntry(elasticflow, prunes=False),
    "maxmin": PolicyEntry(maxmin, prunes=False),
    "sia": PolicyEntry(sia, prunes=False),
    "rental": PolicyEntry(rental, prunes=False),
    "spot-first": PolicyEntry(spot_first, prunes=False),
    "spot-wait": PolicyEntry(spot_wait, prunes=False),
}


AnyPolicy = str | Policy | PolicyEntry


def policy(policy: AnyPolicy) -> PolicyEntry:
    """Return the policy of a name, or a policy given as a function or an entry.

    Raises
    ------
    UsageError
        For an unknown name, with the nearest known one.
    """
    if isinstance(policy, PolicyEntry):
        return policy
    if callable(policy):
        return PolicyEntry(policy, prunes=False)
    if policy not in POLICIES:
        near = difflib.get_close_matches(policy, POLICIES, 1)
        hint = f', did you mean "{near[0]}"?' if near else ""
        raise UsageError(f'unknown policy "{policy}"{hint} (known: {", ".join(POLICIES)})')
    return POLICIES[policy]


def name_of(policy: AnyPolicy) -> str:
    """Return the name that a plan states for its policy."""
    if isinstance(policy, str):
        return policy
    decide = policy.decide if isinstance(policy, PolicyEntry) else policy
    return getattr(decide, "__name__", type(decide).__name__)
