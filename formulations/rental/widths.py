"""Renting GPUs on a long-run budget: the best width of every class of jobs, and the budget's price.

Jobs of class i arrive lambda_i times an hour with mean work E[X_i] in hours on one GPU, so the load
is rho_i = lambda_i E[X_i]. On k_i GPUs at the price c_i a job is s_i(k_i) times as fast as on one,
so on average rho_i / s_i(k_i) jobs of the class are present. With weights w_i and a budget b:

    min_k  sum_i w_i rho_i / s_i(k_i)      s.t.   sum_i rho_i c_i k_i / s_i(k_i) <= b

With fixed widths no job waits, and the mean response time is the least of all policies of the same
average rent (Li, Berg, Mukhopadhyay, Harchol-Balter, "GPU rental on a budget", EPEW 2024). At the
price mu every class by itself minimises (w + mu c k) / s(k). mu is found by bisection; where widths
jump (tables, several GPU types) at most one class is a mix of two widths. With Poisson arrivals
this is an M/G/infinity queue: n_i ~ Poisson(rho_i / s_i).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from formulations.columns import Columns
from formulations.model.linear import Floats, Ints
from formulations.rental.speed_curves import HALVINGS, TABLE, SpeedUps

JUMP = 1e-9  # a class jumps at a price if its spending changes there by more than this share
FREE = 1e-12  # stands for a price of 0 in divisions; nothing is spent at it
DUST = 1e-12  # smaller shares of jobs count as 0
MOST_EXPONENT = 600.0  # prices lie between 2^-600 and 2^600


class BudgetTooSmall(ValueError):
    """The budget is not above `least`, so no widths are stable.

    `response_h` is the mean response time, hours, of the widths that `least` buys.
    """

    def __init__(self, least: float, response_h: float) -> None:
        super().__init__(f"the budget must be above {least!r}")
        self.least = least
        self.response_h = response_h


@dataclass(frozen=True)
class JobClasses:
    """M classes and R >= M rows, the ways a class can run (GPU types).

    Attributes
    ----------
    arrivals, load, weight : (M,)
        Arrivals per hour, load rho (mean GPUs at one GPU per job), and weight w, all above 0.
    of : (R,)
        Class of each row, ascending, every class at least once.
    price : (R,)
        Price of a GPU in units of the budget, at least FREE: 1 for a budget in GPUs, dollars per
        GPU-hour for one in dollars per hour.
    speed : SpeedUps
        R curves, with a largest width where the price is FREE.
    """

    arrivals: Floats
    load: Floats
    weight: Floats
    of: Ints
    price: Floats
    speed: SpeedUps

    def __len__(self) -> int:
        return len(self.load)

    @property
    def paid(self) -> Floats:
        """Prices, (R,), 0 where a GPU is free."""
        return np.where(self.price > FREE, self.price, 0.0)

    @cached_property
    def starts(self) -> Ints:
        """First row of every class, (M,)."""
        return np.searchsorted(self.of, np.arange(len(self))).astype(np.int64)

    @cached_property
    def cheapest(self) -> JobClasses:
        """The classes with their cheapest row only, for equal widths and equal spending."""
        rows, _ = widths(self, 2.0**MOST_EXPONENT)
        return JobClasses(
            self.arrivals,
            self.load,
            self.weight,
            np.arange(len(self)),
            self.price[rows],
            self.speed.take(rows),
        )


@dataclass(frozen=True)
class RentalPlan(Columns):
    """The widths of all classes, as n options in use.

    Attributes
    ----------
    classes : JobClasses
        The classes of jobs.
    budget : float
        Long-run mean spending that the plan keeps to.
    mu : float
        Weighted mean number of jobs saved per unit of budget (mean number = arrivals x mean
        response time); 0 if more money buys nothing.
    of, row : (n,)
        Class of each option, and its row.
    width : (n,)
        GPUs of a job.
    share : (n,)
        Share of the jobs of the class; the shares of one class add up to 1.
    time : (n,)
        Hours per hour of work on one GPU, 1/s.
    """

    classes: JobClasses
    budget: float
    mu: float
    of: Ints
    row: Ints
    width: Floats
    share: Floats
    time: Floats

    @property
    def jobs(self) -> Floats:
        """Mean number of jobs present, (n,); the number is Poisson distributed with this mean."""
        return self.classes.load[self.of] * self.share * self.time

    @property
    def gpus(self) -> float:
        """Mean number of GPUs rented."""
        return float(self.jobs @ self.width)

    @property
    def sd_gpus(self) -> float:
        """Standard deviation of the number of GPUs rented, with Poisson arrivals."""
        return float(np.linalg.norm(np.sqrt(self.jobs) * self.width))

    @property
    def spend(self) -> float:
        """Mean spending, in units of the budget."""
        return float(self.jobs @ (self.width * self.classes.paid[self.row]))

    @property
    def response_h(self) -> float:
        """Mean response time of all jobs, hours: by Little's law mean number / arrivals."""
        return float(self.jobs.sum() / self.classes.arrivals.sum())

    @property
    def weighted(self) -> float:
        """The objective: mean number of jobs present, weighted."""
        return float(self.jobs @ self.classes.weight[self.of])

    @property
    def weighted_h(self) -> float:
        """Mean response time, hours, weighted by the jobs' weights: the minimised quantity."""
        return self.weighted / float(self.classes.arrivals @ self.classes.weight)

    def by_class(self, values: Floats) -> Floats:
        """Return sums (M,) of an array (n,) of the options."""
        return np.bincount(self.of, values, minlength=len(self.classes)).astype(np.float64)


