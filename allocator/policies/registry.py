"""The policies by name: those of the package, those that were registered, and those of plugins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from allocator.options.colocation.secondary_jobs import PairOffer
from allocator.plugins import Registry
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
from allocator.policies.rules.sharing import bsbf, ffs, sjf
from allocator.policies.rules.sia import sia
from allocator.policies.rules.spot_first import spot_first, spot_wait
from allocator.policies.rules.srtf import srtf
from allocator.policies.rules.static import static

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True)
class PolicyEntry:
    """State what the product needs to know of a policy.

    Parameters
    ----------
    decide : Policy
        Function from a `Task` to a `Proposal`.
    prunes : bool
        It maximises the objective, so that dominated options may be removed before it decides. Any
        other policy knows sizes and no shapes: it gets spread shapes only where jobs hold them.
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
    "sjf": PolicyEntry(sjf, prunes=False),
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


def _entry(part: object) -> PolicyEntry:
    """Take a function or an entry. Raises TypeError."""
    if isinstance(part, PolicyEntry):
        return part
    if not callable(part):
        raise TypeError(f"a policy is a function or a PolicyEntry, not {part!r}")
    return PolicyEntry(part, prunes=False)


def _load(point: EntryPoint) -> PolicyEntry:
    return _entry(point.load())


REGISTRY = Registry("policy", "allocator.policies", POLICIES, _load)


def policy(policy: AnyPolicy) -> PolicyEntry:
    """Return the policy of a name, or a policy given as a function or an entry.

    Raises
    ------
    UsageError
        For an unknown name, with all known ones, and for a plugin that cannot be loaded.
    """
    return REGISTRY.get(policy) if isinstance(policy, str) else _entry(policy)


def name_of(policy: AnyPolicy) -> str:
    """Return the name that a plan states for its policy."""
    if isinstance(policy, str):
        return policy
    decide = policy.decide if isinstance(policy, PolicyEntry) else policy
    return getattr(decide, "__name__", type(decide).__name__)


def register_policy(name: str, policy: Policy | PolicyEntry) -> None:
    """Make a policy known by a name in this process.

    Parameters
    ----------
    name : str
        Name for `policy=` and `--policy`.
    policy : Policy or PolicyEntry
        Function from a `Task` to a `Proposal`.

    Raises
    ------
    UsageError
        If the package has a policy of that name.

    Examples
    --------
    >>> import allocator
    >>> from allocator.policies.rules.static import static
    >>> allocator.register_policy("first-come", static)
    >>> allocator.solve(allocator.Problem.read("data/snapshots/demo"), policy="first-come").policy
    'first-come'
    """
    REGISTRY.add(name, _entry(policy))
