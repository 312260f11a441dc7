"""Options that no best plan needs: removing them never changes the optimum.

An option b is dropped in two cases.

  (a) It alone breaks a row: it needs more GPUs or dollars than the pool, the tenant or the
      budget has.
  (b) Another option a of the same job in the same pool uses no more of any `at most` row, neither
      GPUs nor dollars, and has at least the value of b. Any plan with b stays feasible and loses
      nothing with a in its place. Here a may also be "nothing".

Some options are exempt from (b), because they count for a row of the `at least` kind: options of a
tenant with a guarantee (more GPUs may be needed), `keep` options (they count for the limit on
changes), and options of a job that must run. An option that may get a secondary job is exempt as
well, because it may have more value with it.

On nodes, an option dominates only those that may be on as many nodes: a job of 9 GPUs on two nodes
fits holes of 5 and 4, one of 8 on one node does not. One that is kept dominates none there, because
others may need its nodes.

Three kinds of options dominate no other. The option of a secondary job disappears with its primary
job. An option with a conflicting option, or that is one, is not possible if the other is chosen.
"""

from __future__ import annotations

import numpy as np

from formulations.model.instance import Instance
from formulations.model.linear import LEAVING, Bools, Ints
from formulations.model.sparse_rows import begins_run


def find_needed_options(
    instance: Instance, can_be_primary: Bools | None = None, most_nodes: Ints | None = None
) -> Bools:
    """Find the options that may be part of a best plan.

    Parameters
    ----------
    instance : Instance
        Its options are sorted by job, pool and GPUs; those of secondary jobs come last in their
        job.
    can_be_primary : (n,), optional
        True for options that may get a secondary job later.
    most_nodes : (n,), optional
        On how many nodes each option may be, where plans are on nodes; 0 = any number.

    Returns
    -------
    needed : (n,)
        True for options that may be part of a best plan.
    """
    i = instance
    fits = find_feasible_options(instance)
    fixed = i.mandatory[i.job] | i.keep
    open_ = ~fixed & ~i.is_guaranteed
    secondary = i.primary >= 0
    vain = np.where(secondary, ~fixed, open_) & (i.value <= 0)
    primaries = (
        np.zeros(len(i.job), dtype=bool) if can_be_primary is None else can_be_primary.copy()
    )
    needs, needed = i.colocations
    primaries[needed[~vain[needs]]] = True
    stays = np.where(
        i.mandatory[i.job],
        True,
        fits & ~((vain | (open_ & _find_dominated(i, fits, most_nodes))) & ~primaries),
    )
    stays[needs[~stays[needed]]] = False
    return stays


def find_feasible_options(instance: Instance) -> Bools:
    """Find the options that break no `at most` row in an otherwise empty plan, (n,)."""
    i = instance
    tenant = i.tenant[i.job]
    fits = (i.held <= i.capacity[i.pool]) & (i.cost <= i.budget * (1 + 1e-9) + 1e-9)
    if np.isfinite(i.quota).any() or np.isfinite(i.tenant_budget).any():
        for row in i.account:
            fits &= i.held <= np.append(i.quota, np.inf)[row]
            fits &= i.cost <= np.append(i.tenant_budget * (1 + 1e-9) + 1e-9, np.inf)[row]
    if i.zones:
        fits &= (i.exposed < 0) | (i.held <= i.exposure[tenant])
    for rows in (r for r in i.rules if r.kind != LEAVING):  # such an option may wait for nodes
        for row in rows.layers:
            fits &= (rows.coef == 0) | (rows.coef <= np.append(rows.upper, np.inf)[row])
    return fits


def _find_dominated(i: Instance, fits: Bools, most_nodes: Ints | None) -> Bools:
    """Find the options that a smaller option of the same job and pool dominates, (n,).

    The smaller one is feasible and has at least the same value.
    """
    n = len(i.job)
    beaten = np.zeros(n, dtype=bool)
    if n == 0:
        return beaten
    new = begins_run(i.job, i.pool) | (i.primary >= 0)
    new[1:] |= i.cost[1:] < i.cost[:-1]  # more GPUs may need less memory, and cost less
    for rows in i.rules:  # more GPUs may end before a reservation begins
        for row in rows.layers:
            amount = np.where(row >= 0, rows.coef, 0.0)
            new[1:] |= amount[1:] < amount[:-1]
    counts = fits
    if most_nodes is not None:
        new[1:] |= most_nodes[1:] != most_nodes[:-1]
        counts = fits & ~i.keep
    first = np.flatnonzero(new)
    position = np.arange(n) - np.repeat(first, np.diff(first, append=n))
    # an option with a conflicting option, or that is one, may not be available
    option, other = i.takeovers
    if len(option):
        counts = counts.copy()
        counts[option] = counts[other] = False
    # the running maximum inside each (job, pool), of twice as many options in each step
    best = np.where(counts, i.value, -np.inf)
    step, last = 1, int(position.max())
    while step <= last:
        before = np.where(position[step:] >= step, best[:-step], -np.inf)
        np.maximum(best[step:], before, out=best[step:])
        step *= 2
    beaten[1:] = (position[1:] > 0) & (best[:-1] >= i.value[1:])
    return beaten
