"""Lines about the long-run budgets of a simulation: amount, spending, and whether kept."""

from collections.abc import Iterator, Mapping

from allocator.cli.output import Values, text
from allocator.domain.problem import Problem
from allocator.market.books import RENTED, reserved_dollars
from allocator.market.longrun import WINDOW_S

EXACT = 1e-6  # dollars: a smaller excess is rounding
HOUR = 3600.0


def budget_lines(
    problem: Problem, window_s: float | None, policies: Mapping[str, Values]
) -> Iterator[str]:
    """Yield a line per policy and budget, and what is not billed.

    There are no lines without a long-run budget.

    Parameters
    ----------
    problem : of the workload.
    window_s : the window that was asked for instead of that of the workload.
    policies : metrics by policy.
    """
    window_s = window_s or float(problem.settings.get("longrun", {}).get("window_s", WINDOW_S))
    why = _limits(problem)
    told = [
        _line(policy, tenant, budget, window_s, why)
        for policy, metrics in policies.items()
        for tenant, budget in metrics.get("longrun", {}).items()
    ]
    yield from told
    reserved = reserved_dollars(problem)
    if told and reserved > 0:
        yield (
            f"Reserved GPUs are paid for anyway, {text(reserved)} $/h here, and not booked on"
            ' these budgets; "US dollars" above counts them while they are used.'
        )


def _limits(problem: Problem) -> str:
    """Return why a round of this problem may spend more than the budget leaves.

    See apply_books in market/books.py.
    """
    why = ["GPUs are paid for until the round that gives them back"]
    if reserved_dollars(problem) > 0:
        why.append(
            "the limit of a round adds the price of all reserved GPUs, and where some of them stand"
            " idle others are rented for it"
        )
    if (
        not problem.jobs.preemptible.all()
        or problem.max_changes >= 0
        or problem.tenants.guaranteed_gpus.any()
    ):
        why.append("jobs that may not be changed and guaranteed GPUs are served in any case")
    return "; ".join(why[::-1])


def _line(policy: str, tenant: str, budget: Values, window_s: float, why: str) -> str:
    hours = max(budget["at_s"] - budget["opened_s"], 1e-9) / HOUR
    asked = (
        f"{text(budget['average_per_hour'])} $/h on average"
        if budget["amount"] is None
        else f"{text(budget['amount'])} $ until {text(budget['until_s'])} s"
    )
    spent = (
        f"{text(budget['spent'] / hours)} $/h spent over {text(hours)} h"
        f" ({text(budget['spent'])} $)"
    )
    whose = f"budget of {tenant}" if tenant else "budget"
    return f"{whose}, {policy}: {asked} asked {RENTED}, {spent}: {_verdict(budget, window_s, why)}."


def _verdict(budget: Values, window_s: float, why: str) -> str:
    if budget["amount"] is not None:
        over = budget["spent"] - budget["amount"]
        return "kept" if over <= EXACT else f"not kept, {text(over)} $ too much: {why}"
    if budget["balance"] >= -EXACT:
        return "kept"
    if budget["most_per_hour"] is None:  # of [rental]: no round has a limit
        return f"{text(-budget['balance'])} $ overdrawn, which later plans would repay"
    passed = budget["at_s"] - budget["opened_s"]
    if passed < window_s:
        return (
            f"{text(-budget['balance'])} $ overdrawn so far. It is kept over windows of"
            f" {text(window_s / HOUR)} h, and may be overdrawn until one ends; --budget-window"
            f" {max(1.0, passed):.0f} ends one with the simulation"
        )
    return f"not kept, {text(-budget['balance'])} $ too much: {why}"
