"""Written by scripts/generators/generate_record_docs.py."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

USER: str
RECORDS: Mapping[str, type[Record]]

class Record:
    def given(self) -> dict[str, Any]: ...

@dataclass(frozen=True)
class Job(Record):
    """Describe one training job that is queued, running, paused or held.

    Parameters
    ----------
    job_id : str
        Unique name.
    model : str
        Key into rates.csv and models.csv.
    remaining_work : float
        Work left, in the model's unit.
    max_gpus : int
        Largest size.
    submitted_s : float
        Time of submission, on the clock of now_s.
    total_work : float, optional
        Whole work of the job; default remaining_work.
    tenant : str
        Who pays and whose quota counts.
    state : str
        What the job does now.
    pool : str, optional
        Pool it holds GPUs of now; set exactly when running.
    gpus : int, optional
        GPUs it holds now; set exactly when running.
    min_gpus : int
        Smallest size.
    requested_gpus : int, optional
        Size its user asked for; default min_gpus.
    sizes : Sequence[int], optional
        Allowed sizes; default: powers of two up to gpus_per_node, then whole nodes.
    gpu_types : Sequence[str], optional
        Allowed GPU types; default any.
    weight : float
        Scales its value in the objective.
    deadline_s : float, optional
        Absolute time by which it should be done.
    preemptible : bool
        False: while running it may not be paused, moved or resized.
    restart_s : float, optional
        Pause when its allocation changes while running; default restart_s of config.toml.
    resizes_left : int, optional
        Changes it can still stand; 0: only keep or pause.
    memory_gb : float, optional
        Memory per GPU, for sharing.
    checkpoint_s : float
        Cost of a checkpoint.
    checkpoint_every_s : float, optional
        Interval of checkpoints.
    after : Sequence[str], optional
        Starts when these jobs are done (no longer in the snapshot).
    max_spot_gpus : int, optional
        Most GPUs it may hold in spot pools; 0: never there; default no limit.
    interactive : bool
        True: a session of somebody who waits for it; GPUs are kept for these in the pools of
        interactive.csv.
    shrinkable : bool
        True: it gives back GPUs above min_gpus at short notice and may therefore hold
        shrinkable_share of those kept for interactive jobs.
    best_effort : bool
        True: it has no guarantee: no rule of stability protects it, it may run next to guaranteed
        jobs where sharing is "best_effort", and isolation protects these from it.
    every_s : float, optional
        Periodic: it comes again every so many seconds, as a job of its own (queue and workloads).
    times : int, optional
        How many times a periodic job comes in all; default in a queue: until cancelled.
    synchronous : bool
        True: a revoked GPU stops the job, which falls back to its last checkpoint; false: only the
        share of the lost worker is lost until it is replaced.
    modes : Sequence[str], optional
        Ways to keep its workers in step, of which each option has the best: bulk, backup:K (K spare
        workers), replicated:R (R replicas of each), asynchronous:E (share E of its work counts);
        default bulk, or asynchronous where synchronous is false.
    attained_gpu_s : float
        GPU-seconds it has held so far.
    restarts : int
        Starts after the first and changes of its allocation so far.
    largest_gpus : int, optional
        Most GPUs it has held so far; default what it holds now.
    shared_with : str, optional
        Running job on whose GPUs it runs as a second one; same pool and gpus. Several jobs, "a|b",
        where max_primaries allows it: all of their GPUs, and others of the pool.
    cpus_per_gpu : float
        CPUs of the node that each of its GPUs needs.
    host_memory_gb_per_gpu : float
        Memory of the node that each of its GPUs needs.
    gpu_fraction : float, optional
        Share of one GPU, below 1, for a job of max_gpus 1; several such jobs fill one GPU of a node
        of nodes.csv; default: whole GPUs.
    gpus_per_pod : int
        GPUs of each of its pods, which lie whole on nodes: its sizes are multiples of it, every
        multiple if it lists none.
    placement : str
        Packed: on as few nodes as its size needs; spread: on as many as possible; same_rack: all
        nodes in one rack; prefer_rack: if possible; or another level of [topology].
    time_limit_s : float, optional
        Longest time that its user allows it to run; easy and conservative expect its end then.
    cluster : str, optional
        Label: the cluster it belongs to, by which lists of jobs can be filtered.
    target_loss : float, optional
        The job is done when its training loss is as low; what is left is then expected from the
        losses that it reports, and total_work is the most that it does.
    loss_work : float, optional
        Whole work of the job until target_loss, as the losses so far say: median; a controller
        fills it in.
    loss_error : float, optional
        Standard deviation of ln(true / expected work left) of loss_work.

    Examples
    --------
    >>> Job("bert-1", "bert", remaining_work=90_000, max_gpus=8)
    Job('bert-1', 'bert', remaining_work=90000, max_gpus=8)
    """

    job_id: str
    model: str
    remaining_work: float
    max_gpus: int
    submitted_s: float = ...
    _: KW_ONLY
    total_work: float | None = ...
    tenant: str = ...
    state: str = ...
    pool: str | None = ...
    gpus: int | None = ...
    min_gpus: int = ...
    requested_gpus: int | None = ...
    sizes: Sequence[int] | None = ...
    gpu_types: Sequence[str] | None = ...
    weight: float = ...
    deadline_s: float | None = ...
    preemptible: bool = ...
    restart_s: float | None = ...
    resizes_left: int | None = ...
    memory_gb: float | None = ...
    checkpoint_s: float = ...
    checkpoint_every_s: float | None = ...
    after: Sequence[str] | None = ...
    max_spot_gpus: int | None = ...
    interactive: bool = ...
    shrinkable: bool = ...
    best_effort: bool = ...
    every_s: float | None = ...
    times: int | None = ...
    synchronous: bool = ...
    modes: Sequence[str] | None = ...
    attained_gpu_s: float = ...
    restarts: int = ...
    largest_gpus: int | None = ...
    shared_with: str | None = ...
    cpus_per_gpu: float = ...
    host_memory_gb_per_gpu: float = ...
    gpu_fraction: float | None = ...
    gpus_per_pod: int = ...
    placement: str = ...
    time_limit_s: float | None = ...
    cluster: str | None = ...
    target_loss: float | None = ...
    loss_work: float | None = ...
    loss_error: float | None = ...

@dataclass(frozen=True)
class Pool(Record):
    """Describe identical GPUs that are bought and placed alike.

    Parameters
    ----------
    pool : str
        Unique name.
    gpu_type : str
        Key into rates.csv.
    gpus : int
        GPUs usable now.
    gpus_per_node : int
        GPUs of one node.
    market : str
        How it is bought.
    price_per_gpu_hour : float
        US dollars.
    price_per_gb_hour : float
        US dollars for a GB of GPU memory that a job needs, besides the price of its GPUs.
    region : str, optional
        Where it stands.
    startup_s : float
        Added to the pause of a job that starts or moves there.
    revocations_per_gpu_hour : float
        Expected revocations.
    memory_gb : float, optional
        Memory of one GPU.
    lifetime_s : float, optional
        Spot GPUs are taken back after so long at the latest; default no limit.
    availability : float, optional
        Share of time in which a job can have spot GPUs of the pool; default 0.4, other pools 1.
    min_billing_s : float
        GPUs that a job gets are billed for so long at least.
    sharing : str
        Who may run two by two on the same GPUs: nobody, jobs of one tenant, any, or a best-effort
        job as the second one.
    isolation : float, optional
        Most times that a best-effort job on its GPUs makes a guaranteed job slower; default as in
        sharing.csv.
    straggler_cv : float
        Standard deviation of the step times of single workers, divided by their mean.
    hazard_by_age : str, optional
        Revocations per GPU-hour by age of spot GPUs, "0:0.08|1:0.02": from hour 0 on 0.08, from 1
        on 0.02; in place of revocations_per_gpu_hour.
    link_gb_s : float, optional
        GB/s at which a worker exchanges volume_gb of rates.csv; default: it takes no time.

    Examples
    --------
    >>> Pool("a100", "A100", 16, price_per_gpu_hour=2.0)
    Pool('a100', 'A100', 16, price_per_gpu_hour=2.0)
    """

    pool: str
    gpu_type: str
    gpus: int
    _: KW_ONLY
    gpus_per_node: int = ...
    market: str = ...
    price_per_gpu_hour: float = ...
    price_per_gb_hour: float = ...
    region: str | None = ...
    startup_s: float = ...
    revocations_per_gpu_hour: float = ...
    memory_gb: float | None = ...
    lifetime_s: float | None = ...
    availability: float | None = ...
    min_billing_s: float = ...
    sharing: str = ...
    isolation: float | None = ...
    straggler_cv: float = ...
    hazard_by_age: str | None = ...
    link_gb_s: float | None = ...

@dataclass(frozen=True)
class Rate(Record):
    """State a measured speed of a model.

    Parameters
    ----------
    model : str
        As in jobs.csv.
    gpu_type : str
        As in pools.csv.
    gpus : int
        Size at which it was measured.
    work_per_s : float
        Speed in the model's work unit.
    batch_size : int, optional
        Global batch.
    accumulation : int, optional
        Gradient accumulation steps.
    memory_gb : float, optional
        Memory per GPU; the row counts where a GPU of the pool has as much.
    spread : int, optional
        Number of nodes; where pools have nodes and the size needs fewer, the row is an option of
        its own for jobs that are not packed.
    variant : str, optional
        Free label: compressed, async ....
    efficiency : float
        Useful share of the work.
    compute_s : float, optional
        Seconds that a step computes; work_per_s is then the speed without codec and exchange.
    codec_s : float
        Seconds of a step to compress and decompress.
    volume_gb : float
        What a worker exchanges in a step before compression, over link_gb_s of the pool.
    ratio : float
        Volume before compression divided by that after it.
    observed : bool
        True: a controller saw it while jobs ran; a model that has no other row still runs at an
        assumed speed where it has none.

    Examples
    --------
    >>> Rate("bert", "A100", 8, 21.5)
    Rate('bert', 'A100', 8, 21.5)
    """

    model: str
    gpu_type: str
    gpus: int
    work_per_s: float
    _: KW_ONLY
    batch_size: int | None = ...
    accumulation: int | None = ...
    memory_gb: float | None = ...
    spread: int | None = ...
    variant: str | None = ...
    efficiency: float = ...
    compute_s: float | None = ...
    codec_s: float = ...
    volume_gb: float = ...
    ratio: float = ...
    observed: bool = ...

@dataclass(frozen=True)
class SpeedModel(Record):
    """State the speed of a model by a formula; at its size a `Rate` takes precedence.

    Parameters
    ----------
    model : str
        As in jobs.csv.
    gpu_type : str
        As in pools.csv.
    kind : str
        Form of the speed curve.
    parameters : Mapping[str, float]
        Parameters of that form, a JSON object.

    Examples
    --------
    >>> SpeedModel("bert", "A100", "amdahl", {"rate_1": 3.0, "parallel": 0.95})
    SpeedModel('bert', 'A100', 'amdahl', {'rate_1': 3.0, 'parallel': 0.95})
    """

    model: str
    gpu_type: str
    kind: str
    parameters: Mapping[str, float]
    _: KW_ONLY

@dataclass(frozen=True)
class Tenant(Record):
    """Describe a team or project that shares the cluster, with quota, guarantee and budget.

    Parameters
    ----------
    tenant : str
        Unique name.
    weight : float
        Share in fairness objectives.
    max_gpus : int, optional
        Most GPUs at once.
    max_jobs : int, optional
        Most of its own jobs that run at once.
    guaranteed_gpus : int
        GPUs it gets whenever its jobs can hold them.
    budget_per_hour : float, optional
        US dollars.
    max_spot_gpus : int, optional
        Most GPUs at once in the spot pools of any one region.
    max_spot_share : float, optional
        The same limit as a share of guaranteed_gpus.
    dollar_price : float
        Added to dollar_price of config.toml for its jobs.
    average_per_hour : float, optional
        US dollars that its jobs may cost on average, in windows of window_s of [longrun].
    amount : float, optional
        US dollars that its jobs may cost until until_s; instead of average_per_hour.
    until_s : float, optional
        Date of amount.
    gpu_hours_per_month : float, optional
        Most GPU-hours that its jobs may hold in a calendar month (UTC); what is left limits each
        round.
    gpu_hours_used : float
        GPU-hours of the present month so far, those of the tenants below it included; a queue and a
        simulation count them themselves.
    parent : str, optional
        Tenant above it: what its jobs hold and cost counts for max_gpus, guaranteed_gpus,
        budget_per_hour and gpu_hours_per_month of that one, too.

    Examples
    --------
    >>> Tenant("research", max_gpus=16, guaranteed_gpus=8)
    Tenant('research', max_gpus=16, guaranteed_gpus=8)
    """

    tenant: str
    _: KW_ONLY
    weight: float = ...
    max_gpus: int | None = ...
    max_jobs: int | None = ...
    guaranteed_gpus: int = ...
    budget_per_hour: float | None = ...
    max_spot_gpus: int | None = ...
    max_spot_share: float | None = ...
    dollar_price: float = ...
    average_per_hour: float | None = ...
    amount: float | None = ...
    until_s: float | None = ...
    gpu_hours_per_month: float | None = ...
    gpu_hours_used: float = ...
    parent: str | None = ...

@dataclass(frozen=True)
class Quota(Record):
    """State a limit or a guarantee of a tenant by GPU type or pool, and what of it is lent.

    It counts the jobs of the tenant and of all tenants below it.

    Parameters
    ----------
    tenant : str
        As in tenants.csv.
    gpu_type : str, optional
        As in pools.csv; empty: all types.
    pool : str, optional
        As in pools.csv; empty: all pools. Not both of gpu_type and pool.
    guaranteed_gpus : int
        GPUs it gets whenever its jobs can hold them.
    max_gpus : int, optional
        Most GPUs at once.
    lend_gpus : int, optional
        GPUs of guaranteed_gpus that others may hold while its own jobs can not; default all.

    Examples
    --------
    >>> Quota("research", gpu_type="A100", guaranteed_gpus=8, max_gpus=16, lend_gpus=4)
    Quota('research', gpu_type='A100', guaranteed_gpus=8, max_gpus=16, lend_gpus=4)
    """

    tenant: str
    _: KW_ONLY
    gpu_type: str | None = ...
    pool: str | None = ...
    guaranteed_gpus: int = ...
    max_gpus: int | None = ...
    lend_gpus: int | None = ...

@dataclass(frozen=True)
class PoolChange(Record):
    """State a change of a pool over time: its price, its GPUs, or both.

    Parameters
    ----------
    at_s : float
        From this time on.
    pool : str
        As in pools.csv.
    price_per_gpu_hour : float, optional
        US dollars.
    gpus : int, optional
        GPUs usable.

    Examples
    --------
    >>> PoolChange(3600, "spot", price_per_gpu_hour=0.7)
    PoolChange(3600, 'spot', price_per_gpu_hour=0.7)
    """

    at_s: float
    pool: str
    _: KW_ONLY
    price_per_gpu_hour: float | None = ...
    gpus: int | None = ...

@dataclass(frozen=True)
class Node(Record):
    """Describe one machine of a pool.

    `labels` say where it stands by further levels of the topology, such as {"block": "b1"}.

    Parameters
    ----------
    node : str
        Unique name.
    pool : str
        As in pools.csv.
    gpus : int
        GPUs of this node.
    state : str
        Only `up` nodes count.
    rack : str, optional
        Where it stands; further columns are levels of [topology] in config.toml.
    cpus : float, optional
        CPUs of this node; default no limit.
    host_memory_gb : float, optional
        Memory of this node; default no limit.
    leaves_s : float, optional
        When it leaves, as it was announced; default never.
    returns_s : float, optional
        When it is back after leaves_s; default never.

    Examples
    --------
    >>> Node("n1", "a100", 8)
    Node('n1', 'a100', 8)
    """

    node: str
    pool: str
    gpus: int
    _: KW_ONLY
    state: str = ...
    rack: str | None = ...
    cpus: float | None = ...
    host_memory_gb: float | None = ...
    leaves_s: float | None = ...
    returns_s: float | None = ...
    labels: Mapping[str, str] | None = ...

@dataclass(frozen=True)
class Placement(Record):
    """State on which machine a running job holds GPUs.

    Parameters
    ----------
    job_id : str
        As in jobs.csv.
    node : str
        As in nodes.csv.
    gpus : int
        GPUs of that node.
    gpu : int, optional
        Of a job with gpu_fraction: number of the GPU in its node, from 0.

    Examples
    --------
    >>> Placement("bert-1", "n1", 4)
    Placement('bert-1', 'n1', 4)
    """

    job_id: str
    node: str
    gpus: int
    _: KW_ONLY
    gpu: int | None = ...

@dataclass(frozen=True)
class Received(Record):
    """State how long a job has held GPUs of a type.

    Parameters
    ----------
    job_id : str
        As in jobs.csv.
    gpu_type : str
        As in pools.csv or rates.csv.
    seconds : float
        Time so far.

    Examples
    --------
    >>> Received("bert-1", "A100", 1800)
    Received('bert-1', 'A100', 1800)
    """

    job_id: str
    gpu_type: str
    seconds: float
    _: KW_ONLY

@dataclass(frozen=True)
class Colocation(Record):
    """State how much two jobs on the same GPUs slow each other down.

    Parameters
    ----------
    model_a : str
        As in jobs.csv.
    model_b : str
        As in jobs.csv.
    gpu_type : str
        As in pools.csv.
    gpus : int
        Shared GPUs.
    slowdown_a : float
        Of model_a.
    slowdown_b : float
        Of model_b.

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
    _: KW_ONLY

