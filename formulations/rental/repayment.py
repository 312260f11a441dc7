"""The budget for which widths are planned now, so that the mean is kept in the end.

A plan knows the load of the jobs that came so far. What it spends differs from the budget, and so a
book is kept of it. With an average of b per hour, of which B is left over (below 0: overspent), the
widths are planned for

    b + B / H            within (1 - MOST) b and (1 + MOST) b
    H = max(R, STEADY (T + D))

The letters are:

- R: the horizon that users state, hours: a deviation shrinks by the factor e in R hours.
- T: hours that the jobs of a plan take, averaged over what they cost. A new plan sets the widths of
  jobs that come from then on, so that spending follows it with this lag.
- D: hours between two plans.

It is an integral controller of the rate of spending (Astrom, Murray, "Feedback Systems", Princeton
2008, chapter 10). With the lag T the deviation obeys T B'' + B' + B / H = 0, which does not
oscillate where H is at least 4 T. A delay D multiplies the last term by exp(-s D). A real root
between -1 / (2 (T + D)) and 0 then exists where H is at least 4 (T + D): with r = T / (T + D),
(1 - r / 2) exp(-(1 - r) / 2) is at least 1/2 for r from 0 to 1. A load that is estimated wrong by a
constant factor leaves a constant B behind. So its share of all that was spent goes to 0.
"""

from __future__ import annotations

from formulations.rental.widths import RentalPlan

MOST = 0.5  # largest correction, as a share of the average
STEADY = 4.0  # least horizon over lag and delay: without oscillation


def find_lag_h(plan: RentalPlan) -> float:
    """Return T, hours that the jobs of a plan take, averaged over what they cost."""
    classes = plan.classes
    cost = plan.jobs * plan.width * classes.paid[plan.row]
    hours = plan.time * (classes.load / classes.arrivals)[plan.of]
    total = float(cost.sum())
    return float(cost @ hours) / total if total > 0 else 0.0


def find_horizon_h(repay_h: float, lag_h: float, every_h: float) -> float:
    """Return H, the hours over which a deviation is made good, from R, T and D in hours."""
    return max(repay_h, STEADY * (lag_h + every_h))


def correct_budget(average: float, balance: float, horizon_h: float) -> float:
    """Return the budget per hour to plan for, from the average b, the balance B and the hours H."""
    correction = balance / horizon_h
    return average + min(max(correction, -MOST * average), MOST * average)
