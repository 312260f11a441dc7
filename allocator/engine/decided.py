"""A decision that has passed the audit, and what it proves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocator.audit import Audit
from allocator.domain.allocation import Allocation
from allocator.errors import AuditFailure
from allocator.options.instance_building import CompiledRound
from allocator.policies.base import Proposal, Task, relative_gap
from allocator.policies.pairs import bound_over_all_pairs
from formulations.model.linear import Floats, Ints

# relative: rows are kept to this tolerance, so a bound this close equals the value
EXACT = 1e-9
# relative: a larger difference between two accounts of a plan is no rounding error
ROUNDING = 1e-7
LAST_BITS = 1e-12  # rounding error of a bound of 0
NOTHING = 1e-9  # smaller values count as 0, as in the gap (docs/reference/rules.md, R36)


@dataclass(frozen=True)
class Decision:
    """A decision that has passed the audit: the plan, its value, and its proof.

    `build_s` has the wall seconds to compile the round, `solve_s` those to decide and audit it.
    """

    task: Task
    proposal: Proposal
    allocation: Allocation
    witness: Audit
    build_s: float
    solve_s: float

    @property
    def round(self) -> CompiledRound:
        """The compiled round of the decision."""
        return self.task.round

    @property
    def value(self) -> float:
        """Value of the plan, recomputed by the audit."""
        return self.witness.objective_value

    @property
    def prices(self) -> Floats:
        """Prices of the rows of the round's model, (m,)."""
        return self.task.dual.prices

    @property
    def chosen(self) -> Ints:
        """The option of the option table that each job got, (J,), -1 = nothing."""
        return self.round.chosen(self.proposal.choice)

    @cached_property
    def proof(self) -> tuple[float, str, float]:
        """The bound on the value of every plan, what proved it, and the relative gap.

        No plan has a larger value than the bound, whichever jobs share GPUs, and whatever the
        policy considered. The dual is computed here if the policy did not need it.

        Raises
        ------
        AuditFailure
            The bound is below the value.
        """
        bound = bound_over_all_pairs(self.task)
        by = "lagrangian"
        if self.proposal.bound <= bound and self.round.has_all_pairs:
            bound = self.proposal.bound
            by = self.proposal.bound_by
        bound = check_bound(bound, by, self.witness, self.round.instance.value)
        return bound, by, relative_gap(bound, self.value)


def check_bound(bound: float, by: str, witness: Audit, offered: Floats) -> float:
    """Return the bound of an audited plan.

    It is the plan's value where the two differ only by rounding.

    Parameters
    ----------
    bound, by : float and str
        The bound and the name of its source.
    witness : Audit
        The audit of the plan.
    offered : (n,)
        Values of the options of the round, because an empty plan has no scale.

    Raises
    ------
    AuditFailure
        The bound is below the value, so one of the two is wrong.
    """
    value = witness.objective_value
    scale = float(np.abs(witness.value).sum())
    if bound < value - tolerance(scale, witness):
        raise AuditFailure(
            (
                (
                    f"the plan has the value {value:.9g}, although {by} proved that no plan has "
                    f"more than {bound:.9g}"
                ),
            )
        )
    # a bound that is a rounding error above 0 could give a gap of any size
    rounding = EXACT * max(scale, float(np.abs(offered).max(initial=0.0)))
    return value if bound - value <= rounding + LAST_BITS else float(bound)


def tolerance(scale: float, witness: Audit) -> float:
    """Return how much two accounts whose terms add up to `scale` in size may differ."""
    return NOTHING + ROUNDING * scale + witness.rounding