@dataclass(frozen=True)
class Pause(Record):
    """State what a running job loses when its size changes, in place of `restart_s`.

    Parameters
    ----------
    model : str
        As in jobs.csv.
    from_gpus : int
        GPUs it held.
    to_gpus : int
        GPUs it gets.
    pause_s : float
        Seconds until it works again; startup_s of the pool is added.
    gpu_type : str, optional
        Of the GPUs it gets, as in pools.csv; empty: any that has no row of its own.

    Examples
    --------
    >>> Pause("bert", 4, 8, 45.0)
    Pause('bert', 4, 8, 45.0)
    """

    model: str
    from_gpus: int
    to_gpus: int
    pause_s: float
    gpu_type: str | None = ...
    _: KW_ONLY

@dataclass(frozen=True)
class FinishedJob(Record):
    """State the size of a job that is done, from which the sizes of others are learned.

    It counts where the setting `sizes` is "unknown".

    Parameters
    ----------
    model : str
        As in jobs.csv.
    total_work : float
        Work of the whole job, in the model's unit.

    Examples
    --------
    >>> FinishedJob("bert", 90_000)
    FinishedJob('bert', 90000)
    """

    model: str
    total_work: float
    _: KW_ONLY

@dataclass(frozen=True)
class InteractiveReserve(Record):
    """State how many GPUs of a pool are kept free for interactive jobs.

    Parameters
    ----------
    pool : str
        As in pools.csv.
    headroom_gpus : int, optional
        GPUs that jobs which are not interactive leave; or sessions_per_hour and session_s; with
        neither a queue goes by the sessions it has seen.
    sessions_per_hour : float, optional
        Sessions that begin per hour, at random times.
    session_s : float, optional
        Mean length of a session.
    session_gpus : int
        GPUs of a session.
    late_share : float
        Share of the sessions that may have to wait for longer than the next round.
    shrinkable_share : float
        Share of the kept GPUs that shrinkable jobs may hold.

    Examples
    --------
    >>> InteractiveReserve("v100", headroom_gpus=4)
    InteractiveReserve('v100', headroom_gpus=4)
    """

    pool: str
    _: KW_ONLY
    headroom_gpus: int | None = ...
    sessions_per_hour: float | None = ...
    session_s: float | None = ...
    session_gpus: int = ...
    late_share: float = ...
    shrinkable_share: float = ...

@dataclass(frozen=True)
class Reservation(Record):
    """Keep GPUs of a pool from a time on, for a job, for a tenant, or for nobody.

    Parameters
    ----------
    reservation : str
        Unique name.
    pool : str
        As in pools.csv.
    gpus : int
        GPUs of the pool that all others leave.
    at_s : float
        When it begins.
    until_s : float, optional
        When it ends; default never.
    job_id : str, optional
        The job that it is for; it ends with the job.
    tenant : str, optional
        The tenant that it is for, with those below it. With neither, nobody has the GPUs.

    Examples
    --------
    >>> Reservation("weekend", "a100", 8, 7200.0, tenant="vision")
    Reservation('weekend', 'a100', 8, 7200.0, tenant='vision')
    """

    reservation: str
    pool: str
    gpus: int
    at_s: float
    _: KW_ONLY
    until_s: float | None = ...
    job_id: str | None = ...
    tenant: str | None = ...