def restrict_to_whole_gpus(classes: JobClasses) -> JobClasses:
    """Return the same classes with whole widths only; of tables, the sizes they name.

    The best shares z of the jobs of each class over its options o = (row, k) are a linear program,

        min  sum_io w_i rho_i z_io / s_o
        s.t. sum_io rho_i c_o k_o z_io / s_o <= b,   sum_o z_io = 1,   z >= 0

    the relaxation of a multiple-choice knapsack, which `plan` solves: at its price every class has
    its best option, and only the one that the budget cuts is a mix of two.
    """
    return replace(classes, speed=replace(classes.speed, whole=True))


def plan(classes: JobClasses, budget: float) -> RentalPlan:
    """Return the best widths for a long-run mean of `budget` units per hour.

    Raises
    ------
    BudgetTooSmall
        No widths are stable with this budget.
    """
    if at_price(classes, np.array([2.0**-MOST_EXPONENT])).spend[0] <= budget:
        row, width = choose(classes, np.array([2.0**-MOST_EXPONENT]))
        return plan_fixed_widths(classes, budget, 0.0, row[0], width[0])
    least = at_price(classes, np.array([2.0**MOST_EXPONENT]))
    if not budget > least.spend[0]:
        raise BudgetTooSmall(float(least.spend[0]), float(least.response_h[0]))
    low, high = -MOST_EXPONENT, MOST_EXPONENT  # of mu: too much is spent at 2^low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if at_price(classes, np.array([2.0**middle])).spend[0] > budget:
            low = middle
        else:
            high = middle
    return _mix_plans(classes, budget, 2.0**high, 2.0**low)


def widths(classes: JobClasses, mu: float) -> tuple[Ints, Floats]:
    """Return row and width of every class, (M,) each, at a price mu > 0 of a unit of budget."""
    row, width = choose(classes, np.array([mu]))
    return row[0], width[0]


def choose(classes: JobClasses, mu: Floats) -> tuple[Ints, Floats]:
    """Return row and width of every class at N prices mu, (N, M) each.

    They minimise (w + mu c k) / s(k).
    """
    price = classes.price / classes.weight[classes.of]
    width = classes.speed.width(mu[:, None] * price)
    if len(classes.speed) == len(classes):
        return np.broadcast_to(np.arange(len(classes)), width.shape), width
    # divided by mu, so that it stays finite
    work_cost = (1.0 / mu[:, None] + price * width) / classes.speed.speed(width)
    best = work_cost <= np.minimum.reduceat(work_cost, classes.starts, axis=1)[:, classes.of]
    row = np.minimum.reduceat(
        np.where(best, np.arange(len(classes.of)), len(classes.of)), classes.starts, axis=1
    )
    return row, np.take_along_axis(width, row, axis=1)


