"""Typed records of the public API: one frozen dataclass for each row of an input table.

A field has the name, the unit and the default of the column in `allocator.domain.schema.columns`.
None is an empty cell: the default of the column, which may depend on other columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocator.domain.schema.columns import TABLES
from allocator.domain.snapshot import Snapshot, Table, values_as_cells
from allocator.errors import UsageError

USER = "ALLOCATOR_USER"  # variable of a job: who submitted it


class Record:
    """Give a record its short text."""

    def __repr__(self) -> str:
        """Write the call that makes the record, without fields that have their default."""
        parts = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING or value != field.default:
                is_named = field.kw_only or field.name in ("remaining_work", "max_gpus")
                parts.append(f"{field.name}={value!r}" if is_named else repr(value))
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, repr=False)
class Job(Record):
    """Describe one training job that is queued, running, paused or held.

    Parameters
    ----------
    job_id : str
        Unique name.
    model : str
        Model that the job trains, as in `Rate` and `SpeedModel`.
    remaining_work : float
        Work left, in the model's unit (samples, steps, epochs), above 0.
    max_gpus : int
        Largest size, in GPUs.
    submitted_s : float
        Time of submission, in seconds on the clock of `now_s`.
    total_work : float, optional
        Whole work of the job, in the model's unit. Default: `remaining_work`.
    tenant : str
        Tenant that pays for the job, and whose quota counts.
    state : str
        "queued", "running", "paused" or "held".
    pool, gpus : str and int, optional
        Pool and number of GPUs that the job holds now; set exactly when it is running.
    min_gpus : int
        Smallest size, in GPUs.
    requested_gpus : int, optional
        Size that its user asked for, in GPUs. Default: `min_gpus`.
    sizes : sequence of int, optional
        Allowed sizes, in GPUs. Default: powers of two up to one node, then whole nodes.
    gpu_types : sequence of str, optional
        Allowed GPU types. Default: any.
    weight : float
        Factor of its value in the objective, above 0.
    deadline_s : float, optional
        Time by which it should be done, in seconds on the clock of `now_s`.
    preemptible : bool
        False: while it runs it may not be paused, moved or resized.
    restart_s : float, optional
        Pause in seconds when its allocation changes while it runs. Default: that of the problem.
    resizes_left : int, optional
        Changes that it can still stand; 0: only keep or pause. Default: no limit.
    memory_gb : float, optional
        Memory that it needs on each GPU, in GB, for colocation.
    checkpoint_s, checkpoint_every_s : float, optional
        Cost of a checkpoint and time between two, in seconds.
    after : sequence of str, optional
        Names of jobs that must be done before it starts.
    max_spot_gpus : int, optional
        Most GPUs that it may hold in spot pools. Default: no limit.
    interactive : bool
        True: a session that a person waits for.
    shrinkable : bool
        True: it gives back GPUs above `min_gpus` at short notice.
    best_effort : bool
        True: it has no guarantee, and may share GPUs with jobs that have.
    every_s, times : float and int, optional
        A periodic job comes again every so many seconds, so many times (queues and workloads).
    synchronous : bool
        False: a lost GPU stops only its share of the work.
    modes : sequence of str, optional
        Ways to keep its workers in step, of which each option has the best: "bulk", "backup:K",
        "replicated:R", "asynchronous:E". Default: as `synchronous` says.
    attained_gpu_s : float
        GPU-seconds that it has held so far.
    restarts : int
        Starts after the first and changes of its allocation so far.
    largest_gpus : int, optional
        Most GPUs that it has held so far. Default: what it holds now.
    shared_with : str, optional
        Running job on whose GPUs it runs as the secondary job.
    cpus_per_gpu, host_memory_gb_per_gpu : float
        CPUs, and memory in GB, of the node that each of its GPUs needs.
    gpu_fraction : float, optional
        Share of one GPU that it needs, in (0, 1). Default: whole GPUs.
    gpus_per_pod : int
        GPUs of each of its pods, which lie whole on nodes.
    placement : str
        "packed", "spread", "same_LEVEL" or "prefer_LEVEL", where LEVEL is "rack" or another level
        of the topology.
    time_limit_s : float, optional
        Longest time that its user allows it to run, for the policies `easy` and `conservative`.
    target_loss : float, optional
        The job is done when its training loss is as low; `total_work` is the most that it does.
    loss_work, loss_error : float, optional
        Whole work until then, as the losses so far say (median), and the standard deviation of
        ln(true / expected work left).

    Examples
    --------
    >>> Job("bert-1", "bert", remaining_work=90_000, max_gpus=8)
    Job('bert-1', 'bert', remaining_work=90000, max_gpus=8)
    """

    job_id: str
    model: str
    remaining_work: float
    max_gpus: int
    submitted_s: float = 0.0
    _: dataclasses.KW_ONLY
    total_work: float | None = None
    tenant: str = "default"
    state: str = "queued"
    pool: str | None = None
    gpus: int | None = None
    min_gpus: int = 1
    requested_gpus: int | None = None
    sizes: Sequence[int] | None = None
    gpu_types: Sequence[str] | None = None
    weight: float = 1.0
    deadline_s: float | None = None
    preemptible: bool = True
    restart_s: float | None = None
    resizes_left: int | None = None
    memory_gb: float | None = None
    checkpoint_s: float = 0.0
    checkpoint_every_s: float | None = None
    after: Sequence[str] | None = None
    max_spot_gpus: int | None = None
    interactive: bool = False
    shrinkable: bool = False
    best_effort: bool = False
    every_s: float | None = None
    times: int | None = None
    synchronous: bool = True
    modes: Sequence[str] | None = None
    attained_gpu_s: float = 0.0
    restarts: int = 0
    largest_gpus: int | None = None
    shared_with: str | None = None
    cpus_per_gpu: float = 0.0
    host_memory_gb_per_gpu: float = 0.0
    gpu_fraction: float | None = None
    gpus_per_pod: int = 1
    placement: str = "packed"
    time_limit_s: float | None = None
    target_loss: float | None = None
    loss_work: float | None = None
    loss_error: float | None = None


@dataclass(frozen=True, repr=False)
class Pool(Record):
    """Describe identical GPUs that are bought and placed alike.

    Parameters
    ----------
    pool : str
        Unique name.
    gpu_type : str
        GPU type, as in `Rate`.
    gpus : int
        GPUs that are usable now.
    gpus_per_node : int
        GPUs of one node.
    market : str
        How it is bought: "reserved", "on_demand" or "spot".
    price_per_gpu_hour : float
        US dollars for one GPU and hour.
    region : str, optional
        Where it stands.
    startup_s : float
        Seconds added to the pause of a job that starts or moves there.
    revocations_per_gpu_hour : float
        Expected revocations of one GPU in an hour.
    memory_gb : float, optional
        Memory of one GPU, in GB.
    lifetime_s : float, optional
        Seconds after which spot GPUs are taken back at the latest. Default: no limit.
    availability : float, optional
        Share of time in which a job can have spot GPUs of the pool. Default: 0.4, other pools 1.
    min_billing_s : float
        Seconds for which GPUs are billed at least.
    sharing : str
        Which two jobs may run on the same GPUs: "none", those of one "tenant", "any", or
        "best_effort" ones next to any job.
    isolation : float, optional
        Most times that a best-effort job makes a guaranteed job on its GPUs slower, from 1.
    straggler_cv : float
        Standard deviation of the step times of single workers, divided by their mean, in [0, 1].
    link_gb_s : float, optional
        GB/s at which a worker exchanges what `Rate` says. Default: the exchange takes no time.
    price_per_gb_hour : float
        US dollars for an hour of a GB of GPU memory that a job needs, besides its GPUs.
    hazard_by_age : str, optional
        Revocations per GPU-hour by age of spot GPUs, such as "0:0.08|1:0.02" (hours and hazards),
        in place of `revocations_per_gpu_hour`.

    Examples
    --------
    >>> Pool("a100", "A100", 16, price_per_gpu_hour=2.0)
    Pool('a100', 'A100', 16, price_per_gpu_hour=2.0)
    """

    pool: str
    gpu_type: str
    gpus: int
    _: dataclasses.KW_ONLY
    gpus_per_node: int = 8
    market: str = "reserved"
    price_per_gpu_hour: float = 0.0
    region: str | None = None
    startup_s: float = 0.0
    revocations_per_gpu_hour: float = 0.0
    memory_gb: float | None = None
    lifetime_s: float | None = None
    availability: float | None = None
    min_billing_s: float = 0.0
    sharing: str = "none"
    isolation: float | None = None
    straggler_cv: float = 0.0
    link_gb_s: float | None = None
    price_per_gb_hour: float = 0.0
    hazard_by_age: str | None = None


@dataclass(frozen=True, repr=False)
class Rate(Record):
    """State a measured speed of a model.

    Parameters
    ----------
    model : str
        Model, as in `Job`.
    gpu_type : str
        GPU type, as in `Pool`.
    gpus : int
        Size at which it was measured, in GPUs.
    work_per_s : float
        Speed in the model's unit of work per second.
    batch_size : int, optional
        Global batch.
    accumulation : int, optional
        Gradient accumulation steps.
    memory_gb : float, optional
        Memory needed on each GPU, in GB.
    spread : int, optional
        Number of nodes.
    variant : str, optional
        Free label, such as "compressed" or "async".
    efficiency : float
        Useful share of the work, above 0 and at most 1.
    compute_s : float, optional
        Seconds that a step computes; `work_per_s` is then the speed without codec and exchange.
    codec_s : float
        Seconds of a step to compress and decompress.
    volume_gb : float
        What a worker exchanges in a step before compression, in GB.
    ratio : float
        Volume before compression divided by that after it.
    observed : bool
        True: a controller saw it while jobs ran.

    Examples
    --------
    >>> Rate("bert", "A100", 8, 21.5)
    Rate('bert', 'A100', 8, 21.5)
    """

    model: str
    gpu_type: str
    gpus: int
    work_per_s: float
    _: dataclasses.KW_ONLY
    batch_size: int | None = None
    accumulation: int | None = None
    memory_gb: float | None = None
    spread: int | None = None
    variant: str | None = None
    efficiency: float = 1.0
    compute_s: float | None = None
    codec_s: float = 0.0
    volume_gb: float = 0.0
    ratio: float = 1.0
    observed: bool = False


@dataclass(frozen=True, repr=False)
class SpeedModel(Record):
    """State the speed of a model by a formula; at its size a `Rate` takes precedence.

    Parameters
    ----------
    model : str
        Model, as in `Job`.
    gpu_type : str
        GPU type, as in `Pool`.
    kind : str
        Formula: "amdahl", "power", "overhead", "capped", "iteration" or "goodput".
    parameters : mapping of str to float
        Parameters of the formula, as docs/reference/formats.md lists them.

    Examples
    --------
    >>> SpeedModel("bert", "A100", "amdahl", {"rate_1": 3.0, "parallel": 0.95})
    SpeedModel('bert', 'A100', 'amdahl', {'rate_1': 3.0, 'parallel': 0.95})
    """

    model: str
    gpu_type: str
    kind: str
    parameters: Mapping[str, float]


@dataclass(frozen=True, repr=False)
class Tenant(Record):
    """Describe a team or project that shares the cluster, with quota, guarantee and budget.

    Parameters
    ----------
    tenant : str
        Unique name, as in `Job`.
    weight : float
        Share in fairness objectives, above 0.
    max_gpus : int, optional
        Most GPUs at once. Default: no limit.
    max_jobs : int, optional
        Most of its own jobs that run at once. Default: no limit.
    guaranteed_gpus : int
        GPUs that it gets whenever its jobs can hold them.
    budget_per_hour : float, optional
        US dollars per hour. Default: no limit.
    max_spot_gpus : int, optional
        Most GPUs at once in the spot pools of one region. Default: no limit.
    max_spot_share : float, optional
        The same limit as a share of `guaranteed_gpus`.
    dollar_price : float
        Value of one dollar that its jobs spend, in units of the objective, added to that of the
        problem.
    average_per_hour : float, optional
        US dollars per hour that its jobs may cost on average.
    amount, until_s : float, optional
        US dollars that its jobs may cost until a date, in seconds on the clock of `now_s`.
    gpu_hours_per_month, gpu_hours_used : float, optional
        Most GPU-hours that its jobs may hold in a calendar month, and those of the present month.
    parent : str, optional
        Tenant above it, whose quota, guarantee, hourly budget and GPU-hours count its jobs, too.

    Examples
    --------
    >>> Tenant("research", max_gpus=16, guaranteed_gpus=8)
    Tenant('research', max_gpus=16, guaranteed_gpus=8)
    """

    tenant: str
    _: dataclasses.KW_ONLY
    weight: float = 1.0
    max_gpus: int | None = None
    max_jobs: int | None = None
    guaranteed_gpus: int = 0
    budget_per_hour: float | None = None
    max_spot_gpus: int | None = None
    max_spot_share: float | None = None
    dollar_price: float = 0.0
    average_per_hour: float | None = None
    amount: float | None = None
    until_s: float | None = None
    gpu_hours_per_month: float | None = None
    gpu_hours_used: float = 0.0
    parent: str | None = None


@dataclass(frozen=True, repr=False)
class Quota(Record):
    """State a limit or a guarantee of a tenant by GPU type or pool, and what of it is lent.

    It counts the jobs of the tenant and of all tenants below it.

    Parameters
    ----------
    tenant : str
        Tenant, as in `Tenant`.
    gpu_type, pool : str, optional
        GPUs that it counts, by one of the two. Default: all GPUs.
    guaranteed_gpus : int
        GPUs that it gets whenever its jobs can hold them.
    max_gpus : int, optional
        Most GPUs at once. Default: no limit.
    lend_gpus : int, optional
        GPUs of the guarantee that others may hold while its own jobs can not. Default: all.

    Examples
    --------
    >>> Quota("research", gpu_type="A100", guaranteed_gpus=8, max_gpus=16, lend_gpus=4)
    Quota('research', gpu_type='A100', guaranteed_gpus=8, max_gpus=16, lend_gpus=4)
    """

    tenant: str
    _: dataclasses.KW_ONLY
    gpu_type: str | None = None
    pool: str | None = None
    guaranteed_gpus: int = 0
    max_gpus: int | None = None
    lend_gpus: int | None = None


@dataclass(frozen=True, repr=False)
class PoolChange(Record):
    """State a change of a pool over time: its price, its GPUs, or both.

    Parameters
    ----------
    at_s : float
        Time from which it holds, in seconds on the clock of `now_s`.
    pool : str
        Pool, as in `Pool`.
    price_per_gpu_hour : float, optional
        US dollars for one GPU and hour. Default: unchanged.
    gpus : int, optional
        Usable GPUs. Default: unchanged.

    Examples
    --------
    >>> PoolChange(3600, "spot", price_per_gpu_hour=0.7)
    PoolChange(3600, 'spot', price_per_gpu_hour=0.7)
    """

    at_s: float
    pool: str
    _: dataclasses.KW_ONLY
    price_per_gpu_hour: float | None = None
    gpus: int | None = None


@dataclass(frozen=True, repr=False)
class Node(Record):
    """Describe one machine of a pool.

    Parameters
    ----------
    node : str
        Unique name.
    pool : str
        Pool, as in `Pool`.
    gpus : int
        GPUs of this machine.
    state : str
        "up", "drain" or "down"; only machines that are up count.
    rack : str, optional
        Where it stands.
    cpus, host_memory_gb : float, optional
        CPUs, and memory in GB, of this machine. Default: no limit.
    leaves_s, returns_s : float, optional
        When it leaves, and when it is back, as announced. Default: never.
    labels : mapping of str to str, optional
        Where it stands by further levels of the topology, such as {"block": "b1"}.

    Examples
    --------
    >>> Node("n1", "a100", 8)
    Node('n1', 'a100', 8)
    """

    node: str
    pool: str
    gpus: int
    _: dataclasses.KW_ONLY
    state: str = "up"
    rack: str | None = None
    cpus: float | None = None
    host_memory_gb: float | None = None
    leaves_s: float | None = None
    returns_s: float | None = None
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, repr=False)
class Placement(Record):
    """State on which machine a running job holds GPUs.

    Parameters
    ----------
    job_id : str
        Job, as in `Job`.
    node : str
        Machine, as in `Node`.
    gpus : int
        GPUs of that machine.
    gpu : int, optional
        Number of the GPU in the machine, from 0, for a job with `gpu_fraction`.

    Examples
    --------
    >>> Placement("bert-1", "n1", 4)
    Placement('bert-1', 'n1', 4)
    """

    job_id: str
    node: str
    gpus: int
    _: dataclasses.KW_ONLY
    gpu: int | None = None


@dataclass(frozen=True, repr=False)
class Received(Record):
    """State how long a job has held GPUs of a type.

    Parameters
    ----------
    job_id : str
        Job, as in `Job`.
    gpu_type : str
        GPU type, as in `Pool`.
    seconds : float
        Time so far, in seconds.

    Examples
    --------
    >>> Received("bert-1", "A100", 1800)
    Received('bert-1', 'A100', 1800)
    """

    job_id: str
    gpu_type: str
    seconds: float


@dataclass(frozen=True, repr=False)
class Colocation(Record):
    """State how much two jobs on the same GPUs slow each other down.

    Parameters
    ----------
    model_a, model_b : str
        Models of the two jobs.
    gpu_type : str
        GPU type, as in `Pool`.
    gpus : int
        GPUs that they share.
    slowdown_a, slowdown_b : float
        Time for the same work, divided by the time alone; at least 1.

    Examples
    --------
    >>> Colocation("bert", "gnmt", "A100", 2, 1.2, 1.6)
    Colocation('bert', 'gnmt', 'A100', 2, 1.2, 1.6)
    """

    model_a: str
    model_b: str
    gpu_type: str
    gpus: int
    slowdown_a: float
    slowdown_b: float


@dataclass(frozen=True, repr=False)
class Pause(Record):
    """State what a running job loses when its size changes, in place of `restart_s`.

    Parameters
    ----------
    model : str
        Model, as in `Job`.
    from_gpus, to_gpus : int
        GPUs that it held, and GPUs that it gets.
    pause_s : float
        Seconds until it works again.
    gpu_type : str, optional
        Type of the GPUs that it gets. Default: any.

    Examples
    --------
    >>> Pause("bert", 4, 8, 45.0)
    Pause('bert', 4, 8, 45.0)
    """

    model: str
    from_gpus: int
    to_gpus: int
    pause_s: float
    gpu_type: str | None = None


@dataclass(frozen=True, repr=False)
class FinishedJob(Record):
    """State the size of a job that is done, from which the sizes of others are learned.

    It counts where the setting `sizes` is "unknown".

    Parameters
    ----------
    model : str
        Model, as in `Job`.
    total_work : float
        Work of the whole job, in the model's unit, above 0.

    Examples
    --------
    >>> FinishedJob("bert", 90_000)
    FinishedJob('bert', 90000)
    """

    model: str
    total_work: float


@dataclass(frozen=True, repr=False)
class InteractiveReserve(Record):
    """State how many GPUs of a pool are kept free for interactive jobs.

    Parameters
    ----------
    pool : str
        Pool, as in `Pool`.
    headroom_gpus : int, optional
        GPUs that other jobs leave free. Default: by the expected sessions.
    sessions_per_hour : float, optional
        Sessions that begin in an hour, at random times.
    session_s : float, optional
        Mean length of a session, in seconds.
    session_gpus : int
        GPUs of a session.
    late_share : float
        Share of the sessions that may wait for longer than the next round.
    shrinkable_share : float
        Share of the kept GPUs that shrinkable jobs may hold.

    Examples
    --------
    >>> InteractiveReserve("v100", headroom_gpus=4)
    InteractiveReserve('v100', headroom_gpus=4)
    """

    pool: str
    _: dataclasses.KW_ONLY
    headroom_gpus: int | None = None
    sessions_per_hour: float | None = None
    session_s: float | None = None
    session_gpus: int = 1
    late_share: float = 0.05
    shrinkable_share: float = 0.0


@dataclass(frozen=True, repr=False)
class Reservation(Record):
    """Keep GPUs of a pool from a time on, for a job, for a tenant, or for nobody.

    Parameters
    ----------
    reservation : str
        Unique name.
    pool : str
        Pool, as in `Pool`.
    gpus : int
        GPUs that all others leave.
    at_s : float
        When it begins, in seconds.
    until_s : float, optional
        When it ends, in seconds. Default: never.
    job_id : str, optional
        The job that it is for.
    tenant : str, optional
        The tenant that it is for, with those below it.

    Examples
    --------
    >>> Reservation("weekend", "a100", 8, 7200.0, tenant="vision")
    Reservation('weekend', 'a100', 8, 7200.0, tenant='vision')
    """

    reservation: str
    pool: str
    gpus: int
    at_s: float
    _: dataclasses.KW_ONLY
    until_s: float | None = None
    job_id: str | None = None
    tenant: str | None = None


RECORDS: Mapping[str, type] = {
    "jobs": Job,
    "pools": Pool,
    "rates": Rate,
    "models": SpeedModel,
    "prices": PoolChange,
    "tenants": Tenant,
    "quotas": Quota,
    "nodes": Node,
    "placements": Placement,
    "received": Received,
    "sharing": Colocation,
    "pauses": Pause,
    "finished": FinishedJob,
    "interactive": InteractiveReserve,
    "reservations": Reservation,
}
"""Record of each table, by the name of the table."""


def values_of_record(job: Job) -> dict[str, Any]:
    """Return the fields of a job that differ from their default, by name, as a queue takes them."""
    values = {
        field.name: getattr(job, field.name)
        for field in dataclasses.fields(job)
        if field.default is dataclasses.MISSING or getattr(job, field.name) != field.default
    }
    return {"total_work": values.pop("remaining_work"), **values}


def snapshot_of_records(
    name: str, config: Mapping[str, Any], records: Mapping[str, Iterable[Any]]
) -> Snapshot:
    """Turn records into what validation takes.

    Parameters
    ----------
    name : str
        Name of the problem.
    config : mapping of str to object
        Settings, as config.toml has them.
    records : mapping of str to iterable of records
        Records by table, see `RECORDS`. Record i is reported as line i + 2 of that table's file.

    Returns
    -------
    Snapshot
        The tables, not yet validated.

    Raises
    ------
    UsageError
        If a table has a record of another type.
    """
    tables: dict[str, Table] = {}
    for key, rows in records.items():
        listed, kind, file = list(rows), RECORDS[key], f"{key}.csv"
        for row in listed:
            if not isinstance(row, kind):
                raise UsageError(f"{key} takes {kind.__name__} records, not {row!r}")
        if not listed and not TABLES[file].required:
            continue
        columns = {
            field.name: values_as_cells(
                TABLES[file].column(field.name).kind, [getattr(row, field.name) for row in listed]
            )
            for field in dataclasses.fields(kind)
            if field.name != "labels"
        }
        if kind is Node:
            labels = [row.labels or {} for row in listed]
            for level in sorted({level for row in labels for level in row}):
                columns[level] = [row.get(level, "") for row in labels]
        tables[file] = Table.of(TABLES[file], columns)
    return Snapshot(name, dict(config), tables)
