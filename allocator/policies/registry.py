"""The policies by name: those of the package, those that were registered, and those of plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from allocator.options.colocation.secondary_jobs import PairOffer
from allocator.plugins import Registry
from allocator.policies.base import Policy

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
    reserves : bool
        Large jobs get reservations in its rounds (R67), as in those of policies that prune.

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
    reserves: bool = False


class _BuiltIn(Mapping[str, PolicyEntry]):
    """The policies of the package; each is imported when it is asked for."""

    modules = {  # noqa: RUF012
        "mip": "mip",
        "horizon": "horizon",
        "marginal": "mip",
        "greedy": "rules.greedy",
        "greedy-naive": "rules.greedy",
        "static": "rules.static",
        "easy": "backfill",
        "conservative": "backfill",
        "slurm": "backfill",
        "equal": "rules.equal",
        "srtf": "rules.srtf",
        "las": "rules.las",
        "sjf": "rules.sharing",
        "bsbf": "rules.sharing",
        "ffs": "rules.sharing",
        "afs": "rules.afs",
        "ffdl": "rules.ffdl",
        "edf": "rules.edf",
        "elasticflow": "rules.elasticflow",
        "maxmin": "rules.gavel",
        "sia": "rules.sia",
        "rental": "rules.rental",
        "spot-first": "rules.spot_first",
        "spot-wait": "rules.spot_first",
    }
    pair_offers = {  # noqa: RUF012
        "mip": PairOffer.PROFITABLE,
        "marginal": PairOffer.PROFITABLE,
        "bsbf": PairOffer.ALL,
        "ffs": PairOffer.ALL,
    }

    def __getitem__(self, name: str) -> PolicyEntry:
        module = import_module(f"allocator.policies.{self.modules[name]}")
        return PolicyEntry(
            getattr(module, name.replace("-", "_")),
            prunes=name in ("mip", "marginal"),
            shares=self.pair_offers.get(name, PairOffer.RUNNING),
            reserves=name == "horizon",
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)


POLICIES = _BuiltIn()


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


# what other schedulers, and the papers, call a policy that orders or shares in this way
ELSEWHERE = {
    "fifo": "static",
    "fcfs": "static",
    "backfill": "easy",
    "slurm": "easy",
    "srpt": "srtf",
    "tiresias": "las",
    "gavel": "maxmin",
    "pollux": "sia",
}
REGISTRY = Registry("policy", "allocator.policies", POLICIES, _load, elsewhere=ELSEWHERE)


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
