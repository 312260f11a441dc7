"""The audited decision with its proof, prices and reasons, as users see it.

The meaning of its parts: docs/reference/rules.md, R36 to R42.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class JobPlan:
    """State what a plan gives one job.

    Attributes
    ----------
    job_id, tenant : str
        The job, and the tenant that owns it.
    pool, gpus : str, optional, and int
        What it gets; None and 0: nothing.
    batch_size, accumulation : int, optional
        Global batch, and passes per step, that its speed supposes.
    shared_with : str, optional
        Job on the same GPUs.
    nodes : sequence of dict, optional
        Its nodes, {"node", "gpus"}; for a share of a GPU also {"gpu", "fraction"}. None: the nodes
        are not known.
    previous_pool, previous_gpus : str, optional, and int
        What it held before.
    action : str
        "start", "keep", "grow", "shrink", "move", "pause" or "wait".
    reason, detail : str, optional
        Why it gets less than it could use: a code, and a sentence.
    work_per_s, value, cost_per_hour : float
        Its speed, its value in the objective, and US dollars per hour.
    variant : str, optional
        Label of the rate that its speed comes from.
    mode : str, optional
        How its workers are kept in step, of the modes that it lists.
    position : int, optional
        Its place among the jobs that wait and can start, from 1; None: it does not wait.
    expected_start_s, expected_start_low_s, expected_start_high_s : float, optional
        When it is expected to start, if it waits, and the range of 90 %, on the clock of now_s.
    expected_done_s, expected_done_low_s, expected_done_high_s : float, optional
        When it is expected to be done.
    time_saved_s, time_saved_low_s, time_saved_high_s : float, optional
        Seconds of running time that it is expected to save against running as requested.
    expected_note : str, optional
        Why nothing is expected of it.

    Examples
    --------
    >>> import allocator
    >>> plan = allocator.solve(allocator.Problem.read("data/snapshots/demo"))
    >>> job = plan.job("sweep-a")
    >>> job.action, job.gpus, job.pool
    ('start', 2, 'v100')
    """

    job_id: str
    tenant: str
    pool: str | None
    gpus: int
    batch_size: int | None
    shared_with: str | None
    nodes: Sequence[Any] | None
    previous_pool: str | None
    previous_gpus: int
    action: str
    reason: str | None
    detail: str | None
    work_per_s: float
    value: float
    cost_per_hour: float
    accumulation: int | None
    variant: str | None
    mode: str | None
    position: int | None
    expected_start_s: float | None
    expected_start_low_s: float | None
    expected_start_high_s: float | None
    expected_done_s: float | None
    expected_done_low_s: float | None
    expected_done_high_s: float | None
    time_saved_s: float | None
    time_saved_low_s: float | None
    time_saved_high_s: float | None
    expected_note: str | None


@dataclass(frozen=True)
class PoolPlan:
    """State how a plan uses one pool.

    Attributes
    ----------
    pool : str
        The pool.
    gpus, used : int
        GPUs, and GPUs in use.
    marginal_value : float
        Value of one GPU more, in units of the objective.

    Examples
    --------
    >>> import allocator
    >>> plan = allocator.solve(allocator.Problem.read("data/snapshots/demo"))
    >>> [(pool.pool, pool.used, pool.gpus) for pool in plan.pools]
    [('a100', 7, 8), ('v100', 8, 8)]
    """

    pool: str
    gpus: int
    used: int
    marginal_value: float


@dataclass(frozen=True)
class TenantPlan:
    """State what a plan gives the jobs of one tenant and of the tenants below it.

    Attributes
    ----------
    tenant : str
        The tenant.
    gpus, guaranteed : int
        GPUs of its jobs, and GPUs that it is guaranteed.
    max_gpus : int, optional
        Its quota; None: no limit.
    cost_per_hour : float
        US dollars per hour.

    Examples
    --------
    >>> import allocator
    >>> plan = allocator.solve(allocator.Problem.read("data/snapshots/demo"))
    >>> plan.tenants
    (TenantPlan(tenant='default', gpus=15, guaranteed=0, max_gpus=None, cost_per_hour=18.0),)
    """

    tenant: str
    gpus: int
    guaranteed: int
    max_gpus: int | None
    cost_per_hour: float


@dataclass(frozen=True)
class BudgetPlan:
    """State what a plan spends.

    Attributes
    ----------
    per_hour : float, optional
        Budget in US dollars per hour; None: no limit.
    spent_per_hour : float
        What the plan spends, in US dollars per hour.
    marginal_value : float
        Value of one dollar more per hour, in units of the objective.

    Examples
    --------
    >>> import allocator
    >>> plan = allocator.solve(allocator.Problem.read("data/snapshots/demo"))
    >>> plan.budget.per_hour, plan.budget.spent_per_hour
    (18.0, 18.0)
    """

    per_hour: float | None
    spent_per_hour: float
    marginal_value: float


@dataclass(frozen=True)
class NodePlan:
    """State what placing the jobs on nodes costs.

    Attributes
    ----------
    value_before : float
        Value of the plan that counts GPUs by pool.
    lost : float
        The part of it that the nodes do not allow.
    gap : float
        `lost` / max(abs(objective_value), 1e-9): the part of the plan's gap that placement costs.
    moved : int
        Running jobs that move to other nodes of their pool so that others fit.
    reduced : int
        Jobs that get another option because no nodes hold the one of that plan.

    Examples
    --------
    >>> import allocator
    >>> plan = allocator.solve(allocator.Problem.read("data/snapshots/full"))
    >>> plan.placement.lost, plan.placement.moved, plan.placement.reduced
    (0.0, 0, 0)
    """

    value_before: float
    lost: float
    gap: float
    moved: int
    reduced: int


JOB_FIELDS = tuple(field.name for field in fields(JobPlan))
REASON_FIELDS = ("reason", "detail")
EXPECTED_FIELDS = JOB_FIELDS[JOB_FIELDS.index("position") :]
DECIDED_FIELDS = tuple(f for f in JOB_FIELDS if f not in REASON_FIELDS + EXPECTED_FIELDS)


class Columns(Mapping[str, Sequence[Any]]):
    """The columns of JOB_FIELDS.

    Those that a function of `late` gives are computed when one of them is first read.
    """

    def __init__(
        self, late: Mapping[tuple[str, ...], Callable[[], Mapping[str, Sequence[Any]]]]
    ) -> None:
        self._known: dict[str, Sequence[Any]] = {}
        self._late = dict(late)

    def __getitem__(self, name: str) -> Sequence[Any]:
        for names in [names for names in self._late if name in names]:
            self._known |= self._late.pop(names)()  # frees what the function refers to
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(JOB_FIELDS)

    def __len__(self) -> int:
        return len(JOB_FIELDS)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)


@dataclass(frozen=True, repr=False)
class Plan:
    """Hold the audited decision of one round: what each job gets, why, and how good the plan is.

    objective_value <= best possible <= bound is proven.

    Attributes
    ----------
    snapshot, digest : str
        Name of the problem, and SHA-256 of its content.
    now_s, interval_s : float
        Time and length of the round, in seconds.
    policy, objective : str
        Policy that decided, and objective that values the plan.
    solver, solver_version, solver_choice : str, optional
        Solver that was used, its version, and why `auto` chose it.
    seed : int
        Seed of the decision.
    status, termination : str
        "optimal" or "feasible"; "gap", "time_limit" or "heuristic".
    fallback : str, optional
        Source of the plan, if it was not the policy.
    objective_value, bound, gap : float
        Value of the plan, proven upper bound, and (bound - value) / max(abs(value), 1e-9).
    bound_by : str
        Source of the proof: "lagrangian" (computed here, without a solver) or a solver.
    seconds : mapping of str to float
        Wall seconds by phase: read, validate, build, solve, total.
    jobs : mapping of str to sequence
        One sequence for each of JOB_FIELDS, with one entry per job. A waiting job has pool None
        and gpus 0. What was decided, the reasons, and what is expected are each computed when
        they are first read.
    pools, tenants : tuple of PoolPlan, tuple of TenantPlan
        GPUs and GPUs in use of each pool; GPUs and cost of each tenant.
    budget : BudgetPlan
        US dollars per hour: the limit, what the plan spends, and the value of one more.
    warnings : tuple of str
        What a user should know.
    placement : NodePlan, optional
        What placing the jobs on nodes costs, if pools have nodes.

    Examples
    --------
    >>> import allocator
    >>> plan = allocator.solve(allocator.Problem.read("data/snapshots/demo"))
    >>> plan
    Plan('demo', policy='mip', status='optimal', value=7.14, gap=0.0000, jobs=12)
    >>> plan.jobs["action"][:3]
    ['pause', 'pause', 'move']
    """

    snapshot: str
    digest: str
    now_s: float
    interval_s: float
    policy: str
    objective: str
    solver: str | None
    solver_version: str | None
    solver_choice: str | None
    seed: int
    status: str
    termination: str
    fallback: str | None
    objective_value: float
    bound: float
    gap: float
    bound_by: str
    seconds: Mapping[str, float]
    jobs: Mapping[str, Sequence[Any]]
    pools: tuple[PoolPlan, ...]
    tenants: tuple[TenantPlan, ...]
    budget: BudgetPlan
    warnings: tuple[str, ...]
    placement: NodePlan | None = None

    def __repr__(self) -> str:
        """Summarise the plan on one line."""
        return (
            f"Plan({self.snapshot!r}, policy={self.policy!r}, status={self.status!r},"
            f" value={self.objective_value:.6g}, gap={self.gap:.4f},"
            f" jobs={len(self.jobs['job_id'])})"
        )

    def _repr_html_(self) -> str:
        """Show the line of `repr`, and the jobs as a table, in a notebook."""
        import pandas as pd

        columns = ("job_id", "tenant", "pool", "gpus", "previous_gpus", "action", "reason")
        shown = pd.DataFrame({name: list(self.jobs[name]) for name in columns})
        return f"<p>{escape(repr(self))}</p>{shown.to_html(index=False, na_rep='', max_rows=40)}"

    def job(self, job_id: str) -> JobPlan:
        """Return what one job gets.

        Parameters
        ----------
        job_id : str
            The job.

        Returns
        -------
        JobPlan
            Its row of the plan.

        Raises
        ------
        KeyError
            If the plan has no such job.
        """
        names = list(self.jobs["job_id"])
        if job_id not in names:
            raise KeyError(job_id)
        at = names.index(job_id)
        return JobPlan(*(self.jobs[name][at] for name in JOB_FIELDS))

    def to_dict(self) -> dict[str, Any]:
        """Return the document of plan.json, in its order of fields.

        Returns
        -------
        dict
            Plain data, for JSON.

        Examples
        --------
        >>> import allocator
        >>> allocator.solve(allocator.Problem.read("data/snapshots/demo")).to_dict()["status"]
        'optimal'
        """
        body = asdict(replace(self, jobs={}))
        body["jobs"] = tuple(
            dict(zip(JOB_FIELDS, row, strict=True))
            for row in zip(*(self.jobs[f] for f in JOB_FIELDS), strict=True)
        )
        if self.placement is None:
            del body["placement"]
        lists = {name: list(part) for name, part in body.items() if isinstance(part, tuple)}
        return {"schema_version": SCHEMA_VERSION, **body, **lists}

    def to_frame(self) -> pd.DataFrame:
        """Return the jobs as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row per job, columns JOB_FIELDS.

        Examples
        --------
        >>> import allocator
        >>> frame = allocator.solve(allocator.Problem.read("data/snapshots/demo")).to_frame()
        >>> frame.loc[frame.action == "start", ["job_id", "pool", "gpus"]].head(2)
            job_id  pool  gpus
        3  sweep-a  v100     2
        4  sweep-b  v100     2
        """
        import pandas as pd

        return pd.DataFrame({f: list(self.jobs[f]) for f in JOB_FIELDS})