@dataclass(frozen=True)
class BudgetCurve(Columns):
    """What the best widths at N prices spend and reach; arrays of shape (N,).

    Every point is exact. A budget between those of two points does no worse than the line between
    them.

    Attributes
    ----------
    mu : price of a unit of budget.
    spend : mean spending, in units of the budget.
    response_h : mean response time in hours.
    gpus, sd_gpus : mean and standard deviation of the number of GPUs rented.
    weighted : weighted mean number of jobs present.
    """

    mu: Floats
    spend: Floats
    response_h: Floats
    gpus: Floats
    sd_gpus: Floats
    weighted: Floats


def at_price(classes: JobClasses, mu: Floats) -> BudgetCurve:
    """Return spending, response time and GPUs of the best widths at prices mu above 0, (N,)."""
    row, width = choose(classes, mu)
    jobs = classes.load * _time(classes, row, width)
    rented = jobs * width
    with np.errstate(over="ignore"):
        return BudgetCurve(
            mu,
            (rented * classes.paid[row]).sum(axis=1),
            jobs.sum(axis=1) / classes.arrivals.sum(),
            rented.sum(axis=1),
            np.sqrt((rented * width).sum(axis=1)),
            jobs @ classes.weight,
        )


def _time(classes: JobClasses, row: Ints, width: Floats) -> Floats:
    """Return 1/s of a width in one row of each class, (..., M)."""
    k = np.clip(width[..., classes.of], classes.speed.least, classes.speed.most)
    return np.take_along_axis(1.0 / classes.speed.speed(k), row, axis=-1)


def _mix_plans(classes: JobClasses, budget: float, dear: float, cheap: float) -> RentalPlan:
    """Return the plan between the plans of two neighbouring prices.

    Classes that jump between the two prices do so one by one until the budget is spent.
    """
    (row, cheap_row), (width, cheap_width) = choose(classes, np.array([dear, cheap]))
    time, cheap_time = _time(classes, np.stack([row, cheap_row]), np.stack([width, cheap_width]))
    cost = classes.load * time * width * classes.price[row]
    more = classes.load * cheap_time * cheap_width * classes.price[cheap_row] - cost
    jumps = np.flatnonzero(more > JUMP * cost)
    after = np.cumsum(more[jumps])
    share = np.clip((budget - cost.sum() - (after - more[jumps])) / more[jumps], 0.0, 1.0)
    all_ = jumps[share >= 1.0 - DUST]
    row = row.copy()
    width = width.copy()
    time = time.copy()
    row[all_], width[all_], time[all_] = cheap_row[all_], cheap_width[all_], cheap_time[all_]
    i = jumps[(share > DUST) & (share < 1.0 - DUST)]
    if not len(i):
        return plan_fixed_widths(classes, budget, dear, row, width)
    split = int(i[0])
    part = float(share[(share > DUST) & (share < 1.0 - DUST)][0])
    if (
        classes.speed.kind[row[split]] == TABLE
        and row[split] == cheap_row[split]
        and not classes.speed.whole
    ):
        # a width between two sizes is as good as a mix of jobs of both sizes
        mean_time = (1 - part) * time[split] + part * cheap_time[split]
        used = (1 - part) * time[split] * width[split] + part * cheap_time[split] * cheap_width[
            split
        ]
        width[split] = used / mean_time
        return plan_fixed_widths(classes, budget, dear, row, width)
    row, width = np.append(row, cheap_row[split]), np.append(width, cheap_width[split])
    both = plan_fixed_widths(classes, budget, dear, row, width)
    both.share[split], both.share[-1] = 1 - part, part
    return both.take(np.argsort(both.of, kind="stable"))


def plan_fixed_widths(
    classes: JobClasses, budget: float, mu: float, row: Ints, width: Floats
) -> RentalPlan:
    """Return the plan of given rows and widths (n,), each with a share of 1."""
    time = 1.0 / classes.speed.take(row).speed(width)
    share = np.ones(len(row))
    return RentalPlan(classes, budget, mu, classes.of[row], row, width, share, time)
